"""The results of the long tiers that the repository keeps are those of this history, and good."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.plugins import deep
from tests.plugins.deep import RESULTS, DeepPlugin, faults, git, pytest_ignore_collect, results


@pytest.mark.skipif(git("rev-parse", "HEAD")[0] != 0, reason="no history here")
def test_every_kept_result_is_good_and_of_this_history() -> None:
    assert faults(results()) == []


@pytest.mark.skipif(git("rev-parse", "HEAD")[0] != 0, reason="no history here")
def test_a_bad_result_is_told() -> None:
    head = git("rev-parse", "HEAD")[1]
    good = {"commit": head, "passed": 1, "failed": 0}
    assert faults({"a": good}) == []
    assert faults({"a": good | {"failed": 1}}) == ["a: 1 passed, 1 failed"]
    assert faults({"a": good | {"passed": 0}}) == ["a: 0 passed, 0 failed"]
    assert faults({"a": good | {"commit": "0" * 40}}) == [f"a: {'0' * 40} is no ancestor of this commit"]
    assert Path(__file__).parents[1] / "deep" == RESULTS


@pytest.mark.parametrize("tier", ["blocking", None])
def test_what_lies_beside_the_results_is_collected_by_the_long_tiers_alone(tier: str | None) -> None:
    config: Any = SimpleNamespace(getoption={"--deep-result": tier}.get)
    tests = sorted(RESULTS.glob("test_*.py"))
    assert {path.name for path in tests} == {"test_blocking.py", "test_cluster.py", "test_mutation.py"}
    assert {pytest_ignore_collect(path, config) for path in tests} == {None if tier else True}
    assert pytest_ignore_collect(Path(__file__), config) is None


def test_a_result_keeps_what_its_tests_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep, "RESULTS", tmp_path)
    monkeypatch.setattr(deep, "git", lambda *command: (0, "x"))
    monkeypatch.setenv("PLAYHEAD_SEED", "7")
    plugin = DeepPlugin("some")
    for when, failed, told in (("setup", False, 1), ("call", False, 2), ("teardown", False, 2), ("call", True, 3)):
        report: Any = SimpleNamespace(when=when, failed=failed, user_properties=[("told", told), ("rows", [])])
        plugin.pytest_runtest_logreport(report)
    plugin.pytest_sessionfinish()
    kept = json.loads((tmp_path / "some.json").read_text())
    assert (kept["passed"], kept["failed"], kept["told"], kept["seed"]) == (1, 1, [2, 3], 7)
