"""A command is carried out and its answer is lost: it is asked again, and done once."""

from __future__ import annotations

import asyncio

import pytest

from playhead.testing.faults import Proxy
from tests.scenarios.fleet import until
from tests.scenarios.scene import Scene

pytestmark = [pytest.mark.anyio, pytest.mark.wide]

COMMITTED = rb"C\x00\x00\x00\x0bCOMMIT\x00"


def lose(proxies: list[Proxy], command: bytes, answer: bytes | None, times: int) -> None:
    for proxy in proxies:
        proxy.lose_answers(command, answer=answer, times=times)


async def lost(proxies: list[Proxy]) -> None:
    """Return when each answer that was to be lost is, on one of these ways at least."""
    await until(lambda: any(proxy.answers_to_lose == 0 for proxy in proxies), what="an answer is lost")


@pytest.mark.row("F40", "A14")
@pytest.mark.parametrize("table", ["run_input", "fact"])
async def test_the_commit_of_a_new_run(scene: Scene, table: str) -> None:
    proxies = [gateway.record for gateway in scene.fleet.gateways]
    lose(proxies, rb"INSERT INTO playhead\." + table.encode(), COMMITTED, 1)
    one = await scene.start("plain")
    await lost(proxies)
    found = (await scene.call("GET", f"/runs?key={one.key}")).json()["runs"]
    assert [run["id"] for run in found] == [one.id]
    await scene.settle()
    await scene.judge()


@pytest.mark.row("F40", "F10", "R26")
async def test_the_commit_of_an_end(scene: Scene) -> None:
    one = await scene.start("plain", steps=2, gates=["end"])
    await scene.reached(one, "end")
    proxies = [worker.record for worker in scene.fleet.workers]
    lose(proxies, rb"INSERT INTO playhead\.run_end", COMMITTED, 1)
    scene.open(one, "end")
    await lost(proxies)
    await scene.settle()
    run = await scene.run(one)
    assert (run["status"], run["attempt"]) == ("succeeded", 1)
    await scene.judge()


@pytest.mark.row("F40", "BR-49")
async def test_the_commit_of_a_decision(scene: Scene) -> None:
    scene.may_decide.clear()
    one = await scene.start("plain", steps=1, question=True)
    await scene.seen(one, "approval_required")
    proxies = [gateway.record for gateway in scene.fleet.gateways]
    lose(proxies, rb"INSERT INTO playhead\.interrupt ", COMMITTED, 1)
    scene.may_decide.set()
    await lost(proxies)
    await scene.settle()
    assert list(scene.decided.values()).count(200) >= 1
    await scene.judge()


@pytest.mark.row("F3", "F29", "A14")
async def test_publishes(scene: Scene) -> None:
    """What a worker writes to Redis is answered to nobody, three times over."""
    proxies = [worker.live for worker in scene.fleet.workers]
    one = await scene.start("plain", steps=100, pause=0.02, gates=["at-2"])
    await scene.reached(one, "at-2")
    lose(proxies, rb"EVALSHA", None, 3)
    scene.open(one, "at-2")
    await scene.settle()
    await lost(proxies)
    run = await scene.run(one)
    assert (run["status"], run["attempt"]) == ("succeeded", 1)
    await scene.judge()


@pytest.mark.row("F40")
async def test_any_commit_of_anybody(scene: Scene) -> None:
    proxies = [member.record for member in scene.fleet.members]
    lose(proxies, rb"COMMIT", COMMITTED, 12)
    runs = await asyncio.gather(*(scene.start("resumable", steps=5, question=True) for _ in range(4)))
    await scene.settle()
    await lost(proxies)
    for one in runs:
        assert (await scene.run(one))["status"] == "succeeded"
    await scene.fleet.heal()
    await scene.judge()
