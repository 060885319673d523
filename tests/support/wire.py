"""A plain client of the wire for tests: HTTP over a socket, and a stream reader that keeps every byte it was given."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from playhead.core.sse import Parser

PATIENCE = float(os.environ.get("PLAYHEAD_TEST_PATIENCE", "20"))


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Frame:
    """One dispatched event: `event` is "message" for an unnamed one, `id` the one its own block set, if any."""

    event: str
    data: Any
    id: str | None


@dataclass
class Stream:
    """An open stream. `frames` is what was parsed so far, `raw` all bytes of the body, decoded from chunks."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int
    headers: dict[str, str]
    frames: list[Frame] = field(default_factory=list)
    raw: bytearray = field(default_factory=bytearray)
    closed: bool = False
    _parser: Parser = field(default_factory=Parser)
    _chunked: bytearray = field(default_factory=bytearray)

    @property
    def events(self) -> list[dict[str, Any]]:
        """Timeline events, in the order of their frames."""
        return [frame.data for frame in self.frames if frame.event == "message"]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def cursor(self) -> str | None:
        """The id of the last timeline frame."""
        return next((frame.id for frame in reversed(self.frames) if frame.event == "message"), None)

    @property
    def retry(self) -> int | None:
        """The milliseconds to wait before coming back, as last told."""
        return self._parser.retry

    def named(self, name: str) -> list[Any]:
        return [frame.data for frame in self.frames if frame.event == name]

    @property
    def snapshot(self) -> dict[str, Any]:
        return dict(self.named("state")[-1]["snapshot"])

    def text(self, part: str = "answer") -> str:
        """The text of a part of the latest attempt, put together as a client does."""
        said, attempt = b"", -1
        for frame in self.named("text"):
            if frame["part"] != part:
                continue
            if frame["attempt"] > attempt or frame["offset"] == 0:
                said, attempt = b"", frame["attempt"]
            assert frame["offset"] == len(said), (frame, len(said))
            said += frame["text"].encode()
            assert frame["end"] == len(said)
        return said.decode()

    async def more(self, wait: float = PATIENCE) -> bool:
        """Read once; False at the end of the stream."""
        if self.closed:
            return False
        # Not `wait_for`, which may swallow the cancellation of whoever waits for less than this.
        async with asyncio.timeout(wait):
            data = await self.reader.read(65_536)
        if not data:
            self.closed = True
            return False
        self._chunked += data
        body = self._unchunk()
        self.raw += body
        for frame in self._parser.feed(bytes(body)):
            self.frames.append(Frame(frame.event or "message", json.loads(frame.data), frame.id))
        return not self.closed

    async def until(self, done: Any, wait: float = PATIENCE) -> Stream:
        """Read until `done(self)`; fails with what was seen when the stream ends first, or never gets there."""
        try:
            async with asyncio.timeout(wait):
                while not done(self):
                    if not await self.more(wait):
                        if done(self):
                            break
                        raise AssertionError(f"the stream ended: {self.seen()}")
        except TimeoutError:
            raise AssertionError(f"not within {wait} s: {self.seen()}") from None
        return self

    async def type(self, name: str, times: int = 1) -> Stream:
        return await self.until(lambda s: s.types.count(name) >= times)

    async def end(self, wait: float = PATIENCE) -> Stream:
        """Read until the server closes the stream."""
        async with asyncio.timeout(wait):
            while await self.more(wait):
                pass
        return self

    async def quiet(self, seconds: float = 0.3) -> None:
        """Read whatever comes for a while."""
        try:
            async with asyncio.timeout(seconds):
                while await self.more():
                    pass
        except TimeoutError:
            pass

    def seen(self) -> list[tuple[str, Any]]:
        return [(f.event, f.data.get("type", f.data) if isinstance(f.data, dict) else f.data) for f in self.frames]

    def reset(self) -> None:
        """Drop the connection the hard way, as a dead network does."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
        self.closed = True

    async def close(self) -> None:
        self.writer.close()
        self.closed = True

    def _unchunk(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            body, self._chunked = bytes(self._chunked), bytearray()
            return body
        out = bytearray()
        while True:
            line, found, rest = bytes(self._chunked).partition(b"\r\n")
            if not found:
                return bytes(out)
            size = int(line.split(b";")[0], 16)
            if size == 0:
                self.closed = True
                return bytes(out)
            if len(rest) < size + 2:
                return bytes(out)
            out += rest[:size]
            self._chunked = bytearray(rest[size + 2 :])


@dataclass
class Client:
    host: str
    port: int
    headers: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""  # where the gateway is mounted
    tls: ssl.SSLContext | None = None

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        sent = {"host": f"{self.host}:{self.port}", "connection": "close", **self.headers}
        if content or method == "POST":
            sent |= {"content-length": str(len(content)), "content-type": "application/json"}
        sent |= headers or {}
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self.tls)
        try:
            writer.write(_head(method, self.prefix + path, sent) + content)
            async with asyncio.timeout(PATIENCE):
                status, got = await _read_head(reader)
                rest = await reader.read()
            if len(rest) < int(got.get("content-length", 0)) and method != "HEAD":
                raise asyncio.IncompleteReadError(rest, int(got["content-length"]))
            if got.get("transfer-encoding") == "chunked":
                stream = Stream(reader, writer, status, got)
                stream._chunked += rest
                rest = stream._unchunk()
            return Answer(status, got, rest)
        finally:
            writer.close()

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return await self.call("POST", path, body, **options)

    async def start(self, agent: str, given: Any = None, **more: Any) -> str:
        answer = await self.post("/runs", {"agent": agent, "input": given or {}, **more})
        assert answer.status == 201, answer
        return str(answer.json()["id"])

    async def run(self, run_id: str) -> dict[str, Any]:
        answer = await self.get(f"/runs/{run_id}")
        assert answer.status == 200, answer
        return dict(answer.json())

    async def bootstrap(self, run_id: str, limit: int = 50) -> dict[str, Any]:
        answer = await self.get(f"/runs/{run_id}/bootstrap?limit={limit}")
        assert answer.status == 200, answer
        return dict(answer.json())

    async def ended(self, run_id: str, wait: float = PATIENCE) -> dict[str, Any]:
        async with asyncio.timeout(wait):
            while (run := await self.run(run_id))["ended_at"] is None:
                await asyncio.sleep(0.02)
        return run

    async def open(
        self,
        run_id: str,
        cursor: str | None = None,
        *,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        buffer: int | None = None,
    ) -> Stream:
        """Open a run's stream; `cursor` goes as Last-Event-ID. `buffer` bounds the socket's receive buffer."""
        return await self.open_path(f"/runs/{run_id}/stream{query}", cursor, headers=headers, buffer=buffer)

    async def open_path(
        self,
        path: str,
        cursor: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        buffer: int | None = None,
    ) -> Stream:
        """Open the stream at this path, as `open` does."""
        sock = socket.socket()
        if buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (self.host, self.port))
        except BaseException:
            sock.close()
            raise
        limit: dict[str, Any] = {} if buffer is None else {"limit": buffer}
        if self.tls is not None:
            limit |= {"ssl": self.tls, "server_hostname": self.host}
        reader, writer = await asyncio.open_connection(sock=sock, **limit)
        sent = {"host": f"{self.host}:{self.port}", "accept": "text/event-stream", **self.headers}
        if cursor is not None:
            sent["last-event-id"] = cursor
        writer.write(_head("GET", self.prefix + path, {**sent, **(headers or {})}))
        try:
            async with asyncio.timeout(PATIENCE):
                status, got = await _read_head(reader)
        except BaseException:
            writer.close()
            raise
        return Stream(reader, writer, status, got)

    @asynccontextmanager
    async def stream(self, run_id: str, cursor: str | None = None, **options: Any) -> AsyncIterator[Stream]:
        stream = await self.open(run_id, cursor, **options)
        try:
            yield stream
        finally:
            await stream.close()


def _head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split()[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    return status, headers
