"""The composition root: everything a process needs, from one object.

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

from playhead import stores
from playhead.agents import Agent, AttemptContext, Listening
from playhead.core.ids import EVERY_TENANT
from playhead.core.redaction import Redactor
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
from playhead.signals import on_stop
from playhead.version import __version__

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Receive, Scope, Send

_log = logging.getLogger("playhead")
_TENANT = "local"

_started: list[App] = []  # the apps that run in this process, for `playhead.attempt`
_started_lock = threading.Lock()


class App:
    """Agents, settings, the stores that they name, and the server in front of them.

    Starts once and closes once. Raises DataLocked when another process serves the folder, FolderUnusable, and
    StoreCorrupt for a damaged record. Used in the event loop that started it. With `record` and `live` set, any number
    of processes have the same runs.
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
        self.lock: stores.DataLock | None = None

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

    async def open(self, *, patient: bool = False) -> None:
        """Open both stores (embedded: lock their folder), settle what an earlier process left, and begin to work.

        With `patient`, servers that do not answer yet are waited for while this one answers that it is not ready.
        """
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
            await engine.start(patient=patient)
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

    async def _open_hosted(self) -> None:
        """Open under a server that is not ours: its signal to stop begins the drain, or streams would hold it up."""
        if self._engine is None:
            await self.open()
            self._stack.callback(on_stop(self.drain))

    async def _open_ports(self, stack: AsyncExitStack) -> Ports:
        """The stores that the settings name, closed by `stack`."""
        if self.settings.record is not None:
            return await stores.open_servers(self.settings, self.clock, stack)
        ports, self.lock = await stores.open_embedded(self.settings, self.clock, stack)
        return ports

    @property
    def local_only(self) -> bool:
        """Whether nobody was named to say who is asking, so that it answers its own machine alone."""
        return self._authenticate is None

    def announce(self, url: str) -> None:
        """Tell the command line where this folder's server is. Raises FolderUnusable."""
        if self.lock is not None:
            self.lock.announce(stores.ServerInfo(os.getpid(), url, self.clock.wall_ms(), __version__))

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
            yield AttemptContext(attempt)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if self._asgi is None:
            # Mounted where no lifespan reaches: the first request starts it.
            self._starting = self._starting or asyncio.Lock()
            async with self._starting:
                await self._open_hosted()
        assert self._asgi is not None
        await self._asgi(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._open_hosted()
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
        await app._open_hosted()
        try:
            async with inner(outer) as state:
                yield state
        finally:
            await app.close()

    host.router.lifespan_context = lifespan


@asynccontextmanager
async def attempt(run_id: str) -> AsyncIterator[AttemptContext]:
    """Take a queued run for the code in this block: a graph node, a task of a job queue, a cron job.

    Gives lease, fence, heartbeat and the whole run context. The block's end ends the run: `run.result` is its result,
    an exception its failure. Raises NotFound, RunFinal, RunNotFree (another attempt has it), RunCancelled from the
    block's end when the run was asked to stop, and NotInServerProcess where no app runs in this process and the stores
    are embedded: then the attempt must live beside the server. With PLAYHEAD_RECORD and PLAYHEAD_LIVE set, an app of
    the block's own is started for it; code with many attempts opens one App and uses its `attempt`.
    """
    with _started_lock:
        here = [app for app in _started if app.engine.ready]
    for app in here:
        if await app.engine.ports.record.get(EVERY_TENANT, run_id) is not None or len(here) == 1:
            async with app.attempt(run_id) as run:
                yield run
            return
    settings = Settings.load(worker=False)
    if settings.record is None or here:
        raise NotInServerProcess(run_id=run_id)
    async with App(settings=settings) as app, app.attempt(run_id) as run:
        yield run


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
