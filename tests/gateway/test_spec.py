"""What really goes over the wire is what the schemas in `spec/` say."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError
from referencing import Registry, Resource

from playhead.core import decision as decisions
from playhead.core import event as events
from playhead.core import lifecycle, sse
from playhead.core.cursor import Cursor
from playhead.core.ids import run_feed, uuid7
from playhead.core.interrupt import Interrupt, Question
from playhead.core.multiplexed import refused, rewrite
from playhead.core.replay import Reason
from playhead.core.run import Change, Failure, NewRun, Outcome, Policy, Run, Status
from playhead.core.snapshot import Snapshot, State
from playhead.gateway import problems
from playhead.runtime import frames
from playhead.runtime.documents import interrupt_document, run_document

SPEC = Path(__file__).parents[2] / "spec"
FILES = sorted(SPEC.rglob("*.schema.json"))
SCHEMAS = {
    path.relative_to(SPEC).as_posix().removesuffix(".schema.json"): json.loads(path.read_text()) for path in FILES
}
REGISTRY: Registry = Registry().with_resources(
    (schema["$id"], Resource.from_contents(schema)) for schema in SCHEMAS.values()
)
AT = 1_800_000_000_123
BUILT_IN = {
    *events.FACT_TYPES,
    *("turn_begin", "tool_call_started", "tool_executed", "retry", "message_injected", "turn_split"),
    *("turn_queued", "message_received", "thread_cleared"),
    events.UNREADABLE,
}


def check(name: str, value: object) -> None:
    Draft202012Validator(SCHEMAS[name], registry=REGISTRY).validate(value)


def an_id(number: int = 1) -> str:
    return uuid7(AT, number.to_bytes(10))


class Story:
    """A run's facts, as the record would number them."""

    def __init__(self, resumable: bool = False) -> None:
        new = NewRun(an_id(), "a", "echo", b'{"x":1}', Policy(resumable=resumable), {"team": "x"}, key="k")
        self.asked: list[Interrupt] = []
        self.facts: list[events.Fact] = []
        self.runs: list[Run] = []
        self.apply(lifecycle.create(new, 1, AT))

    @property
    def run(self) -> Run:
        return self.runs[-1]

    def apply(self, change: Change) -> None:
        first = change.run.rev - len(change.facts)
        for offset, draft in enumerate(change.facts, 1):
            feed, started = run_feed(change.run.id), change.run.started_at
            self.facts.append(events.numbered(draft, feed, first + offset, started_at=started, at=AT))
        kept = {one.id: one for one in (*self.asked, *change.interrupts)}
        self.asked = list(kept.values())
        self.runs.append(change.run)

    def start(self) -> "Story":
        self.apply(lifecycle.start(self.run, "p", AT))
        return self

    def ask(self, within: int | None = None) -> "Story":
        number = len(self.asked) + 2
        question = Question(f"k{number}", "approval", b'{"title":"Go?"}', within)
        self.apply(decisions.ask(self.run, self.run.token, question, self.asked, an_id(number), None, AT, number)[0])
        return self

    def decide(self) -> "Story":
        answer = b'{"approved":true,"note":null,"value":null}'
        self.apply(decisions.decide(self.run, self.asked, self.asked[-1].id, answer, "ann", AT)[0])
        return self

    def end(self, status: Status) -> "Story":
        outcome = Outcome(status, result=b'{"r":1}', failure=Failure("agent_error", "no"), partial=b'[{"text":"x"}]')
        self.apply(lifecycle.finish(self.run, self.run.token, outcome, self.asked, AT))
        return self


