"""Processes are killed, frozen and restarted: their runs are taken up or closed, once, and viewers go on elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.scenarios.fleet import QUICK, Member, until
from tests.scenarios.scene import Scene, Started

pytestmark = [pytest.mark.anyio, pytest.mark.wide]


def starts(one: Started) -> list[list[str]]:
    """What each viewer saw of attempts and ends."""
    wanted = ("attempt_started", "run_succeeded", "run_interrupted", "run_failed", "run_cancelled")
    return [
        [event["type"] for event in viewer.screen.events.values() if event["type"] in wanted] for viewer in one.viewers
    ]


def noted(scene: Scene, one: Started, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    """The first such note of the run's agent."""
    return next(filter(wanted, scene.fleet.notes(one.id)), None)


def kills(attempt: int, note: dict[str, Any]) -> bool:
    return bool(note.get("dies") == attempt)


def gone(member: Member) -> bool:
    return not member.process.running


@pytest.mark.row("F4", "BR-33", "BR-36")
async def test_a_killed_worker(scene: Scene) -> None:
    """Its resumable run is taken up by the other one, the plain one is closed, and both once."""
    doomed, other = scene.fleet.workers
    await other.stop()
    plain = await scene.start("plain", steps=2, gates=["at-2"])
    resumable = await scene.start("resumable", steps=2, gates=["at-2"], question=True)
    await scene.reached(plain, "at-2")
    await scene.reached(resumable, "at-2")
    await doomed.kill()
    await other.start()
    await scene.reached(resumable, "at-2", 2)
    scene.open(resumable, "at-2")
    await scene.settle()
    assert starts(plain) == [["attempt_started", "run_interrupted"]] * 2
    assert starts(resumable) == [["attempt_started", "attempt_started", "run_succeeded"]] * 2
    closed = await scene.run(plain)
    assert (closed["status"], closed["error"]["code"]) == ("interrupted", "worker_lost")
    await doomed.start()
    await scene.judge()
    for pattern in (f"*{plain.id}*", f"*{resumable.id}*"):  # nothing of a run that is over stays for ever
        keys = await asyncio.to_thread(scene.fleet.redis.ask, "KEYS", pattern)
        for key in keys:
            assert await asyncio.to_thread(scene.fleet.redis.ask, "PTTL", key) > 0, key


@pytest.mark.row("F2", "F42")
async def test_an_end_that_was_recorded_and_not_shown_is_shown_by_others(scene: Scene) -> None:
    """The worker cannot reach Redis when it ends, and dies."""
    one = await scene.start("plain", steps=2, gates=["end"])
    doomed = scene.fleet.worker_of((await scene.reached(one, "end"))["process"])
    await doomed.live.refuse()
    doomed.live.reset()
    scene.was_away = True
    scene.open(one, "end")

    async def recorded() -> bool:
        return bool((await scene.run(one))["status"] == "succeeded")

    await until(recorded)
    await doomed.kill()
    await scene.settle()
    assert starts(one) == [["attempt_started", "run_succeeded"]] * 2
    await scene.judge()


@pytest.mark.row("F8", "F9", "F10", "BR-35")
async def test_a_worker_that_froze_past_its_lease_writes_nothing_when_it_wakes(scene: Scene) -> None:
    """Not even with an agent that goes on whatever it is told, and brings a result late."""
    one = await scene.start("stubborn")
    frozen = scene.fleet.worker_of((await scene.reached(one, "late"))["process"])
    frozen.process.pause()
    await scene.reached(one, "end", 2)
    scene.open(one, "late")
    frozen.process.resume()
    await until(lambda: any("refused" in note or "cancelled" in note for note in scene.fleet.notes(one.id)))
    await asyncio.sleep(3 * float(QUICK["sweep"]))
    # Before the second attempt ends: whatever the first one wrote would be seen now.
    for shown in await scene.bootstraps(one):
        assert shown["run"]["attempt"] == 2
        assert shown["snapshot"]["progress"] == 2
    scene.open(one, "end")
    await scene.settle()
    notes = scene.fleet.notes(one.id)
    assert [note for note in notes if "accepted" in note] == []
    assert [note for note in notes if "refused" in note] or [note for note in notes if "cancelled" in note]
    run = await scene.run(one)
    assert (run["status"], run["result"]) == ("succeeded", {"attempt": 2, "text": ""})
    assert all("late_word" not in [e["type"] for e in viewer.screen.events.values()] for viewer in one.viewers)
    await scene.judge()


