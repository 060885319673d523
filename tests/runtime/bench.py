"""A record, a live store that can fail, a hub over both, and sockets that a test can hold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from playhead.backends.memory import MemoryLive, MemoryRecord
from playhead.core import event
from playhead.core.cursor import Cursor
from playhead.core.event import Fact
from playhead.core.ids import Feed, run_feed, uuid7
from playhead.core.interrupt import Question
from playhead.core.replay import Reason
from playhead.core.retention import Retention
from playhead.core.run import NewRun, Outcome, Policy, Run, Status
from playhead.core.snapshot import State
from playhead.core.sse import Frame, Parser
from playhead.core.text import TextApplied, TextPart, TextReply, TextWrite
from playhead.core.transition import Applied, Guard, Marks, Opening, Publish, Reply
from playhead.errors import StoreUnavailable
from playhead.interfaces import Clock, Hint, View
from playhead.runtime.bootstrap import Screens
from playhead.runtime.hub import Hub, HubOptions
from playhead.runtime.livefeed import LiveFeed
from playhead.runtime.projector import Projector
from playhead.runtime.subscription import Place, Viewer
from playhead.testing.clock import FakeClock

TENANT = "acme"


class Store(MemoryLive):
    """A live store that counts, that can be down or held, and that can lose hints."""

    def __init__(self, clock: Clock, retention: Retention) -> None:
        super().__init__(clock, retention, 3600.0, 86_400.0)
        self.down = False
        self.held: asyncio.Event | None = None  # reads wait for it
        self.reads = 0
        self.deaf = False  # hints get lost
        self._notify = self.signal.notify
        self.signal.notify = self._maybe  # type: ignore[method-assign]

    def _maybe(self, hints: Any) -> None:
        if not self.deaf:
            self._notify(hints)

    def _up(self) -> None:
        if self.down:
            raise StoreUnavailable

    async def open(self, opening: Opening) -> Reply:
        self._up()
        return await super().open(opening)

    async def fact(self, epoch: int, fact: Fact, tag: str) -> Reply:
        self._up()
        return await super().fact(epoch, fact, tag)

    async def publish(self, write: Publish) -> Reply:
        self._up()
        return await super().publish(write)

    async def read(
        self, feed: Feed, *, after: int | None = None, before: int | None = None, limit: int = 100
    ) -> View | None:
        self._up()
        self.reads += 1
        view = await super().read(feed, after=after, before=before, limit=limit)
        if self.held is not None:
            await self.held.wait()
        return view

    async def stand(self, feeds: Any) -> dict[Feed, Marks]:
        self._up()
        return await super().stand(feeds)

    async def append(self, write: TextWrite) -> TextReply:
        self._up()
        return await super().append(write)

    async def read_text(self, feed: Feed) -> list[TextPart]:
        self._up()
        return await super().read_text(feed)


@dataclass
class Attempt:
    """Writes as a live attempt does."""

    bench: Bench
    run: Run
    n: int = 0
    state_version: int = 0

    @property
    def feed(self) -> Feed:
        return run_feed(self.run.id)

    async def _guard(self) -> Guard:
        run = await self.bench.get(self.run)
        return Guard(run.epoch, self.run.token, run.rev)

    async def publish(self, count: int = 1, payload: object = None, state: State | None = None) -> None:
        await self.write(count, payload, state)

    async def write(self, count: int, payload: object = None, state: State | None = None) -> None:
        first, self.n = self.n + 1, self.n + count
        self.state_version += state is not None
        clock = self.bench.clock
        at = clock.wall_ms()
        made = [event.published(self.run.id, self.run.token, first + i, "step_done", payload, at) for i in range(count)]
        tags = tuple(self.bench.projector.tag() for _ in made)
        encoded = state.encode() if state else None
        guard = await self._guard()
        reply = await self.bench.live.publish(
            Publish(self.feed, guard, first, tuple(made), tags, encoded, self.state_version, at)
        )
        assert isinstance(reply, Applied), reply

    async def text(self, data: str | bytes, part: str = "answer", offset: int | None = None, **how: Any) -> None:
        raw = data.encode() if isinstance(data, str) else data
        if offset is None:
            lengths = (await self.bench.live.lengths([self.feed])).get(self.feed, {})
            offset = lengths.get((self.run.token, part), 0)
        reply = await self.bench.live.append(TextWrite(self.feed, await self._guard(), part, offset, raw, **how))
        assert isinstance(reply, TextApplied), reply

    async def ask(self, key: str = "ship") -> str:
        question = Question(key, "approval", b'{"title":"Ship?"}', None)
        asked = await self.bench.record.ask(self.run.id, self.run.token, question, self.bench.new_id(), None, self.n)
        await self.bench.bring(self.run)
        return asked.id

    async def finish(self, status: Status = Status.SUCCEEDED, *, project: bool = True, released: bool = False) -> Run:
        outcome = Outcome(status, result=b'{"answer":42}', released=released, published=self.n)
        run = await self.bench.record.finish(self.run.id, self.run.token, outcome)
        if project:
            await self.bench.bring(run)
        return run


class Bench:
    def __init__(self, clock: Any = None, *, options: HubOptions | None = None, retention: Retention | None = None):
        self.clock = clock or FakeClock()
        self.record = MemoryRecord(self.clock)
        self.live = Store(self.clock, retention or Retention())
        self.projector = Projector(self.record, self.live, self.clock)
        self.hub = Hub(self.record, self.live, self.live, self.live.signal, self.projector, self.clock, options=options)
        self.screens = Screens(self.record, self.record, self.live, self.live, self.projector)

    def new_id(self) -> str:
        return uuid7(self.clock.wall_ms(), self.clock.random(10))

    async def queued(self, **fields: Any) -> Run:
        new = replace(NewRun(self.new_id(), TENANT, "echo", b'{"q":1}', Policy(), {}, digest="d"), **fields)
        run, _ = await self.record.create(new)
        await self.projector.begin(run)
        return run

    async def attempt(self, **fields: Any) -> Attempt:
        run = await self.queued(**fields)
        await self.record.beat("p", 10_000_000, ())
        return await self.again(run)

    async def again(self, run: Run) -> Attempt:
        """The next attempt of a run that is free."""
        run = await self.record.claim(TENANT, run.id, "p")
        await self.bring(run)
        return Attempt(self, run)

    async def bring(self, run: Run) -> None:
        await self.projector.bring(run.id)

    async def get(self, run: Run) -> Run:
        found = await self.record.get(TENANT, run.id)
        assert found is not None
        return found

    async def cursor(self, run: Run) -> Cursor:
        view = await self.live.read(run_feed(run.id))
        assert view is not None
        return view.marks.cursor

    async def cursors(self, run: Run) -> list[Cursor]:
        """Of every retained event, oldest first."""
        view = await self.live.read(run_feed(run.id), limit=100_000)
        assert view is not None
        return [Cursor(entry.epoch, entry.position, entry.tag) for entry in view.entries]

    async def settle(self, turns: int = 30) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)


@asynccontextmanager
async def bench(**how: Any) -> AsyncIterator[Bench]:
    made = Bench(**how)
    running = asyncio.create_task(made.hub.run())
    try:
        yield made
    finally:
        made.live.down = False
        if made.live.held is not None:
            made.live.held.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await made.hub.close()


class Socket:
    """An ASGI `send`, as a server's own: it waits while it is held, and remembers how each call ended."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.open = asyncio.Event()
        self.open.set()
        self.fails: Exception | None = None
        self.under_way = 0
        self.most_under_way = 0
        self.finished = 0  # calls whose `finally` has run
        self.cut = False
        self.ended = False

    async def send(self, message: Any) -> None:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if self.fails is not None:
                raise self.fails
            if not self.open.is_set():
                await self.open.wait()
            assert not self.closed, "sent after the end"
            self.messages.append(dict(message))
        finally:
            self.under_way -= 1
            self.finished += 1

    def abort(self) -> None:
        self.cut = True

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)

    @property
    def closed(self) -> bool:
        return any(m["type"] == "http.response.body" and not m["more_body"] for m in self.messages)

    @property
    def frames(self) -> list[Frame]:
        return Parser().feed(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(frame.data) for frame in self.frames if frame.event == "message"]

    @property
    def types(self) -> list[str]:
        return [each["type"] for each in self.events]

    @property
    def names(self) -> list[str]:
        return [frame.event for frame in self.frames]

    def said(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(frame.data) for frame in self.frames if frame.event == name]

    @property
    def text(self) -> dict[str, str]:
        """The text as a client would have it: absolute frames begin anew, others have to fit."""
        parts: dict[str, bytes] = {}
        for piece in self.said("text"):
            key = f"{piece['attempt']}.{piece['part']}"
            data = piece["text"].encode()
            held = parts.get(key, b"")
            assert piece["offset"] in (0, len(held)), piece
            parts[key] = held[: piece["offset"]] + data
            assert piece["end"] == len(parts[key])
        return {key: data.decode() for key, data in parts.items()}


class Watcher:
    """A viewer with its socket, started at the tip or from a position."""

    def __init__(self, bench: Bench, live: LiveFeed, *, driven: bool = True, **how: Any) -> None:
        self.socket = Socket()
        self.resyncs: list[tuple[Reason, Cursor | None]] = []
        self.live = live
        self.viewer = Viewer(
            bench.hub,
            live,
            self.socket.send,
            abort=self.socket.abort,
            ended=self._ended,
            resync=self._resync,
            driven=driven,
            **how,
        )

    def _ended(self) -> None:
        self.socket.ended = True

    async def _resync(self, reason: Reason, at: Cursor | None) -> None:
        self.resyncs.append((reason, at))

    def start(self, position: int | None = None) -> Watcher:
        assert self.live.ring is not None
        _, ends, state = self.live.beginning({})
        self.viewer.start(Place(self.live.ring.position if position is None else position, ends, state))
        return self


async def watch(bench: Bench, run: Run, position: int | None = None, **how: Any) -> Watcher:
    live = await bench.hub.attach(run_feed(run.id))
    return Watcher(bench, live, **how).start(position)


__all__ = ["Attempt", "Bench", "Hint", "Socket", "Watcher", "bench", "watch"]
