"""The results of the long tiers that the repository keeps are those of this history, and good."""

from pathlib import Path

import pytest

from tests.plugins.deep import RESULTS, faults, git, results


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
