"""What scripts are given and what they answer, in the terms of the ports. What is read is read with distrust."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from playhead.core.cursor import Cursor
from playhead.core.event import Entry, Event, Fact, readable
from playhead.core.ids import LIMIT, Feed, fact_rev
from playhead.core.run import Status
from playhead.core.snapshot import EMPTY, Snapshot
from playhead.core.text import TextAlready, TextApplied, TextFrom, TextPart, TextReply
from playhead.core.transition import (
    Already,
    Applied,
    Behind,
    Final,
    Gap,
    Guard,
    Marks,
    NeedsRebuild,
    Stale,
    StaleVersion,
    WrongEpoch,
)

Argument = bytes | str | int

_STATUS = {status.value.encode(): status for status in Status}
_PAYLOAD = b',"payload":'
_NUMBERS = 9  # of `marks`, besides the tag and the time of the end


class DamagedProjection(Exception):
    """What is stored of a feed contradicts itself; the projection has to go."""


# Arguments.


def guard(claimed: Guard) -> Argument:
    return f"{claimed.epoch}:{claimed.token}:{claimed.rev}:{claimed.acked_n}:{claimed.acked_state}"


def optional(number: int | None) -> Argument:
    return "" if number is None else number


def flag(value: bool) -> Argument:
    return "1" if value else "0"


def state(encoded: bytes | None) -> list[Argument]:
    """A state, and the two fields of it that are shown beside it."""
    if encoded is None:
        return ["0", "", "", ""]
    return ["1", encoded, *shown(encoded)]


def shown(encoded: bytes) -> list[Argument]:
    try:
        held = orjson.loads(encoded)
        step, progress = held.get("current_step"), held.get("progress")
    except (ValueError, AttributeError):
        return ["", ""]
    return [str(step or ""), "" if progress is None else str(progress)]


def event_arguments(feed: Feed, token: int, one: Event, tag: str) -> list[Argument]:
    """An event as its entry shows it: the envelope's fields beside the payload, and `head`, the envelope as it was."""
    head, payload = split(one.body)
    try:
        envelope = orjson.loads(head + b"}")
        schema, occurred_at = str(envelope["schema_version"]), str(envelope["occurred_at"])
    except (ValueError, KeyError, TypeError):
        schema, occurred_at = "", ""
    attempt = f"{feed.id}:{token}"
    return [one.id, one.type, attempt, schema, occurred_at, head, payload, len(one.body), tag]


def fact_arguments(fact: Fact, tag: str) -> list[Argument]:
    return [
        fact.rev,
        fact.token,
        flag(fact.starts_attempt),
        fact.status.value,
        flag(fact.final),
        optional(fact.started_at),
        *state(fact.state or None),
        fact.feed.id,
        *event_arguments(fact.feed, fact.token, fact.event, tag),
    ]


def split(body: bytes) -> tuple[bytes, bytes]:
    """Envelope and payload of an event's body; all of it and nothing where there is no payload to find."""
    head, found, payload = body.partition(_PAYLOAD)
    return (head, payload[:-1]) if found and payload[1:] and payload[-1:] == b"}" else (body, b"")


def joined(head: bytes, payload: bytes) -> bytes:
    return b"".join((head, _PAYLOAD, payload, b"}")) if payload else head


def series(feed: Feed, event_id: str) -> tuple[int | None, int | None, int | None] | None:
    """Token and n of a published event's id, or the rev of a fact's; None for an id that nobody makes."""
    rev = fact_rev(feed, event_id)
    if rev is not None:
        return (None, None, rev) if rev < LIMIT else None
    owner, _, rest = event_id.rpartition(":")
    run, _, token = owner.rpartition(":")
    if run != feed.id or not _decimal(token) or not _decimal(rest):
        return None
    return int(token), int(rest), None


