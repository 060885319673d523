"""A server that says what a test tells it to: the real page, with answers and frames by script.

What a true server says only by accident (a lost piece of text, a late answer, a drain) is said here on purpose.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from playhead.gateway import page

RUN = "019b0000-0000-7000-8000-000000000001"
EPOCH = 1_767_225_600_000
FINAL = ("succeeded", "failed", "cancelled", "interrupted")
AT = "2026-01-01T00:00:00.000Z"

Json = dict[str, Any]


def cursor(position: int, epoch: int = EPOCH) -> str:
    return f"{epoch}-{position}.{position:012x}"


def snapshot(version: int = 1, status: str = "running", **state: Any) -> Json:
    known = {
        "status": status,
        "attempt": 1,
        "version": version,
        "rev": version,
        "started_at": AT,
        "heartbeat_at": AT,
        "updated_at": AT,
    }
    empty = dict.fromkeys(
        ("title", "subtitle", "current_step", "step_started_at", "progress", "done", "total", "detail"), None
    ) | dict.fromkeys(("scope", "as_of", "next_action"), None)
    return known | empty | {"title": "Scripted"} | state


def event(n: int, type: str = "step_done", payload: Any = None, attempt: int = 1) -> Json:
    return {
        "version": n,
        "id": f"{RUN}:{attempt}:{n}",
        "type": type,
        "run_id": RUN,
        "thread_id": None,
        "attempt": attempt,
        "occurred_at": AT,
        "schema_version": 1,
        "payload": {} if payload is None else payload,
    }


def text(part: str, offset: int, said: str, *, final: bool = False, attempt: int = 1) -> Json:
    end = offset + len(said.encode())
    return {"part": part, "attempt": attempt, "offset": offset, "end": end, "text": said, "final": final}


def question(n: int = 1, payload: Any = None) -> Json:
    return {
        "id": f"019b0000-0000-7000-8000-00000000a{n:03d}",
        "run_id": RUN,
        "key": f"ask-{n}",
        "kind": "approval",
        "status": "open",
        "attempt": 1,
        "digest": "0" * 64,
        "created_at": AT,
        "deadline": None,
        "closed_at": None,
        "decided_by": None,
        "payload": {"title": f"Question {n}"} if payload is None else payload,
        "decision": None,
    }


def run(status: str = "running", rev: int = 1, **more: Any) -> Json:
    return {
        "id": RUN,
        "agent": "scripted",
        "status": status,
        "labels": {},
        "key": None,
        "attempt": 1,
        "rev": rev,
        "resumable": False,
        "created_at": AT,
        "updated_at": AT,
        "started_at": AT,
        "ended_at": None,
        "heartbeat_at": AT,
        "cancel_requested": None,
        "error": None,
        "input": {},
        "result": None,
        "partial": None,
    } | more


def bootstrap(position: int = 0, **more: Any) -> Json:
    """A screen after `position` events `step_done`."""
    return {
        "run": run(),
        "snapshot": snapshot(max(position, 1)),
        "events": [event(n) for n in range(1, position + 1)],
        "cursor": cursor(position),
        "timeline": {"complete": True, "has_older": False, "oldest": event(1)["id"] if position else None},
        "text": [],
        "interrupts": [],
        "degraded": None,
    } | more


@dataclass
class Scripted:
    """Set what the server answers; `streams` are the requests for a stream so far, as (query, Last-Event-ID)."""

    screen: Json = field(default_factory=bootstrap)
    asked: list[Json] = field(default_factory=list)
    agents: list[Json] = field(default_factory=list)
    stream_status: int = 200
    opening: bytes = b""  # what every stream begins with
    refusals: list[tuple[int, Json]] = field(default_factory=list)  # of the next POSTs
    runs: list[Json] | None = None  # those of the list; None: the one of the screen
    next: str | None = None  # of the first page of the list
    wire: str = "1"  # the version that every answer tells
    asks: list[str] = field(default_factory=list)  # the queries for a list of runs
    streams: list[tuple[dict[str, str], str | None]] = field(default_factory=list)
    posts: list[tuple[str, Any, dict[str, str]]] = field(default_factory=list)
    bootstraps: int = 0
    hold: int = 0  # bootstraps that answer only after `release`, with the screen of the moment of their request
    older: Json = field(default_factory=dict)  # the page before: of events, or of runs
    url: str = ""

    def __post_init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: list[asyncio.Queue[bytes | None]] = []
        self._released = threading.Event()
        self._page = page.read_page()

    def send(self, *frames: bytes) -> None:
        """To every open stream."""
        assert self._loop is not None
        for queue in list(self._open):
            self._loop.call_soon_threadsafe(queue.put_nowait, b"".join(frames))

    def cut(self) -> None:
        """End every open stream, as a lost connection does."""
        assert self._loop is not None
        for queue in list(self._open):
            self._loop.call_soon_threadsafe(queue.put_nowait, None)

    def release(self) -> None:
        self._released.set()

    @property
    def viewers(self) -> int:
        return len(self._open)

    def app(self) -> Starlette:
        routes = [
            Route("/", self._serve_page),
            Route("/assets/{name}", self._serve_page),
            Route("/agents", self._serve_agents),
            Route("/interrupts", self._serve_questions),
            Route("/runs", self._serve_runs),
            Route("/runs/{id}/bootstrap", self._serve_bootstrap),
            Route("/runs/{id}/events", self._serve_older),
            Route("/runs/{id}/stream", self._serve_stream),
            Route("/runs/{id}", self._serve_run),
            Route("/stream", self._serve_stream),
            Route("/{path:path}", self._serve_post, methods=["POST"]),
        ]
        return Starlette(routes=[Mount("/base", routes=routes), *routes])

    async def _serve_page(self, request: Request) -> Response:
        name = request.path_params.get("name")
        name = f"{page.ASSETS}{name}" if name else page.INDEX
        return Response(self._page[name], 200, page.HEADERS, page.MEDIA[name.rpartition(".")[2]])

    async def _serve_agents(self, request: Request) -> Response:
        return self._answer({"agents": self.agents})

    async def _serve_questions(self, request: Request) -> Response:
        return self._answer({"interrupts": self.asked})

    async def _serve_run(self, request: Request) -> Response:
        return self._answer(self.screen["run"])

    async def _serve_runs(self, request: Request) -> Response:
        if request.method == "POST":
            return await self._serve_post(request)
        self.asks.append(request.url.query)
        if "after" in request.query_params:
            return self._answer({"runs": self.older["runs"], "next": None})
        return self._answer({"runs": [self.screen["run"]] if self.runs is None else self.runs, "next": self.next})

    def _answer(self, data: Json) -> Response:
        return JSONResponse(data, headers={"playhead-wire": self.wire})

    async def _serve_bootstrap(self, request: Request) -> Response:
        self.bootstraps += 1
        if request.path_params["id"] != RUN:
            return JSONResponse({"code": "not_found", "detail": "Not here.", "status": 404, "retryable": False}, 404)
        body = json.dumps(self.screen)
        if self.hold:
            self.hold -= 1
            await asyncio.to_thread(self._released.wait)
        return Response(body, media_type="application/json", headers={"playhead-wire": self.wire})

    async def _serve_older(self, request: Request) -> Response:
        return self._answer(self.older)

    async def _serve_stream(self, request: Request) -> Response:
        asked = (dict(request.query_params), request.headers.get("last-event-id"))
        over = self.screen["run"]["status"] in FINAL
        if self.stream_status != 200 or over:
            self.streams.append(asked)
            return Response(None, 204 if over else self.stream_status)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def frames() -> AsyncIterator[bytes]:
            self.streams.append(asked)
            self._open.append(queue)  # in one go, so that `viewers` never counts an older stream for the newest
            try:
                yield b"retry: 100\n\n" + self.opening
                while (frame := await queue.get()) is not None:
                    yield frame
            finally:
                self._open.remove(queue)

        return StreamingResponse(frames(), media_type="text/event-stream", headers={"cache-control": "no-store"})

    async def _serve_post(self, request: Request) -> Response:
        body = json.loads(await request.body() or b"null")
        self.posts.append((request.url.path, body, dict(request.headers)))
        if self.refusals:
            status, answer = self.refusals.pop(0)
            return JSONResponse(answer, status)
        return JSONResponse(self.screen["run"], 201)

    @contextmanager
    def serving(self) -> Iterator[Scripted]:
        server = uvicorn.Server(uvicorn.Config(self.app(), port=0, log_level="error", ws="none", lifespan="off"))

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await server.serve()

        thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        thread.start()
        while not server.started:
            thread.join(0.01)
        self.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
        try:
            yield self
        finally:
            self.release()
            server.should_exit = True
            with contextlib.suppress(RuntimeError):
                self.cut()
            thread.join(10)


def frame(data: Any, name: str | None = None, id: str | None = None) -> bytes:
    head = (f"id: {id}\n" if id else "") + (f"event: {name}\n" if name else "")
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def state(version: int, status: str = "running", degraded: str | None = None, **fields: Any) -> bytes:
    return frame({"snapshot": snapshot(version, status, **fields), "degraded": degraded}, "state")


def happened(n: int, type: str = "step_done", payload: Any = None) -> bytes:
    return frame(event(n, type, payload), id=cursor(n))


def piece(*args: Any, **more: Any) -> bytes:
    return frame(text(*args, **more), "text")
