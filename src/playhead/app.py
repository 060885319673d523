"""The composition root: the only module that names a backend. Everything a process needs, from one object.

    app = playhead.App([greet])
    async with app:
        run = await app.start("greet", {"who": "you"})

`app` is an ASGI application too: `uvicorn module:app`, or mount it, or `playhead.attach(your_app, app)`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from playhead.agents import Agent, AttemptContext, Listening
from playhead.backends.sqlite.live import SqliteLive
from playhead.backends.sqlite.lock import DataLock, ServerInfo
from playhead.backends.sqlite.record import SqliteRecord
from playhead.core.ids import EVERY_TENANT
from playhead.core.redaction import Redactor
from playhead.core.retention import Retention
from playhead.core.run import Run
from playhead.errors import NotInServerProcess, NotReady
from playhead.gateway import Authenticator, Authorizer, Options, build
from playhead.gateway.stream import StreamOptions
from playhead.interfaces import Clock
from playhead.runtime.clock import SystemClock
from playhead.runtime.engine import Engine
from playhead.runtime.hub import HubOptions
from playhead.runtime.setup import EngineOptions, Ports
from playhead.settings import Settings
from playhead.version import __version__

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Receive, Scope, Send

_log = logging.getLogger("playhead")
_TENANT = "local"

_started: list[App] = []  # the apps that run in this process, for `playhead.attempt`
_started_lock = threading.Lock()


class App:
    """Agents, settings, a data folder, and the server in front of them.

    Starts once and closes once. Raises DataLocked when another process serves the folder, FolderUnusable, and
    StoreCorrupt for a damaged record. Used in the event loop that started it.
    """

    def __init__(
        self,
        agents: Sequence[Agent] = (),
        *,
        settings: Settings | None = None,
        data: Path | str | None = None,
        listeners: Sequence[Listening] = (),
        authenticate: Authenticator | None = None,
        authorize: Authorizer | None = None,
        redactor: Redactor | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings or Settings.load(data=Path(data) if data is not None else None)
        self.agents = tuple(agents)
        self._listeners = tuple(listeners)
        self._authenticate, self._authorize = authenticate, authorize
        self._redactor = redactor
        self.clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._engine: Engine | None = None
        self._asgi: ASGIApp | None = None
        self._starting: asyncio.Lock | None = None
        self.lock: DataLock | None = None

    @property
    def engine(self) -> Engine:
        """Raises NotReady before the start and after the close."""
        if self._engine is None:
            raise NotReady("The app is not started: use `async with app`, or its lifespan.")
        return self._engine

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Take the data folder, open both stores, settle what an earlier process left, and begin to work."""
        if self._engine is not None:
            return
        settings = self.settings
        async with AsyncExitStack() as stack:
            engine = Engine(
                await self._open_ports(stack),
                self.clock,
                self.agents,
                listeners=_by_type(self._listeners),
                redactor=self._redactor,
                options=_subset(EngineOptions, settings, hub=_subset(HubOptions, settings)),
            )
            stack.push_async_callback(engine.drain)
            await engine.start()
            self._engine = engine
            self._asgi = build(
                engine,
                authenticate=self._authenticate,
                authorize=self._authorize,
                options=_subset(Options, settings, stream=_subset(StreamOptions, settings)),
            )
            self._stack = stack.pop_all()
        with _started_lock:
            _started.append(self)

    async def _open_ports(self, stack: AsyncExitStack) -> Ports:
        """The stores, closed by `stack`. The embedded ones: two files in the data folder, and its lock."""
        settings = self.settings
        self.lock = DataLock.acquire(settings.data)
        stack.callback(self.lock.release)
        record = await SqliteRecord.open(settings.data / "record.db", clock=self.clock)
        stack.push_async_callback(record.close)
        live = await SqliteLive.at(
            settings.data / "live.db",
            clock=self.clock,
            retention=self._retention(),
            timeline_ttl=settings.timeline_ttl,
            snapshot_ttl=settings.snapshot_ttl,
        )
        stack.push_async_callback(live.close)
        return Ports(record, record, live, live, live.signal)

    def _retention(self) -> Retention:
        settings = self.settings
        return Retention(settings.keep_events, settings.keep_age, settings.keep_bytes, settings.archive != "off")

    @property
    def local_only(self) -> bool:
        """Whether nobody was named to say who is asking, so that it answers its own machine alone."""
        return self._authenticate is None

    def announce(self, url: str) -> None:
        """Tell the command line where this folder's server is. Raises FolderUnusable."""
        if self.lock is not None:
            self.lock.announce(ServerInfo(os.getpid(), url, self.clock.wall_ms(), __version__))

    async def hurry(self) -> None:
        """Cut a drain short: end the streams now, and record what still runs."""
        if self._engine is not None:
            await asyncio.gather(self._engine.hub.drain(0.0), self._engine.worker.drain(0.0))

    async def drain(self) -> None:
        """Stop taking work, end streams and runs within their grace. `close` does it too; a host calls it early."""
        if self._engine is not None:
            await self._engine.drain()

    async def close(self) -> None:
        with _started_lock:
            if self in _started:
                _started.remove(self)
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()
        self._engine = self._asgi = None

    async def start(
        self,
        agent: str | Agent,
        given: object = None,
        *,
        labels: Mapping[str, str] | None = None,
        key: str | None = None,
        dedupe: str | None = None,
        tenant: str = _TENANT,
        subject: str = _TENANT,
    ) -> Run:
        """Start a run of a registered agent. Raises UnknownAgent, InvalidInput, InvalidRequest, KeyConflict."""
        name = agent if isinstance(agent, str) else agent.name
        run, _ = await self.engine.create(
            name, given, tenant=tenant, subject=subject, labels=labels, key=key, dedupe=dedupe
        )
        return run

    async def get(self, run_id: str, *, tenant: str = _TENANT) -> Run:
        """The run as the record has it. Raises NotFound."""
        return await self.engine.run(tenant, run_id)

    async def cancel(self, run_id: str, *, reason: str | None = None, tenant: str = _TENANT) -> Run:
        """Ask the run to stop. Raises NotFound."""
        return await self.engine.cancel(tenant, run_id, by="application", reason=reason)

    async def wait(self, run_id: str, *, tenant: str = _TENANT, look: float = 0.05) -> Run:
        """Return the run once it has ended. Raises NotFound."""
        while not (run := await self.engine.run(tenant, run_id)).status.final:
            await self.clock.sleep(look)
        return run

    @asynccontextmanager
    async def attempt(self, run_id: str, *, tenant: str = EVERY_TENANT) -> AsyncIterator[AttemptContext]:
        """Take a queued run of an external agent for the code in this block; see `playhead.attempt`."""
        async with self.engine.attempt(run_id, tenant=tenant) as attempt:
            yield AttemptContext(attempt, self.clock.wall_ms)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if self._asgi is None:
            # Mounted where no lifespan reaches: the first request starts it.
            self._starting = self._starting or asyncio.Lock()
            async with self._starting:
                await self.open()
        assert self._asgi is not None
        await self._asgi(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.open()
                except Exception as error:  # the server is told whatever it was, and so is its log
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    raise
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


def attach(
    host: Starlette,
    app: App,
    *,
    path: str = "/playhead",
    authenticate: Authenticator | None = None,
    authorize: Authorizer | None = None,
) -> None:
    """Put the gateway into a Starlette or FastAPI application: mounted at `path`, started and closed with it."""
    app._authenticate = authenticate or app._authenticate
    app._authorize = authorize or app._authorize
    host.mount(path, app)
    inner = host.router.lifespan_context

    @asynccontextmanager
    async def lifespan(outer: Any) -> AsyncIterator[Any]:
        async with app, inner(outer) as state:
            yield state

    host.router.lifespan_context = lifespan


@asynccontextmanager
async def attempt(run_id: str) -> AsyncIterator[AttemptContext]:
    """Take a queued run for the code in this block: a graph node, a task of a job queue, a cron job.

    Gives lease, fence, heartbeat and the whole run context. The block's end ends the run: `run.result` is its result,
    an exception its failure. Raises NotFound, RunFinal, RunNotFree (another attempt has it), RunCancelled from the
    block's end when the run was asked to stop, and NotInServerProcess where no app runs in this process: with the
    embedded store the attempt must live beside the server.
    """
    with _started_lock:
        here = [app for app in _started if app.engine.ready]
    for app in here:
        if await app.engine.ports.record.get(EVERY_TENANT, run_id) is not None or len(here) == 1:
            async with app.attempt(run_id) as run:
                yield run
            return
    raise NotInServerProcess(run_id=run_id)


def _by_type(listeners: Sequence[Listening]) -> dict[str, list[Listening]]:
    found: dict[str, list[Listening]] = {}
    for one in listeners:
        for name in one.types:
            found.setdefault(name, []).append(one)
    return found


def _subset(options: Any, settings: Settings, **given: Any) -> Any:
    """The options of a room, each from the setting of the same name."""
    names = {field.name for field in fields(options)}
    same = {field.name: getattr(settings, field.name) for field in fields(settings) if field.name in names}
    return options(**same, **given)
