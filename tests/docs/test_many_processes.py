"""The commands and the code of docs/how-to/many-processes.md, followed word for word on true servers."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from playhead.testing.harness.process import free_port
from tests.cli.served import PATIENCE, until
from tests.support import redis_servers

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "many-processes.md"
COMMAND = re.compile(r"^    (\S.*)$", re.MULTILINE)
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`(playhead db \w+(?: --\w+)?)`")

AGENTS = """
import playhead

@playhead.agent
async def greet(run: playhead.RunContext) -> dict:
    await run.event("greeted", {}, progress=50)
    await run.ask({"title": "Go on?"})
    return {"done": True}

app = playhead.App(agents=[greet, playhead.external_agent("loader")])
"""
JOB = """
import asyncio, sys
import playhead

async def job(run_id):
{code}

asyncio.run(job(sys.argv[1]))
"""


class Machine:
    """A shell's folder and environment, and what was started there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "agents.py").write_text(AGENTS)
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("PLAYHEAD_")}
        self._env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{self._env['PATH']}", "PYTHONUNBUFFERED": "1"}
        self._env |= {"PLAYHEAD_DATA": str(folder / "data"), "PLAYHEAD_LIVE_PREFIX": redis_servers.prefix()}
        self._started: list[subprocess.Popen[str]] = []

    def export(self, line: str) -> None:
        name, value = line.removeprefix("export ").split("=", 1)
        self._env[name] = value

    def run(self, *line: str) -> str:
        done = subprocess.run(
            line, cwd=self._folder, env=self._env, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, line: str) -> str:
        """Return what it says first."""
        process = subprocess.Popen(
            shlex.split(line),
            cwd=self._folder,
            env=self._env,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        assert process.stdout is not None
        return process.stdout.readline()

    def end(self) -> list[int]:
        """As systemd does; the codes with which they went."""
        for process in self._started:
            process.send_signal(signal.SIGTERM)
        return [process.wait(PATIENCE) for process in self._started]

    def kill(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.kill()


def call(port: int, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_the_page_can_be_followed_word_for_word(machine: Machine, empty_dsn: str) -> None:
    page = PAGE.read_text()
    record, live, first, second = empty_dsn, redis_servers.url("redis"), free_port(), free_port()
    # The places of this machine, and nothing else, stand for those of the page.
    for theirs, ours in {
        "postgresql://playhead:secret@127.0.0.1:5432/playhead": record,
        "redis://127.0.0.1:6379/0": live,
        "8701": str(first),
        "8702": str(second),
    }.items():
        assert theirs in page
        page = page.replace(theirs, ours)
    install, *commands = COMMAND.findall(CODE.sub("", page))
    assert install == "pip install 'playhead[fast,postgres,redis]'"
    exports, rest = commands[:2], commands[2:]
    upgrade, one, two, worker, doctor = rest
    for line in exports:
        machine.export(line)
    for line in [upgrade, *NAMED.findall(page)]:
        machine.run(*shlex.split(line))
    for line in (one, two):
        assert " serves greet, loader " in machine.start(line)
    assert "32 at once" in machine.start(worker)
    # Started at the first, answered at the second, shown by both.
    run_id = call(first, "/runs", {"agent": "greet", "input": {}})["id"]
    until(lambda: call(second, f"/runs/{run_id}")["status"] == "waiting")
    [question] = call(second, f"/runs/{run_id}/bootstrap")["interrupts"]
    call(second, f"/runs/{run_id}/interrupts/{question['id']}/decision", {"approved": True})
    until(lambda: call(first, f"/runs/{run_id}")["status"] == "succeeded")
    # A job of somebody's own.
    [code] = CODE.findall(page)
    job = call(second, "/runs", {"agent": "loader", "input": {}})["id"]
    machine.run(sys.executable, "-c", JOB.format(code="\n".join(f"    {line}" for line in code.splitlines())), job)
    assert call(first, f"/runs/{job}")["result"] == {"rows": 10_000}
    assert "redis" in machine.run(*shlex.split(doctor)).lower()
    assert machine.end() == [0, 0, 0]
