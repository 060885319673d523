"""uvicorn's protocol for a server of streams: they may hand bytes to the socket without a message for each, and a
connection that only waits holds little.

The first is offered to each request as an extension of its ASGI scope, `playhead.gateway.servers.DIRECT`.

uvicorn declares its parts by their classes; the lighter ones that stand in for them here are alike and no subclasses,
hence the ignored types.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from playhead.cli.bounded import BoundedProtocol
from playhead.gateway.servers import DIRECT
from playhead.runtime.delivery import Headers, Message


class Direct:
    """The socket of one request. What it writes stands for a `send` of the same, which may be used beside it."""

    __slots__ = ("_cycle", "_flow", "_head", "_transport")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._flow = cycle.flow
        self._transport = cycle.transport
        self._head = b""  # goes out with the first piece of the body, or in the loop's next turn

    def begin(self, headers: Headers) -> bool:
        cycle = self._cycle
        if cycle.access_log or cycle.response_started or cycle.disconnected or cycle.waiting_for_100_continue:
            return False
        lines = [b"%b: %b\r\n" % header for header in [*cycle.default_headers, *headers]]
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        self._head = b"%b%btransfer-encoding: chunked\r\n\r\n" % (STATUS_LINE[200], b"".join(lines))
        cycle.response_started = cycle.chunked_encoding = True
        asyncio.get_running_loop().call_soon(self._flush)
        return True

    def write(self, chunk: bytes) -> bool:
        if self._flow.write_paused or self._cycle.disconnected:
            return False
        if self._head:
            chunk = self._head + chunk
            self._head = b""
        self._transport.write(chunk)
        return True

    async def send(self, message: Message) -> None:
        self._flush()
        await self._cycle.send(message)  # type: ignore[arg-type]

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self._cycle.disconnected:
            self._transport.write(head)


class DirectProtocol(BoundedProtocol):
    """What differs from its parent is what an idle connection holds: an Event of asyncio has a deque, of 760 bytes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.pipeline = _Queue()  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        event = _Event(cycle.message_event.is_set())
        cycle.message_event = event  # type: ignore[assignment]
        cycle.scope["extensions"] = {DIRECT: Direct(cycle)}  # type: ignore[dict-item]
        super()._start_asgi_task(cycle, app)


class _Flow(FlowControl):
    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = self.write_paused = False
        self._is_writable_event = _Event(True)  # type: ignore[assignment]


class _Event:
    """asyncio.Event, for few waiters."""

    __slots__ = ("_set", "_waiters")

    def __init__(self, is_set: bool) -> None:
        self._set = is_set
        self._waiters: tuple[asyncio.Future[None], ...] = ()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiters, self._waiters = self._waiters, ()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        self._set = False

    async def wait(self) -> bool:
        if not self._set:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters += (waiter,)
            await waiter
        return True


class _Queue(list[Any]):
    """As much of a deque as the pipeline needs."""

    def appendleft(self, item: Any) -> None:
        self.insert(0, item)
