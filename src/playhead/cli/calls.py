"""The server of a place, called from a command: one call or one long watch, and the command goes on when it is over."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from playhead.cli.folder import Place
from playhead.client import Client

T = TypeVar("T")


def client_of(place: Place) -> Client:
    """A client that finds the place's server anew for each request: a restarted one may have another address."""
    return Client(place.need, headers=_headers, keepalive=place.keepalive)


def call(place: Place, work: Callable[[Client], Awaitable[T]]) -> T:
    """What this work gives. Raises NoServer, and what the server's problems say."""

    async def run() -> T:
        return await work(client_of(place))

    return anyio.run(run)


def _headers() -> dict[str, str]:
    # Never on the command line: other people of this machine can read that.
    token = os.environ.get("PLAYHEAD_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}
