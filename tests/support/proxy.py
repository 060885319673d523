"""A proxy on TCP that does to connections what networks do: it cuts them anywhere, and hands over bytes in slivers."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Proxy:
    """`budget` says after how many bytes from the server the next connection is reset; None: never."""

    port: int
    budget: Callable[[], int | None] = lambda: None
    slivers: int | None = None  # the most bytes that are handed over at once
    seed: int = 0
    url: str = ""
    cuts: int = 0
    _works: set[asyncio.Task[None]] = field(default_factory=set)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.close()
            return
        up = asyncio.ensure_future(_copy(reader, back))
        self._works.add(up)
        up.add_done_callback(self._works.discard)
        try:
            await self._down(there, writer)
        except OSError:
            pass
        finally:
            back.close()
            writer.close()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self.budget()
        chance = random.Random(f"{self.seed} {self.cuts}")
        while data := await reader.read(65_536):
            while data:
                size = len(data) if self.slivers is None else chance.randint(1, self.slivers)
                piece, data = data[:size], data[size:]
                if left is not None:
                    piece = piece[:left]
                    left -= len(piece)
                writer.write(piece)
                await writer.drain()
                if left == 0:
                    self.cuts += 1
                    _reset(writer)
                    return
                await asyncio.sleep(0)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def proxy(port: int, **options: object) -> AsyncIterator[Proxy]:
    one = Proxy(port, **options)  # type: ignore[arg-type]
    server = await asyncio.start_server(one._serve, "127.0.0.1", 0)
    one.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield one
    finally:
        server.close()
        for work in list(one._works):
            work.cancel()
