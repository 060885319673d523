"""What the follower takes for new: events by their ids, in bounded memory; everything else always."""

from pathlib import Path

import pytest

from playhead.cli.folder import Place
from playhead.cli.follow import REMEMBERED, Follower, Frame


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    return Follower(Place(tmp_path, "http://127.0.0.1:1", keepalive=15.0), "r")


def event(number: int, cursor: str | None = None) -> Frame:
    return Frame("message", cursor or f"1-{number}.000000000000", {"id": f"r:1:{number}", "type": "counted"})


@pytest.mark.row("A29")
def test_a_frame_without_an_id_is_never_a_duplicate(follower: Follower) -> None:
    state = Frame("state", None, {"snapshot": {"version": 3}, "degraded": None})
    text = Frame("text", None, {"part": "answer", "attempt": 1, "offset": 0, "end": 2, "text": "so", "final": False})
    told = [one for frame in (event(1), state, state, text, text, event(1), state) for one in follower._taken(frame)]
    assert [frame.name for frame in told] == ["event", "state", "state", "text", "text", "state"]
    assert follower.cursor == "1-1.000000000000"
    # The end that a record tells has no cursor; it is known by the id in its data, and moves nothing.
    last = Frame("message", None, {"id": "run:r:9", "type": "run_succeeded"})
    assert [frame.name for frame in follower._taken(last)] == ["event"]
    assert list(follower._taken(last)) == []
    assert follower.cursor == "1-1.000000000000"


@pytest.mark.row("A30")
def test_what_was_seen_is_remembered_in_bounded_memory(follower: Follower) -> None:
    many = 3 * REMEMBERED
    for number in range(1, many + 1):
        assert len(list(follower._taken(event(number)))) == 1
        if number % 1_000 == 0:
            assert len(follower._seen) <= REMEMBERED
            assert list(follower._taken(event(number))) == []
    # A screen of two hundred, as after a resync, is known whole.
    assert [one for number in range(many - 199, many + 1) for one in follower._taken(event(number))] == []
