"""The case table is well formed, and the plugin that judges it notices each kind of disagreement."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.plugins.rows import STATUSES, TABLE, Tally, add_scripts, verdict

ROOT = Path(__file__).parents[2]


def test_every_row_has_a_title_and_a_status():
    for row, entry in tomllib.loads(TABLE.read_text())["rows"].items():
        assert entry.keys() == {"title", "status"}, row
        assert entry["status"] in STATUSES, row
        assert entry["title"].strip(), row


@pytest.mark.parametrize(
    ("tally", "said"),
    [
        (Tally(passed={"C"}, marked={"C"}), ""),
        (Tally(marked={"C"}), "C: covered, and no test"),
        (Tally(marked={"C"}, left_out={"C"}), ""),
        (Tally(passed={"C", "P"}, marked={"C", "P"}), "P: pending, and a test of it passed"),
        (Tally(passed={"C"}, marked={"C", "P"}), ""),
        (Tally(passed={"C"}, marked={"C", "X"}), "X: a test names this row"),
    ],
)
def test_verdict(tally, said):
    lines = verdict({"C": "covered", "P": "pending"}, tally)
    assert len(lines) == bool(said)
    assert all(line.startswith(said) for line in lines)


SUITE = """
import pytest
from tests.plugins import rows

pytestmark = pytest.mark.row("C")

def test_passes(): pass

@pytest.mark.row("P")
def test_fails(): assert {pending_passes}

@pytest.mark.browser
@pytest.mark.row("B")
def test_with_a_browser(): pass

@pytest.mark.wide
@pytest.mark.row("W")
def test_with_more_servers(): pass

@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.row("C")
def test_may_skip(n):
    if {skips}: pytest.skip("here")
"""


@pytest.fixture
def run(tmp_path):
    """Run a small suite of its own under the real plugin and a table of four rows."""

    def inner(*args: str, pending_passes: bool = True, skips: bool = False, ci: bool = False, pending: str = "covered"):
        table = tmp_path / "cases.toml"
        statuses = {"C": "covered", "P": pending, "B": "covered", "W": "covered"}
        rows = "\n".join(f'{row} = {{ title = "t", status = "{status}" }}' for row, status in statuses.items())
        table.write_text(f"[rows]\n{rows}\n")
        (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    row\n    browser\n    wide\n")
        (tmp_path / "conftest.py").write_text(
            "from pathlib import Path\nfrom tests.plugins import rows\n"
            "rows.load.__defaults__ = (Path(__file__).parent / 'cases.toml',)\n"
            "pytest_plugins = ['tests.plugins.rows']\n"
        )
        (tmp_path / "test_suite.py").write_text(SUITE.format(pending_passes=pending_passes, skips=skips))
        env = {k: v for k, v in os.environ.items() if k != "CI" and not k.startswith("PYTEST")}
        env |= {"PYTHONPATH": str(ROOT)} | ({"CI": "true"} if ci else {})
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rows=check", *args]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return inner


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_true_table_passes_with_and_without_workers(run, workers):
    code, output = run("-n", workers, "-m", "not browser and not wide")
    assert code == 0, output
    assert "4 rows covered, 0 pending" in output


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_pending_row_with_a_passing_test_fails(run, workers):
    code, output = run("-n", workers, pending="pending")
    assert code == 1, output
    assert "P: pending, and a test of it passed; set it to covered" in output


def test_a_covered_row_without_a_run_test_fails(run):
    code, output = run("--deselect", "test_suite.py::test_with_a_browser", "-k", "not test_fails")
    assert code == 1, output
    assert "P: covered, and no test of it passed" in output


def test_a_failed_test_covers_nothing(run):
    code, output = run(pending_passes=False)
    assert code == 1, output
    assert "P: covered, and no test of it passed" in output


@pytest.mark.parametrize(("ci", "code"), [(False, 0), (True, 1)])
def test_a_skip_fails_where_nobody_reads_it(run, ci, code):
    assert run(skips=True, ci=ci)[0] == code


def test_titles_in_typescript_name_rows_and_count_only_when_they_passed_in_the_same_run(tmp_path):
    folder = tmp_path / "web" / "test"
    folder.mkdir(parents=True)
    (folder / "one.test.ts").write_text('test("it holds [row C X]", go)\nit("it does not [row P]", go)\n')
    without = Tally()
    add_scripts(without, tmp_path, None)
    assert without == Tally(marked={"C", "X", "P"}, left_out={"C", "X", "P"})
    told = [("passed", "all it holds [row C X]"), ("failed", "it does not [row P]")]
    found = {"testResults": [{"assertionResults": [{"status": status, "fullName": name} for status, name in told]}]}
    (tmp_path / "web.json").write_text(json.dumps(found))
    tally = Tally()
    add_scripts(tally, tmp_path, str(tmp_path))
    assert tally == Tally(marked={"C", "X", "P"}, passed={"C", "X"})