def _decimal(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 17 and int(text) < LIMIT


# Answers.

_REPLIES: dict[bytes, Callable[..., TextReply]] = {
    b"applied": lambda epoch, position, tag, version: Applied(_cursor(epoch, position, tag), int(version)),
    b"already": lambda *place: Already(_cursor(*place) if place else None),
    b"wrong_epoch": lambda epoch: WrongEpoch(int(epoch)),
    b"stale": lambda token: Stale(int(token)),
    b"stale_version": lambda version: StaleVersion(int(version)),
    b"behind": lambda rev: Behind(int(rev)),
    b"gap": lambda rev: Gap(int(rev)),
    b"final": Final,
    b"needs_rebuild": lambda seen: NeedsRebuild(int(seen)),
    b"text_applied": lambda end: TextApplied(int(end)),
    b"text_already": lambda end: TextAlready(int(end)),
    b"text_from": lambda length: TextFrom(int(length)),
}


def reply(answer: Sequence[bytes]) -> TextReply:
    kind, *values = answer
    return _REPLIES[kind](*values)


def _cursor(epoch: bytes, position: bytes, tag: bytes) -> Cursor:
    return Cursor(int(epoch), int(position), tag.decode())


def marks(guard_text: bytes, marks_text: bytes) -> Marks | None:
    """The marks that these two fields tell, or None where they make no sense. Scripts have looked already."""
    epoch, token, rev = map(int, guard_text.split(b":"))
    position, tag, *numbers, final_at = marks_text.split(b":")
    if len(numbers) != _NUMBERS - 1:
        return None
    floor, archived, n, state_version, version = map(int, numbers[:5])
    return Marks(
        epoch=epoch,
        rev=rev,
        token=token,
        final=final_at != b"-",
        position=int(position),
        tag=tag.decode(),
        floor=floor,
        archived=archived,
        n=n,
        state_version=state_version,
        version=version,
    )


def snapshot(held: Marks, row: Sequence[bytes | None]) -> Snapshot | None:
    """The snapshot of these marks and of status, times and state; None where it makes no sense."""
    status_name, started_at, heartbeat_at, updated_at, encoded = row
    status = _STATUS.get(status_name or b"")
    times = [_number(started_at), _number(heartbeat_at), _number(updated_at)]
    if status is None or status.final != held.final or updated_at is None or -1 in times:
        return None
    encoded = encoded or EMPTY
    if encoded[:1] != b"{" or encoded[-1:] != b"}" or b"\n" in encoded:
        return None
    started, heartbeat, updated = times
    return Snapshot(status, held.token, held.version, held.rev, started, heartbeat, updated or 0, encoded)


def _number(word: bytes | None) -> int | None:
    """-1 for what is no number."""
    if word is None:
        return None
    return int(word) if word.isdigit() and len(word) < 17 else -1


def entries(feed: Feed, held: Marks, low: int, wanted: int, found: Sequence[Any]) -> tuple[Entry, ...]:
    """The `wanted` entries behind position `low`. Raises DamagedProjection unless they form a whole chain."""
    chain: list[Entry] = []
    behind = None
    for number, (entry_id, flat) in enumerate(found, low + 1):
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        try:
            tag, prev = fields[b"tag"].decode("ascii"), fields[b"prev"].decode("ascii")
            version = int(fields[b"version"])
            one = event(feed, fields[b"id"], fields[b"type"], fields[b"head"], fields[b"payload_json"])
        except (KeyError, ValueError) as error:
            raise DamagedProjection(feed.key) from error
        if entry_id != b"%d-%d" % (held.epoch, number) or behind not in (None, prev) or len(tag) != 12:
            raise DamagedProjection(feed.key)
        chain.append(Entry(held.epoch, number, tag, prev, version, one))
        behind = tag
    if len(chain) != wanted or (chain and chain[-1].position == held.position and behind != held.tag):
        raise DamagedProjection(feed.key)
    return tuple(chain)


def event(feed: Feed, event_id: bytes, name: bytes, head: bytes, payload: bytes) -> Event:
    return readable(feed, Event(event_id.decode(), name.decode(), joined(head, payload)))


def parts(feed: Feed, found: Sequence[Sequence[bytes]]) -> list[TextPart]:
    """Raises DamagedProjection where a closed part is not as long as it was."""
    told = []
    for token, name, end, cut, data in found:
        final = end != b"-"
        if final and int(end) != len(data):
            raise DamagedProjection(feed.key)
        told.append(TextPart(name.decode(), int(token), len(data), final, cut == b"1", data))
    return told
