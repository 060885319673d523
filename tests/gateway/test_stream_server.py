"""Streams through a real server and real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn

from playhead.cli.listen import listen
from playhead.cli.server import configuration
from playhead.core.run import Run
from playhead.core.sse import Frame, Parser
from playhead.gateway.follow import Follower
from playhead.gateway.servers import direct_of, is_own
from playhead.gateway.stream import StreamOptions, serve_stream
from playhead.runtime.clock import SystemClock
from playhead.runtime.hub import HubOptions
from playhead.settings import Delivery
from tests.runtime.bench import Bench, bench

pytestmark = pytest.mark.anyio

App = Callable[[Any, Any, Any], Any]

_delivery: Delivery = "direct"


@pytest.fixture(params=["direct", "asgi"], autouse=True)
def _both_deliveries(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test here holds whichever way the bytes take to the socket."""
    global _delivery
    _delivery = request.param
    yield
    _delivery = "direct"


def wrapped(app: App) -> App:
    """A middleware as many write it."""

    async def middle(scope: Any, receive: Any, send: Any) -> None:
        async def passing(message: Any) -> None:
            async with asyncio.timeout(600):
                await send(message)

        await app(scope, receive, passing)

    return middle


@asynccontextmanager
async def serving(
    b: Bench, *, middleware: bool = False, options: StreamOptions | None = None
) -> AsyncIterator[tuple[int, uvicorn.Server]]:
    """A server whose paths are the ids of runs; its port."""
    runs: dict[str, Run | None] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        run_id = scope["path"].strip("/")
        run = runs[run_id] = await b.record.get("acme", run_id)
        assert run is not None
        assert is_own(send, "send") is not middleware
        assert (direct_of(scope, send) is not None) is (_delivery == "direct" and not middleware)
        await serve_stream(scope, receive, send, run=run, hub=b.hub, screens=b.screens, options=options)

    bounds = options or StreamOptions()
    listening = listen("127.0.0.1", 0, send_buffer=bounds.socket_buffer, silence=bounds.silence)
    config = configuration(wrapped(app) if middleware else app, _delivery, ws="none", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield listening.getsockname()[1], server
    finally:
        await b.hub.drain(0.05)
        server.should_exit = True
        await running
        listening.close()


class Reader:
    """A client on a bare socket."""

    def __init__(self, port: int, buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.setblocking(False)
        self.port = port
        self.raw = b""
        self.ended = False

    async def ask(self, run_id: str, last: str | None = None) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self.socket, ("127.0.0.1", self.port))
        head = f"Last-Event-ID: {last}\r\n" if last is not None else ""
        request = f"GET /{run_id} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n{head}\r\n"
        await loop.sock_sendall(self.socket, request.encode())

    async def until(self, done: Callable[[Reader], bool], seconds: float = 10.0) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(seconds):
            while not done(self):
                try:
                    data = await loop.sock_recv(self.socket, 1 << 16)
                except ConnectionError:
                    data = b""
                self.raw += data
                if not data or self.raw.endswith(b"\r\n0\r\n\r\n"):
                    self.ended = True
                if not data:
                    assert done(self), self.raw[-2_000:]

    async def reach(self, events: int) -> None:
        await self.until(lambda r: r.events == events)

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1])

    @property
    def body(self) -> bytes:
        _, _, chunks = self.raw.partition(b"\r\n\r\n")
        body = b""
        while True:
            size, found, rest = chunks.partition(b"\r\n")
            if not found or not size or (length := int(size, 16)) == 0:
                return body
            body += rest[:length]
            chunks = rest[length + 2 :]

    @property
    def frames(self) -> list[Frame]:
        return Parser().feed(self.body)

    @property
    def events(self) -> int:
        return sum(frame.event == "message" for frame in self.frames)

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        with suppress(OSError):
            self.socket.close()


