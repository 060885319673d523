"""Random histories of faults, drawn from a printed seed: when all have healed, everybody agrees."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from playhead.testing.faults import Cut, Proxy
from tests.plugins.histories import WHOLE, count, seed
from tests.scenarios.fleet import Fleet, Member
from tests.scenarios.people import drop
from tests.scenarios.scene import Scene

pytestmark = [pytest.mark.anyio, pytest.mark.wide]

HISTORIES = count(0.02) if count() < WHOLE else 20  # half a minute and more each
STEPS = 6 if HISTORIES < 10 else 30
LONGEST = 2.0  # seconds of one fault
COMMAND = rb"\*\d+\r\n\$"
COMMITTED = rb"C\x00\x00\x00\x0bCOMMIT\x00"

Step = Callable[[Scene, random.Random], Awaitable[None]]


def ways(scene: Scene, chance: random.Random) -> list[Proxy]:
    """Of some processes to one of the stores, or of viewers to a gateway."""
    members = chance.sample(scene.fleet.members, chance.randint(1, len(scene.fleet.members)))
    which = chance.choice(["record", "live", "live", "front"])
    return [getattr(member, which) for member in members]


async def silent(scene: Scene, chance: random.Random) -> None:
    for proxy in ways(scene, chance):
        for way in chance.choice([(proxy.up,), (proxy.down,), (proxy.up, proxy.down)]):
            way.set(hold=True)


async def refused(scene: Scene, chance: random.Random) -> None:
    for proxy in ways(scene, chance):
        await proxy.refuse()
        proxy.reset()


async def cut_off(scene: Scene, chance: random.Random) -> None:
    for proxy in ways(scene, chance):
        proxy.reset()


async def vanished(scene: Scene, chance: random.Random) -> None:
    for proxy in ways(scene, chance):
        proxy.vanish(chance.choice(["client", "server"]))


async def slow(scene: Scene, chance: random.Random) -> None:
    for proxy in ways(scene, chance):
        proxy.down.set(delay=chance.uniform(0.01, 0.3), jitter=0.1)
        proxy.up.set(rate=chance.randint(50_000, 500_000))


async def cut_now_and_then(scene: Scene, chance: random.Random) -> None:
    for proxy in ways(scene, chance):
        proxy.down.set(cut=Cut(after=lambda: chance.randint(100, 20_000)), most=chance.choice([None, 7, 1_000]))


async def answers_lost(scene: Scene, chance: random.Random) -> None:
    for member in scene.fleet.members:
        member.record.lose_answers(rb"COMMIT", answer=COMMITTED, times=chance.randint(1, 3))
        member.live.lose_answers(rb"EVALSHA", times=chance.randint(1, 5))


async def flushed(scene: Scene, chance: random.Random) -> None:
    scene.went_back = scene.may_lack = True
    await scene.fleet.flush()


async def back_in_time(scene: Scene, chance: random.Random) -> None:
    scene.went_back = scene.may_lack = True
    held = await scene.fleet.remember()
    await asyncio.sleep(chance.uniform(0.1, 1.0))
    await scene.fleet.go_back(held)


async def redis_killed(scene: Scene, chance: random.Random) -> None:
    scene.went_back = scene.may_lack = True
    await asyncio.to_thread(scene.fleet.redis.process.kill)


async def postgres_killed(scene: Scene, chance: random.Random) -> None:
    await asyncio.to_thread(scene.fleet.postgres.process.kill)


async def member_killed(scene: Scene, chance: random.Random) -> None:
    await chance.choice(scene.fleet.members).kill()


async def member_stopped(scene: Scene, chance: random.Random) -> None:
    member: Member = chance.choice(scene.fleet.members)
    await member.stop()


async def member_frozen(scene: Scene, chance: random.Random) -> None:
    chance.choice(scene.fleet.members).process.pause()


STEPS_BY_NAME: dict[str, Step] = {
    step.__name__: step
    for step in (
        silent, refused, cut_off, vanished, slow, cut_now_and_then, answers_lost, flushed, back_in_time,
        redis_killed, postgres_killed, member_killed, member_stopped, member_frozen,
    )
}  # fmt: skip


async def heal(fleet: Fleet) -> None:
    await fleet.heal()


@pytest.mark.row("H-faults", "BR-78")
@pytest.mark.parametrize("number", range(HISTORIES))
async def test_faults_drawn_at_random(scene: Scene, number: int) -> None:
    scene.seed = seed()
    chance = random.Random(f"{seed()} {number}")
    scene.was_away = True
    print(f"PLAYHEAD_SEED={seed()} history {number}")
    starting: list[asyncio.Task[object]] = []

    def start() -> None:
        agent = chance.choice(["plain", "resumable", "resumable"])
        given: dict[str, Any] = {"steps": chance.randint(1, 40), "question": chance.random() < 0.5, "pause": 0.01}
        starting.append(asyncio.create_task(scene.start(agent, first=chance.randrange(2), **given)))

    try:
        for _ in range(3):
            start()
        for _ in range(STEPS):
            name = chance.choice(list(STEPS_BY_NAME))
            start()
            if chance.random() < 0.3 and scene.runs:
                one = chance.choice(scene.runs)
                if one.id:
                    starting.append(asyncio.create_task(scene.cancel(one, chance.randrange(2))))
            scene.did(name)
            await STEPS_BY_NAME[name](scene, chance)
            await asyncio.sleep(chance.uniform(0.0, LONGEST))
            if chance.random() < 0.8:  # else the next one comes on top of it
                await heal(scene.fleet)
        await scene.fleet.whole()
        await asyncio.gather(*starting)
        await scene.settle()
        for one in scene.runs:
            run = await scene.run(one)
            allowed = {"succeeded"} | ({"cancelled"} if one.asked_to_stop else set())
            assert run["status"] in allowed | ({"interrupted"} if one.agent == "plain" else set()), (run, scene.steps)
        await scene.judge()
        await scene.calm()
    finally:
        await drop(*starting)


@pytest.mark.deep
@pytest.mark.parametrize("name", sorted(STEPS_BY_NAME))
async def test_each_of_the_faults_again_and_again(scene: Scene, name: str) -> None:
    """Ten times over, each time with work under way."""
    chance = random.Random(f"{seed()} {name}")
    scene.was_away = True
    for _ in range(int(os.environ.get("PLAYHEAD_HISTORIES", "100")) // 100):
        for _ in range(2):
            await scene.start("resumable", steps=20, question=True, pause=0.01)
        await STEPS_BY_NAME[name](scene, chance)
        await asyncio.sleep(chance.uniform(0.0, LONGEST))
        await scene.fleet.whole()
    await scene.settle()
    await scene.judge()
    await scene.calm()
