"""Hints through the server: sharded pub/sub, plain pub/sub where there is none, a look now and then without either."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from redis.exceptions import NoPermissionError, RedisError

from playhead.backends.local_signal import LocalSignal
from playhead.backends.redis.faults import typed
from playhead.backends.redis.hints import decode
from playhead.backends.redis.line import Line
from playhead.backends.redis.names import Names
from playhead.backends.redis.nodes import Address, Nodes
from playhead.core.ids import Feed
from playhead.errors import StoreUnavailable
from playhead.interfaces import Hint, Listener

Way = Literal["sharded", "plain", "polled"]
Look = Callable[[Collection[Feed]], Awaitable[dict[Feed, object]]]

TOLD_BY: dict[Way, str] = {"sharded": "SPUBLISH", "plain": "PUBLISH", "polled": ""}

_PAUSES = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0)  # seconds between two tries, the last one from then on

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Wish:
    """A feed that somebody wants to hear of."""

    feed: Feed
    channel: bytes
    listeners: list[Listener] = field(default_factory=list)
    line: Line | None = None  # None: nowhere subscribed
    missed: bool = False  # hints may have been missed while it was nowhere
    ready: asyncio.Future[None] | None = None


class RedisSignal:
    """What any process writes is heard by every one; so what this one writes comes back to it, and is not passed on
    a second time. `notify` reaches the listeners of this process alone.

    Lives in the event loop in which it was made; listeners may be in others.
    """

    def __init__(
        self, nodes: Nodes, names: Names, way: Callable[[], Awaitable[Way]], look: Look, *, what: str, deadline: float
    ) -> None:
        """`way` finds out how hints travel, `look` is what polling asks, `what` names the store in errors."""
        self._nodes, self._names, self._way, self._look = nodes, names, way, look
        self._what, self._deadline = what, deadline
        self._loop = asyncio.get_running_loop()
        self._local = LocalSignal()
        self._wishes: dict[bytes, _Wish] = {}
        self._lines: dict[Address, Line] = {}
        self._placing: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._heard: list[Hint] = []
        self._closed = False
        self._deaf = False  # the server's rules do not let us subscribe
        self.poll = 1.0  # seconds between two looks

    @property
    def connections(self) -> int:
        return len(self._lines)

    async def add(self, feed: Feed, listener: Listener) -> None:
        """Raises StoreUnavailable when the subscription was not confirmed in time; then nothing is added."""
        await self._local.add(feed, listener)
        try:
            await self._here(self._add(feed, listener))
        except BaseException:
            await self._local.remove(feed, listener)
            raise

    async def remove(self, feed: Feed, listener: Listener) -> None:
        await self._local.remove(feed, listener)
        await self._here(self._remove(feed, listener))

    def notify(self, hints: Sequence[Hint]) -> None:
        self._local.notify(hints)

    async def ring(self, feed: Feed) -> None:
        """Raises StoreUnavailable. Where the server's rules forbid pub/sub, this process alone hears it."""
        await self._here(self._ring(feed))

    async def _ring(self, feed: Feed) -> None:
        with typed(self._what):
            async with asyncio.timeout(self._deadline):
                if command := TOLD_BY[await self._way()]:
                    await self._nodes.execute([command, self._names.channel(feed), b""])
                else:
                    self._local.gap([feed])

    async def close(self) -> None:
        self._closed = True
        tasks = [task for task in (self._placing, self._polling) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        lines, self._lines = self._lines, {}
        for line in lines.values():
            await line.close()
        for wish in self._wishes.values():
            self._answer(wish, StoreUnavailable(f"{self._what} is closed."))

    async def _here(self, work: Awaitable[None]) -> None:
        """Do this in the loop of the connections."""
        if asyncio.get_running_loop() is self._loop:
            await work
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_coroutine(work), self._loop))

    async def _add(self, feed: Feed, listener: Listener) -> None:
        channel = self._names.channel(feed).encode()
        wish = self._wishes.setdefault(channel, _Wish(feed, channel))
        if not any(one is listener for one in wish.listeners):
            wish.listeners.append(listener)
        try:
            with typed(self._what):
                async with asyncio.timeout(self._deadline):
                    if self._deaf or await self._way() == "polled":
                        self._poll()
                    elif wish.line is None:
                        await self._placed(wish)
        except BaseException:
            await self._remove(feed, listener)
            raise

    async def _placed(self, wish: _Wish) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self._what} is closed.")
        if wish.ready is None:
            wish.ready = self._loop.create_future()
        ready = wish.ready
        self._place()
        await asyncio.wait({ready})
        ready.result()

    async def _remove(self, feed: Feed, listener: Listener) -> None:
        channel = self._names.channel(feed).encode()
        wish = self._wishes.get(channel)
        if wish is None:
            return
        wish.listeners = [one for one in wish.listeners if one is not listener]
        if wish.listeners:
            return
        del self._wishes[channel]
        if wish.line is not None:
            try:
                await wish.line.unsubscribe(channel)
            except (RedisError, OSError):
                pass  # with the connection the subscription is gone too

    # Where feeds are subscribed.

    def _place(self) -> None:
        """See that every wish gets its place."""
        if not self._closed and (self._placing is None or self._placing.done()):
            self._placing = asyncio.ensure_future(self._keep_placing())

    async def _keep_placing(self) -> None:
        tries = 0
        while nowhere := [wish for wish in self._wishes.values() if wish.line is None and not self._deaf]:
            await asyncio.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            tries += 1
            try:
                if tries > 1:
                    async with asyncio.timeout(self._deadline):
                        await self._nodes.refresh()
                by_place: dict[Address, list[_Wish]] = {}
                for wish in nowhere:
                    place = await self._nodes.locate(wish.channel.decode())
                    by_place.setdefault(place, []).append(wish)
                async with asyncio.timeout(self._deadline):
                    async with asyncio.TaskGroup() as group:
                        for place, wishes in by_place.items():
                            group.create_task(self._tried(place, wishes))
            except (RedisError, OSError, StoreUnavailable) as error:
                log.debug("%s: no subscription yet: %s", self._what, error)
            if not any(wish.line is None for wish in nowhere):
                tries = 0

    async def _tried(self, place: Address, wishes: Sequence[_Wish]) -> None:
        """One server that cannot be reached keeps nobody else waiting."""
        try:
            await self._subscribe(place, wishes)
        except (RedisError, OSError) as error:
            log.debug("%s: no subscription at %s yet: %s", self._what, place, error)

    async def _subscribe(self, place: Address, wishes: Sequence[_Wish]) -> None:
        line = self._lines.get(place)
        if line is None:
            line = await self._connect(place)
        answers = await line.subscribe([wish.channel for wish in wishes])
        for wish, refused in zip(wishes, answers, strict=True):
            if refused is None:
                self._arrived(wish, line)
            elif isinstance(refused, NoPermissionError):
                self._deaf = True
                self._answer(wish, None)
                self._poll()
        for wish in wishes:  # who left meanwhile
            if wish.line is not None and self._wishes.get(wish.channel) is not wish:
                await line.unsubscribe(wish.channel)

    def _arrived(self, wish: _Wish, line: Line) -> None:
        wish.line = line
        if wish.missed:
            wish.missed = False
            self._local.gap([wish.feed])
        self._answer(wish, None)

    def _answer(self, wish: _Wish, error: Exception | None) -> None:
        ready, wish.ready = wish.ready, None
        if ready is not None and not ready.done():
            if error is None:
                ready.set_result(None)
            else:
                ready.set_exception(error)

    async def _connect(self, place: Address) -> Line:
        line = Line(
            self._nodes.subscriber(place),
            sharded=await self._way() == "sharded",
            silence=self._deadline,
            heard=self._hear,
            left=lambda channel: self._lost([channel]),
            broken=lambda: self._break(place, line),
        )
        try:
            await line.open()
        except BaseException:
            await line.close()
            raise
        self._lines[place] = line
        return line

    def _break(self, place: Address, line: Line) -> None:
        if self._lines.get(place) is line:
            del self._lines[place]
        self._lost([wish.channel for wish in self._wishes.values() if wish.line is line])
        closing = asyncio.ensure_future(line.close())
        closing.add_done_callback(lambda task: task.exception() if not task.cancelled() else None)

    def _lost(self, channels: Iterable[bytes]) -> None:
        for channel in channels:
            wish = self._wishes.get(channel)
            if wish is not None:
                wish.line, wish.missed = None, True
        self._place()

    # What is heard.

    def _hear(self, channel: bytes, message: bytes) -> None:
        wish = self._wishes.get(channel)
        if wish is None:
            return
        hint = decode(wish.feed, message)
        if hint is None:
            self._flush()
            self._local.gap([wish.feed])
            return
        self._heard.append(hint)
        if len(self._heard) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        heard, self._heard = self._heard, []
        if heard:
            self._local.notify(heard)

    # Without pub/sub.

    def _poll(self) -> None:
        if not self._closed and (self._polling is None or self._polling.done()):
            self._polling = asyncio.ensure_future(self._keep_polling())

    async def _keep_polling(self) -> None:
        seen: dict[Feed, object] = {}
        while self._wishes:
            feeds = [wish.feed for wish in self._wishes.values()]
            try:
                found = await self._look(feeds)
            except StoreUnavailable:
                found = {}
            else:
                self._local.gap([feed for feed in feeds if feed not in seen or seen[feed] != found.get(feed)])
                seen = {feed: found.get(feed) for feed in feeds}
            await asyncio.sleep(self.poll)


async def _coroutine(work: Awaitable[None]) -> None:
    await work
