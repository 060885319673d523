"""A whole engine on the memory stores, without a gateway, and faults to be planted in its ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import playhead
from playhead.backends.memory import MemoryLive, MemoryRecord
from playhead.core.retention import Retention
from playhead.core.run import Run
from playhead.runtime.clock import SystemClock
from playhead.runtime.engine import Engine
from playhead.runtime.setup import EngineOptions, Ports

QUICK: dict[str, Any] = {
    "reconcile": 0.05,
    "cancel_grace": 0.5,
    "drain_window": 0.05,
    "drain_grace": 0.2,
    "lease": 60.0,
    "beat": 0.2,
}


@asynccontextmanager
async def engine(agents: Sequence[playhead.Agent], **options: Any) -> AsyncIterator[Engine]:
    """`ports` are another engine's, for a second process of the same stores."""
    clock = SystemClock()
    listeners, ports = options.pop("listeners", None), options.pop("ports", None)
    if ports is None:
        record, live = MemoryRecord(clock), MemoryLive(clock, Retention(), 3_600.0, 86_400.0)
        ports = Ports(record, record, live, live, live.signal)
    made = Engine(
        ports,
        clock,
        agents,
        listeners=listeners,
        options=EngineOptions(**{**QUICK, **options}),
    )
    await made.start()
    try:
        yield made
    finally:
        await made.drain()


async def start(made: Engine, agent: str, given: object = None) -> str:
    run, _ = await made.create(agent, given, tenant="acme", subject="ann")
    return run.id


async def ended(made: Engine, run_id: str) -> Run:
    async def look() -> Run | None:
        run = await made.run("acme", run_id)
        return run if run.status.final else None

    found: Run = await eventually(look)
    return found


async def eventually(look: Callable[[], Any], wait: float = 15.0) -> Any:
    """What `look` gives once it is something."""
    async with asyncio.timeout(wait):
        while True:
            found = look()
            found = await found if asyncio.iscoroutine(found) else found
            if found:
                return found
            await asyncio.sleep(0.01)


def plant(port: Any, name: str, act: Callable[..., Any]) -> None:
    """Have this port do that in place of its own method."""
    setattr(port, name, act)


class Faulty:
    """A method of a port that raises what it is given, one after the other or for good, and works otherwise."""

    def __init__(self, port: Any, name: str, *errors: BaseException, always: BaseException | None = None) -> None:
        self._act, self.errors, self.always = getattr(port, name), list(errors), always
        self.calls = 0
        setattr(port, name, self)

    async def __call__(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        if self.always is not None:
            raise self.always
        return await self._act(*args, **options)


class Held:
    """A method of a port whose answer, once it is there, is held back until `go`."""

    def __init__(self, port: Any, name: str) -> None:
        self._act = getattr(port, name)
        self.done, self.go = asyncio.Event(), asyncio.Event()
        setattr(port, name, self)

    async def __call__(self, *args: Any, **options: Any) -> Any:
        answer = await self._act(*args, **options)
        if answer:
            self.done.set()
            await self.go.wait()
        return answer
