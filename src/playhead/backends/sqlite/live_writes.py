"""The acts on a live file: each judges by core's rules and writes, within the transaction that it is called in."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from playhead.backends.sqlite import live_rows as rows
from playhead.backends.sqlite.live_rows import SQL, Cache, Held
from playhead.core.cursor import Cursor
from playhead.core.event import Entry, Fact
from playhead.core.ids import Feed
from playhead.core.retention import Lifetimes, Retention, idles, new_floor
from playhead.core.snapshot import Snapshot
from playhead.core.text import TextApplied, TextReply, TextWrite, judge_text
from playhead.core.transition import (
    Already,
    Applied,
    Marks,
    Opening,
    Publish,
    Reply,
    after_fact,
    after_opening,
    after_publish,
    fact_snapshot,
    judge_fact,
    judge_opening,
    judge_publish,
    opening_snapshot,
    publish_snapshot,
)
from playhead.interfaces import Hint, TextPiece

TABLES = ("projection", "entry", "part", "piece")
EXPIRED_AT_ONCE = 20  # projections: each may have thousands of rows to remove, and writers wait meanwhile


class Done(NamedTuple):
    """What an act answers, and the hint to give once it is committed; a refused one has none."""

    reply: Reply | TextReply
    hint: Hint | None = None


@dataclass(frozen=True, slots=True)
class LiveWrites:
    """The acts, under these bounds. `now` is the wall time in milliseconds at which each is done."""

    retention: Retention
    lifetimes: Lifetimes
    cache: Cache

    def open(self, db: sqlite3.Connection, opening: Opening, now: int) -> Done:
        held = self.cache.load(db, opening.feed)
        refused = judge_opening(held.marks if held else None, opening)
        if refused is not None:
            return Done(refused)
        _erase(db, opening.feed)
        marks, snapshot = after_opening(opening), opening_snapshot(opening)
        values = (
            opening.feed.key,
            marks.epoch,
            marks.rev,
            marks.token,
            snapshot.status.value,
            marks.position,
            marks.tag,
            marks.floor,
            marks.archived,
            marks.n,
            marks.state_version,
            marks.version,
            snapshot.started_at,
            snapshot.heartbeat_at,
            snapshot.updated_at,
            now if marks.final and not idles(opening.feed) else None,
            snapshot.state,
        )
        slot = db.execute(SQL["open"], values).lastrowid
        _empty(db, slot)  # whatever lies under a number that nobody had
        self.watched(db, [opening.feed], now)
        hint = Hint(opening.feed, marks, snapshot)
        return Done(Applied(marks.cursor, marks.version), hint)

    def fact(self, db: sqlite3.Connection, epoch: int, fact: Fact, tag: str, now: int) -> Done:
        held = self.cache.load(db, fact.feed)
        refused = judge_fact(held.marks if held else None, epoch, fact)
        if refused is not None or held is None:
            return _refused(db, held, refused, fact.event.id)
        marks, entry = after_fact(held.marks, fact, tag)
        snapshot = fact_snapshot(held.snapshot, marks, fact, now)
        held = self._append(db, held, marks, snapshot, (entry,), now)
        voids_before = 0
        if fact.starts_attempt:
            voids_before = marks.token
            _drop_texts(db, held.slot, marks.token)
        final_at = now if marks.final and not idles(fact.feed) else None
        owned = (marks.rev, marks.token, snapshot.status.value, snapshot.started_at, final_at)
        stamp = self.cache.keep(fact.feed, held)
        if marks.final:  # little follows
            self.cache.forget(fact.feed)
        db.execute(SQL["told"], (stamp, *_moved(held), *owned, held.slot))
        self.watched(db, [fact.feed], now)
        hint = Hint(fact.feed, held.marks, snapshot, (entry,), voids_before=voids_before)
        return Done(Applied(marks.cursor, marks.version), hint)

    def publish(self, db: sqlite3.Connection, write: Publish, now: int) -> Done:
        held = self.cache.load(db, write.feed)
        refused = judge_publish(held.marks if held else None, write)
        if refused is not None or held is None:
            return _refused(db, held, refused, write.events[-1].id if write.events else None)
        marks, entries = after_publish(held.marks, write)
        snapshot = publish_snapshot(held.snapshot, marks, write)
        held = self._append(db, held, marks, snapshot, entries, now)
        stamp = self.cache.keep(write.feed, held)
        db.execute(SQL["published"], (stamp, *_moved(held), held.slot))
        return Done(Applied(marks.cursor, marks.version), Hint(write.feed, held.marks, snapshot, entries))

    def append(self, db: sqlite3.Connection, write: TextWrite) -> Done:
        held = self.cache.load(db, write.feed)
        found = rows.part(db, held, write.guard.token, write.part) if held else None
        if found is not None and found[1] is None:  # a damaged part begins again
            _drop_part(db, found[0])
            found = None
        text = found[1] if found else None
        refused = judge_text(held.marks if held else None, text, write)
        if refused is not None or held is None:
            assert refused is not None  # core refuses every write to a projection that is missing
            return Done(refused)
        truncated = write.truncated or (text is not None and text.truncated)
        if found is None:
            values = (held.slot, write.guard.token, write.part, write.end, write.final, truncated)
            part = db.execute(SQL["begin_part"], values).lastrowid
            db.execute(SQL["drop_part_pieces"], (part,))
        else:
            part = found[0]
            db.execute(SQL["grow_part"], (write.end, write.final, truncated, part))
        if write.data:
            db.execute(SQL["add_piece"], (part, write.offset, write.data))
        piece = TextPiece(write.part, write.guard.token, write.offset, write.data, write.final, truncated)
        return Done(TextApplied(write.end), Hint(write.feed, held.marks, text=(piece,)))

    def archived(self, db: sqlite3.Connection, feed: Feed, epoch: int, position: int, now: int) -> None:
        held = self.cache.load(db, feed)
        if held is None or held.marks.epoch != epoch:
            return
        archived = max(held.marks.archived, min(position, held.marks.position))
        held = self._cut(db, replace(held, marks=replace(held.marks, archived=archived)), now)
        stamp = self.cache.keep(feed, held)
        waits = archived < held.marks.position
        db.execute(SQL["archived"], (stamp, held.marks.floor, held.floor_weight, archived, waits, held.slot))

    def trim(self, db: sqlite3.Connection, feed: Feed, now: int) -> None:
        held = self.cache.load(db, feed)
        if held is not None:
            held = self._cut(db, held, now)
            stamp = self.cache.keep(feed, held)
            db.execute(SQL["floored"], (stamp, held.marks.floor, held.floor_weight, held.slot))

    def drop(self, db: sqlite3.Connection, feed: Feed, epoch: int | None) -> None:
        held = self.cache.load(db, feed)
        if held is None or epoch is None or held.marks.epoch == epoch:
            _erase(db, feed)

    def drop_damaged(self, db: sqlite3.Connection, feed: Feed) -> bool:
        """Drop a projection if it is still damaged now; whether it was."""
        try:
            rows.view(db, feed, -1, None, 1 << 62)
            rows.texts(db, feed)
        except rows.DamagedProjection:
            _erase(db, feed)
            return True
        return False

    def watched(self, db: sqlite3.Connection, feeds: Iterable[Feed], now: int) -> None:
        db.executemany(SQL["use"], [(now, feed.key) for feed in feeds if idles(feed)])

    def expire(self, db: sqlite3.Connection, now: int) -> int:
        """Drop up to EXPIRED_AT_ONCE timelines and projections; how many went."""
        times = self.lifetimes
        outlived = db.execute(SQL["outlived"], (now - times.snapshot_ms, EXPIRED_AT_ONCE)).fetchall()
        outlived += db.execute(SQL["left_alone"], (now - times.idle_ms, EXPIRED_AT_ONCE - len(outlived))).fetchall()
        for slot, _ in outlived:
            _empty(db, slot)
            db.execute(SQL["drop"], (slot,))
        unswept = db.execute(SQL["unswept"], (now - times.timeline_ms, EXPIRED_AT_ONCE - len(outlived))).fetchall()
        for slot, _ in unswept:
            db.execute(SQL["drop_entries"], (slot,))
            db.execute(SQL["sweep"], (slot,))
        return len(outlived) + len(unswept)

    def _append(
        self, db: sqlite3.Connection, held: Held, marks: Marks, snapshot: Snapshot, entries: Sequence[Entry], now: int
    ) -> Held:
        """Store the entries and cut what they push out. The projection's own row is the caller's to write."""
        weight = held.weight
        for entry in entries:
            event = entry.event
            weight += len(event.body)
            row = (
                held.slot,
                entry.position,
                entry.tag,
                entry.prev,
                entry.version,
                event.id,
                event.type,
                now,
                weight,
                event.body,
            )
            db.execute(SQL["append"], row)
        if entries and held.marks.archived == held.marks.position:
            db.execute(SQL["unarchive"], (held.slot,))
        return self._cut(db, Held(held.slot, marks, snapshot, weight, held.floor_weight), now)

    def _cut(self, db: sqlite3.Connection, held: Held, now: int) -> Held:
        """Remove the entries that retention no longer keeps; nothing is looked at that does not go."""
        marks, keep = held.marks, self.retention
        heavy = aged = marks.floor
        excess = held.weight - keep.max_bytes
        if excess > held.floor_weight:
            row = db.execute(SQL["first_heavy"], (held.slot, marks.floor, excess)).fetchone()
            heavy = row[0] if row else marks.position
        # Age removes only what is archived, or final: up to there, so that a late archive costs no second look.
        removable = marks.archived if keep.archive else marks.position if marks.final else 0
        if keep.age is not None and removable > marks.floor:
            bounds = (held.slot, marks.floor, removable, now - round(keep.age * 1000))
            row = db.execute(SQL["first_young"], bounds).fetchone()
            aged = row[0] - 1 if row else removable
        floor = new_floor(marks, keep, aged=aged, heavy=heavy)
        if floor <= marks.floor:
            return held
        row = db.execute(SQL["weight"], (held.slot, floor)).fetchone()
        floor_weight = row[0] if row and type(row[0]) is int else held.floor_weight
        db.execute(SQL["cut"], (held.slot, floor))
        return replace(held, marks=replace(marks, floor=floor), floor_weight=min(floor_weight, held.weight))


def flush(db: sqlite3.Connection) -> None:
    """Empty the file."""
    for table in TABLES:
        db.execute(f"DELETE FROM {table}")


def restore(db: sqlite3.Connection, source: Path) -> None:
    """Replace every row by those of another live file."""
    with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as other:
        flush(db)
        for table in TABLES:
            found = other.execute(f"SELECT * FROM {table}")
            places = ",".join("?" * len(found.description))
            db.executemany(f"INSERT INTO {table} VALUES ({places})", found)


def merged(results: Iterable[object]) -> list[Hint]:
    """The hints of one commit, one per feed; a feed that was opened anew on the way has those of its last epoch."""
    by_feed: dict[Feed, list[Hint]] = {}
    for result in results:
        if type(result) is Done and result.hint is not None:
            hint = result.hint
            held = by_feed.get(hint.feed)
            if held is None or held[-1].marks.epoch != hint.marks.epoch:
                by_feed[hint.feed] = [hint]
            else:
                held.append(hint)
    return [hints[0] if len(hints) == 1 else _joined(hints) for hints in by_feed.values()]


def _joined(hints: Sequence[Hint]) -> Hint:
    voids_before = max(hint.voids_before for hint in hints)
    return Hint(
        hints[-1].feed,
        hints[-1].marks,
        next((hint.snapshot for hint in reversed(hints) if hint.snapshot is not None), None),
        tuple(entry for hint in hints for entry in hint.entries),
        tuple(piece for hint in hints for piece in hint.text if piece.token >= voids_before),
        voids_before,
    )


def _refused(db: sqlite3.Connection, held: Held | None, refused: Reply | None, event_id: str | None) -> Done:
    assert refused is not None  # core refuses every write to a projection that is missing
    if isinstance(refused, Already) and held is not None and event_id is not None:
        place = rows.find(db, held, event_id)
        return Done(Already(Cursor(held.marks.epoch, *place) if place else None))
    return Done(refused)


def _moved(held: Held) -> tuple[object, ...]:
    """The columns that every accepted write moves."""
    marks, snapshot = held.marks, held.snapshot
    return (
        marks.position,
        marks.tag,
        marks.floor,
        marks.n,
        marks.state_version,
        marks.version,
        snapshot.heartbeat_at,
        snapshot.updated_at,
        held.weight,
        held.floor_weight,
        snapshot.state,
    )


def _erase(db: sqlite3.Connection, feed: Feed) -> None:
    row = db.execute(SQL["slot"], (feed.key,)).fetchone()
    if row is not None:
        _empty(db, row[0])
        db.execute(SQL["drop"], row)


def _empty(db: sqlite3.Connection, slot: int | None) -> None:
    """Remove the timeline and the text."""
    db.execute(SQL["drop_entries"], (slot,))
    _drop_texts(db, slot, None)


def _drop_texts(db: sqlite3.Connection, slot: int | None, below: int | None) -> None:
    """Remove the text of attempts below this token; of all if it is None."""
    db.execute(SQL["drop_pieces"], (slot, below))
    db.execute(SQL["drop_parts"], (slot, below))


def _drop_part(db: sqlite3.Connection, part: int) -> None:
    db.execute(SQL["drop_part"], (part,))
    db.execute(SQL["drop_part_pieces"], (part,))
