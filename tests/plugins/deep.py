"""The long tiers keep their result in the repository: what was run, when, on which commit, and how it ended."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.plugins import histories

RESULTS = Path(__file__).parent.parent / "deep"
SIZES = ("PLAYHEAD_KILLS", "PLAYHEAD_HISTORIES", "PLAYHEAD_MUTANTS")


def git(*command: str, folder: Path = RESULTS) -> tuple[int, str]:
    done = subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip()


def results(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def faults(found: dict[str, dict[str, Any]], folder: Path = RESULTS) -> list[str]:
    """What is wrong with the results: a failure, nothing passed, or a commit that is no ancestor of this one."""
    lines = []
    for name, result in found.items():
        if result["failed"] or not result["passed"]:
            lines.append(f"{name}: {result['passed']} passed, {result['failed']} failed")
        if git("merge-base", "--is-ancestor", result["commit"], "HEAD", folder=folder)[0]:
            lines.append(f"{name}: {result['commit']} is no ancestor of this commit")
    return lines


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deep-result", metavar="NAME", help="keep the result of this run as that of the deep tier NAME")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What lies beside the results is collected by the long tiers alone: whatever else is collected has to pass."""
    beside = collection_path.parent == RESULTS and collection_path.suffix == ".py"
    return True if beside and not config.getoption("--deep-result") else None


class DeepPlugin:
    def __init__(self, name: str) -> None:
        self.name, self.counts = name, Counter[str]()
        self.told: list[object] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            self.counts["failed" if report.failed else "passed"] += 1
        if report.when == "call":
            self.told += [value for name, value in report.user_properties if name == "told"]

    def pytest_sessionfinish(self) -> None:
        result = {
            "commit": git("rev-parse", "HEAD")[1],
            "clean": not git("status", "--porcelain", "--", ":/src", ":/tests")[1],
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "seed": histories.seed(),
            "sizes": {name: os.environ.get(name) for name in SIZES},
            "passed": self.counts["passed"],
            "failed": self.counts["failed"],
            **({"told": self.told} if self.told else {}),
        }
        (RESULTS / f"{self.name}.json").write_text(json.dumps(result, indent=2) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("--deep-result")
    if name and not hasattr(config, "workerinput"):
        config.pluginmanager.register(DeepPlugin(name))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, result in results().items():
        age = (datetime.now(UTC).date() - datetime.fromisoformat(result["date"]).date()).days
        ended = f"{result['passed']} passed, {result['failed']} failed"
        terminalreporter.write_line(f"deep {name}: {ended}, {age} days ago at {result['commit'][:12]}")
