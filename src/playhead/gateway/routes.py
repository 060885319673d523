"""The table of routes, and the dispatcher in front: streams go straight to the server's own `send`, all else here."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from starlette.requests import HTTPConnection
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from playhead.core.run import Run
from playhead.errors import Forbidden, NotFound, NotReady, StoreUnavailable, TooManyStreams
from playhead.gateway import auth, commands, page, reads
from playhead.gateway.auth import Principal
from playhead.gateway.feeds import AskedFeeds
from playhead.gateway.follow import Asked
from playhead.gateway.gate import GONE, Gate, Handler, OpenResource, Resource, not_found, refuse
from playhead.gateway.multiplex import serve_feeds
from playhead.gateway.openapi import describe, serve
from playhead.gateway.problems import logged
from playhead.gateway.stream import later, serve_stream

STREAM = "/runs/{run_id}/stream"
FEEDS = "/stream"

# Path → method → handler, of the routes that ask who is there.
GUARDED: Mapping[str, Mapping[str, Handler]] = {
    "/agents": {"GET": reads.agents},
    "/interrupts": {"GET": reads.interrupts},
    "/runs": {"GET": reads.runs, "POST": commands.start},
    "/runs/{run_id}": {"GET": reads.run, "DELETE": commands.delete},
    "/runs/{run_id}/bootstrap": {"GET": reads.bootstrap},
    "/runs/{run_id}/events": {"GET": reads.events},
    "/runs/{run_id}/cancel": {"POST": commands.cancel},
    "/runs/{run_id}/interrupts/{interrupt_id}/decision": {"POST": commands.decide},
}
OPEN: Mapping[str, Handler] = {"/healthz": reads.healthz, "/readyz": reads.readyz}

# What serves an admitted stream: with `receive`, `send` and the engine's parts it gives the status.
Serve = Callable[..., Awaitable[int]]
Admit = Callable[[HTTPConnection, Principal], Awaitable[Serve]]

_STREAM = re.compile(r"/runs/([^/]*)/stream")


class Gateway:
    """The ASGI app. Works under any `root_path`; keeps nothing between requests."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._root = OpenResource(gate, "/", {"GET": page.with_slash})
        routes = [Route(path, Resource(gate, path, handlers)) for path, handlers in GUARDED.items()]
        routes += [Route(path, Resource(gate, path, {}, also=("GET",))) for path in (STREAM, FEEDS)]
        open_handlers = dict(OPEN)
        open_handlers["/openapi.json"] = serve(describe())
        if gate.options.metrics:
            open_handlers["/metrics"] = reads.metrics
        if gate.options.page:
            open_handlers |= page.handlers(page.read_page())
        routes += [Route(path, OpenResource(gate, path, {"GET": handler})) for path, handler in open_handlers.items()]
        self.router = Router(routes, redirect_slashes=False, default=not_found)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = route_path(scope)
            found = _STREAM.fullmatch(path)
            if found is not None and scope["method"] == "GET":
                await self._stream(STREAM, partial(self._one, found[1]), scope, receive, send)
                return
            if path == FEEDS and scope["method"] == "GET":
                await self._stream(FEEDS, self._several, scope, receive, send)
                return
            if not path and self._gate.options.page:
                await self._root(scope, receive, send)
                return
            if not path.isprintable():
                await not_found(scope, receive, send)
                return
        await self.router(scope, receive, send)

    async def _stream(self, route: str, admit: Admit, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve what `admit` gives, unless it raises."""
        request = HTTPConnection(scope)
        status = GONE
        try:
            try:
                principal = await self._gate.enter(request)
                serve = await admit(request, principal)
            except StoreUnavailable as error:
                if Asked.read(scope).ours:
                    status = await refuse(error, scope, receive, send)
                else:
                    status = await later(_coroutine(send), self._gate.engine.hub, self._gate.options.stream)
                return
            except Exception as error:
                status = await refuse(error, scope, receive, send)
                return
            try:
                status = await self._follow(serve, principal, receive, send)
            except (NotFound, NotReady, TooManyStreams) as error:  # raised before anything was sent
                status = await refuse(error, scope, receive, send)
            except Exception as error:
                # Something may be sent already: the server cuts the connection, and the client returns by its cursor.
                logged(error)
        finally:
            self._gate.metrics.count(route, "GET", status)

    async def _one(self, run_id: str, request: HTTPConnection, principal: Principal) -> Serve:
        gate = self._gate
        run = await gate.run(principal, run_id, auth.STREAM)
        recheck = partial(gate.still, request, run, auth.STREAM)
        return partial(serve_stream, request.scope, run=run, recheck=recheck)

    async def _several(self, request: HTTPConnection, principal: Principal) -> Serve:
        """Raises what is wrong with the first run, if none can be followed."""
        gate, asked = self._gate, AskedFeeds.read(request)
        looks = (gate.run(principal, run_id, auth.STREAM) for run_id in asked.runs)
        found = dict(zip(asked.runs, await asyncio.gather(*looks, return_exceptions=True), strict=True))
        runs = [one for one in found.values() if isinstance(one, Run)]
        refusals: dict[str, str] = {}
        for run_id, one in found.items():
            if isinstance(one, NotFound | Forbidden) and runs:
                refusals[run_id] = one.code
            elif isinstance(one, BaseException):
                raise one
        return partial(
            serve_feeds,
            asked=asked,
            runs=runs,
            refusals=refusals,
            recheck=lambda run: gate.refusal(request, run, auth.STREAM),
        )

    async def _follow(self, serve: Serve, principal: Principal, receive: Receive, send: Send) -> int:
        gate, options = self._gate, self._gate.options.stream
        if principal.expires_at is not None:
            left = max(1.0, principal.expires_at - gate.now())
            options = replace(options, recheck=min(options.recheck, left))
        gate.metrics.stream_opened()
        try:
            return await serve(
                receive,
                _coroutine(send),
                hub=gate.engine.hub,
                screens=gate.engine.screens,
                ready=gate.engine.ready,
                options=options,
            )
        finally:
            gate.metrics.stream_closed()


def _coroutine(send: Send) -> Callable[[Any], Coroutine[Any, Any, None]]:
    return cast("Callable[[Any], Coroutine[Any, Any, None]]", send)  # every server's is a coroutine function


def route_path(scope: Mapping[str, Any]) -> str:
    """The path below the one under which this app is mounted, by the rules of ASGI."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        return path[len(root) :]
    return path
