"""Redis is emptied, restarted or gone back in time: no viewer sees anything but the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.scenarios.fleet import Fleet, until
from tests.scenarios.scene import Scene, Started
from tests.support.stage import visible

pytestmark = [pytest.mark.anyio, pytest.mark.wide]

Loss = Callable[[Fleet], Awaitable[None]]


async def flushed(fleet: Fleet) -> None:
    await fleet.flush()


async def restarted_empty(fleet: Fleet) -> None:
    await asyncio.to_thread(fleet.redis.process.kill)
    await asyncio.to_thread(fleet.redis.process.start)


async def without(fleet: Fleet, pattern: str) -> None:
    def remove() -> None:
        for key in fleet.redis.ask("KEYS", pattern):
            fleet.redis.ask("DEL", key)

    await asyncio.to_thread(remove)


async def without_snapshots(fleet: Fleet) -> None:
    await without(fleet, "agent:run:*:state")


async def without_timelines(fleet: Fleet) -> None:
    await without(fleet, "agent:run:*:events")


async def of_other_types(fleet: Fleet) -> None:
    """Somebody planted other things under the keys."""

    def plant() -> None:
        for key in fleet.redis.ask("KEYS", "agent:run:*:state"):
            fleet.redis.ask("SET", key, "nothing of the kind")

    await asyncio.to_thread(plant)


LOSSES = {
    "flushed": (flushed, ("H-flush", "F15")),
    "restarted_empty": (restarted_empty, ("F15",)),
    "without_snapshots": (without_snapshots, ("F21",)),
    "without_timelines": (without_timelines, ("F22",)),
    "of_other_types": (of_other_types, ("F25",)),
}


def shown_by(viewer: Any) -> dict[str, Any]:
    """As `visible`, of a screen."""
    screen = viewer.screen
    return {
        "snapshot": {name: screen.snapshot.get(name) for name in SNAPSHOT},
        "interrupts": sorted(screen.interrupts),
        "text": screen.shown_text(),
        "events": list(screen.events),
    }


SNAPSHOT = ("status", "progress", "current_step", "done", "total", "detail", "title", "attempt", "started_at")


async def same_after(scene: Scene, one: Started, lose: Loss) -> None:
    """What everybody sees is the same before and after."""
    await scene.archived(one)
    before = [visible(shown) for shown in await scene.bootstraps(one)]
    assert before[0] == before[1]
    wanted = {
        "snapshot": before[0]["snapshot"],
        "interrupts": sorted(name for name, _ in before[0]["interrupts"]),
        "text": {attempt: text for _, attempt, text in before[0]["text"]},
        "events": [name for name, _ in before[0]["events"]],
    }
    await until(lambda: all(shown_by(viewer) == wanted for viewer in one.viewers), what="viewers at the same place")
    connections = [len(viewer.protocol) for viewer in one.viewers]
    await lose(scene.fleet)

    found: list[Any] = []

    async def again() -> bool:
        found[:] = [visible(shown) for shown in await scene.bootstraps(one)]
        return found == before

    await until(again, what=lambda: f"{before[0]} at both gateways: {found}")

    def resynced() -> bool:
        new = [viewer.protocol[n:] for viewer, n in zip(one.viewers, connections, strict=True)]
        return all(any(entry.what == "bootstrap" for entry in entries) for entries in new)

    await until(resynced, what="a bootstrap of each viewer")
    await until(
        lambda: all(shown_by(viewer) == wanted for viewer in one.viewers),
        what=lambda: f"{wanted} on every screen: {[shown_by(viewer) for viewer in one.viewers]}",
    )


@pytest.mark.parametrize(
    "loss", [pytest.param(loss, id=name, marks=pytest.mark.row(*rows)) for name, (loss, rows) in LOSSES.items()]
)
async def test_nobody_sees_that_the_live_store_was_lost(scene: Scene, loss: Loss) -> None:
    scene.may_decide.clear()
    one = await scene.start("plain", steps=3, question=True, gates=["at-2", "end"])
    await scene.reached(one, "at-2")
    await same_after(scene, one, loss)
    scene.open(one, "at-2")
    await scene.seen(one, "approval_required")
    await same_after(scene, one, loss)
    scene.may_decide.set()
    await scene.reached(one, "end")
    await scene.seen(one, "approval_decided")
    await same_after(scene, one, loss)
    scene.open(one, "end")
    await scene.settle()
    assert (await scene.run(one))["status"] == "succeeded"
    await scene.judge()


@pytest.mark.row("F15", "F16")
async def test_a_store_lost_while_events_flow_leaves_at_most_an_honest_hole(scene: Scene) -> None:
    scene.went_back = scene.may_lack = True
    runs = [await scene.start("resumable", steps=40, pause=0.01, question=True) for _ in range(3)]
    for loss in (flushed, restarted_empty, flushed):
        await asyncio.sleep(scene.chance.uniform(0.05, 0.3))
        await loss(scene.fleet)
    await scene.settle()
    for one in runs:
        assert (await scene.run(one))["status"] == "succeeded"
    await scene.judge()


async def dumped(scene: Scene) -> Loss:
    held = await scene.fleet.remember()

    async def lose(fleet: Fleet) -> None:
        await fleet.go_back(held)

    return lose


async def saved(scene: Scene) -> Loss:
    fleet = scene.fleet
    await asyncio.to_thread(fleet.redis.ask, "SAVE")

    async def lose(fleet: Fleet) -> None:
        await asyncio.to_thread(fleet.redis.process.kill)
        await asyncio.to_thread(fleet.redis.process.start)
        (fleet.redis.folder / "dump.rdb").unlink()

    return lose


@pytest.mark.row("F16", "F17")
@pytest.mark.parametrize("how", [dumped, saved], ids=["restored", "restarted_from_an_old_file"])
async def test_a_store_that_went_back_in_time_takes_nobody_with_it(scene: Scene, how: Any) -> None:
    scene.went_back = True
    scene.may_decide.clear()
    one = await scene.start("plain", steps=4, question=True, gates=["at-2", "at-4", "end"])
    await scene.reached(one, "at-2")
    lose = await how(scene)
    scene.open(one, "at-2")
    await scene.reached(one, "at-4")
    await until(lambda: all(v.screen.snapshot.get("done") == 3 for v in one.viewers), what="step 3 on every screen")
    await same_after(scene, one, lose)
    scene.open(one, "at-4", "end")
    await scene.seen(one, "approval_required")
    scene.may_decide.set()
    await scene.settle()
    assert (await scene.run(one))["status"] == "succeeded"
    await scene.judge()
