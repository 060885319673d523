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

_PAUSES = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0)  # seconds between two tries at a server, the last one from then on
_LEAST = 0.05  # of them, however many come meanwhile

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


@dataclass(eq=False, slots=True)
class _Place:
    """A server at which wishes wait to be subscribed. What becomes of it concerns no other server's."""

    address: Address
    wishes: dict[bytes, _Wish] = field(default_factory=dict)
    more: asyncio.Event = field(default_factory=asyncio.Event)  # another one came


class RedisSignal:
    """What any process writes is heard by every one; so what this one writes comes back to it, and is not passed on
    a second time. `notify` reaches the listeners of this process alone.

    Lives in the event loop in which it was made; listeners may be in others.
    """

    def __init__(
        self,
        nodes: Nodes,
        names: Names,
        way: Callable[[Feed], Awaitable[Way]],
        look: Look,
        *,
        what: str,
        deadline: float,
    ) -> None:
        """`way` finds out how hints travel, at this feed's server if it has to; `look` is what polling asks, `what`
        names the store in errors."""
        self._nodes, self._names, self._way, self._look = nodes, names, way, look
        self._what, self._deadline = what, deadline
        self._loop = asyncio.get_running_loop()
        self._local = LocalSignal()
        self._wishes: dict[bytes, _Wish] = {}
        self._lines: dict[Address, Line] = {}
        self._places: dict[Address, _Place] = {}
        self._placing: set[asyncio.Task[None]] = set()
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
                if command := TOLD_BY[await self._way(feed)]:
                    await self._nodes.execute([command, self._names.channel(feed), b""])
                else:
                    self._local.gap([feed])

    async def close(self) -> None:
        self._closed = True
        tasks = [*self._placing, *([self._polling] if self._polling is not None else [])]
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
                if self._closed:
                    raise StoreUnavailable(f"{self._what} is closed.")
                async with asyncio.timeout(self._deadline):
                    if self._deaf or await self._way(feed) == "polled":
                        self._poll()
                    elif wish.line is None:
                        await self._placed(wish)
        except BaseException:
            await self._remove(feed, listener)
            raise

    async def _placed(self, wish: _Wish) -> None:
        if wish.ready is None:
            wish.ready = self._loop.create_future()
        ready = wish.ready
        self._place(await self._nodes.locate(wish.channel.decode()), [wish])
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

    def _place(self, address: Address, wishes: Iterable[_Wish]) -> None:
        """See that they are subscribed, there or where they belong by then."""
        if self._closed:
            raise StoreUnavailable(f"{self._what} is closed.")
        place = self._places.get(address)
        if place is None:
            place = self._places[address] = _Place(address)
            task = asyncio.ensure_future(self._keep_placing(place))
            self._placing.add(task)
            task.add_done_callback(self._placing.discard)
        place.wishes.update((wish.channel, wish) for wish in wishes)
        place.more.set()

    async def _keep_placing(self, place: _Place) -> None:
        tries = 0
        while wishes := self._unplaced(place):
            place.more.clear()
            try:
                async with asyncio.timeout(self._deadline):
                    if tries:
                        await self._nodes.refresh()
                    here: list[_Wish] = []
                    for wish in wishes:
                        address = await self._nodes.locate(wish.channel.decode())
                        if address == place.address:
                            here.append(wish)
                        else:
                            del place.wishes[wish.channel]
                            self._place(address, [wish])
                    if here:
                        await self._subscribe(place.address, here)
            except Exception as error:  # whatever it is: if this ended, these feeds would be heard of no more
                log.debug("%s: no subscription at %s yet: %r", self._what, place.address, error)
            if {*wishes}.isdisjoint(self._unplaced(place)):
                tries = 0
            else:
                await self._pause(place, _PAUSES[min(tries, len(_PAUSES) - 1)])
                tries += 1
        del self._places[place.address]

    def _unplaced(self, place: _Place) -> list[_Wish]:
        place.wishes = {
            channel: wish
            for channel, wish in place.wishes.items()
            if wish.line is None and self._wishes.get(channel) is wish and not self._deaf
        }
        return list(place.wishes.values())

    async def _pause(self, place: _Place, seconds: float) -> None:
        """Until the next try, which somebody who comes meanwhile need not wait for."""
        await asyncio.sleep(min(seconds, _LEAST))
        try:
            async with asyncio.timeout(max(0.0, seconds - _LEAST)):
                await place.more.wait()
        except TimeoutError:
            pass

    async def _subscribe(self, address: Address, wishes: Sequence[_Wish]) -> None:
        line = self._lines.get(address)
        if line is None:
            line = await self._connect(address, await self._way(wishes[0].feed) == "sharded")
        answers = await line.subscribe([wish.channel for wish in wishes])
        for wish, refused in zip(wishes, answers, strict=True):
            if isinstance(refused, NoPermissionError):
                self._deaf = True
                self._answer(wish, None)
                self._poll()

    def _joined(self, line: Line, channel: bytes) -> bool:
        wish = self._wishes.get(channel)
        if wish is None or (wish.line is not None and wish.line is not line):
            return False
        wish.line = line
        if wish.missed:
            wish.missed = False
            self._local.gap([wish.feed])
        self._answer(wish, None)
        return True

    def _answer(self, wish: _Wish, error: Exception | None) -> None:
        ready, wish.ready = wish.ready, None
        if ready is not None and not ready.done():
            if error is None:
                ready.set_result(None)
            else:
                ready.set_exception(error)

    async def _connect(self, address: Address, sharded: bool) -> Line:
        line = Line(
            self._nodes.subscriber(address),
            sharded=sharded,
            silence=self._deadline,
            heard=self._hear,
            joined=lambda channel: self._joined(line, channel),
            left=lambda channel: self._lost(address, line, [channel]),
            broken=lambda: self._break(address, line),
        )
        try:
            await line.open()
        except BaseException:
            await line.close()
            raise
        self._lines[address] = line
        return line

    def _break(self, address: Address, line: Line) -> None:
        if self._lines.get(address) is line:
            del self._lines[address]
        self._lost(address, line, [wish.channel for wish in self._wishes.values() if wish.line is line])
        closing = asyncio.ensure_future(line.close())
        closing.add_done_callback(lambda task: task.exception() if not task.cancelled() else None)

    def _lost(self, address: Address, line: Line, channels: Iterable[bytes]) -> None:
        lost = [wish for channel in channels if (wish := self._wishes.get(channel)) and wish.line is line]
        for wish in lost:
            wish.line, wish.missed = None, True
        if lost and not self._closed:
            self._place(address, lost)

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