@pytest.mark.row("BR-65", "BR-08")
@pytest.mark.parametrize("middleware", [False, True])
async def test_a_run_is_followed_over_a_socket_to_its_end(middleware: bool):
    async with bench(clock=SystemClock()) as b, serving(b, middleware=middleware) as (port, _):
        attempt = await b.attempt()
        reader = Reader(port)
        await reader.ask(attempt.run.id)
        await reader.until(lambda r: r.events == 3, 1.0)
        for _ in range(3):
            await attempt.publish()
            await attempt.text("Grüße ")
        await reader.until(lambda r: r.events == 6)
        await attempt.finish()
        await reader.until(lambda r: r.ended)
        assert [frame.event for frame in reader.frames][-2:] == ["message", "end"]
        last = reader.frames[-2].id
        # The server keeps the connection: the stream ended cleanly.
        reader.raw, reader.ended = b"", False
        request = f"GET /{attempt.run.id} HTTP/1.1\r\nHost: x\r\nLast-Event-ID: {last}\r\n\r\n"
        await asyncio.get_running_loop().sock_sendall(reader.socket, request.encode())
        await reader.until(lambda r: b"\r\n\r\n" in r.raw)
        assert reader.status == 204
        reader.close()


@pytest.mark.row("BR-76", "M-slow-client", "BR-09")
@pytest.mark.parametrize("middleware", [False, True])
async def test_a_viewer_that_never_reads_is_cut_off_and_the_others_see_everything(
    middleware: bool, capfd: pytest.CaptureFixture[str]
):
    options = StreamOptions(socket_buffer=4_096)
    hub = HubOptions(viewer_bytes=64 << 10)
    async with (
        bench(clock=SystemClock(), options=hub) as b,
        serving(b, middleware=middleware, options=options) as (port, server),
    ):
        attempt = await b.attempt()
        stuck, reader = Reader(port, 4_096), Reader(port)
        await stuck.ask(attempt.run.id)
        await reader.ask(attempt.run.id)
        await reader.until(lambda r: r.events == 3)
        while len(b.hub.viewers) < 2:
            await asyncio.sleep(0.01)
        for n in range(200):
            await attempt.publish(payload={"fill": "x" * 2_000})
            await attempt.text("token " * 50)
            if n % 10 == 9:
                await reader.reach(n + 4)
        assert b.hub.statistics == {"lagging": 1}
        assert len(b.hub.viewers) == 1
        async with asyncio.timeout(5):
            while len(server.server_state.connections) > 1:
                await asyncio.sleep(0.01)
        # It comes back with what it has, and gets the rest.
        with suppress(TimeoutError):
            await stuck.until(lambda r: r.ended, 1.0)
        seen = [frame.id for frame in stuck.frames if frame.event == "message"]
        again = Reader(port)
        await again.ask(attempt.run.id, seen[-1] if seen else None)
        await again.until(lambda r: r.events == 203 - len(seen))
        assert seen + [f.id for f in again.frames if f.event == "message"] == [
            str(c) for c in await b.cursors(attempt.run)
        ]
        for each in (stuck, reader, again):
            each.close()
    assert capfd.readouterr().err == ""  # the server has nothing to complain of


@pytest.mark.row("BR-71")
@pytest.mark.parametrize("middleware", [False, True])
async def test_hundreds_of_reset_connections_leave_nothing_behind(middleware: bool):
    async with (
        bench(clock=SystemClock(), options=HubOptions(grace=0.1)) as b,
        serving(b, middleware=middleware) as (port, server),
    ):
        attempt = await b.attempt()
        await asyncio.sleep(0.05)
        tasks, files = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
        for n in range(500):
            reader = Reader(port)
            await reader.ask(attempt.run.id)
            if n % 2:
                await reader.until(lambda r: r.events >= 3)
            if n % 50 == 0:
                await attempt.publish()
            reader.reset()
        async with asyncio.timeout(10):
            while (
                b.hub.viewers
                or b.hub.streams
                or b.hub.feeds
                or server.server_state.tasks
                or len(asyncio.all_tasks()) > tasks
                or len(os.listdir("/proc/self/fd")) > files
            ):
                await asyncio.sleep(0.05)


