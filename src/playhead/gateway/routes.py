"""The table of routes, and the dispatcher in front: streams go straight to the server's own `send`, all else here."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from starlette.requests import HTTPConnection
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from playhead.core.run import Run
from playhead.errors import NotFound, NotReady, TooManyStreams
from playhead.gateway import auth, commands, page, reads
from playhead.gateway.auth import Principal
from playhead.gateway.gate import GONE, Gate, Handler, OpenResource, Resource, not_found, refuse
from playhead.gateway.openapi import describe, serve
from playhead.gateway.problems import logged
from playhead.gateway.stream import serve_stream

STREAM = "/runs/{run_id}/stream"

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

_STREAM = re.compile(r"/runs/([^/]*)/stream")


class Gateway:
    """The ASGI app. Works under any `root_path`; keeps nothing between requests."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._root = OpenResource(gate, "/", {"GET": page.with_slash})
        routes = [Route(path, Resource(gate, path, handlers)) for path, handlers in GUARDED.items()]
        routes.append(Route(STREAM, Resource(gate, STREAM, {}, also=("GET",))))
        open_handlers = dict(OPEN)
        open_handlers["/openapi.json"] = serve(describe())
        if gate.options.metrics:
            open_handlers["/metrics"] = reads.metrics
        if gate.options.page:
            open_handlers["/"] = page.serve(page.read_page())
        routes += [Route(path, OpenResource(gate, path, {"GET": handler})) for path, handler in open_handlers.items()]
        self.router = Router(routes, redirect_slashes=False, default=not_found)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = route_path(scope)
            found = _STREAM.fullmatch(path)
            if found is not None and scope["method"] == "GET":
                await self._stream(found[1], scope, receive, send)
                return
            if not path and self._gate.options.page:
                await self._root(scope, receive, send)
                return
            if not path.isprintable():
                await not_found(scope, receive, send)
                return
        await self.router(scope, receive, send)

    async def _stream(self, run_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        request = HTTPConnection(scope)
        status = GONE
        try:
            try:
                principal = await self._gate.enter(request)
                run = await self._gate.run(principal, run_id, auth.STREAM)
            except Exception as error:
                status = await refuse(error, scope, receive, send)
                return
            try:
                status = await self._follow(request, principal, run, receive, send)
            except (NotFound, NotReady, TooManyStreams) as error:  # raised before anything was sent
                status = await refuse(error, scope, receive, send)
            except Exception as error:
                # Something may be sent already: the server cuts the connection, and the client returns by its cursor.
                logged(error)
        finally:
            self._gate.metrics.count(STREAM, "GET", status)

    async def _follow(
        self, request: HTTPConnection, principal: Principal, run: Run, receive: Receive, send: Send
    ) -> int:
        gate, options = self._gate, self._gate.options.stream
        if principal.expires_at is not None:
            left = max(1.0, principal.expires_at - gate.now())
            options = replace(options, recheck=min(options.recheck, left))
        gate.metrics.stream_opened()
        try:
            return await serve_stream(
                request.scope,
                receive,
                cast("Callable[[Any], Coroutine[Any, Any, None]]", send),  # every server's is a coroutine function
                run=run,
                hub=gate.engine.hub,
                screens=gate.engine.screens,
                ready=gate.engine.ready,
                recheck=partial(gate.still, request, run, auth.STREAM),
                options=options,
            )
        finally:
            gate.metrics.stream_closed()


def route_path(scope: Mapping[str, Any]) -> str:
    """The path below the one under which this app is mounted, by the rules of ASGI."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        return path[len(root) :]
    return path