@pytest.mark.row("F8", "BR-35")
async def test_a_frozen_worker_that_was_publishing(scene: Scene) -> None:
    scene.was_away = True  # when it wakes, all its calls have taken too long
    runs = [await scene.start("resumable", steps=400, pause=0.005) for _ in range(3)]
    for one in runs:
        await until(partial(noted, scene, one, lambda note: note.get("n", 0) > 5))
    frozen = scene.fleet.worker_of(scene.fleet.notes(runs[0].id)[0]["process"])
    frozen.process.pause()
    mine = [one for one in runs if scene.fleet.notes(one.id)[0]["process"] == frozen.process.pid]
    for one in mine:
        await until(partial(noted, scene, one, lambda note: note["attempt"] == 2))
    frozen.process.resume()
    await scene.settle()
    for one in runs:
        run = await scene.run(one)
        assert (run["status"], run["attempt"]) == ("succeeded", 2 if one in mine else 1)
    await scene.judge()


@pytest.mark.row("F5", "M-other-process")
async def test_viewers_of_a_killed_gateway_go_on_at_the_other_one(scene: Scene) -> None:
    one = await scene.start("plain", steps=120, pause=0.01, gates=["at-100"], viewers=20)
    await scene.seen(one, "step_taken")
    await scene.fleet.gateways[0].kill()
    await scene.reached(one, "at-100")
    scene.open(one, "at-100")
    await scene.settle()
    assert all(viewer.screen.finals == ["run_succeeded"] for viewer in one.viewers)
    await scene.fleet.gateways[0].start()
    await scene.judge()


@pytest.mark.row("F11", "BR-33")
async def test_everything_is_killed_at_once_and_started_again(scene: Scene) -> None:
    """What was acknowledged is there, what was running is taken up or closed, what was queued is done."""
    running = await scene.start("plain", steps=2, gates=["at-2"])
    again = await scene.start("resumable", steps=2, gates=["at-2"])
    await scene.reached(running, "at-2")
    await scene.reached(again, "at-2")
    for worker in scene.fleet.workers:
        await worker.kill()
    queued = await scene.start("plain")
    for gateway in scene.fleet.gateways:
        await gateway.kill()
    await asyncio.to_thread(scene.fleet.redis.process.kill)
    await asyncio.to_thread(scene.fleet.postgres.process.kill)
    scene.went_back = scene.may_lack = True  # Redis keeps nothing
    scene.open(again, "at-2")
    await scene.fleet.heal()
    await scene.settle()
    assert (await scene.run(running))["status"] == "interrupted"
    assert (await scene.run(again))["status"] == "succeeded"
    assert (await scene.run(queued))["status"] == "succeeded"
    held = "SELECT count(*) FROM playhead.run WHERE status IN ('queued', 'running', 'waiting')"
    assert await scene.fleet.select(held) == [(0,)]
    await scene.judge()


@pytest.mark.row("F12")
async def test_a_run_that_kills_each_of_its_workers(scene: Scene) -> None:
    one = await scene.start("deadly")
    for attempt in (1, 2, 3):
        note = await until(partial(noted, scene, one, partial(kills, attempt)))
        for worker in scene.fleet.workers:
            if worker.process.pid == note["process"]:
                await until(partial(gone, worker))
                await worker.start()
    await scene.settle()
    run = await scene.run(one)
    assert (run["status"], run["error"]["code"], run["attempt"]) == ("failed", "attempts_exhausted", 3)
    await scene.judge()


@pytest.mark.row("F6", "M-graceful-shutdown")
async def test_all_processes_are_restarted_in_turn(scene: Scene) -> None:
    runs = [await scene.start("resumable", steps=150, pause=0.01, question=True) for _ in range(4)]
    await scene.seen(runs[0], "step_taken")
    for member in scene.fleet.members:
        await member.stop()
        await member.start()
    await scene.settle()
    for one in runs:
        assert (await scene.run(one))["status"] == "succeeded"
    await scene.judge()
