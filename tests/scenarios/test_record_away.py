"""PostgreSQL is stopped, frozen, slow or cut off for a while: decided is what is decided once, and viewers go on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.scenarios.fleet import QUICK, Fleet, until
from tests.scenarios.people import BUSY
from tests.scenarios.scene import Scene

pytestmark = [pytest.mark.anyio, pytest.mark.wide]

AWAY = float(QUICK["lease"]) + 2.0  # seconds: no lease could be renewed meanwhile
Trouble = Callable[[Fleet], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def stopped(fleet: Fleet) -> AsyncIterator[None]:
    await asyncio.to_thread(fleet.postgres.process.stop)
    yield
    await asyncio.to_thread(fleet.postgres.process.start)


@asynccontextmanager
async def frozen(fleet: Fleet) -> AsyncIterator[None]:
    """The server with all its processes: it accepts connections, and never answers."""
    processes = family(fleet.postgres.process.pid)
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    yield
    for pid in processes:
        os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def unreachable(fleet: Fleet) -> AsyncIterator[None]:
    for member in fleet.members:
        member.record.up.set(hold=True)
        member.record.down.set(hold=True)
    yield
    for member in fleet.members:
        await member.record.resume()


def family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in family(int(child)))]


TROUBLES: dict[str, tuple[Trouble, tuple[str, ...]]] = {
    "stopped": (stopped, ("F37",)),
    "frozen": (frozen, ("F38",)),
    "unreachable": (unreachable, ("F38",)),
}


@pytest.mark.parametrize(
    "trouble", [pytest.param(one, id=name, marks=pytest.mark.row(*rows)) for name, (one, rows) in TROUBLES.items()]
)
async def test_the_record_is_away_for_longer_than_a_lease(scene: Scene, trouble: Trouble) -> None:
    """Viewers stay live from Redis, calls that need the record are told to come back, nobody's run is taken."""
    ending = await scene.start("plain", steps=2, gates=["end"])
    going = await scene.start("plain", steps=60, pause=0.02, gates=["at-2", "at-40"])
    await scene.reached(ending, "end")
    await scene.reached(going, "at-2")
    await scene.seen(going, "step_taken")
    async with trouble(scene.fleet):
        scene.open(going, "at-2")
        scene.open(ending, "end")
        # 38 steps more reach every screen: they need no record.
        await until(
            lambda: all(viewer.screen.snapshot.get("done") == 39 for viewer in going.viewers),
            what=lambda: f"step 39 on every screen: {[viewer.screen for viewer in going.viewers]}",
        )
        for gateway in scene.fleet.gateways:
            answer = await gateway.direct.get(f"/runs/{going.id}")
            assert answer.status in BUSY, answer
            assert answer.headers["retry-after"]
            assert answer.json()["code"] == "store_unavailable"
        await asyncio.sleep(AWAY)
        assert all(not viewer.screen.finals for viewer in ending.viewers)  # nothing is announced first
    scene.open(going, "at-40")
    await scene.settle()
    for one in (ending, going):
        run = await scene.run(one)
        assert (run["status"], run["attempt"]) == ("succeeded", 1), run
    await scene.judge()


@pytest.mark.row("BR-72", "F44")
async def test_streams_hold_no_connection_of_the_record(scene: Scene) -> None:
    """Forty of them on a process that has four."""
    one = await scene.start("plain", steps=3, gates=["at-2"], viewers=40)
    await scene.reached(one, "at-2")
    await scene.seen(one, "step_taken")
    held = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'playhead' AND state LIKE %s"

    async def idle() -> bool:
        [(count,)] = await scene.fleet.select(held, "idle in transaction%")
        return bool(count == 0)

    def few() -> bool:
        """One that was given up may be open for a moment beside the one in its place."""
        return all(
            gateway.record.lines <= QUICK["record_connections"] and gateway.live.lines <= QUICK["live_connections"] + 1
            for gateway in scene.fleet.gateways
        )

    def held_now() -> list[tuple[int, int]]:
        return [(gateway.record.lines, gateway.live.lines) for gateway in scene.fleet.gateways]

    await until(idle)
    await until(few, what=lambda: f"as few connections as there may be: {held_now()}")
    for gateway in scene.fleet.gateways:
        answer = await gateway.direct.get(f"/runs/{one.id}")
        assert answer.status == 200
    scene.open(one, "at-2")
    await scene.settle()
    await scene.judge()


@pytest.mark.row("BR-34", "BR-10", "E4", "F23", "F54")
async def test_a_living_run_is_not_touched_when_others_come_and_go(scene: Scene) -> None:
    """A second worker starts, and a gateway, while the first one works in silence for longer than a lease."""
    one = await scene.start("plain", steps=2, gates=["at-2"])
    pid = (await scene.reached(one, "at-2"))["process"]
    other = next(worker for worker in scene.fleet.workers if worker.process.pid != pid)
    for member in (other, scene.fleet.gateways[0]):
        await member.kill()
        await member.start()
    await asyncio.sleep(AWAY)
    assert (await scene.run(one))["status"] == "running"
    keys = await asyncio.to_thread(scene.fleet.redis.ask, "KEYS", f"*{one.id}*")
    assert keys
    for key in keys:  # however quiet it is, nothing of it ends before it does
        assert await asyncio.to_thread(scene.fleet.redis.ask, "PTTL", key) == -1, key
    scene.open(one, "at-2")
    await scene.settle()
    run = await scene.run(one)
    assert (run["status"], run["attempt"]) == ("succeeded", 1)
    await scene.judge()
