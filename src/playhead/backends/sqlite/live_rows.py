"""The rows of a live file, read with distrust: what is not as it was written counts as missing."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playhead.backends import queries
from playhead.core.event import Entry, Event, readable
from playhead.core.ids import LIMIT, Feed
from playhead.core.run import Status
from playhead.core.snapshot import Snapshot
from playhead.core.text import TextPart
from playhead.core.transition import Marks
from playhead.interfaces import View

SQL = queries.load(Path(__file__).with_name("live.sql"))

_STATUS = {status.value: status for status in Status}
_INTEGERS = 13  # leading columns of `projections` that are never null
_CHUNK = 500  # feeds asked for by one statement


class DamagedProjection(Exception):
    """Rows of this feed contradict each other; the projection has to go."""


@dataclass(frozen=True, slots=True)
class Held:
    """A projection as its row holds it. The weights are bytes of bodies: of all in this epoch, of those cut off."""

    slot: int
    marks: Marks
    snapshot: Snapshot
    weight: int
    floor_weight: int


def load(db: sqlite3.Connection, feed: Feed) -> Held | None:
    """The projection of this feed; None if there is none that makes sense."""
    row = db.execute(SQL["load"], (feed.key,)).fetchone()
    return None if row is None else _held(row)


class Cache:
    """Projections that were written last, so that the next write to one need not read it whole.

    What is kept here counts only as long as its row has the stamp that it was kept with, so a write that was rolled
    back, a file that went back, and a row that somebody else changed need no word to this cache.
    """

    def __init__(self, first_stamp: int, most: int = 10_000) -> None:
        self._stamps = itertools.count(first_stamp)
        self._most = most
        self._kept: dict[Feed, tuple[int, Held]] = {}

    def load(self, db: sqlite3.Connection, feed: Feed) -> Held | None:
        kept = self._kept.get(feed)
        if kept is not None:
            stamp, held = kept
            if db.execute(SQL["stamp"], (held.slot,)).fetchone() == (stamp,):
                return held
        return load(db, feed)

    def keep(self, feed: Feed, held: Held) -> int:
        """Keep what is about to be written; the stamp to write with it."""
        if len(self._kept) >= self._most and feed not in self._kept:
            del self._kept[next(iter(self._kept))]
        stamp = next(self._stamps)
        self._kept[feed] = stamp, held
        return stamp

    def forget(self, feed: Feed) -> None:
        self._kept.pop(feed, None)


def stand(db: sqlite3.Connection, feeds: Collection[Feed]) -> dict[Feed, Marks]:
    """See `ProjectionStore.stand`."""
    by_key = {feed.key: feed for feed in feeds}
    found = {}
    for keys in _chunks(list(by_key)):
        for row in db.execute(f"{SQL['projections']} WHERE feed IN ({_places(keys)})", keys):
            held = _held(row)
            if held is not None:
                found[by_key[row[-1]]] = held.marks
    return found


def view(db: sqlite3.Connection, feed: Feed, after: int | None, before: int | None, limit: int) -> View | None:
    """See `ProjectionStore.read`. Raises DamagedProjection unless the entries form a whole chain up to the tip."""
    held = load(db, feed)
    if held is None:
        return None
    marks = held.marks
    low = marks.floor if after is None else max(after, marks.floor)
    high = marks.position if before is None else min(before - 1, marks.position)
    wanted = max(0, min(limit, high - low))
    rows: list[Any] = []
    if wanted:
        rows = db.execute(SQL["newest" if after is None else "after"], (held.slot, low, high, wanted)).fetchall()
        if after is None:
            rows.reverse()
            low = high - wanted
    return View(marks, held.snapshot, _chain(feed, marks, low, wanted, rows))


def find(db: sqlite3.Connection, held: Held, event_id: str) -> tuple[int, str] | None:
    """Position and tag of a retained event."""
    marks = held.marks
    row = db.execute(SQL["find"], (held.slot, event_id, marks.floor, marks.position)).fetchone()
    return (row[0], row[1]) if row is not None and _is_tag(row[1]) else None


def part(db: sqlite3.Connection, held: Held, token: int, name: str) -> tuple[int, TextPart | None] | None:
    """Id of a part and the part without its text, None in place of one that makes no sense; None if there is none."""
    row = db.execute(SQL["part"], (held.slot, token, name)).fetchone()
    return None if row is None else (row[0], _part(name, token, row[1:]))


def texts(db: sqlite3.Connection, feed: Feed) -> list[TextPart]:
    """See `TextChannel.read_text`. Raises DamagedProjection when text is missing."""
    held = load(db, feed)
    if held is None:
        return []
    found = []
    for row_id, token, name, *rest in db.execute(SQL["parts"], (held.slot,)).fetchall():
        data = bytearray()
        for offset, piece in db.execute(SQL["pieces"], (row_id,)):
            if offset != len(data) or type(piece) is not bytes:
                raise DamagedProjection(feed.key)
            data += piece
        whole = _part(name, token, rest, bytes(data))
        if whole is None or whole.length != len(data):
            raise DamagedProjection(feed.key)
        found.append(whole)
    return found


def lengths(db: sqlite3.Connection, feeds: Collection[Feed]) -> dict[Feed, dict[tuple[int, str], int]]:
    by_key = {feed.key: feed for feed in feeds}
    found: dict[Feed, dict[tuple[int, str], int]] = {}
    for keys in _chunks(list(by_key)):
        statement = f"{SQL['lengths']} WHERE feed IN ({_places(keys)}) ORDER BY part.id"
        for key, token, name, length in db.execute(statement, keys):
            if type(token) is int and type(name) is str and type(length) is int:
                found.setdefault(by_key[key], {})[token, name] = length
    return found


def _held(row: tuple[Any, ...]) -> Held | None:
    for number in row[:_INTEGERS]:
        if type(number) is not int or not 0 <= number < LIMIT:
            return None
    for number in row[_INTEGERS : _INTEGERS + 2]:
        if number is not None and (type(number) is not int or not 0 <= number < LIMIT):
            return None
    slot, epoch, rev, token, position, floor, archived, n, state_version, version, updated_at, weight, floor_weight = (
        row[:_INTEGERS]
    )
    started_at, heartbeat_at, tag, status_name, state, _feed = row[_INTEGERS:]
    status = _STATUS.get(status_name) if type(status_name) is str else None
    if status is None or not _is_tag(tag) or not _is_object(state):
        return None
    if not floor <= position or not archived <= position or not floor_weight <= weight:
        return None
    marks = Marks(
        epoch=epoch,
        rev=rev,
        token=token,
        final=status.final,
        position=position,
        tag=tag,
        floor=floor,
        archived=archived,
        n=n,
        state_version=state_version,
        version=version,
    )
    snapshot = Snapshot(status, token, version, rev, started_at, heartbeat_at, updated_at, state)
    return Held(slot, marks, snapshot, weight, floor_weight)


def _chain(feed: Feed, marks: Marks, low: int, wanted: int, rows: Sequence[tuple[Any, ...]]) -> tuple[Entry, ...]:
    """The `wanted` entries behind position `low`."""
    entries = []
    expected, behind = low + 1, None
    for position, version, tag, prev, event_id, name, body in rows:
        sound = (
            position == expected
            and (behind is None or prev == behind)
            and type(version) is int
            and _is_tag(tag)
            and _is_tag(prev)
            and type(event_id) is str
            and type(name) is str
        )
        if not sound:
            raise DamagedProjection(feed.key)
        event = readable(feed, Event(event_id, name, body))
        entries.append(Entry(marks.epoch, position, tag, prev, version, event))
        expected, behind = expected + 1, tag
    if len(entries) != wanted or (entries and entries[-1].position == marks.position and behind != marks.tag):
        raise DamagedProjection(feed.key)
    return tuple(entries)


def _part(name: object, token: object, row: Sequence[Any], data: bytes = b"") -> TextPart | None:
    length, final, truncated = row
    if type(name) is not str or type(token) is not int or type(length) is not int or length < 0:
        return None
    return TextPart(name, token, length, final=bool(final), truncated=bool(truncated), data=data)


def _is_tag(value: object) -> bool:
    return type(value) is str and len(value) == 12 and value.isalnum()


def _is_object(value: object) -> bool:
    """Whether this can be an encoded object: what else it may be goes over the wire in the place of one."""
    return type(value) is bytes and value[:1] == b"{" and value[-1:] == b"}" and b"\n" not in value


def _chunks(keys: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(keys), _CHUNK):
        yield keys[start : start + _CHUNK]


def _places(keys: list[str]) -> str:
    return ",".join("?" * len(keys))
