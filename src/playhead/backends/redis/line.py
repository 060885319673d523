"""One connection that only listens: what it subscribed to, and the moment at which it broke.

It is never mended unseen. Who holds a broken line knows that messages were missed, and makes another one.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

Heard = Callable[[bytes, bytes], None]


class Line:
    """`heard` is told of each message, `left` of a channel that the server took away, `broken` once, at the end.

    `joined` is told of each channel from when on nothing is missed there, and says whether that is wanted still; if
    not, it is unsubscribed. Whoever wanted it may have gone without knowing that it was asked for.
    """

    def __init__(
        self,
        connection: AbstractConnection,
        *,
        sharded: bool,
        silence: float,
        heard: Heard,
        joined: Callable[[bytes], bool],
        left: Callable[[bytes], None],
        broken: Callable[[], None],
    ) -> None:
        """`silence`: seconds without a word after which the server is asked whether it is there."""
        self._connection, self._silence = connection, silence
        kind = b"s" if sharded else b""
        self._subscribe, self._unsubscribe = (kind + b"SUBSCRIBE").upper(), (kind + b"UNSUBSCRIBE").upper()
        self._heard, self._joined, self._left, self._broken = heard, joined, left, broken
        self._sent: deque[tuple[bytes, bytes]] = deque()  # commands without an answer yet
        self._open = Counter[bytes]()  # how many of them are about a channel; the last one's answer decides
        self._waiting: dict[bytes, asyncio.Future[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._news = False
        self.channels: set[bytes] = set()

    async def open(self) -> None:
        """Connect. Raises what the driver raises."""
        await self._connection.connect()
        self._tasks = [asyncio.ensure_future(self._listen()), asyncio.ensure_future(self._watch())]

    async def subscribe(self, channels: Sequence[bytes]) -> list[ResponseError | None]:
        """Send for all of these at once and wait for the answers: None where it is confirmed.

        Raises ConnectionError when the line breaks meanwhile.
        """
        loop = asyncio.get_running_loop()
        futures = [self._waiting.setdefault(channel, loop.create_future()) for channel in channels]
        await self._send([(self._subscribe, channel) for channel in channels])
        await asyncio.wait(futures)
        answers: list[ResponseError | None] = []
        for future in futures:
            error = future.exception() if not future.cancelled() else ConnectionError("the line broke")
            if error is not None and not isinstance(error, ResponseError):
                raise error
            answers.append(error)
        return answers

    async def unsubscribe(self, channel: bytes) -> None:
        self.channels.discard(channel)
        await self._send([(self._unsubscribe, channel)])

    async def close(self) -> None:
        """Close it; nobody is told."""
        self._broken = lambda: None
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.gather(
            *(task for task in self._tasks if task is not asyncio.current_task()), return_exceptions=True
        )
        self._fail(ConnectionError("the line was closed"))
        with suppress(RedisError, OSError):
            await self._connection.disconnect(nowait=True)

    async def _send(self, commands: Sequence[tuple[bytes, bytes]]) -> None:
        if not self._connection.is_connected:  # the driver would connect anew, and nobody would know
            raise ConnectionError("the line broke")
        self._sent.extend(commands)
        self._open.update(channel for _, channel in commands)
        packed = self._connection.pack_commands([command if command[1] else command[:1] for command in commands])
        await self._connection.send_packed_command(packed, check_health=False)

    async def _listen(self) -> None:
        try:
            while True:
                try:
                    # Without suspension as long as the socket had more to give.
                    message = await self._connection.read_response(disable_decoding=True, timeout=math.inf)
                except ResponseError as refused:
                    self._refused(refused)
                else:
                    if (unwanted := self._take(message)) is not None:
                        await self.unsubscribe(unwanted)
                self._news = True
        except (RedisError, OSError):
            pass  # why it broke changes nothing for who missed something
        finally:
            broken, self._broken = self._broken, lambda: None
            broken()

    async def _watch(self) -> None:
        """End a connection whose other end is gone without a word."""
        while True:
            self._news = False
            await asyncio.sleep(self._silence)
            if self._news:
                continue
            with suppress(RedisError, OSError):
                await self._send([(b"PING", b"")])
            await asyncio.sleep(self._silence)
            if not self._news:
                self._tasks[0].cancel()
                return

    def _take(self, message: Any) -> bytes | None:
        """The channel, if it is one that nobody wants."""
        if not isinstance(message, list) or len(message) < 2:  # PONG, before the first subscription
            self._answered(b"PING", b"")
            return None
        kind, channel = message[0], message[1]
        if kind in (b"smessage", b"message"):
            self._heard(channel, message[2])
        elif kind.upper() == self._subscribe:
            self._answered(self._subscribe, channel)
            self.channels.add(channel)
            if not self._open[channel]:
                self._settle(channel, None)
                return None if self._joined(channel) else bytes(channel)
        elif kind.upper() == self._unsubscribe:
            asked = self._answered(self._unsubscribe, channel)
            if channel in self.channels:
                self.channels.discard(channel)
                if not asked:  # its slot moves to another server
                    self._left(channel)
        else:
            self._answered(b"PING", b"")
        return None

    def _answered(self, name: bytes, channel: bytes) -> bool:
        if self._sent and self._sent[0] == (name, channel):
            self._done()
            return True
        return False

    def _done(self) -> tuple[bytes, bytes]:
        """The oldest command, now that it was answered."""
        name, channel = self._sent.popleft()
        self._open[channel] -= 1
        if not self._open[channel]:
            del self._open[channel]
        return name, channel

    def _refused(self, error: ResponseError) -> None:
        """An error says nothing of its command: it is the answer to the oldest one."""
        if self._sent:
            name, channel = self._done()
            if name == self._subscribe and not self._open[channel]:
                self._settle(channel, error)

    def _settle(self, channel: bytes, error: ResponseError | None) -> None:
        future = self._waiting.pop(channel, None)
        if future is not None and not future.done():
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    def _fail(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever waited for it may have gone
