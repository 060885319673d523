"""Compare the tests that ran with the case table: each promise has a test, and the table tells the truth."""

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

TABLE = Path(__file__).parent.parent / "cases.toml"
LEFT_OUT = ("browser", "wide")  # markers of tests that only the tier with everything runs
STATUSES = ("covered", "pending")

# The tests of TypeScript say in their titles what they prove, as `[row BR-70@browser F57]`.
SCRIPTS = ("clients/*/test/**/*.test.ts*", "web/test/**/*.test.ts*")
NAMED = re.compile(r"\[row ([^\]]+)\]")


@dataclass(slots=True)
class Tally:
    """What a run of the tests showed about the rows."""

    passed: set[str] = field(default_factory=set)
    marked: set[str] = field(default_factory=set)
    # Rows with a test in TypeScript, for a browser or for more servers, when this tier leaves those out: the tier with
    # them judges.
    left_out: set[str] = field(default_factory=set)
    not_passed: list[str] = field(default_factory=list)


def load(path: Path = TABLE) -> dict[str, str]:
    """Read the table as row → status."""
    return {row: entry["status"] for row, entry in tomllib.loads(path.read_text())["rows"].items()}


def verdict(table: Mapping[str, str], tally: Tally) -> list[str]:
    """Everything in which the table and the tests disagree, one line each."""
    covered = {row for row, status in table.items() if status == "covered"}
    lines = [f"{row}: a test names this row and the table does not have it" for row in tally.marked - table.keys()]
    lines += [f"{row}: covered, and no test of it passed" for row in covered - tally.passed - tally.left_out]
    lines += [
        f"{row}: pending, and a test of it passed; set it to covered"
        for row, status in table.items()
        if status == "pending" and row in tally.passed
    ]
    return sorted(lines)


def rows_of(item: pytest.Item) -> set[str]:
    return {row for mark in item.iter_markers("row") for row in mark.args}


def rows_named(text: str) -> set[str]:
    return {row for rows in NAMED.findall(text) for row in rows.split()}


def add_scripts(tally: Tally, root: Path, results: str | None) -> None:
    """Count the tests of TypeScript: `results` is the folder with what vitest told in this same run, or None."""
    marked = {row for pattern in SCRIPTS for path in root.glob(pattern) for row in rows_named(path.read_text())}
    tally.marked |= marked
    if results is None:
        tally.left_out |= marked
        return
    for path in Path(results).glob("*.json"):
        for suite in json.loads(path.read_text())["testResults"]:
            for one in suite["assertionResults"]:
                if one["status"] == "passed":
                    tally.passed |= rows_named(one["fullName"])


class RowPlugin:
    """Lives in every process; only the one that prints the summary judges."""

    def __init__(self, *, strict: bool) -> None:
        self.tally = Tally()
        self.strict = strict

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if rows := rows_of(item):
            item.user_properties.append(("rows", sorted(rows)))
            self.tally.marked |= rows

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        for item in items:
            if any(item.get_closest_marker(name) for name in LEFT_OUT):
                self.tally.left_out |= rows_of(item)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        # A worker hands over what only collection shows; reports travel by themselves.
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["rows"] = {"marked": sorted(self.tally.marked), "left_out": sorted(self.tally.left_out)}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        rows = getattr(node, "workeroutput", {}).get("rows", {})
        self.tally.marked.update(rows.get("marked", ()))
        self.tally.left_out.update(rows.get("left_out", ()))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
            for name, value in report.user_properties:
                if name == "rows" and isinstance(value, list):
                    self.tally.passed.update(map(str, value))
        elif report.skipped or hasattr(report, "wasxfail"):
            self.tally.not_passed.append(report.nodeid)


class RowJudge:
    """Turns disagreement into a failed run, on the process that has seen every report."""

    def __init__(self, rows: RowPlugin) -> None:
        self.rows = rows
        self.lines: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        add_scripts(self.rows.tally, session.config.rootpath, os.environ.get("PLAYHEAD_SCRIPTS"))
        self.lines = verdict(load(), self.rows.tally)
        if self.rows.strict:
            self.lines += [f"{name}: skipped or xfailed; here that is a failure" for name in self.rows.tally.not_passed]
        if self.lines and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        statuses = list(load().values())
        terminalreporter.section("case table")
        for line in self.lines:
            terminalreporter.write_line(line, red=True)
        terminalreporter.write_line(f"{statuses.count('covered')} rows covered, {statuses.count('pending')} pending")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rows",
        choices=("ignore", "check"),
        default="ignore",
        help="check: compare the whole run with tests/cases.toml and fail where they disagree",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Where nobody reads a list of skips, a skip would be a silent hole.
    plugin = RowPlugin(strict=os.environ.get("CI", "").lower() in {"1", "true"})
    config.pluginmanager.register(plugin, "rows-tally")
    if config.getoption("--rows") == "check" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(RowJudge(plugin), "rows-judge")
