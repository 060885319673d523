"""Whether the tests of core would notice if it were wrong: they are run against mutants of it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutation.runner import copy_tree, passes, run, sample
from tests.plugins import histories

COUNT = int(os.environ.get("PLAYHEAD_MUTANTS", "300"))
# What is aimed at. Of 300 mutants drawn by chance 269 were killed (0.897), which is within the chance of such a sample
# and no more. Most of the rest make no difference: a default that everybody passes, a bound that is off by one.
KILLED = 0.93


@pytest.mark.deep
def test_the_tests_of_core_notice_what_is_wrong_with_it(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    copy_tree(tmp_path / "right")
    assert passes("", tmp_path / "right"), "they fail without a mutant too"
    tried = run(sample(COUNT, histories.seed()), tmp_path, os.cpu_count() or 1)
    survivors = sorted(str(one) for one in tried if not one.killed)
    record_property("told", {"mutants": len(tried), "killed": len(tried) - len(survivors), "survivors": survivors})
    # Below this is more than chance does to a sample of this size: 0.886 of 300.
    floor = KILLED * len(tried) - 3 * math.sqrt(KILLED * (1 - KILLED) * len(tried))
    assert len(tried) - len(survivors) >= floor, "\n".join(survivors)
