"""Redis is refused, silent, slow, narrow, busy or full for a while: runs go on, and viewers lack nothing afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from redis.exceptions import RedisError

from playhead.testing.faults import Cut, Mode, Proxy
from tests.scenarios.fleet import Fleet, until
from tests.scenarios.scene import Scene

pytestmark = [pytest.mark.anyio, pytest.mark.wide]

AWAY = 3.0  # seconds: longer than a call to Redis may take
COMMAND = rb"\*\d+\r\n\$\d+\r\n[A-Z]"
Trouble = Callable[[Fleet], AbstractAsyncContextManager[None]]


def on_the_way(**changes: Any) -> Trouble:
    """Every process's way to Redis and back."""

    @asynccontextmanager
    async def trouble(fleet: Fleet) -> AsyncIterator[None]:
        proxies = [member.live for member in fleet.members]
        for proxy in proxies:
            for way in (proxy.up, proxy.down):
                way.set(**changes)
        yield
        for proxy in proxies:
            await proxy.resume()

    return trouble


def one_way(name: str) -> Trouble:
    @asynccontextmanager
    async def trouble(fleet: Fleet) -> AsyncIterator[None]:
        for member in fleet.members:
            getattr(member.live, name).set(hold=True)
        yield
        for member in fleet.members:
            await member.live.resume()

    return trouble


@asynccontextmanager
async def refused(fleet: Fleet) -> AsyncIterator[None]:
    for member in fleet.members:
        await member.live.refuse()
        member.live.reset()
    yield
    for member in fleet.members:
        await member.live.resume()


@asynccontextmanager
async def vanished(fleet: Fleet) -> AsyncIterator[None]:
    """Every connection hangs, and new ones are good: nobody was told that the old ones are dead."""
    for member in fleet.members:
        member.live.vanish("server")
    yield
    for member in fleet.members:
        await member.live.resume()


@asynccontextmanager
async def busy(fleet: Fleet) -> AsyncIterator[None]:
    asleep = asyncio.create_task(asyncio.to_thread(fleet.redis.ask, "DEBUG", "SLEEP", "3"))
    yield
    await asleep


@asynccontextmanager
async def full(fleet: Fleet) -> AsyncIterator[None]:
    """What is there can be read, and nothing can be added."""
    await asyncio.to_thread(fleet.redis.ask, "CONFIG", "SET", "maxmemory", "1")
    yield
    await asyncio.to_thread(fleet.redis.ask, "CONFIG", "SET", "maxmemory", "0")


@asynccontextmanager
async def crowded(fleet: Fleet) -> AsyncIterator[None]:
    """Others have all the connections that the server gives."""
    await asyncio.to_thread(fleet.redis.ask, "CONFIG", "SET", "maxclients", "1")
    for member in fleet.members:
        member.live.reset()
    yield
    for member in fleet.members:
        await member.live.refuse()  # so that the one connection there is can be ours
        member.live.reset()

    def let_in() -> bool:
        try:
            return bool(fleet.redis.ask("CONFIG", "SET", "maxclients", "10000"))
        except RedisError:  # it has not seen yet that the one connection is free: again
            return False

    await until(lambda: asyncio.to_thread(let_in))
    for member in fleet.members:
        await member.live.resume()


async def test_what_the_live_store_was_told_is_over_for_the_next_scenario(scene: Scene) -> None:
    async def settings() -> list[bytes]:
        return sorted(await asyncio.to_thread(scene.fleet.redis.ask, "CONFIG", "GET", "max*"))

    before = await settings()
    await asyncio.to_thread(scene.fleet.redis.ask, "CONFIG", "SET", "maxmemory", "1", "maxclients", "1")
    await scene.fleet.heal()
    assert await settings() == before


TROUBLES: dict[str, tuple[Trouble, tuple[str, ...]]] = {
    "refused": (refused, ("F27", "BR-78")),
    "silent": (on_the_way(hold=True), ("F28",)),
    "silent_towards_it": (one_way("up"), ("F28",)),
    "silent_back": (one_way("down"), ("F29",)),
    "vanished": (vanished, ("F28",)),
    "busy": (busy, ("F26",)),
    "full": (full, ("F20",)),
    "crowded": (crowded, ("F33",)),
}


@pytest.mark.parametrize(
    "trouble", [pytest.param(one, id=name, marks=pytest.mark.row(*rows)) for name, (one, rows) in TROUBLES.items()]
)
async def test_the_live_store_is_away_for_a_while(scene: Scene, trouble: Trouble) -> None:
    """Runs that were there and runs that come meanwhile end well, and everything is told in order afterwards."""
    scene.was_away = True
    before = await scene.start("plain", steps=30, pause=0.02, gates=["at-2"])
    asking = await scene.start("resumable", steps=2, question=True, gates=["at-2"])
    await scene.reached(before, "at-2")
    await scene.reached(asking, "at-2")
    async with trouble(scene.fleet):
        scene.open(before, "at-2")
        scene.open(asking, "at-2")
        meanwhile = await scene.start("plain", steps=3)
        assert (await scene.run(meanwhile))["status"] in ("queued", "running", "succeeded")
        await asyncio.sleep(AWAY)
    await scene.settle()
    for one in (before, asking, meanwhile):
        run = await scene.run(one)
        assert (run["status"], run["attempt"]) == ("succeeded", 1), run
    await scene.judge()


