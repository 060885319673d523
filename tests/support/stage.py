"""A whole server in the test's own event loop, on either store, with scripted agents that wait at gates."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

import playhead
from playhead.app import App
from playhead.backends.memory import MemoryLive, MemoryRecord
from playhead.errors import StoreUnavailable
from playhead.runtime.setup import Ports
from playhead.settings import Settings
from playhead.stores import retention
from tests.support import behind, redis_servers
from tests.support import postgres as servers
from tests.support.wire import Client

BACKENDS = ("memory", "sqlite", "servers")  # the last: PostgreSQL and Redis
LIVES = {"servers": "redis", "valkey": "valkey", "cluster": "cluster"}  # what stands beside PostgreSQL there
FURTHER = ("valkey", "cluster")  # those on which only what is marked `store` is tested
STORES = (*BACKENDS, *(pytest.param(name, marks=pytest.mark.wide) for name in FURTHER))

_servers: dict[Path, dict[str, Any]] = {}


class MemoryApp(App):
    """The same app on the memory backend. `kept` lets a second app go on with the first one's stores."""

    kept: Ports | None = None

    async def _open_ports(self, stack: AsyncExitStack) -> Ports:
        if self.kept is None:
            record = MemoryRecord(self.clock)
            live = MemoryLive(
                self.clock,
                retention=retention(self.settings),
                timeline_ttl=self.settings.timeline_ttl,
                snapshot_ttl=self.settings.snapshot_ttl,
                idle_ttl=self.settings.idle_ttl,
            )
            self.kept = Ports(record, record, live, live, live.signal)
        return self.kept


class Gates:
    """Named gates: an agent waits at one until the test opens it; `reached` says that it got there."""

    def __init__(self) -> None:
        self._open: dict[str, asyncio.Event] = {}
        self._reached: dict[str, asyncio.Event] = {}
        self.calls = 0  # of agents

    def _event(self, events: dict[str, asyncio.Event], name: str) -> asyncio.Event:
        return events.setdefault(name, asyncio.Event())

    async def wait(self, name: str) -> None:
        self._event(self._reached, name).set()
        await self._event(self._open, name).wait()

    def open(self, *names: str) -> None:
        for name in names:
            self._event(self._open, name).set()

    def is_open(self, name: str) -> bool:
        return self._event(self._open, name).is_set()

    async def reached(self, name: str, wait: float = 20.0) -> None:
        async with asyncio.timeout(wait):
            await self._event(self._reached, name).wait()


class Stage:
    """A server that runs. `client` speaks to it, `app` and `engine` are its inside."""

    def __init__(self, app: App, gates: Gates, client: Client, server: uvicorn.Server) -> None:
        self.app, self.gates, self.client, self.server = app, gates, client, server

    @property
    def engine(self) -> Any:
        return self.app.engine

    async def flush(self) -> None:
        """Lose the live store."""
        await behind.flush(self.app)

    async def take_none(self) -> None:
        """From now on the worker takes no run, also not by a look that is under way."""
        self.engine.worker._accepting = False
        async with self.engine.worker._taking:
            pass

    async def archived(self, run_id: str) -> None:
        await self.engine.projector.bring(run_id)  # a run ends in the record before its timeline says so
        await self.engine.archiver.run(run_id)


class Outage:
    """The live store takes nothing while this is on, and gives nothing either if `reads` are away too."""

    WRITES = ("publish", "append", "fact", "open", "archived", "drop")
    READS = ("read", "stand", "find", "unarchived", "read_text")

    def __init__(self, s: Stage, *, reads: bool) -> None:
        self.on = False
        live: Any = s.engine.ports.live
        for name in (*self.WRITES, *(self.READS if reads else ())):
            setattr(live, name, self._around(getattr(live, name)))

    def _around(self, act: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            if self.on:
                raise StoreUnavailable
            return await act(*args, **options)

        return call


def visible(shown: Mapping[str, Any]) -> dict[str, Any]:
    """What a person sees of a bootstrap and must not change when the live store is lost."""
    keep = ("status", "progress", "current_step", "done", "total", "detail", "title", "attempt", "started_at")
    return {
        "run": (shown["run"]["status"], shown["run"]["result"]),
        "snapshot": {name: shown["snapshot"][name] for name in keep},
        "interrupts": [(one["id"], one["payload"]) for one in shown["interrupts"]],
        "text": [(one["part"], one["attempt"], one["text"]) for one in shown["text"]],
        "events": [(event["id"], event["type"]) for event in shown["events"]],
    }


def where(backend: str, folder: Path) -> dict[str, Any]:
    """The settings that name this backend's stores. A folder stands for the same ones each time."""
    if backend not in LIVES:
        return {}
    found = _servers.get(folder)
    if found is None:
        found = _servers[folder] = {
            "record": servers.database(),
            "live": redis_servers.url(LIVES[backend]),
            "live_prefix": redis_servers.prefix(),
        }
    return found


# Waits that a person would not notice, so that tests do not either. Timing decides no test.
QUICK: Mapping[str, Any] = {
    "lease": 2.0,
    "beat": 0.5,
    "sweep": 0.4,
    "reconcile": 0.1,
    "keepalive": 0.5,
    "cancel_grace": 1.0,
    "drain_window": 0.2,
    "drain_grace": 1.0,
}


@asynccontextmanager
async def stage(
    backend: str,
    folder: Path,
    agents: Sequence[playhead.Agent] | Callable[[Gates], Sequence[playhead.Agent]],
    *,
    settings: Mapping[str, Any] | None = None,
    kept: Ports | None = None,
    front: Callable[[Any], Any] | None = None,
    **options: Any,
) -> AsyncIterator[Stage]:
    """Serve these agents on 127.0.0.1. `agents` may be a function that is given the gates; `front` puts a middleware
    before the app."""
    gates = Gates()
    chosen = agents(gates) if callable(agents) else agents
    made = Settings.load(data=folder, environ={}, **{**QUICK, **where(backend, folder), **(settings or {})})
    kind = MemoryApp if backend == "memory" else App
    app = kind(chosen, settings=made, **options)
    if isinstance(app, MemoryApp):
        app.kept = kept
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    config = uvicorn.Config(
        front(app) if front else app, lifespan="off", log_level="warning", timeout_graceful_shutdown=5, access_log=False
    )
    server = uvicorn.Server(config)
    async with app:
        serving = asyncio.create_task(server._serve(sockets=[sock]))
        while not server.started:
            await asyncio.sleep(0.005)
        try:
            yield Stage(app, gates, Client("127.0.0.1", port), server)
        finally:
            await app.drain()
            server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await serving
            sock.close()
