"""The projection store and the text channel in memory."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from dataclasses import dataclass, field, replace
from threading import Lock

from playhead.backends.local_signal import LocalSignal
from playhead.core import transition
from playhead.core.cursor import Cursor
from playhead.core.event import Entry, Fact
from playhead.core.ids import Feed, check_whole
from playhead.core.retention import Lifetimes, Retention, idles, new_floor
from playhead.core.snapshot import Snapshot
from playhead.core.text import TextApplied, TextPart, TextReply, TextWrite, judge_text
from playhead.core.transition import Already, Applied, Marks, NeedsRebuild, Opening, Publish, Reply
from playhead.interfaces import Clock, Hint, TextPiece, View


@dataclass(slots=True)
class _Row:
    """An entry, and what retention wants to know of it."""

    entry: Entry
    at: int  # wall ms of its writing
    size: int


@dataclass(slots=True)
class _Projection:
    marks: Marks
    snapshot: Snapshot
    rows: list[_Row] = field(default_factory=list)  # from floor + 1 on, without a hole
    places: dict[str, int] = field(default_factory=dict)  # event id → position
    text: dict[tuple[int, str], TextPart] = field(default_factory=dict)
    final_at: int | None = None  # wall ms
    used_at: int = 0  # likewise

    def copy(self) -> _Projection:
        return replace(self, rows=copy(self.rows), places=copy(self.places), text=copy(self.text))

    def place(self, event_id: str) -> Cursor | None:
        position = self.places.get(event_id)
        if position is None:
            return None
        entry = self.rows[position - self.marks.floor - 1].entry
        return Cursor(entry.epoch, entry.position, entry.tag)

    def cut(self, floor: int) -> None:
        """Remove every entry up to this position."""
        gone = floor - self.marks.floor
        for row in self.rows[:gone]:
            del self.places[row.entry.event.id]
        del self.rows[:gone]
        self.marks = replace(self.marks, floor=floor)


def _told(refused: Reply | None, held: _Projection | None, event_id: str) -> Reply:
    """The refusal as it is answered: what is known already comes with its place, while that is retained."""
    if held is not None and isinstance(refused, Already):
        return Already(held.place(event_id))
    return refused or NeedsRebuild(0)


Copy = dict[Feed, _Projection]


class MemoryLive:
    """ProjectionStore and TextChannel, with the signal that they notify. Its methods never wait, so that it can be
    used from the loops of several threads.

    `copy`, `restore` and `lose` let it go back in time, as a store does that lost its last writes or all of them.
    """

    unreadable = 0  # it decodes nothing

    def __init__(
        self,
        clock: Clock,
        retention: Retention,
        timeline_ttl: float,
        snapshot_ttl: float,
        idle_ttl: float = 86_400.0,
    ) -> None:
        """The times to live are seconds: the first two after the final fact, the last one after a thread or topic was
        left alone. Raises ValueError for one that cannot be."""
        self.signal = LocalSignal()
        self._clock = clock
        self._retention = retention
        self._lifetimes = Lifetimes.of(timeline_ttl, snapshot_ttl, idle_ttl)
        self._lock = Lock()
        self._held: Copy = {}

    def copy(self) -> Copy:
        with self._lock:
            return {feed: held.copy() for feed, held in self._held.items()}

    def restore(self, earlier: Copy) -> None:
        with self._lock:
            self._held = {feed: held.copy() for feed, held in earlier.items()}

    def lose(self) -> None:
        self.restore({})

    @property
    def retention(self) -> Retention:
        return self._retention

    def _marks(self, feed: Feed) -> Marks | None:
        held = self._held.get(feed)
        return held.marks if held else None

    async def open(self, opening: Opening) -> Reply:
        with self._lock:
            refused = transition.judge_opening(self._marks(opening.feed), opening)
            if refused is not None:
                return refused
            held = _Projection(transition.after_opening(opening), transition.opening_snapshot(opening))
            held.used_at = self._clock.wall_ms()
            self._held[opening.feed] = held
            return self._done(opening.feed, held, ())

    async def fact(self, epoch: int, fact: Fact, tag: str) -> Reply:
        with self._lock:
            held = self._held.get(fact.feed)
            refused = transition.judge_fact(held.marks if held else None, epoch, fact)
            if held is None or refused is not None:
                return _told(refused, held, fact.event.id)
            at = self._clock.wall_ms()
            moved, entry = transition.after_fact(held.marks, fact, tag)
            held.snapshot = transition.fact_snapshot(held.snapshot, moved, fact, at)
            void = moved.token if fact.starts_attempt else 0
            held.text = {key: part for key, part in held.text.items() if part.token >= void}
            held.used_at = at
            if fact.final:
                held.final_at = at
            self._append(held, moved, (entry,), at)
            return self._done(fact.feed, held, (entry,), void)

    async def publish(self, write: Publish) -> Reply:
        with self._lock:
            held = self._held.get(write.feed)
            refused = transition.judge_publish(held.marks if held else None, write)
            if held is None or refused is not None:
                return _told(refused, held, write.events[-1].id if write.events else "")
            moved, entries = transition.after_publish(held.marks, write)
            held.snapshot = transition.publish_snapshot(held.snapshot, moved, write)
            self._append(held, moved, entries, self._clock.wall_ms())
            return self._done(write.feed, held, entries)

    def _append(self, held: _Projection, moved: Marks, entries: tuple[Entry, ...], at: int) -> None:
        held.marks = moved
        held.rows += [_Row(entry, at, len(entry.event.body)) for entry in entries]
        held.places.update({entry.event.id: entry.position for entry in entries})
        self._trim(held)

    def _done(self, feed: Feed, held: _Projection, entries: tuple[Entry, ...], void: int = 0) -> Applied:
        self.signal.notify([Hint(feed, held.marks, held.snapshot, entries, voids_before=void)])
        return Applied(held.marks.cursor, held.marks.version)

    def _trim(self, held: _Projection) -> None:
        aged = heavy = held.marks.floor
        if self._retention.age is not None:
            limit = self._clock.wall_ms() - self._retention.age * 1000
            aged = max((row.entry.position for row in held.rows if row.at < limit), default=aged)
        size = sum(row.size for row in held.rows)
        for row in held.rows:
            if size <= self._retention.max_bytes:
                break
            size -= row.size
            heavy = row.entry.position
        held.cut(new_floor(held.marks, self._retention, aged=aged, heavy=heavy))

    async def read(
        self, feed: Feed, *, after: int | None = None, before: int | None = None, limit: int = 100
    ) -> View | None:
        with self._lock:
            held = self._held.get(feed)
            if held is None:
                return None
            entries = [row.entry for row in held.rows]
            if after is not None:
                entries = [entry for entry in entries if entry.position > after][:limit]
            else:
                entries = [entry for entry in entries if before is None or entry.position < before]
                entries = entries[max(0, len(entries) - limit) :]
            return View(held.marks, held.snapshot, tuple(entries))

    async def find(self, feed: Feed, event_id: str) -> int | None:
        with self._lock:
            held = self._held.get(feed)
            return held.places.get(event_id) if held else None

    async def stand(self, feeds: Collection[Feed]) -> dict[Feed, Marks]:
        with self._lock:
            return {feed: self._held[feed].marks for feed in feeds if feed in self._held}

    async def archived(self, feed: Feed, epoch: int, position: int) -> None:
        check_whole(epoch, position)
        with self._lock:
            held = self._held.get(feed)
            if held is None or held.marks.epoch != epoch:
                return
            # A store that went back has fewer entries than were archived; the places beyond its tip are not theirs.
            reached = max(held.marks.archived, min(position, held.marks.position))
            held.marks = replace(held.marks, archived=reached)
            self._trim(held)

    async def unarchived(self, limit: int) -> list[Feed]:
        with self._lock:
            waiting = [
                feed
                for feed, held in self._held.items()
                if held.marks.position > max(held.marks.archived, held.marks.floor)
            ]
            return waiting[:limit]

    async def trim(self, feed: Feed) -> None:
        with self._lock:
            if held := self._held.get(feed):
                self._trim(held)

    async def aged(self, limit: int) -> list[Feed]:
        if self._retention.age is None:
            return []
        with self._lock:
            bound = self._clock.wall_ms() - self._retention.age * 1000
            old = [feed for feed, held in self._held.items() if any(row.at < bound for row in held.rows)]
            return old[:limit]

    async def drop(self, feed: Feed, epoch: int | None = None) -> None:
        with self._lock:
            held = self._held.get(feed)
            if held is not None and epoch in (held.marks.epoch, None):
                del self._held[feed]

    async def watched(self, feeds: Collection[Feed]) -> None:
        with self._lock:
            for feed in filter(idles, feeds):
                if held := self._held.get(feed):
                    held.used_at = self._clock.wall_ms()

    async def expire(self) -> int:
        with self._lock:
            now = self._clock.wall_ms()
            gone = 0
            for feed, held in list(self._held.items()):
                timeline_ends, ends = self._lifetimes.ends(feed, held.final_at, held.used_at)
                if ends is not None and ends <= now:
                    del self._held[feed]
                    gone += 1
                elif timeline_ends is not None and timeline_ends <= now and held.rows:
                    held.cut(held.marks.position)
                    gone += 1
            return gone

    async def append(self, write: TextWrite) -> TextReply:
        with self._lock:
            projection = self._held.get(write.feed)
            key = (write.guard.token, write.part)
            held = projection.text.get(key) if projection else None
            refused = judge_text(projection.marks if projection else None, held, write)
            if projection is None or refused is not None:
                return refused or NeedsRebuild(0)
            data = (held.data if held else b"") + write.data
            cut = write.truncated or (held is not None and held.truncated)
            projection.text[key] = TextPart(write.part, write.guard.token, len(data), write.final, cut, data)
            piece = TextPiece(write.part, write.guard.token, write.offset, write.data, write.final, cut)
            self.signal.notify([Hint(write.feed, projection.marks, text=(piece,))])
            return TextApplied(len(data))

    async def read_text(self, feed: Feed) -> list[TextPart]:
        with self._lock:
            held = self._held.get(feed)
            return list(held.text.values()) if held else []

    async def lengths(self, feeds: Collection[Feed]) -> dict[Feed, dict[tuple[int, str], int]]:
        with self._lock:
            return {
                feed: {key: part.length for key, part in self._held[feed].text.items()}
                for feed in feeds
                if feed in self._held
            }

    async def close(self) -> None:
        """Keeps everything, so that a test can look at it afterwards."""
