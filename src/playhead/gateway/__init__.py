"""HTTP and server-sent events: a thin edge that decides nothing about a run."""

from __future__ import annotations

from starlette.types import ASGIApp

from playhead.gateway.auth import Authenticator, Authorizer, Principal, local
from playhead.gateway.gate import Gate
from playhead.gateway.metrics import Metrics
from playhead.gateway.port import Engine, Options
from playhead.gateway.routes import Gateway

__all__ = ["Authenticator", "Authorizer", "Options", "Principal", "build", "local"]


def build(
    engine: Engine,
    *,
    authenticate: Authenticator | None = None,
    authorize: Authorizer | None = None,
    options: Options | None = None,
) -> ASGIApp:
    """The ASGI app over an engine; `local()` and no authorizer by default.

    It starts and stops nothing: the engine's life is the caller's. Mount it anywhere; a middleware that wraps `send`
    costs its streams speed, and one that collects bodies breaks them.
    """
    return Gateway(
        Gate(
            engine=engine,
            authenticate=authenticate or local(),
            authorize=authorize,
            options=options or Options(),
            metrics=Metrics(engine),
        )
    )
