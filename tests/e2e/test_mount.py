"""The gateway inside somebody else's application: attached, or plainly mounted."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import playhead
from playhead.errors import Unauthenticated
from playhead.gateway import Principal
from playhead.settings import Settings
from tests.support.agents import counting
from tests.support.stage import QUICK, Gates
from tests.support.wire import Client

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def serving(host: Starlette) -> AsyncIterator[Client]:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(host, log_level="warning", access_log=False))
    running = asyncio.create_task(server._serve(sockets=[sock]))
    async with asyncio.timeout(20):
        while not server.started:
            await asyncio.sleep(0.005)
    try:
        yield Client("127.0.0.1", sock.getsockname()[1])
    finally:
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await running
        sock.close()


def made(tmp_path: Path, **options: Any) -> playhead.App:
    return playhead.App(counting(Gates()), settings=Settings.load(data=tmp_path, environ={}, **QUICK), **options)


async def hello(request: Any) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def follow(client: Client, **headers: str) -> list[str]:
    mounted = Client(client.host, client.port, headers, "/live")
    run_id = await mounted.start("count", {"n": 2})
    async with mounted.stream(run_id) as stream:
        await stream.end()
    return stream.types


async def test_attached_with_its_own_authentication(tmp_path: Path) -> None:
    def who(request: HTTPConnection) -> Principal:
        if request.headers.get("x-user") is None:
            raise Unauthenticated
        return Principal(request.headers["x-user"], "acme")

    def may(principal: Principal, action: str, run: Any) -> bool:
        return principal.subject != "guest" or action != "run.create"

    host = Starlette(routes=[Route("/", hello)], middleware=[Middleware(GZipMiddleware)])
    app = made(tmp_path)
    playhead.attach(host, app, path="/live", authenticate=who, authorize=may)
    async with serving(host) as client:
        assert (await client.get("/")).body == b"hello"
        assert (await client.call("GET", "/live/runs")).status == 401
        refused = await client.call("POST", "/live/runs", {"agent": "count"}, headers={"x-user": "guest"})
        assert refused.status == 403
        types = await follow(client, **{"x-user": "ann"})
        assert types == ["run_queued", "run_started", "attempt_started", "counted", "counted", "run_succeeded"]
        [run] = await app.engine.runs("acme")
        assert run.status == "succeeded"
    with pytest.raises(playhead.PlayheadError):
        app.engine.ports  # noqa: B018  # closed with its host


async def test_plainly_mounted_it_starts_with_the_first_request(tmp_path: Path) -> None:
    host = Starlette(routes=[Route("/", hello)])
    app = made(tmp_path)
    host.mount("/live", app)
    try:
        async with serving(host) as client:
            assert (await follow(client))[-1] == "run_succeeded"
    finally:
        await app.close()
