"""What a request may be before it is one: the protocols that `playhead serve` speaks, on real sockets."""

import asyncio
import re
from contextlib import asynccontextmanager
from typing import Any

import pytest
from uvicorn.server import ServerState

from playhead.cli.bounded import MOST, PIECE
from playhead.cli.server import configuration

pytestmark = pytest.mark.anyio

SMALL = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"


async def answers(scope, receive, send):
    """Says how much body came; a stream begins and does not end."""
    size, more = 0, scope["path"] != "/stream"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    if scope["path"] == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    body = b"size %d;" % size
    head = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(params=["direct", "asgi"])
async def port(request):
    async with listening(request.param) as found:
        yield found


@asynccontextmanager
async def listening(delivery="direct", **options):
    config = configuration(answers, delivery, **options)
    config.load()
    state = ServerState()

    def make():
        protocol: Any = config.http_protocol_class
        return protocol(config=config, server_state=state, app_state={})

    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    for one in list(state.connections):
        one.transport.abort()
    await asyncio.gather(*state.tasks)


async def ask(port, *pieces):
    """All that comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()


def request(size, close=True):
    """A request whose line and headers have exactly so many bytes."""
    end = b"Connection: close\r\n\r\n" if close else b"\r\n"
    start = b"GET / HTTP/1.1\r\nHost: here\r\nX: "
    return start + b"x" * (size - len(start) - len(end) - 2) + b"\r\n" + end


@pytest.mark.parametrize(("over", "status"), [(0, b"200"), (1, b"431")])
async def test_request_line_and_headers_have_64_kib(port, over, status):
    assert len(request(MOST + over)) == MOST + over
    assert (await ask(port, request(MOST + over)))[9:12] == status
    assert (await ask(port, *re.findall(b"(?s).{1,1000}", request(MOST + over))))[9:12] == status


@pytest.mark.parametrize(
    "start",
    [
        b"GET /?",
        b"GET / HTTP/1.1\r\nX: ",
        b"GET / HTTP/1.1\r\n",
        b"X" * 10,
        b"\r\n",
        CHUNKED + b"1;x=",
        CHUNKED + b"0\r\n",
    ],
)
@pytest.mark.parametrize("piece", [b"a" * 8_192, b"a: b\r\n" * 1_000, b"\r\n" * 4_096])
async def test_what_never_becomes_a_request_is_cut_off(port, start, piece):
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with pytest.raises(OSError):
            writer.write(start)
            for _ in range(4_000):
                writer.write(piece)
                await writer.drain()
    finally:
        writer.close()


async def test_it_is_counted_for_each_request_of_a_connection(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(200):
        writer.write(request(1_000, close=False))
        assert (await reader.readuntil(b"size 0;")).startswith(b"HTTP/1.1 200 ")
    writer.write(request(MOST + 1))
    assert (await asyncio.wait_for(reader.read(), 60)).startswith(b"HTTP/1.1 431 ")
    writer.close()


async def test_requests_in_one_packet_are_each_their_own(port):
    often = 100
    got = await ask(port, request(1_000, close=False) * often + request(1_000))
    assert got.count(b"size 0;") == often + 1


async def test_a_request_that_is_too_large_is_refused_behind_others_in_one_packet_too(port):
    got = await ask(port, SMALL + request(MOST + PIECE + 1))
    assert got.count(b"size 0;") <= 1
    assert b"HTTP/1.1 200 OK" not in got[got.find(b"size 0;") + 1 :]


async def test_bodies_are_not_counted(port):
    size = 20 * MOST
    whole = b"POST / HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size
    assert b"size %d;" % size in await ask(port, whole + b"x" * size)
    chunks = b"1\r\nx\r\n" * MOST + b"0\r\nX: trailer\r\n\r\n"
    got = await ask(port, CHUNKED + chunks + request(1_000))
    assert b"size %d;" % MOST in got
    assert b"size 0;" in got


async def test_trailers_that_are_too_large_are_refused(port):
    got = await ask(port, CHUNKED + b"1\r\nx\r\n0\r\n", b"x: y\r\n" * (MOST // 4))
    assert got.startswith(b"HTTP/1.1 431 ")


async def test_nothing_is_written_into_another_answer(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /stream HTTP/1.1\r\nHost: here\r\n\r\n")
    got = await reader.readuntil(b"begun")
    writer.write(b"GET /?" + b"a" * (MOST + 1))
    got += await asyncio.wait_for(reader.read(), 60)
    writer.close()
    assert b" 431 " not in got
    assert got.startswith(b"HTTP/1.1 200 ")


async def test_h11_has_its_own_bound():
    async with listening(http="h11") as port:
        assert (await ask(port, request(MOST // 2)))[9:12] == b"200"
        assert (await ask(port, b"GET /?" + b"a" * (MOST + 1)))[9:12] == b"400"
