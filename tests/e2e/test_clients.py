"""The Python client against a server whose cursors look like nothing and whose events stutter."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
import uvicorn

from playhead.client import Client
from playhead.client.clock import Clock
from tests.support.agents import counting
from tests.support.stage import BACKENDS, stage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", BACKENDS)]

CURSOR = re.compile(rb"[0-9]+-[0-9]+\.[0-9a-f]{12}")


class Disguise:
    """In front of an app: gives every cursor another name on its way out, and knows it by that on its way in.

    Sends each timeline event `times` times, and cuts each stream off after `cut` of its messages.
    """

    def __init__(self, app: Any, *, times: int, cut: int) -> None:
        self._app, self._times, self._cut = app, times, cut
        self._names: dict[bytes, bytes] = {}
        self.asked: list[str] = []  # cursors as they came

    def _name(self, found: re.Match[bytes]) -> bytes:
        number = len(self._names) * 7_919 % 1_000_003  # in no order
        return self._names.setdefault(found[0], b"~%d/%x=?&" % (number, number))

    def _cursor(self, name: str) -> str:
        self.asked.append(name)
        return {name: cursor for cursor, name in self._names.items()}[name.encode()].decode()

    def _dress(self, body: bytes) -> bytes:
        blocks = body.split(b"\n\n")
        doubled = [block for one in blocks for block in [one] * (self._times if one.startswith(b"id: ") else 1)]
        doubled = [block for block in doubled if block not in (b"id: end", b"id: stop")]
        return CURSOR.sub(self._name, b"\n\n".join(doubled))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        query = parse_qsl(scope["query_string"].decode())
        query = [(name, self._cursor(value) if name == "cursor" else value) for name, value in query]
        sent = 0

        async def dressed(message: Any) -> None:
            nonlocal sent
            if message["type"] == "http.response.start":
                kept = [pair for pair in message["headers"] if pair[0] != b"content-length"]
                await send({**message, "headers": kept})
                return
            sent += 1
            over = sent == self._cut and message.get("more_body", False)
            more = message.get("more_body", False) and not over
            await send({**message, "body": self._dress(message.get("body", b"")), "more_body": more})
            if over:
                raise OSError("cut off")

        await self._app({**scope, "query_string": urlencode(query).encode()}, receive, dressed)


class HastyClock(Clock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="critical", access_log=False))
        running = asyncio.create_task(server._serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.005)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running


@pytest.mark.row("S1-6", "S1-8", "R31", "M-duplicate-delivery")
async def test_a_client_needs_nothing_of_a_cursor_but_to_give_it_back(backend: str, tmp_path: Path) -> None:
    """Cut off again and again, told everything twice, given cursors that mean nothing: each event once, in order."""
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 30, "stops": list(range(2, 31))})
        disguise = Disguise(s.app, times=2, cut=4)
        async with serving(disguise) as url:
            views = Client(url, clock=HastyClock()).follow(run_id, bootstrap=False)
            told: list[str] = []
            for i in range(2, 32):
                async with asyncio.timeout(20):
                    while len(told) < i + 2:
                        await anext(views)
                        told += [frame.data["id"] for frame in views.news if frame.name == "event"]
                if i < 31:
                    s.gates.open(f"at-{i}")
            async with asyncio.timeout(20):
                async for view in views:
                    if view.connection != "ended" or any(frame.name == "end" for frame in views.news):
                        told += [frame.data["id"] for frame in views.news if frame.name == "event"]
        whole = (await s.client.bootstrap(run_id, limit=200))["events"]
        assert told == [event["id"] for event in whole]
        assert told == [event["id"] for event in view.events]
        assert len(disguise.asked) > 5
        assert not any(CURSOR.search(name.encode()) for name in disguise.asked)
        assert view.connection == "ended"
