"""One connection through the proxy: two sockets, and what goes from the one to the other."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal

from playhead.testing.faults.mode import Finder, Place, Way

_READ = 65_536
_AHEAD = 64  # pieces that wait for their time, in each direction


@dataclass(slots=True)
class Loss:
    """Commands whose answer is lost: `left` more of them."""

    command: bytes
    answer: bytes | None
    left: int


@dataclass(frozen=True, slots=True)
class End:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def finish(self) -> None:
        """Say that nothing comes any more."""
        if self.writer.can_write_eof() and not self.writer.is_closing():
            try:
                self.writer.write_eof()
            except OSError:
                pass  # nobody is there to be told

    def reset(self) -> None:
        """End it as a crash does: whoever is there learns it by an error."""
        sock = self.writer.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Line:
    """`tell` is called with what was decided; `find_loss` gives the loss that is wanted now, if any is."""

    def __init__(
        self,
        number: int,
        client: End,
        server: End,
        *,
        up: Way,
        down: Way,
        tell: Callable[[str, int], None],
        find_loss: Callable[[], Loss | None],
    ) -> None:
        self.number, self.client, self.server = number, client, server
        self._up, self._down, self._tell, self._find_loss = up, down, tell, find_loss
        self._losing: Finder | None = None  # of the answer that is not handed over
        self._command: tuple[Loss, Finder] | None = None  # whose answer will not be
        self._tasks: list[asyncio.Task[None]] = []
        self.left_alone = False  # one side is gone and the other does not know

    async def run(self) -> None:
        """Move bytes until both directions have ended, or the line is ended."""
        self._tasks = [
            asyncio.ensure_future(work)
            for source, target, way in ((self.client, self.server, self._up), (self.server, self.client, self._down))
            for work in self._both(source, target, way)
        ]
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            self._stop()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self.client.writer.close()
            self.server.writer.close()

    def reset(self) -> None:
        self.client.reset()
        self.server.reset()
        self._stop()

    def close(self) -> None:
        """End both sides in good order."""
        self.client.writer.close()
        self.server.writer.close()
        self._stop()

    def half_close(self, way: Literal["up", "down"]) -> None:
        """Say on one side that nothing comes any more; the other direction goes on."""
        (self.server if way == "up" else self.client).finish()

    def vanish(self, side: Literal["client", "server"]) -> None:
        """Take one side away and tell the other nothing: it stays open until the proxy resumes."""
        self.left_alone = True
        (self.client if side == "client" else self.server).reset()

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _both(self, source: End, target: End, way: Way) -> tuple[Coroutine[Any, Any, None], Coroutine[Any, Any, None]]:
        queue: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(_AHEAD)
        return self._take(source, queue, way), self._give(queue, target, way)

    async def _take(self, source: End, queue: asyncio.Queue[tuple[float, bytes | None]], way: Way) -> None:
        """Read, and note for each piece when it is due. None stands for a reset, nothing for an orderly end."""
        loop, due = asyncio.get_running_loop(), 0.0
        data: bytes | None = b"?"
        while data:
            await way.moving()
            try:
                data = await source.reader.read(_READ)
            except OSError:
                data = None
            due = max(due, loop.time() + way.due())
            await queue.put((due, data))

    async def _give(self, queue: asyncio.Queue[tuple[float, bytes | None]], target: End, way: Way) -> None:
        loop = asyncio.get_running_loop()
        place: Place | None = None
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            await way.moving()
            if not data:
                self._ended(target, orderly=data is not None)
                return
            while data:
                await way.moving()
                cut = way.cut
                if place is None or place.cut is not cut:
                    place = None if cut is None else Place(cut)
                piece = way.piece(data)
                data = data[len(piece) :]
                end = place.end(piece) if place is not None else None
                if not await self._hand_over(piece[:end], target, way):
                    return
                if end is not None and place is not None:
                    way.cuts += 1
                    self._tell(f"{way.name}: cut ({place.cut.how})", self.number)
                    if place.cut.how == "reset":
                        self.reset()
                    else:
                        self.close()
                    return

    async def _hand_over(self, piece: bytes, target: End, way: Way) -> bool:
        """False if the line has ended by that."""
        if way.mode.drop:
            return True
        if way is self._down and self._losing is not None:
            if self._losing.end(piece) is not None:
                self._tell("down: an answer is lost", self.number)
                self.reset()
                return False
            return True
        if way is self._up:
            self._look_for_command(piece)
        try:
            target.writer.write(piece)
            await target.writer.drain()
        except OSError:
            if not self.left_alone:
                self.reset()
                return False
        # A piece by itself is for the reader to get by itself.
        await asyncio.sleep(len(piece) / way.mode.rate if way.mode.rate is not None else 0)
        return True

    def _look_for_command(self, piece: bytes) -> None:
        loss = self._find_loss()
        if loss is None or loss.left < 1:
            self._command = None
            return
        if self._command is None or self._command[0] is not loss:
            self._command = (loss, Finder(loss.command))
        if self._command[1].end(piece) is not None:
            loss.left -= 1
            self._losing = Finder(loss.answer or b".")
            self._tell("up: a command goes through whose answer does not", self.number)

    def _ended(self, target: End, *, orderly: bool) -> None:
        if self.left_alone:
            return
        if orderly:
            target.finish()
        else:
            self.reset()
