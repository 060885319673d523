"""Help is quick: it imports nothing that a command would need."""

import json
import subprocess
import sys

import pytest

from tests.cli.served import ROOT, environment, playhead

COMMANDS = ("demo", "serve", "run", "runs", "show", "tail", "cancel", "approve", "reject", "db", "doctor", "version")
# Not pydantic: recent typers read options with it.
HEAVY = {
    "anyio",
    "asyncio",
    "http",
    "license_expression",
    "orjson",
    "prometheus_client",
    "psycopg",
    "rich",
    "sqlite3",
    "starlette",
    "uvicorn",
}
SCRIPT = """
import contextlib, io, json, sys
before = set(sys.modules)
from playhead.cli import main
codes = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["playhead", *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main()
        except SystemExit as end:
            codes.append([end.code or 0, out.getvalue()])
print(json.dumps([codes, sorted(set(sys.modules) - before)]))
"""


def test_help_imports_nothing_heavy():
    lines = [["--help"], *([name, "--help"] for name in COMMANDS)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(lines)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    told, modules = json.loads(done.stdout)
    assert [code for code, _ in told] == [0] * len(lines)
    assert all("Usage: playhead" in text for _, text in told)
    assert all(name in told[0][1] for name in COMMANDS)
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()
    rooms = {name.split(".")[1] for name in modules if name.startswith("playhead.")}
    assert rooms <= {"cli", "errors", "version"}


@pytest.mark.parametrize("arguments", [("nothing",), ("tail",), ("runs", "--limit", "0"), ("serve", "--port", "x")])
def test_wrong_usage_is_told_and_exits_2(cli, arguments):
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err


def test_version_tells_what_it_stands_on(cli):
    code, out, _ = cli("version")
    assert code == 0
    assert out.startswith("playhead ")
    code, out, _ = cli("version", "--json")
    assert {"playhead", "python", "sqlite", "starlette"} <= json.loads(out).keys()


def test_whoever_reads_may_leave():
    done = subprocess.run(
        f"{sys.executable} -m playhead version | true; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 141)
    assert done.stderr == ""


def test_a_module_runs_too():
    code, out, _ = playhead("version")
    assert (code, out.split()[0]) == (0, "playhead")
