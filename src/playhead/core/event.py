"""Events and facts: types, the envelope, and the bytes that are encoded once and passed through to the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import orjson

from playhead.core import payload as payloads
from playhead.core.ids import Feed, check_whole, fact_id, is_id, is_name, iso, published_id
from playhead.core.run import Status
from playhead.core.sse import CONTROL_NAMES
from playhead.errors import InvalidEventType

SCHEMA_VERSION = 1

RUN_QUEUED = "run_queued"
RUN_STARTED = "run_started"
ATTEMPT_STARTED = "attempt_started"
CANCEL_REQUESTED = "cancel_requested"
APPROVAL_REQUIRED = "approval_required"
APPROVAL_DECIDED = "approval_decided"
APPROVAL_EXPIRED = "approval_expired"
APPROVAL_CANCELLED = "approval_cancelled"
RUN_SUCCEEDED = "run_succeeded"
RUN_FAILED = "run_failed"
RUN_CANCELLED = "run_cancelled"
RUN_INTERRUPTED = "run_interrupted"

FINAL_TYPES = {
    Status.SUCCEEDED: RUN_SUCCEEDED,
    Status.FAILED: RUN_FAILED,
    Status.CANCELLED: RUN_CANCELLED,
    Status.INTERRUPTED: RUN_INTERRUPTED,
}

# Written by the record alone: an agent that could publish one of these could lie about the run.
FACT_TYPES = frozenset(
    {
        RUN_QUEUED,
        RUN_STARTED,
        ATTEMPT_STARTED,
        CANCEL_REQUESTED,
        APPROVAL_REQUIRED,
        APPROVAL_DECIDED,
        APPROVAL_EXPIRED,
        APPROVAL_CANCELLED,
        *FINAL_TYPES.values(),
    }
)

# In the place of an event that cannot be read any more; nobody publishes it.
UNREADABLE = "event_unreadable"

# A browser's EventSource gives these names a meaning of its own.
_BROWSER_NAMES = frozenset({"error", "open", "message"})


@dataclass(frozen=True, slots=True)
class Event:
    """An event without a place yet. `body` is its JSON object, lacking only `version`, which the projection gives."""

    id: str
    type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """An event in its place on a timeline."""

    epoch: int
    position: int
    tag: str
    prev: str  # the tag of the entry before it; of the opening, for position 1
    version: int
    event: Event

    @property
    def data(self) -> bytes:
        """The event as it goes over the wire: one JSON object in one line."""
        return b'{"version":%d,%b' % (self.version, self.event.body[1:])


@dataclass(frozen=True, slots=True)
class FactDraft:
    """What a decision wants written, before the feed's row has numbered it."""

    type: str
    payload: Mapping[str, Any]
    status: Status  # of the run, after this fact
    token: int  # of the run, after this fact
    state: bytes | None = None  # the attempt's whole state, where the attempt itself speaks
    lacking: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """A numbered fact of a run: what its outbox row holds, and all that is needed to project it.

    `lacking` are the last events of an attempt that ended while the live store was away, consecutive and of that
    attempt alone: whoever projects the fact publishes them before it.
    """

    feed: Feed
    rev: int
    event: Event
    status: Status
    token: int
    started_at: int | None  # wall ms
    state: bytes | None
    at: int  # wall ms
    lacking: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        check_whole(self.rev, self.token, self.at)

    @property
    def final(self) -> bool:
        return self.status.final

    @property
    def starts_attempt(self) -> bool:
        return self.event.type == ATTEMPT_STARTED


def check_type(name: str) -> str:
    """Return `name` if an agent may publish it. Raises InvalidEventType."""
    if not isinstance(name, str) or not is_name(name):
        raise InvalidEventType(type=payloads.well_formed(str(name))[:80])
    if name in FACT_TYPES or name in CONTROL_NAMES or name in _BROWSER_NAMES or name == UNREADABLE:
        raise InvalidEventType(f"The event type {name} is reserved.", type=name)
    return name


def published(run_id: str, token: int, n: int, name: str, payload: object, at: int) -> Event:
    """Encode an attempt's n-th event. Raises PayloadNotJson; what is too large is cut and says so."""
    return _encode(published_id(run_id, token, n), name, run_id, token, payload, at)


def numbered(draft: FactDraft, feed: Feed, rev: int, *, started_at: int | None, at: int) -> Fact:
    """Give a fact its number and encode it."""
    event = _encode(fact_id(feed, rev), draft.type, feed.id, draft.token, draft.payload, at)
    return Fact(feed, rev, event, draft.status, draft.token, started_at, draft.state, at, draft.lacking)


def pack(events: Sequence[Event]) -> bytes | None:
    """These events as one value, for a store that keeps them together; None for none."""
    return b"\n".join(event.body for event in events) or None  # a body is one line


def unpack(data: bytes | None) -> tuple[Event, ...]:
    """Read back what `pack` wrote, up to the first that cannot be read any more."""
    sound = takewhile(_object, data.split(b"\n") if data else ())
    return tuple(Event(head["id"], head["type"], body) for body in sound for head in (_object(body),))


def readable(feed: Feed, event: Event) -> Event:
    """The event as a store gave it back; one whose body is no JSON object becomes a placeholder with its id.

    A reader passes over a placeholder. It would stop at the bytes themselves, and again whenever it came back.
    """
    if _object(event.body):
        return event
    token = event.id.removeprefix(f"{feed.id}:").partition(":")[0]
    made_at = int(feed.id.replace("-", "")[:12], 16) if is_id(feed.id) else 0  # the run's; the event's own is lost
    was = {"type": event.type if is_name(event.type) else None}
    attempt = int(token) if token.isascii() and token.isdecimal() and len(token) < 17 else 0
    return _encode(event.id, UNREADABLE, feed.id, attempt, was, made_at)


def published_before(event: Event) -> tuple[int, int] | None:
    """Of which attempt nothing follows this event, and how many events it published at least.

    None where the record was not told of any, and for events that begin no attempt and are not final.
    """
    if event.type != ATTEMPT_STARTED and event.type not in FINAL_TYPES.values():
        return None
    match _object(event.body):
        case {"payload": {"published": {"attempt": int(token), "events": int(count)}}}:
            return token, count
    return None


def _object(body: object) -> dict[str, Any]:
    """The JSON object that this is, in one line; empty if it is none."""
    if not isinstance(body, bytes) or b"\n" in body or b"\r" in body:
        return {}
    try:
        value = orjson.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _encode(event_id: str, name: str, run_id: str, token: int, payload: object, at: int) -> Event:
    head = payloads.encode(
        {
            "id": event_id,
            "type": name,
            "run_id": run_id,
            "thread_id": None,
            "attempt": token,
            "occurred_at": iso(at),
            "schema_version": SCHEMA_VERSION,
        }
    )
    body = head[:-1] + b',"payload":' + payloads.bounded(payload) + b"}"
    return Event(event_id, name, body)
