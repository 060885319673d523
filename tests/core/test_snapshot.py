"""The snapshot: what an agent may set of it, and the one line that goes over the wire."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.core.run import Status
from playhead.core.snapshot import EMPTY, MAX_TEXT, STATE_FIELDS, Snapshot, State, decode_state
from playhead.errors import InvalidState

AT = 1_767_225_600_250
TEXTS = [name for name in STATE_FIELDS if name not in ("progress", "done", "total")]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"progress": -0.001}, "progress"),
        ({"progress": 100.001}, "progress"),
        ({"progress": float("nan")}, "progress"),
        ({"progress": True}, "progress"),
        ({"progress": "50"}, "progress"),
        ({"done": -1}, "done"),
        ({"done": 2**53}, "done"),
        ({"done": 1.0}, "done"),
        ({"done": True}, "done"),
        ({"total": -1}, "total"),
        ({"total": 2**53}, "total"),
        ({"done": 2, "total": 1}, "done"),
        ({"title": 7}, "title"),
        ({"detail": b"x"}, "detail"),
        ({"status": "failed"}, "status"),
        ({"version": 7}, "version"),
    ],
)
def test_what_a_field_cannot_hold_is_refused_by_its_name(changes, field):
    with pytest.raises(InvalidState) as refused:
        State().changed(changes, AT)
    assert refused.value.details == {"field": field}


@pytest.mark.parametrize("value", [0, 0.0, 33.3, 100, None])
def test_progress_is_a_share_of_a_hundred_or_unknown(value):
    assert State(progress=5).changed({"progress": value}, AT).progress == value


@pytest.mark.parametrize(("done", "total"), [(0, 0), (0, 1), (3, 3), (2**53 - 1, 2**53 - 1), (4, None), (None, 4)])
def test_counts_are_whole_and_not_more_than_all(done, total):
    made = State().changed({"done": done, "total": total}, AT)
    assert (made.done, made.total) == (done, total)


@given(st.sampled_from(TEXTS), st.text(max_size=20))
def test_a_text_is_kept_as_it_is(name, text):
    assert getattr(State().changed({name: text}, AT), name) == text


def test_a_text_is_repaired_and_cut():
    made = State().changed({"title": "\ud83d\ude42\ud800", "detail": "x" * (MAX_TEXT + 1), "scope": "y" * MAX_TEXT}, AT)
    assert (made.title, made.detail, made.scope) == ("🙂\ufffd", "x" * MAX_TEXT, "y" * MAX_TEXT)


def test_a_step_begins_when_it_is_named_and_not_when_it_is_named_again():
    named = State().changed({"current_step": "read"}, AT)
    assert named.step_started_at == "2026-01-01T00:00:00.250Z"
    assert named.changed({"current_step": "read", "progress": 1}, AT + 1).step_started_at == named.step_started_at
    assert named.changed({"progress": 2}, AT + 1).step_started_at == named.step_started_at
    assert named.changed({"current_step": "write"}, AT + 1_000).step_started_at == "2026-01-01T00:00:01.250Z"
    assert named.changed({"current_step": None}, AT + 1).step_started_at is None
    told = {"current_step": "write", "step_started_at": "2026-01-01T00:00:00.000Z"}
    assert named.changed(told, AT).step_started_at == told["step_started_at"]


def test_a_change_leaves_the_rest():
    before = State(title="t", progress=3.5, done=1, total=2, scope="s")
    after = before.changed({"detail": "d"}, AT)
    assert after == State(title="t", progress=3.5, done=1, total=2, scope="s", detail="d")
    assert before.detail is None


def test_a_stored_state_is_read_back_with_what_is_known_of_it():
    state = State(title="t", progress=3.5, done=1, total=2)
    assert decode_state(state.encode()) == state
    assert decode_state(EMPTY) == decode_state(None) == decode_state(b"") == State()
    assert decode_state(b'{"title":"t","of_a_later_version":1}') == State(title="t")
    for damaged in (b"{", b"[]", b'"title"', b"\xff"):
        assert decode_state(damaged) == State()


def test_the_wire_has_every_field_once_and_in_one_line():
    state = State(title="a\nb", progress=50)
    snapshot = Snapshot(Status.RUNNING, 2, 7, 3, AT, None, AT + 1, state.encode())
    line = snapshot.encode()
    assert b"\n" not in line
    told = json.loads(line, object_pairs_hook=lambda pairs: pairs)
    assert len({name for name, _ in told}) == len(told)
    assert dict(told) == {
        **{name: getattr(state, name) for name in STATE_FIELDS},
        "status": "running",
        "attempt": 2,
        "version": 7,
        "rev": 3,
        "started_at": "2026-01-01T00:00:00.250Z",
        "heartbeat_at": None,
        "updated_at": "2026-01-01T00:00:00.251Z",
    }
    bare = Snapshot(Status.QUEUED, 0, 1, 1, None, None, AT, b"")
    assert json.loads(bare.encode())["title"] is None
