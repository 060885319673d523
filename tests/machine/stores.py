"""The stores as the code under test sees them: real ones, under a sky, with the model told of every act.

A call to a store runs to its end while nothing else runs, so what a history does depends on its choices alone, also
with a backend that has threads. What may come between two calls is up to the sky.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import redis

from playhead.backends.local_signal import LocalSignal
from playhead.backends.memory import MemoryLive, MemoryRecord
from playhead.backends.postgres import PostgresRecord
from playhead.backends.sqlite import SqliteRecord
from playhead.backends.sqlite.live import SqliteLive
from playhead.core.event import Event, Fact
from playhead.core.ids import Feed, run_feed
from playhead.core.retention import Retention
from playhead.core.text import TextWrite
from playhead.core.transition import Marks, Opening, Publish, Reply
from playhead.errors import StoreUnavailable
from playhead.interfaces import Hint, Listener, Signal, View
from playhead.testing.clock import FakeClock
from tests.machine.truth import Line, Part, Truth
from tests.support import postgres, redis_servers

T = TypeVar("T")

TTL = 60.0, 300.0  # seconds after the final fact, of a timeline and of a snapshot
KEPT_COPIES = 4


class Sky:
    """What happens around the next calls of a store: one word each, until there are none left.

    `request` and `reply` get lost; `copy` is taken, the store goes `back` to one, or its content is `lost`, before
    the call. How long a task waits before and after its calls comes from a seed, so tasks overtake each other.
    """

    def __init__(self) -> None:
        self.words: deque[str] = deque()
        self.random = random.Random(0)
        self.yields = 0
        self.down = False
        self.act: Callable[[str], None] = lambda word: None

    def set(self, words: Sequence[str], seed: int) -> None:
        self.words = deque(words)
        self.random = random.Random(seed)
        self.yields = 3 if seed else 0

    async def before(self, live: bool) -> bool:
        """Whether the reply of this call will be lost."""
        await self._pause()
        word = self.words.popleft() if self.words else ""
        if word in ("copy", "back", "lost"):
            self.act(word)
        if (live and self.down) or word == "request":
            raise StoreUnavailable
        return word == "reply"

    async def after(self, lost: bool) -> None:
        await self._pause()
        if lost:
            raise StoreUnavailable

    async def _pause(self) -> None:
        for _ in range(self.random.randint(0, self.yields)):
            await asyncio.sleep(0)


class Local:
    """A backend of this process."""

    def hear(self) -> None:
        """What a write told is heard already."""


class Memory(Local):
    """Both stores in memory."""

    def __init__(self, clock: FakeClock, folder: Path, keep: Retention) -> None:
        self.record = MemoryRecord(clock)
        self.live = MemoryLive(clock, keep, *TTL)

    def wait(self, act: Coroutine[Any, Any, T]) -> T:
        """The result of a method that never waits."""
        try:
            act.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        raise AssertionError("it waited")

    def copy(self) -> Any:
        return self.live.copy()

    def restore(self, held: Any) -> None:
        self.live.restore(held)

    def lose(self) -> None:
        self.live.lose()

    def close(self) -> None:
        self.wait(self.record.close())
        self.wait(self.live.close())


class Sqlite(Local):
    """Both stores in files. Their futures live in a loop of its own, on a thread, so that a call can be sat out."""

    def __init__(self, clock: FakeClock, folder: Path, keep: Retention) -> None:
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._copies = 0
        small = {"readers": 1, "reserve_bytes": 0}
        self.record = self.wait(SqliteRecord.open(folder / "record.db", clock=clock, durable=False, **small))
        self.live = self.wait(
            SqliteLive.at(
                folder / "live.db", clock=clock, retention=keep, timeline_ttl=TTL[0], snapshot_ttl=TTL[1], **small
            )
        )

    def wait(self, act: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result()

    def copy(self) -> Any:
        self._copies += 1
        target = self._folder / f"copy-{self._copies}.db"
        self.wait(self.live.copy(target))
        return target

    def restore(self, held: Any) -> None:
        self.wait(self.live.restore(held))

    def lose(self) -> None:
        self.wait(self.live.flush())

    def close(self) -> None:
        self.wait(self.record.close())
        self.wait(self.live.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Redis:
    """The record in memory, the live store on a real server, in a loop of its own as with files.

    A write is over when what it made the server say has been heard too.
    """

    def __init__(self, clock: FakeClock, folder: Path, keep: Retention) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._turns = 0
        self._keys = redis.Redis.from_url(redis_servers.url("redis"), protocol=2, legacy_responses=False)
        self._prefix = redis_servers.prefix()
        self.record: Any = MemoryRecord(clock)
        options = {"retention": keep, "timeline_ttl": TTL[0], "snapshot_ttl": TTL[1], "prefix": self._prefix}
        self.live = self.wait(redis_servers.live("redis", clock, **options))
        self.signal = Relay(self.live.signal, self.wait)

    def wait(self, act: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result()

    def hear(self) -> None:
        self.wait(self._hear())

    async def _hear(self) -> None:
        self._turns += 1
        nobody = Feed("run", f"nobody-{self._turns}")
        await self.live.signal.add(nobody, self.signal)  # its answer comes behind all that was said before
        await self.live.signal.remove(nobody, self.signal)
        for _ in range(10):
            await asyncio.sleep(0)

    def _names(self) -> list[bytes]:
        return sorted(self._keys.scan_iter(f"{self._prefix}:*", count=1_000))

    def copy(self) -> Any:
        return [(name, self._keys.pttl(name), self._keys.dump(name)) for name in self._names()]

    def restore(self, held: Any) -> None:
        self._drop(self._names())
        for name, left, value in held:
            self._keys.restore(name, max(0, left), value)

    def lose(self) -> None:
        """Everything, or of each projection the one key without which it is lost."""
        self._turns += 1
        names = self._names()
        states = [name for name in names if name.endswith(b":state")]
        if self._turns % 3 == 0:
            self._drop(names)
        elif self._turns % 3 == 1:
            self._drop(states)
        else:
            for state in states:
                events = state.removesuffix(b"state") + b"events"
                ended = not self._keys.hget(state, "marks").endswith(b"-")
                self._drop([state] if ended or not self._keys.xlen(events) else [events])

    def _drop(self, names: Sequence[bytes]) -> None:
        if names:
            self._keys.delete(*names)

    def close(self) -> None:
        self.wait(self.live.close())
        self._drop(self._names())
        self._keys.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Servers(Redis):
    """The record in PostgreSQL too."""

    def __init__(self, clock: FakeClock, folder: Path, keep: Retention) -> None:
        super().__init__(clock, folder, keep)
        dsn = _database()
        postgres.empty(dsn)
        opening = PostgresRecord.open(
            dsn, clock=clock, max_size=1, deadline=redis_servers.PATIENCE, wall=lambda _: clock.wall_ms()
        )
        self.record = self.wait(opening)

    def close(self) -> None:
        self.wait(self.record.close())
        super().close()


@cache
def _database() -> str:
    """One after the other, the histories of this process have it for themselves."""
    return postgres.database()


class Relay:
    """A signal for the loop of a history: it never waits there, and passes on what the store's own loop hears."""

    def __init__(self, signal: Signal, run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._signal, self._run = signal, run
        self._local = LocalSignal()

    async def add(self, feed: Feed, listener: Listener) -> None:
        await self._local.add(feed, listener)
        self._run(self._signal.add(feed, self))

    async def remove(self, feed: Feed, listener: Listener) -> None:
        await self._local.remove(feed, listener)

    def notify(self, hints: Sequence[Hint]) -> None:
        self._local.notify(hints)

    async def ring(self, feed: Feed) -> None:
        self._local.gap([feed])

    def on_hints(self, hints: Sequence[Hint]) -> None:
        self._local.notify(hints)

    def on_gap(self, feed: Feed) -> None:
        self._local.gap([feed])


BACKENDS: dict[str, type[Memory] | type[Sqlite] | type[Redis]] = {
    "memory": Memory,
    "sqlite": Sqlite,
    "redis": Redis,
    "servers": Servers,
}


class Stores:
    """A backend under a sky. `truths` has the model of every feed."""

    def __init__(self, backend: str, clock: FakeClock, folder: Path, keep: Retention) -> None:
        self.backend = BACKENDS[backend](clock, folder, keep)
        self.clock, self.sky = clock, Sky()
        self.sky.act = self.happen
        self.truths: dict[Feed, Truth] = {}
        self.record: Any = Recorded(self)
        self.live = Watched(self)
        self.signal: Signal = getattr(self.backend, "signal", self.backend.live.signal)
        self._copies: list[tuple[Any, dict[Feed, Line | None]]] = []

    async def call(
        self,
        act: Callable[[], Coroutine[Any, Any, T]],
        told: Callable[[T], object] | None = None,
        *,
        live: bool = True,
        writes: bool = False,
    ) -> T:
        lost = await self.sky.before(live)
        answer = self.backend.wait(act())
        if writes:
            self.backend.hear()
        if told is not None:
            told(answer)
        await self.sky.after(lost)
        return answer

    def happen(self, word: str, which: int = 0) -> None:
        """Something befalls the live store. `which` copy: 0 is the newest."""
        if word == "lost":
            self.backend.lose()
            for truth in self.truths.values():
                truth.restore(None)
        elif word == "copy":
            lines = {feed: truth.line.copy() if truth.line else None for feed, truth in self.truths.items()}
            self._copies = [*self._copies, (self.backend.copy(), lines)][-KEPT_COPIES:]
        elif word == "back" and self._copies:
            held, lines = self._copies[-1 - which % len(self._copies)]
            self.backend.restore(held)
            for feed, truth in self.truths.items():
                truth.restore(lines.get(feed))

    def check(self, *truths: Truth) -> None:
        """Compare all that the live store has of these feeds with the model."""
        for truth in truths:
            feed = truth.feed
            live = self.backend.live
            truth.check_view(self.backend.wait(live.read(feed, after=0, limit=10_000)), after=0, limit=10_000)
            truth.check_text(self.texts(feed))
            truth.check_kept()

    def texts(self, feed: Feed) -> dict[Part, tuple[bytes, bool]]:
        parts = self.backend.wait(self.backend.live.read_text(feed))
        return {(part.token, part.part): (part.data, part.final) for part in parts}


class Watched:
    """ProjectionStore and TextChannel. What the store answers is what the model does."""

    unreadable = 0

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._store = stores.backend.live

    @property
    def retention(self) -> Retention:
        return self._store.retention

    async def open(self, opening: Opening) -> Reply:
        truth = self._stores.truths[opening.feed]
        return await self._stores.call(
            lambda: self._store.open(opening), lambda reply: same(reply, truth.open(opening)), writes=True
        )

    async def fact(self, epoch: int, fact: Fact, tag: str) -> Reply:
        truth, now = self._stores.truths[fact.feed], self._stores.clock.wall_ms
        return await self._stores.call(
            lambda: self._store.fact(epoch, fact, tag),
            lambda reply: same(reply, truth.fact(epoch, fact, tag, now())),
            writes=True,
        )

    async def publish(self, write: Publish) -> Reply:
        truth = self._stores.truths[write.feed]
        reply: Reply = await self._stores.call(
            lambda: self._store.publish(write), lambda reply: same(reply, truth.publish(write)), writes=True
        )
        truth.acknowledge(write, reply)
        return reply

    async def append(self, write: TextWrite) -> Any:
        truth = self._stores.truths[write.feed]
        return await self._stores.call(
            lambda: self._store.append(write), lambda reply: same(reply, truth.append(write)), writes=True
        )

    async def read(
        self, feed: Feed, *, after: int | None = None, before: int | None = None, limit: int = 100
    ) -> View | None:
        truth = self._stores.truths[feed]
        return await self._stores.call(
            lambda: self._store.read(feed, after=after, before=before, limit=limit),
            lambda view: truth.check_view(view, after=after, before=before, limit=limit),
        )

    async def find(self, feed: Feed, event_id: str) -> int | None:
        return await self._stores.call(lambda: self._store.find(feed, event_id))

    async def stand(self, feeds: Collection[Feed]) -> dict[Feed, Marks]:
        lines = {feed: self._stores.truths[feed] for feed in feeds}
        return await self._stores.call(
            lambda: self._store.stand(feeds),
            lambda found: same(found, {feed: truth.line.marks for feed, truth in lines.items() if truth.line}),
        )

    async def archived(self, feed: Feed, epoch: int, position: int) -> None:
        truth = self._stores.truths[feed]
        await self._stores.call(
            lambda: self._store.archived(feed, epoch, position), lambda _: truth.archived(epoch, position), writes=True
        )

    async def unarchived(self, limit: int) -> list[Feed]:
        return await self._stores.call(lambda: self._store.unarchived(limit))

    async def trim(self, feed: Feed) -> None:
        await self._stores.call(lambda: self._store.trim(feed), lambda _: self._stores.truths[feed].trim(), writes=True)

    async def aged(self, limit: int) -> list[Feed]:
        return await self._stores.call(lambda: self._store.aged(limit))

    async def drop(self, feed: Feed, epoch: int | None = None) -> None:
        await self._stores.call(
            lambda: self._store.drop(feed, epoch), lambda _: self._stores.truths[feed].drop(epoch), writes=True
        )

    async def watched(self, feeds: Collection[Feed]) -> None:
        await self._stores.call(lambda: self._store.watched(feeds))

    async def expire(self) -> int:
        def told(_: int) -> None:
            for truth in self._stores.truths.values():
                truth.expire(self._stores.clock.wall_ms())

        return await self._stores.call(lambda: self._store.expire(), told, writes=True)

    async def read_text(self, feed: Feed) -> Any:
        return await self._stores.call(lambda: self._store.read_text(feed))

    async def lengths(self, feeds: Collection[Feed]) -> Any:
        return await self._stores.call(lambda: self._store.lengths(feeds))

    async def close(self) -> None:
        """The world closes the backend."""


# The record's acts that may write facts, and so are followed by a look at what was written.
_ACTS = frozenset({"claim", "finish", "request_cancel", "lose", "ask", "decide", "lapse", "mint_epoch", "acquire"})
_OF_AN_ATTEMPT = frozenset({"finish", "ask"})  # with run id and token, which is the latest or the act is refused


class Recorded:
    """RunStore and Archive: every method of the real one, with the model told of facts and of archived events."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._store = stores.backend.record

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            def told(_: Any) -> None:
                if name in _OF_AN_ATTEMPT:
                    truth = self._stores.truths[run_feed(args[0])]
                    assert truth.run is not None
                    assert args[1] == truth.run.token, "the record took what an overtaken attempt said"
                if name in _ACTS:
                    self._learn(None)

            return await self._stores.call(lambda: method(*args, **kwargs), told, live=False)

        return call

    async def append(self, feed: Feed, entries: Sequence[tuple[Event, int]], after: str | None) -> str | None:
        truth = self._stores.truths[feed]

        def told(newest: str | None) -> None:
            if newest is not None:
                truth.keep_for_good(entries)

        return await self._stores.call(lambda: self._store.append(feed, entries, after), told, live=False)

    def learn(self) -> None:
        self._learn(None)

    def _learn(self, _: Any) -> None:
        for feed, truth in self._stores.truths.items():
            page = self._stores.backend.wait(self._store.facts(feed, len(truth.facts)))
            assert page is not None
            truth.committed(page.run, page.facts)


def same(found: object, expected: object) -> None:
    assert found == expected, f"the store answered {found}, right is {expected}"
