"""Whether the tests of core would notice if it were wrong: they are run against mutants of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutation.runner import copy_tree, passes, run, sample
from tests.plugins import histories

COUNT = int(os.environ.get("PLAYHEAD_MUTANTS", "300"))
# Of 256 mutants drawn by chance 239 were killed, 93 %; a sample of 300 strays by 1.5 % to either side. Of those that
# lived most make no difference: a default that everybody passes, a bound of words in an error, a short cut.
FLOOR = 0.89


@pytest.mark.deep
def test_the_tests_of_core_notice_what_is_wrong_with_it(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    copy_tree(tmp_path / "right")
    assert passes("", tmp_path / "right"), "they fail without a mutant too"
    tried = run(sample(COUNT, histories.seed()), tmp_path, os.cpu_count() or 1)
    survivors = sorted(str(one) for one in tried if not one.killed)
    record_property("told", {"mutants": len(tried), "killed": len(tried) - len(survivors), "survivors": survivors})
    assert len(survivors) <= (1 - FLOOR) * len(tried), "\n".join(survivors)
