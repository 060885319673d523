"""The gate before every route: who is asking, may they, does it exist; and every error as a problem."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from playhead.core.ids import is_id, is_tenant
from playhead.core.run import Run
from playhead.errors import Forbidden, NotFound, PlayheadError, StoreUnavailable, Unauthenticated
from playhead.gateway import auth
from playhead.gateway.auth import Authenticator, Authorizer, Principal
from playhead.gateway.metrics import Metrics
from playhead.gateway.port import Engine, Options
from playhead.gateway.problems import MethodNotAllowed, logged, problem

# What a client that went away is logged with; nobody reads it.
GONE = 499


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What every route shares."""

    engine: Engine
    authenticate: Authenticator
    authorize: Authorizer | None  # None: whoever is in the tenant may do everything in it
    options: Options
    metrics: Metrics
    now: Callable[[], float] = time.time

    async def enter(self, request: HTTPConnection) -> Principal:
        """Who is asking. Raises Unauthenticated, Forbidden."""
        auth.refuse_other_sites(request, self.options.origins)
        principal = await auth.answer(self.authenticate(request))
        # A tenant that is none by grammar could be the one that means all of them.
        if not is_tenant(principal.tenant) or not principal.subject:
            raise Unauthenticated
        if principal.expires_at is not None and principal.expires_at <= self.now():
            raise Unauthenticated
        return principal

    async def may(self, principal: Principal, action: str, run: Run | None) -> bool:
        """Whether the authorizer allows this. Anything but True is no."""
        if run is not None and run.tenant != principal.tenant:
            return False
        return self.authorize is None or await auth.answer(self.authorize(principal, action, run)) is True

    async def permit(self, principal: Principal, action: str) -> None:
        """Raises Forbidden."""
        if not await self.may(principal, action, None):
            raise Forbidden

    async def run(self, principal: Principal, run_id: str, action: str) -> Run:
        """The run, for this action. Raises NotFound for one that is absent, another's or may not be seen; Forbidden."""
        if not is_id(run_id):
            raise NotFound
        run = await self.engine.run(principal.tenant, run_id)
        if not await self.may(principal, action, run):
            if action == auth.READ or not await self.may(principal, auth.READ, run):
                raise NotFound
            raise Forbidden
        return run

    async def refusal(self, request: HTTPConnection, run: Run, action: str) -> str | None:
        """The code with which the same request would be refused now; None: it would not. Raises StoreUnavailable: then
        nobody can say."""
        try:
            await self.run(await self.enter(request), run.id, action)
        except StoreUnavailable:
            raise
        except Exception as error:
            return (error if isinstance(error, PlayheadError) else logged(error)).code
        return None

    async def still(self, request: HTTPConnection, run: Run, action: str) -> bool:
        """Whether the same request would be let in now. Raises StoreUnavailable."""
        return await self.refusal(request, run, action) is None


@dataclass(frozen=True, slots=True)
class Call:
    """One request at a route."""

    gate: Gate
    request: Request
    principal: Principal

    @property
    def engine(self) -> Engine:
        return self.gate.engine

    async def run(self, action: str) -> Run:
        """The run that the path names, as `Gate.run`."""
        return await self.gate.run(self.principal, self.request.path_params["run_id"], action)


Handler = Callable[[Call], Awaitable[Response]]


class Resource:
    """One path with its methods, as an ASGI app. No exception of a handler leaves it."""

    def __init__(self, gate: Gate, path: str, handlers: Mapping[str, Handler], *, also: tuple[str, ...] = ()) -> None:
        self._gate = gate
        self._path = path
        self._handlers = dict(handlers)
        methods = {*self._handlers, *also, "OPTIONS"}
        if "GET" in self._handlers:
            methods.add("HEAD")
        self._allow = {"allow": ", ".join(sorted(methods))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        method = request.method
        started = time.perf_counter()
        status = GONE
        try:
            response = await self._answer(request, "GET" if method == "HEAD" else method)
            if method == "HEAD":
                response.body = b""  # the length of the whole is told already
            status = response.status_code
            await response(scope, receive, send)
        except ClientDisconnect:
            pass
        finally:
            self._gate.metrics.request(self._path, method, status, time.perf_counter() - started)

    async def _answer(self, request: Request, method: str) -> Response:
        try:
            if method == "OPTIONS":
                return Response(None, 204, self._allow)
            handler = self._handlers.get(method)
            if handler is None:
                return problem(MethodNotAllowed(), self._allow)
            return await self._handle(handler, request)
        except ClientDisconnect:
            raise
        except Exception as error:
            return problem(error)

    async def _handle(self, handler: Handler, request: Request) -> Response:
        return await handler(Call(self._gate, request, await self._gate.enter(request)))


class OpenResource(Resource):
    """A path that anybody may read, because it tells nothing of anybody."""

    async def _handle(self, handler: Handler, request: Request) -> Response:
        return await handler(Call(self._gate, request, NOBODY))


NOBODY = Principal("", "")


async def refuse(error: Exception, scope: Scope, receive: Receive, send: Send) -> int:
    """Answer with the problem for this error; the status."""
    response = problem(error)
    await response(scope, receive, send)
    return response.status_code


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer what no route takes, in the very bytes of a run that is not there."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
        return
    await refuse(NotFound(), scope, receive, send)