def stories() -> Iterator[Story]:
    yield Story().start().ask().decide().end(Status.SUCCEEDED)
    yield Story().start().end(Status.FAILED)
    cancelled = Story().start().ask()
    cancelled.apply(lifecycle.cancel(cancelled.run, cancelled.asked, "ann", None, AT))
    yield cancelled.end(Status.SUCCEEDED)
    queued = Story()
    queued.apply(lifecycle.cancel(queued.run, [], "ann", "why", AT))
    yield queued
    lost = Story().start().ask(1)
    for change in decisions.lapse(lost.run, lost.asked, AT + 2):
        lost.apply(change)
    lost.apply(lifecycle.lose(lost.run, lost.asked, AT, b"[]"))
    yield lost


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one_and_says_what_it_is(name):
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == "urn:playhead:spec:" + name.replace("/", ":")
    assert schema["title"]
    assert schema["description"]


def test_every_built_in_event_has_a_schema_a_place_and_a_retention():
    found = {name.removeprefix("events/"): schema for name, schema in SCHEMAS.items() if name.startswith("events/")}
    assert found.keys() == BUILT_IN
    for name, schema in found.items():
        assert schema["properties"]["type"] == {"const": name}
        assert set(schema["x-placement"]) <= {"status", "timeline", "approvals", "tools", "conversation", "text"}
        assert schema["x-retention"] in ("record", "archive")


def test_every_fact_is_as_its_schema_says():
    seen = set()
    for story in stories():
        for fact in story.facts:
            entry = events.Entry(AT, fact.rev, "0" * 12, "0" * 12, fact.rev, fact.event)
            told = json.loads(entry.data)
            check("event", told)
            check(f"events/{fact.event.type}", told)
            # Nothing is said that the schema does not tell of.
            named = SCHEMAS[f"events/{fact.event.type}"]["properties"]["payload"]["properties"]
            assert told["payload"].keys() == named.keys()
            assert told.keys() == SCHEMAS["event"]["properties"].keys()
            seen.add(fact.event.type)
    assert seen == events.FACT_TYPES


def test_a_published_event_is_as_the_schema_says():
    event = events.published(an_id(), 1, 1, "tool_executed", {"call_id": "c", "name": "n", "outcome": "unknown"}, AT)
    told = json.loads(events.Entry(AT, 1, "0" * 12, "0" * 12, 1, event).data)
    check("events/tool_executed", told)


@pytest.mark.parametrize("kind", ["step_done", "no name of a type"])
def test_the_placeholder_of_a_damaged_event_is_as_its_schema_says(kind):
    damaged = events.Event(f"{an_id()}:1:1", kind, b'{"id":')
    event = events.readable(run_feed(an_id()), damaged)
    told = json.loads(events.Entry(AT, 1, "0" * 12, "0" * 12, 1, event).data)
    check("event", told)
    check("events/event_unreadable", told)
    assert told["payload"] == {"type": "step_done" if kind == "step_done" else None}
    assert told.keys() == SCHEMAS["event"]["properties"].keys()


def test_every_run_and_interrupt_is_as_the_schema_says():
    statuses = set()
    for story in stories():
        for run in story.runs:
            told = json.loads(run_document(replace(run, heartbeat_at=AT)))
            check("run", told)
            assert told.keys() == SCHEMAS["run"]["properties"].keys()
            assert next(iter(told)) == "id"
            statuses.add(run.status)
        for interrupt in story.asked:
            told = json.loads(interrupt_document(interrupt))
            check("interrupt", told)
            assert told.keys() == SCHEMAS["interrupt"]["properties"].keys()
    assert statuses == set(Status)


def test_every_snapshot_is_as_the_schema_says():
    state = State().changed({"title": "T", "progress": 61.5, "done": 1, "total": 2, "current_step": "s"}, AT)
    for encoded in (State().encode(), state.encode()):
        told = json.loads(Snapshot(Status.RUNNING, 1, 2, 3, AT, None, AT, encoded).encode())
        check("snapshot", told)
        assert told.keys() == SCHEMAS["snapshot"]["properties"].keys()


def frames_of(*encoded: bytes) -> Iterator[dict[str, object]]:
    """Parsed, with the id that each block sets by itself."""
    for block in encoded:
        (frame,) = sse.Parser().feed(block)
        told: dict[str, object] = {"event": frame.event, "data": json.loads(frame.data)}
        yield told if frame.id is None else {**told, "id": frame.id}


