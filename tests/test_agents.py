"""What an agent says of itself when it is made."""

import math

import pytest

import playhead
from playhead.errors import InvalidRequest


async def work(run: playhead.RunContext) -> None: ...


@pytest.mark.parametrize(
    ("given", "after"), [("continue", None), ("cancel", 0.0), (0, 0.0), (30, 30.0), (0.5, 0.5), (86_400, 86_400.0)]
)
def test_what_becomes_of_a_run_without_viewers_is_part_of_its_policy(given, after):
    assert playhead.agent(on_disconnect=given)(work).policy.cancel_after == after


@pytest.mark.parametrize("given", ["cancle", "", "30", -1, math.nan, math.inf])
def test_a_policy_that_is_none_is_refused(given):
    """And not taken for one to continue, or for one that no record can hold."""
    with pytest.raises(InvalidRequest, match="on_disconnect"):
        playhead.agent(on_disconnect=given)(work)
