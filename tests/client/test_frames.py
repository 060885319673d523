import json
from typing import Any

import pytest

from playhead.client.frames import Frame, is_screen, read, read_joined
from playhead.core import sse
from tests.client.scripted import screen

STATE = {"snapshot": {"version": 1, "status": "running"}, "degraded": None}
PIECE = {"part": "answer", "attempt": 1, "offset": 0, "end": 1, "text": "a"}


def raw(event: str, data: Any, id: str | None = None) -> sse.Frame:
    return sse.Frame(event, data if isinstance(data, str) else json.dumps(data), id, None)


@pytest.mark.parametrize("id", ["end", "stop"])
def test_the_ids_that_lead_nowhere_are_no_cursors(id: str) -> None:
    event = {"id": "e1", "type": "counted", "payload": {}}
    assert read(raw("message", event, id)) == Frame("event", None, event)
    assert read(raw("message", event, "1-1.aa")) == Frame("event", "1-1.aa", event)
    resync = {"reason": "epoch", "bootstrap": screen(1)}
    assert read(raw("resync_required", resync, "1-1.aa")) == Frame("resync_required", "1-1.aa", resync)


def test_only_events_and_resyncs_move_a_client() -> None:
    for name, data in (("state", STATE), ("text", PIECE), ("end", {"status": "failed"}), ("draining", {"retry_ms": 1})):
        assert read(raw(name, data, "1-1.aa")) == Frame(name, None, data)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("message", "{"),
        ("message", "[1]"),
        ("message", {"type": "counted"}),
        ("message", {"id": 1, "type": "counted"}),
        ("state", {"snapshot": None, "degraded": None}),
        ("state", {"snapshot": {"version": "1", "status": "running"}, "degraded": None}),
        ("state", {**STATE, "degraded": 1}),
        ("text", {**PIECE, "offset": "0"}),
        ("text", {**PIECE, "text": None}),
        ("resync_required", {"bootstrap": screen(1)}),
        ("resync_required", {"reason": "epoch", "bootstrap": {}}),
        ("end", {}),
        ("draining", {"retry_ms": None}),
        ("refused", {}),
        ("later", {}),
        ("constructor", STATE),
    ],
)
def test_what_is_unknown_or_of_no_form_is_passed_over(name: str, data: Any) -> None:
    assert read(raw(name, data)) is None
    wrapped = data if isinstance(data, str) else {"feed": "run:r", **data}
    if name == "message" and isinstance(data, dict):
        wrapped = {"feed": "run:r", "cursor": None, "event": data}
    assert read_joined(raw(name, wrapped)) is None


@pytest.mark.parametrize("part", ["run", "snapshot", "events", "timeline", "text", "interrupts", "degraded", "cursor"])
def test_a_bootstrap_is_looked_at_before_it_is_taken(part: str) -> None:
    good = screen(2, text=[PIECE], interrupts=[{"id": "q"}])
    assert is_screen(good)
    assert not is_screen({**good, part: 7})
    assert not is_screen({**good, part: [7]})
    assert not is_screen([good])


def test_frames_of_several_runs_name_the_one_they_are_about() -> None:
    event = {"id": "e1", "type": "counted", "payload": {"feed": "mine", "cursor": 1}}
    told = raw("message", {"feed": "run:r", "cursor": "1-1.aa", "event": event})
    assert read_joined(told) == ("run:r", Frame("event", "1-1.aa", event))
    last = raw("message", {"feed": "run:r", "cursor": None, "event": event})
    assert read_joined(last) == ("run:r", Frame("event", None, event))
    assert read_joined(raw("state", {"feed": "run:r", **STATE})) == ("run:r", Frame("state", None, STATE))
    resync = {"reason": "epoch", "bootstrap": screen(1)}
    moved = raw("resync_required", {"feed": "run:r", "cursor": "2-1.aa", **resync})
    assert read_joined(moved) == ("run:r", Frame("resync_required", "2-1.aa", resync))
    gone = raw("refused", {"feed": "run:r", "code": "not_found"})
    assert read_joined(gone) == ("run:r", Frame("refused", None, {"code": "not_found"}))
    assert read_joined(raw("draining", {"retry_ms": 5})) == ("", Frame("draining", None, {"retry_ms": 5}))
    assert read_joined(raw("state", STATE)) is None
    assert read_joined(raw("state", {"feed": "run:r", "cursor": 1, **STATE})) is None
