"""What the benches over Redis share: a server of their own, writes as an attempt makes them, CPU of both ends."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from playhead.backends.memory import MemoryRecord
from playhead.backends.redis import RedisLive
from playhead.core import event
from playhead.core.ids import uuid7
from playhead.core.retention import Retention
from playhead.core.run import NewRun, Policy, Run, Status
from playhead.core.snapshot import State
from playhead.core.transition import Applied, Publish
from playhead.runtime.clock import SystemClock
from playhead.runtime.projector import Projector
from playhead.testing.harness.redis import Server
from playhead.testing.ports.given import Scribe

CLOCK = SystemClock()
PAYLOAD = {"n": 1, "pad": "x" * 60}
TENANT = "bench"
PATIENCE = 30.0  # seconds: a busy machine is no outage
UNTRIMMED = Retention(count=1_000_000)
FLAVOR = "debian"  # the server and the benchmark of one package


@dataclass(frozen=True, slots=True)
class Cost:
    """What a load took: seconds of the clock, and of CPU at each end."""

    events: int
    wall: float
    client: float
    server: float

    @property
    def rate(self) -> float:
        return self.events / self.wall

    @property
    def client_us(self) -> float:
        return 1e6 * self.client / self.events

    @property
    def server_us(self) -> float:
        return 1e6 * self.server / self.events

    def busy_us(self, flying: int) -> float:
        """What an event takes where nothing else wants the cores: one after the other, or both ends at once."""
        return self.client_us + self.server_us if flying == 1 else max(self.client_us, self.server_us)


@dataclass(frozen=True, slots=True)
class At:
    """A server that another process started."""

    url: str


def server_cpu(server: Server) -> float:
    """Seconds of CPU that the server used so far, all its threads."""
    used = server.ask("INFO", "cpu")
    return float(used["used_cpu_sys"]) + float(used["used_cpu_user"])


def children_cpu() -> float:
    """Seconds of CPU of the ended children of this process."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def store(server: Server | At, **options: Any) -> RedisLive:
    keep = {"retention": UNTRIMMED, "deadline": PATIENCE}
    return await RedisLive.at(server.url, clock=CLOCK, **(keep | options))


async def attempt(live: RedisLive) -> Scribe:
    """A run in its first attempt, its three facts on the timeline."""
    scribe = Scribe(CLOCK)
    opening = await live.open(scribe.opening())
    assert isinstance(opening, Applied), opening
    for name in (event.RUN_QUEUED, event.RUN_STARTED, event.ATTEMPT_STARTED):
        fact = scribe.fact(name, None if name == event.RUN_QUEUED else Status.RUNNING)
        await live.fact(scribe.epoch, fact, scribe.tag())
    return scribe


async def attempts(live: RedisLive, count: int) -> list[Scribe]:
    return list(await asyncio.gather(*(attempt(live) for _ in range(count))))


def writes(scribe: Scribe, count: int) -> list[Publish]:
    """Events with the state that each leads to, one to a write."""
    return [
        scribe.write(1, payload=PAYLOAD, state=State(current_step="reading", progress=i % 100)) for i in range(count)
    ]


async def measured(server: Server, events: int, load: Callable[[], Awaitable[object]]) -> Cost:
    busy, cpu, start = server_cpu(server), time.process_time(), time.perf_counter()
    await load()
    wall, client = time.perf_counter() - start, time.process_time() - cpu
    return Cost(events, wall, client, server_cpu(server) - busy)


async def begun(record: MemoryRecord, projector: Projector, tenant: str = TENANT) -> Run:
    """A run of the record's in its first attempt, projected."""
    new = NewRun(uuid7(CLOCK.wall_ms(), CLOCK.random(10)), tenant, "echo", b"{}", Policy(), {}, digest="d")
    run, _ = await record.create(new)
    await record.beat("p", 10_000_000, ())
    run = await record.claim(tenant, run.id, "p")
    await projector.begin(run)
    return run