async def test_half_a_send_is_finished_when_the_reader_goes_on():
    options = StreamOptions(socket_buffer=4_096)
    async with bench(clock=SystemClock()) as b, serving(b, options=options) as (port, _):
        attempt = await b.attempt()
        reader = Reader(port, 4_096)
        await reader.ask(attempt.run.id)
        await reader.until(lambda r: r.events == 3)
        for _ in range(120):
            await attempt.publish(payload={"fill": "x" * 2_000})
            await asyncio.sleep(0)
        assert any(viewer.busy for viewer in b.hub.viewers)
        await reader.until(lambda r: r.events == 123)
        ids = [frame.id for frame in reader.frames if frame.event == "message"]
        assert ids == [str(cursor) for cursor in await b.cursors(attempt.run)]
        async with asyncio.timeout(5):
            while any(viewer.busy for viewer in b.hub.viewers):
                await asyncio.sleep(0.01)
        reader.close()


async def test_open_streams_do_not_hold_up_the_server():
    async with bench(clock=SystemClock()) as b:
        async with serving(b) as (port, _):
            attempt = await b.attempt()
            readers = [Reader(port) for _ in range(20)]
            for reader in readers:
                await reader.ask(attempt.run.id)
                await reader.until(lambda r: r.events == 3)
            leaving = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - leaving < 3
        for reader in readers:
            await reader.until(lambda r: r.ended)
            assert reader.frames[-1].event == "draining"
            reader.close()


async def test_a_connection_serves_its_requests_in_turn_and_a_stream_after_them():
    async with bench(clock=SystemClock()) as b, serving(b) as (port, _):
        attempt = await b.attempt()
        over = f"GET /{attempt.run.id} HTTP/1.1\r\nHost: x\r\nLast-Event-ID: end\r\n\r\n"
        reader = Reader(port)
        await reader.ask(attempt.run.id, "end")
        await asyncio.get_running_loop().sock_sendall(reader.socket, over.encode() * 2)
        await reader.until(lambda r: r.raw.count(b"HTTP/1.1 204") == 3)
        reader.raw = b""
        stream = f"GET /{attempt.run.id} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"
        # What comes behind a stream waits for its end.
        await asyncio.get_running_loop().sock_sendall(reader.socket, (stream + over + stream).encode())
        await reader.reach(3)
        await attempt.publish(2)
        await reader.reach(5)
        await b.hub.drain(0.05)
        await reader.until(lambda r: r.raw.count(b"HTTP/1.1 200") == 2 and r.ended)
        assert reader.raw.index(b"HTTP/1.1 204") < reader.raw.rindex(b"HTTP/1.1 200")
        assert reader.frames[-1].event == "draining"
        reader.close()


async def test_a_response_says_the_same_whichever_way_it_takes():
    async with bench(clock=SystemClock()) as b, serving(b) as (port, _):
        attempt = await b.attempt()
        reader = Reader(port)
        await asyncio.get_running_loop().sock_connect(reader.socket, ("127.0.0.1", port))
        asked = f"GET /{attempt.run.id} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        await asyncio.get_running_loop().sock_sendall(reader.socket, asked.encode())
        await reader.reach(3)
        head = reader.raw.partition(b"\r\n\r\n")[0].decode().split("\r\n")
        named = sorted(line for line in head if not line.startswith("date:"))
        assert named == [
            "HTTP/1.1 200 OK",
            "cache-control: no-store, no-transform",
            "connection: close",
            "content-type: text/event-stream; charset=utf-8",
            "transfer-encoding: chunked",
            "x-accel-buffering: no",
            "x-content-type-options: nosniff",
        ]
        assert any(line.startswith("date:") for line in head)
        await b.hub.drain(0.05)
        await reader.until(lambda r: r.ended)
        reader.close()


async def test_the_head_goes_out_before_there_is_a_body(monkeypatch: pytest.MonkeyPatch):
    async with bench(clock=SystemClock()) as b, serving(b) as (port, _):
        attempt = await b.attempt()
        waits = asyncio.Event()
        begin = Follower.begin

        async def late(self: Follower) -> None:
            await waits.wait()
            await begin(self)

        monkeypatch.setattr(Follower, "begin", late)
        reader = Reader(port)
        await reader.ask(attempt.run.id)
        await reader.until(lambda r: b"\r\n\r\n" in r.raw)
        assert reader.events == 0
        waits.set()
        await reader.reach(3)
        reader.close()