# How the way is bad, the rows, and how many steps a run has there.
SLOW: dict[str, tuple[Callable[[Proxy], None], tuple[str, ...], int]] = {
    "slow": (lambda proxy: proxy.down.set(delay=0.3, jitter=0.1), ("F30",), 8),
    "narrow": (lambda proxy: proxy.down.set(rate=100_000, most=500), ("F30",), 8),
    "cut_every_fifty_commands": (lambda proxy: proxy.up.set(cut=Cut(at=COMMAND, matches=50)), ("F31",), 80),
}


@pytest.mark.parametrize(
    ("make", "steps"),
    [pytest.param(one, steps, id=name, marks=pytest.mark.row(*rows)) for name, (one, rows, steps) in SLOW.items()],
)
async def test_whole_runs_on_a_bad_way_to_the_live_store(
    scene: Scene, make: Callable[[Proxy], None], steps: int
) -> None:
    for member in scene.fleet.members:
        make(member.live)
    scene.was_away = True
    cuts = [member.live.up.cuts for member in scene.fleet.members]
    runs = [await scene.start("plain", steps=steps, question=True) for _ in range(2)]
    await scene.settle()
    assert [(run := await scene.run(one))["status"] for one in runs] == ["succeeded"] * 2, run
    if any(member.live.up.mode != Mode() for member in scene.fleet.members):
        assert [member.live.up.cuts for member in scene.fleet.members] > cuts
    for member in scene.fleet.members:
        await member.live.resume()
    await scene.judge()


@pytest.mark.row("F39")
async def test_both_stores_slow_at_once(scene: Scene) -> None:
    mode = Mode(delay=0.2, jitter=0.1)
    for member in scene.fleet.members:
        member.live.down.set(mode)
        member.record.down.set(replace(mode, delay=0.1))
    scene.was_away = True  # a beat late is a call too late
    runs = [await scene.start("plain", steps=5, question=True) for _ in range(2)]
    await scene.settle()
    for one in runs:
        assert (await scene.run(one))["status"] == "succeeded"
    for member in scene.fleet.members:
        assert member.record.lines <= 4
        assert member.live.lines <= 9
    await scene.fleet.heal()
    await scene.judge()


@pytest.mark.row("F24")
async def test_scripts_that_the_server_forgets_are_brought_again(scene: Scene) -> None:
    one = await scene.start("plain", steps=40, pause=0.01)
    for _ in range(10):
        await asyncio.to_thread(scene.fleet.redis.ask, "SCRIPT", "FLUSH")
        await asyncio.sleep(0.05)
    await scene.settle()
    assert (await scene.run(one))["status"] == "succeeded"
    await scene.judge()


@pytest.mark.row("F29", "F31")
async def test_wake_ups_that_are_cut_off_while_events_flow(scene: Scene) -> None:
    """Only the connections on which hints come; each is cut at its third message, again and again."""
    cuts = sum(member.live.down.cuts for member in scene.fleet.gateways)
    for member in scene.fleet.members:
        member.live.down.set(cut=Cut(at=rb"s?message\r\n", matches=3))
    runs = [await scene.start("plain", steps=40, pause=0.01) for _ in range(2)]
    await scene.settle()
    assert sum(member.live.down.cuts for member in scene.fleet.gateways) > cuts
    await scene.fleet.heal()
    for one in runs:
        assert (await scene.run(one))["status"] == "succeeded"
    await scene.judge()


@pytest.mark.row("F35")
async def test_started_before_its_stores_a_process_serves_once_they_are_there(scene: Scene) -> None:
    gateway, worker = scene.fleet.gateways[0], scene.fleet.workers[0]
    for member in (gateway, worker):
        await member.stop()
        for proxy in (member.live, member.record):
            await proxy.refuse()
    starting = [asyncio.create_task(member.start()) for member in (gateway, worker)]
    answer = await until(lambda: readiness(gateway.direct), what="an answer")
    assert answer == 503
    for member in (gateway, worker):
        await member.live.resume()
        await member.record.resume()
    await asyncio.gather(*starting)
    one = await scene.start("plain", question=True)
    await scene.settle()
    assert (await scene.run(one))["status"] == "succeeded"
    await scene.judge()


async def readiness(client: Any) -> int | None:
    try:
        return int((await client.get("/readyz")).status)
    except OSError:
        return None
