"""The proxy: a port of 127.0.0.1 that leads to another one there, and what it does on the way."""

from __future__ import annotations

import asyncio
import random
import socket
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from playhead.testing.faults.control import Control
from playhead.testing.faults.line import End, Line, Loss
from playhead.testing.faults.mode import Decision, Way
from playhead.testing.harness.process import free_port

_HOST = "127.0.0.1"
_QUEUE = 100  # connections that wait to be let in
_PATIENCE = 5.0  # seconds for the server to let one in
_LOGGED = 10_000  # decisions that are kept


class Proxy:
    """Use it as an async context manager, in one event loop. `up` leads towards the server, `down` back.

    What is set holds for all connections, those that are open too, until `resume`. `log` says what was done and when;
    with the same `seed` and the same bytes chance does the same.
    """

    def __init__(self, port: int, *, listen: int = 0, seed: int = 0) -> None:
        """`port` is where the server is or will be, `listen` where the proxy will be; 0: any free one."""
        self.server_port, self.port = port, listen
        self.log: deque[Decision] = deque(maxlen=_LOGGED)
        chance = random.Random(seed)
        self.up, self.down = Way("up", self.log, chance), Way("down", self.log, chance)
        self.accepted = 0  # connections so far
        self._lines: dict[int, Line] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._loss: Loss | None = None
        self._ended = 0  # times that all connections were ended
        self._listener: socket.socket | None = None
        self._kept: socket.socket | None = None  # has the port while nobody listens there
        self._controls: list[Control] = []

    @property
    def lines(self) -> int:
        """Connections that are open now."""
        return len(self._lines)

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.port}"

    async def __aenter__(self) -> Self:
        bound = _bound(self.port) if self.port else _bound_anywhere()
        self.port = bound.getsockname()[1]
        self._listen(bound)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for control in self._controls:
            await control.close()
        await self.refuse()
        if self._kept is not None:
            self._kept.close()
        self.reset()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def control(self, path: Path) -> None:
        """Take orders at this unix socket as well, see `Control`, until the proxy closes."""
        self._controls.append(await Control.open(self, path))

    async def refuse(self) -> None:
        """Refuse new connections until `resume`. Those that are open go on."""
        if self._listener is not None:
            self._tell("refuse")
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
            self._kept = _bound(self.port)

    async def resume(self) -> None:
        """Do no harm from now on. Connections whose other side vanished end."""
        for way in (self.up, self.down):
            way.set()
        self._loss = None
        if self._kept is not None:
            kept, self._kept = self._kept, None
            self._listen(kept)
        for line in list(self._lines.values()):
            if line.left_alone:
                line.reset()

    def reset(self) -> None:
        """End every connection as a crash does, on both sides."""
        self._tell("reset")
        self._ended += 1
        for line in list(self._lines.values()):
            line.reset()

    def close_lines(self) -> None:
        """End every connection in good order, on both sides; one on its way to the server is reset."""
        self._tell("close")
        self._ended += 1
        for line in list(self._lines.values()):
            line.close()

    def half_close(self, way: Literal["up", "down"]) -> None:
        """Say on every connection that nothing comes any more in this direction; the other goes on."""
        self._tell(f"{way}: half close")
        for line in self._lines.values():
            line.half_close(way)

    def vanish(self, side: Literal["client", "server"]) -> None:
        """Take this side of every connection away. The other side is told nothing, and its connection stays open."""
        self._tell(f"the {side} vanishes")
        for line in self._lines.values():
            line.vanish(side)

    def lose_answers(self, command: bytes, *, answer: bytes | None = None, times: int = 1) -> None:
        """Deliver what matches `command`, then lose what is answered to it and reset the connection.

        With `answer`, a pattern, the reset comes once that has come back: the command has been carried out then.
        Without, at the first bytes that come back.
        """
        self._tell(f"lose {times} answers to {command!r}")
        self._loss = Loss(command, answer, times)

    @property
    def answers_to_lose(self) -> int:
        """Of those that `lose_answers` named, how many are left."""
        return self._loss.left if self._loss is not None else 0

    def _listen(self, bound: socket.socket) -> None:
        """By a reader of our own: a server of asyncio loses whom it has let in when it is closed at that moment."""
        bound.setblocking(False)
        bound.listen(_QUEUE)
        self._listener = bound
        asyncio.get_running_loop().add_reader(bound, self._accept, bound)
        self._tell("listen")

    def _accept(self, bound: socket.socket) -> None:
        try:
            sock, _ = bound.accept()
        except OSError:
            return  # whoever it was has gone again
        self.accepted += 1
        task = asyncio.ensure_future(self._serve(self.accepted, sock, self._ended))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, number: int, sock: socket.socket, ended: int) -> None:
        client = End(*await asyncio.open_connection(sock=sock))
        try:
            async with asyncio.timeout(_PATIENCE):
                server = End(*await asyncio.open_connection(_HOST, self.server_port))
        except OSError:
            self._tell("nobody is there", number)
            client.reset()
            return
        line = self._lines[number] = Line(
            number, client, server, up=self.up, down=self.down, tell=self._tell, find_loss=lambda: self._loss
        )
        self._tell("open", number)
        try:
            if ended == self._ended:
                await line.run()
            else:  # it was one of all connections when they were ended, on the way to the server
                line.reset()
        finally:
            del self._lines[number]
            self._tell("over", number)

    def _tell(self, what: str, line: int | None = None) -> None:
        self.log.append(Decision(asyncio.get_running_loop().time(), what, line))


def _bound_anywhere() -> socket.socket:
    while True:
        try:
            return _bound(free_port())
        except OSError:
            pass  # somebody was quicker


def _bound(port: int) -> socket.socket:
    """A socket that has the port and does not listen: whoever connects is refused."""
    sock = socket.socket()
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((_HOST, port))
    except BaseException:
        sock.close()
        raise
    return sock
