"""The embedded live store: projections and text in one SQLite file, with hints to the listeners of this process.

The file is disposable. What it lacks is a lost projection and no more: the record rules, and laws 6 and 7 repair it. So
a file that is missing, damaged or of another version is replaced by an empty one, and a power loss, which may take
the last commits, is the store going back. A file that is deleted while it is open goes on serving and is gone after
the next start; to lose the projections of a running server on purpose there is `flush`.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar, cast

from playhead.backends.local_signal import LocalSignal
from playhead.backends.sqlite import live_rows as rows
from playhead.backends.sqlite import live_writes
from playhead.backends.sqlite.faults import typed
from playhead.backends.sqlite.file import SqliteFile
from playhead.backends.sqlite.live_rows import SQL, Cache, DamagedProjection
from playhead.backends.sqlite.live_writes import EXPIRED_AT_ONCE, TABLES, Done, LiveWrites
from playhead.core.event import UNREADABLE, Fact
from playhead.core.ids import Feed, check_whole, parse_feed
from playhead.core.retention import Lifetimes, Retention, idles
from playhead.core.text import TextPart, TextReply, TextWrite
from playhead.core.transition import Marks, Opening, Publish, Reply
from playhead.errors import PlayheadError, StoreCorrupt, StoreTooNew, StoreUnavailable
from playhead.interfaces import Clock, View

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

SCHEMA = Path(__file__).with_name("schema") / "live"
KEPT_ASIDE = 3  # damaged files; older ones are removed

log = logging.getLogger(__name__)


class SqliteLive:
    """ProjectionStore and TextChannel on one file, which this process alone writes; `signal` tells what it committed.

    May be shared by any number of event loops.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        retention: Retention,
        timeline_ttl: float,
        snapshot_ttl: float,
        idle_ttl: float,
        **options: Any,
    ) -> None:
        """See `at`, which also opens the file."""
        self.path = path
        self.signal = LocalSignal()
        self._clock = clock
        self._retention = retention
        cache = Cache(first_stamp=int.from_bytes(clock.random(6), "big"))
        self._writes = LiveWrites(retention, Lifetimes.of(timeline_ttl, snapshot_ttl, idle_ttl), cache)
        self._options = options
        self._file: SqliteFile | None = None  # None while it is being replaced, or could not be
        self._closed = False
        self.unreadable = 0
        self._replacing = threading.Lock()

    @classmethod
    async def at(
        cls,
        path: Path,
        *,
        clock: Clock,
        retention: Retention | None = None,
        timeline_ttl: float = 3_600.0,
        snapshot_ttl: float = 86_400.0,
        idle_ttl: float = 86_400.0,
        **options: Any,
    ) -> SqliteLive:
        """Open the file, or an empty one in its place if it is missing, damaged or of another version.

        The times to live are seconds: the first two after the final fact, `idle_ttl` after a thread or topic was left
        alone. `options` are those of `SqliteFile`. A damaged file is kept beside the new one as
        `<name>.damaged-<ms>`. Raises StoreFull, StoreUnavailable.
        """
        live = cls(
            path,
            clock=clock,
            retention=retention or Retention(),
            timeline_ttl=timeline_ttl,
            snapshot_ttl=snapshot_ttl,
            idle_ttl=idle_ttl,
            **options,
        )
        live._file = await live._open()
        return live

    @property
    def retention(self) -> Retention:
        return self._retention

    async def open(self, opening: Opening) -> Reply:
        now = self._clock.wall_ms()
        return await self._act(lambda db: self._writes.open(db, opening, now))

    async def fact(self, epoch: int, fact: Fact, tag: str) -> Reply:
        now = self._clock.wall_ms()
        return await self._act(lambda db: self._writes.fact(db, epoch, fact, tag, now))

    async def publish(self, write: Publish) -> Reply:
        now = self._clock.wall_ms()
        return await self._act(lambda db: self._writes.publish(db, write, now))

    async def read(
        self, feed: Feed, *, after: int | None = None, before: int | None = None, limit: int = 100
    ) -> View | None:
        view = await self._sound(feed, lambda db: rows.view(db, feed, after, before, limit), None)
        unreadable = sum(entry.event.type == UNREADABLE for entry in view.entries) if view else 0
        if unreadable:
            self.unreadable += unreadable
            log.warning("%d events of %s in %s cannot be read.", unreadable, feed.key, self.path.name)
        return view

    async def find(self, feed: Feed, event_id: str) -> int | None:
        def work(db: sqlite3.Connection) -> int | None:
            held = rows.load(db, feed)
            place = rows.find(db, held, event_id) if held else None
            return place[0] if place else None

        return await self._read(work)

    async def stand(self, feeds: Collection[Feed]) -> dict[Feed, Marks]:
        return await self._read(lambda db: rows.stand(db, feeds))

    async def archived(self, feed: Feed, epoch: int, position: int) -> None:
        check_whole(epoch, position)
        now = self._clock.wall_ms()
        await self._write(lambda db: self._writes.archived(db, feed, epoch, position, now), frees=True)

    async def unarchived(self, limit: int) -> list[Feed]:
        return await self._read(lambda db: _feeds(db.execute(SQL["unarchived"], (limit,))))

    async def trim(self, feed: Feed) -> None:
        now = self._clock.wall_ms()
        await self._write(lambda db: self._writes.trim(db, feed, now), frees=True)

    async def aged(self, limit: int) -> list[Feed]:
        """As the port says; those that wait for the archive come last."""
        if self._retention.age is None:
            return []
        oldest = self._clock.wall_ms() - round(self._retention.age * 1000)
        return await self._read(lambda db: _feeds(db.execute(SQL["aged"], (oldest, limit))))

    async def drop(self, feed: Feed, epoch: int | None = None) -> None:
        await self._write(lambda db: self._writes.drop(db, feed, epoch), frees=True)

    async def watched(self, feeds: Collection[Feed]) -> None:
        now, used = self._clock.wall_ms(), [feed for feed in feeds if idles(feed)]
        if used:
            await self._write(lambda db: self._writes.watched(db, used, now))

    async def expire(self) -> int:
        total = 0
        while True:
            gone = await self._write(lambda db: self._writes.expire(db, self._clock.wall_ms()), frees=True)
            total += gone
            if gone < EXPIRED_AT_ONCE:
                return total

    async def append(self, write: TextWrite) -> TextReply:
        return (await self._write(lambda db: self._writes.append(db, write))).reply

    async def read_text(self, feed: Feed) -> list[TextPart]:
        return await self._sound(feed, lambda db: rows.texts(db, feed), [])

    async def lengths(self, feeds: Collection[Feed]) -> dict[Feed, dict[tuple[int, str], int]]:
        return await self._read(lambda db: rows.lengths(db, feeds))

    async def flush(self) -> None:
        """Lose every projection, as a deleted file would."""
        await self._write(live_writes.flush, frees=True)

    async def copy(self, target: Path) -> None:
        """Write all that is committed to another file."""

        def work(db: sqlite3.Connection) -> None:
            with closing(sqlite3.connect(target)) as other:
                db.backup(other)

        await self._read(work)

    async def restore(self, source: Path) -> None:
        """Go back to what `copy` wrote."""
        await self._write(lambda db: live_writes.restore(db, source))

    def statistics(self) -> dict[str, int]:
        return {**self._file.statistics(), "unreadable": self.unreadable} if self._file else {}

    async def close(self) -> None:
        self._closed = True
        if self._file is not None:
            await self._file.close()

    def _notify(self, results: Sequence[object]) -> None:
        hints = live_writes.merged(results)
        if hints:
            self.signal.notify(hints)

    async def _act(self, work: Work[Done]) -> Reply:
        return cast(Reply, (await self._write(work)).reply)

    async def _write(self, work: Work[T], *, frees: bool = False) -> T:
        file = self._file or await self._replaced(None)
        try:
            return await file.write(work, frees=frees)
        except StoreCorrupt as error:
            raise await self._lost(file) from error

    async def _read(self, work: Work[T]) -> T:
        file = self._file or await self._replaced(None)
        try:
            return await file.read(work)
        except StoreCorrupt as error:
            raise await self._lost(file) from error

    async def _sound(self, feed: Feed, work: Work[T], missing: T) -> T:
        """Read; what turns out to be damaged is dropped, so that every later look finds it missing too."""
        try:
            return await self._read(work)
        except DamagedProjection:
            if await self._write(lambda db: self._writes.drop_damaged(db, feed), frees=True):
                log.warning("The projection of %s in %s was damaged and is dropped.", feed.key, self.path.name)
            return missing

    async def _open(self) -> SqliteFile:
        try:
            return await self._open_sound()
        except (StoreCorrupt, StoreTooNew) as error:
            self._set_aside(error.code)
        return await self._open_sound()

    async def _open_sound(self) -> SqliteFile:
        file = await SqliteFile.open(
            self.path, schema=SCHEMA, durable=False, after_commit=self._notify, **self._options
        )
        try:
            await file.read(_probe)
        except StoreUnavailable:
            await file.close()
            raise
        except PlayheadError as error:
            await file.close()
            raise StoreCorrupt(f"{self.path} lacks what it should hold: {error}", file=str(self.path)) from error
        return file

    async def _lost(self, damaged: SqliteFile) -> StoreUnavailable:
        """Replace the file that proved damaged while it was in use; the error for the caller, who asks again."""
        try:
            await self._replaced(damaged)
        except StoreUnavailable as error:
            return error
        return StoreUnavailable(f"{self.path.name} was damaged and is replaced by an empty one.", file=self.path.name)

    async def _replaced(self, damaged: SqliteFile | None) -> SqliteFile:
        """The file in place of this one, or of one that was set aside when no other could be made."""
        busy = StoreUnavailable(f"{self.path.name} is being replaced.", file=self.path.name)
        if self._closed or not self._replacing.acquire(blocking=False):
            raise busy
        try:
            if damaged is not None and self._file is damaged:
                self._file = None
                await damaged.close()
                self._set_aside(StoreCorrupt.code)
            if self._file is None:
                self._file = await self._open()
            return self._file
        finally:
            self._replacing.release()

    def _set_aside(self, why: str) -> None:
        try:
            aside = set_aside(self.path, self._clock.wall_ms())
        except OSError as error:  # it stays where it is, and is tried again with the next use
            raise typed(error, self.path) from error
        log.warning("%s: %s. Its projections are lost and get rebuilt; it is kept as %s.", self.path, why, aside.name)


def set_aside(path: Path, at: int) -> Path:
    """Rename a file with its log, and remove all but the last few that were set aside before."""
    aside = path.with_name(f"{path.name}.damaged-{at}")
    for ending in ("", "-wal", "-shm"):
        part = path.with_name(path.name + ending)
        if part.exists():
            part.rename(aside.with_name(aside.name + ending))
    kept = sorted(path.parent.glob(f"{path.name}.damaged-*[0-9]"))
    for old in kept[:-KEPT_ASIDE]:
        for ending in ("", "-wal", "-shm"):
            old.with_name(old.name + ending).unlink(missing_ok=True)
    return aside


def _probe(db: sqlite3.Connection) -> None:
    for table in TABLES:
        db.execute(f"SELECT * FROM {table} LIMIT 0")


def _feeds(found: sqlite3.Cursor) -> list[Feed]:
    return [parse_feed(key) for (key,) in found if type(key) is str]
