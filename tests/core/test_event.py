"""Events and facts: what may be published, and the bytes that are passed through."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.core import event
from playhead.core.event import Entry, Event, FactDraft
from playhead.core.ids import iso, published_place, run_feed
from playhead.core.run import Status
from playhead.core.sse import CONTROL_NAMES
from playhead.errors import InvalidEventType

RUN = "0190163d-8694-739b-aea5-966c26f8ad90"


@given(st.lists(st.text(max_size=20), max_size=5))
def test_events_that_are_kept_together_come_back_as_they_were(texts):
    events = tuple(event.published(RUN, 3, n, "step_done", {"t": text}, n) for n, text in enumerate(texts, 1))
    data = event.pack(events)
    assert (data is None) == (not events)
    assert event.unpack(data) == events
    if data is not None:
        assert event.unpack(data + b'\n{"id"\n' + data) == events  # up to what cannot be read


@given(st.integers(0, 2**53 - 1), st.integers(1, 2**53 - 1))
def test_the_id_of_a_published_event_says_whose_it_is(token, n):
    assert published_place(event.published(RUN, token, n, "step_done", {}, 0).id) == (token, n)
    assert published_place(f"a:b:{token}:{n}") == (token, n)


def test_a_body_that_cannot_be_read_is_a_placeholder_with_its_id():
    sound = event.published(RUN, 3, 7, "step_done", {}, 0)
    feed = run_feed(RUN)
    assert event.readable(feed, sound) is sound
    bodies: tuple[Any, ...] = (b"", b"{", b"[]", b"{}", b'{"a":1}\n', b'{"a":\r1}', None)
    for body in bodies:
        found = event.readable(feed, Event(sound.id, sound.type, body))
        assert (found.id, found.type) == (sound.id, event.UNREADABLE)
        assert b'"payload":{"type":"step_done"}' in found.body
        assert b'"attempt":3' in found.body


@pytest.mark.parametrize("name", ["step_done", "a", "run_queued_twice", "errors", "x" * 64])
def test_an_agent_s_own_types_may_be_published(name):
    assert event.check_type(name) == name


RESERVED = sorted([*event.FACT_TYPES, *CONTROL_NAMES, "error", "open", "message", "event_unreadable"])


@pytest.mark.parametrize("name", [*RESERVED, "", "Step", "a sentence", "x" * 65, "1st", "step\n", 7, None, "\ud800"])
def test_what_would_be_taken_for_another_s_may_not(name):
    with pytest.raises(InvalidEventType) as refused:
        event.check_type(name)
    if name in RESERVED:
        assert "reserved" in refused.value.message
    told = str(refused.value.details["type"])
    assert len(told.encode()) <= 80


def test_every_final_status_has_its_type_and_no_other_has_one():
    assert {status for status in Status if status.final} == set(event.FINAL_TYPES)
    assert {status: f"run_{status.value}" for status in event.FINAL_TYPES} == event.FINAL_TYPES


def test_an_event_says_whose_and_when_it_is_and_an_entry_which_version():
    made = event.published(RUN, 3, 7, "step_done", {"n": 1}, 250)
    entry = Entry(5, 9, "0" * 12, "1" * 12, 11, made)
    assert json.loads(entry.data) == {
        "version": 11,
        "id": f"{RUN}:3:7",
        "type": "step_done",
        "run_id": RUN,
        "thread_id": None,
        "attempt": 3,
        "occurred_at": "1970-01-01T00:00:00.250Z",
        "schema_version": 1,
        "payload": {"n": 1},
    }
    draft = FactDraft(event.RUN_STARTED, {"agent": "a"}, Status.RUNNING, 2, b"{}", (made,))
    fact = event.numbered(draft, run_feed(RUN), 4, started_at=10, at=250)
    assert (fact.feed, fact.rev, fact.status, fact.token) == (run_feed(RUN), 4, Status.RUNNING, 2)
    assert (fact.started_at, fact.state, fact.at, fact.lacking) == (10, b"{}", 250, (made,))
    told = json.loads(fact.event.body)
    assert (told["id"], told["type"], told["attempt"]) == (f"run:{RUN}:4", "run_started", 2)
    assert not fact.final
    assert not fact.starts_attempt


@pytest.mark.parametrize(
    ("name", "attempt"),
    [
        (f"{RUN}:3:7", 3),
        (f"{RUN}:9007199254740991:1", 9007199254740991),
        (f"{RUN}:{'9' * 17}:1", 0),
        (f"{RUN}:²:1", 0),
        (f"run:{RUN}:7", 0),
        ("nonsense", 0),
    ],
)
def test_a_placeholder_says_what_its_id_says(name, attempt):
    told = json.loads(event.readable(run_feed(RUN), Event(name, "step_done", b"")).body)
    assert (told["id"], told["attempt"], told["run_id"]) == (name, attempt, RUN)
    assert told["occurred_at"] == iso(int(RUN.replace("-", "")[:12], 16))
    elsewhere = json.loads(event.readable(run_feed("x"), Event(name, "no type", b"")).body)
    assert (elsewhere["occurred_at"], elsewhere["payload"]) == (iso(0), {"type": None})


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("run_failed", b'{"payload":{"published":{"attempt":2,"events":7}}}', (2, 7)),
        ("attempt_started", b'{"payload":{"published":{"attempt":2,"events":7}}}', (2, 7)),
        ("step_done", b'{"payload":{"published":{"attempt":2,"events":7}}}', None),  # an agent may say anything
        ("run_started", b'{"payload":{"published":{"attempt":2,"events":7}}}', None),
        ("run_failed", b'{"payload":{"code":"x"}}', None),
        ("run_failed", b'{"payload":{"published":{"attempt":"2","events":7}}}', None),
        ("run_failed", b'{"payload":[]}', None),
        ("run_failed", b"{}", None),
        ("run_failed", b"broken", None),
    ],
)
def test_what_a_fact_says_of_the_events_before_it_is_read_back(name, body, said):
    assert event.published_before(Event("e", name, body)) == said