def test_every_frame_is_as_the_schema_says():
    cursor = Cursor(AT, 7, "0123456789ab")
    snapshot = Snapshot(Status.RUNNING, 1, 2, 3, AT, None, AT)
    fact = Story().facts[0]
    data = events.Entry(AT, 1, "0" * 12, "0" * 12, 1, fact.event).data
    screen = json.dumps(
        {
            "run": json.loads(run_document(Story().run)),
            "snapshot": json.loads(snapshot.encode()),
            "events": [],
            "cursor": str(cursor),
            "timeline": {"complete": True, "has_older": False, "oldest": None},
            "text": [],
            "interrupts": [],
            "degraded": None,
        }
    ).encode()
    encoded = [
        frames.event(cursor, data),
        frames.unplaced(data),
        frames.state(snapshot, None),
        frames.state(snapshot, "store_unavailable"),
        frames.text((1, "answer"), 0, "\u2028é".encode(), False, False),
        frames.text((1, "answer"), 5, b"", True, True),
        frames.draining(2731),
        *(frames.end(an_id(), status) for status in Status if status.final),
        *(frames.resync(reason, requested=None) for reason in Reason),
        frames.resync(Reason.FOREIGN, requested=cursor, oldest=cursor, newest=cursor),
        frames.resync(Reason.EPOCH, requested=cursor, bootstrap=screen, cursor=cursor),
        frames.resync(Reason.EXPIRED, requested=cursor, bootstrap=screen),
    ]
    told = list(frames_of(*encoded))
    for frame in told:
        check("frames", frame)
    assert {frame["event"] for frame in told} == {"message", *sse.CONTROL_NAMES} - {"refused"}
    several = [rewrite(f"run:{an_id()}", piece) for piece in encoded]
    blocks = [one.frames for one in several if b"resync" not in one.frames or b"bootstrap" in one.frames]
    blocks += [one.farewell for one in several]
    blocks += [refused(f"run:{an_id()}", code) for code in ("not_found", "forbidden")]
    told = list(frames_of(*filter(None, blocks)))
    for frame in told:
        check("multiplexed", frame)
    assert {frame["event"] for frame in told} == {"message", *sse.CONTROL_NAMES}


@pytest.mark.parametrize(
    "frame",
    [
        {"event": "state", "data": {"snapshot": {}, "degraded": None}},
        {"event": "end", "data": {"run_id": an_id(), "status": "succeeded"}},
        {"event": "end", "data": {"run_id": an_id(), "status": "running"}, "id": "end"},
        {"event": "error", "data": {}},
        {"event": "draining", "data": {"retry_ms": 1}, "id": "stop"},
        {
            "event": "resync_required",
            "data": {"reason": "trimmed", "requested": None, "oldest": None, "newest": None},
            "id": "stop",
        },
    ],
)
def test_no_other_frame_is(frame):
    with pytest.raises(ValidationError):
        check("frames", frame)


@pytest.mark.parametrize(
    "frame",
    [
        {"event": "message", "data": {"cursor": None, "event": {}}},
        {"event": "end", "data": {"run_id": an_id(), "status": "succeeded"}},
        {"event": "end", "data": {"feed": "run:x", "run_id": an_id(), "status": "succeeded"}, "id": "end"},
        {"event": "refused", "data": {"feed": "run:x", "code": "gone"}},
        {"event": "draining", "data": {}},
    ],
)
def test_no_other_frame_of_several_feeds_is(frame):
    with pytest.raises(ValidationError):
        check("multiplexed", frame)


@pytest.mark.parametrize("reason", Reason)
def test_the_protocol_tells_of_every_reason_frame_and_code(reason):
    text = (SPEC.parent / "PROTOCOL.md").read_text()
    assert f"| `{reason}` |" in text
    for name in sse.CONTROL_NAMES:
        assert f"| `{name}` |" in text
    for code in problems.STATUS:
        assert f"`{code}`" in text
