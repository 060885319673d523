"""Several processes do the same, or each a part of it, at the same time: it is done once."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from tests.scenarios.fleet import QUICK, until
from tests.scenarios.people import Viewer, drop
from tests.scenarios.scene import Scene, Started

pytestmark = [pytest.mark.anyio, pytest.mark.wide]


@pytest.mark.row("BR-24", "M-other-process")
async def test_a_run_is_started_watched_answered_and_stopped_through_any_process(scene: Scene) -> None:
    scene.may_decide.clear()
    one = await scene.start("plain", steps=2, question=True, gates=["end"], first=0)
    await scene.seen(one, "approval_required")
    [question] = (await scene.bootstraps(one))[1]["interrupts"]
    path = f"/runs/{one.id}/interrupts/{question['id']}/decision"
    assert (await scene.call("POST", path, {"approved": True}, 1)).status == 200
    await scene.reached(one, "end")
    late = scene.watch(one, 1)
    await until(lambda: late.screen.events)
    await scene.cancel(one, 1)
    await scene.settle()
    run = await scene.run(one)
    assert run["status"] == "cancelled"
    ends = {list(viewer.screen.events)[-1] for viewer in one.viewers}
    assert len(ends) == 1
    await scene.judge()


def over(one: Started) -> bool:
    return one.viewers[0].screen.over


@pytest.mark.row("BR-26")
async def test_a_stop_that_races_the_end(scene: Scene) -> None:
    """Whichever wins, status, event and answer agree."""
    seen = set()
    for _ in range(12):
        one = await scene.start("plain", steps=1, gates=["end"], viewers=1)
        await scene.reached(one, "end")
        scene.open(one, "end")
        await asyncio.sleep(scene.chance.uniform(0.0, 0.06))
        await asyncio.gather(scene.cancel(one, 0), scene.cancel(one, 1))
        await until(partial(over, one))
        seen.add((await scene.run(one))["status"])
    await scene.settle()
    assert seen <= {"succeeded", "cancelled"}
    await scene.judge()


@pytest.mark.row("BR-28")
async def test_a_queued_run_that_is_stopped_never_begins(scene: Scene) -> None:
    for worker in scene.fleet.workers:
        await worker.stop()
    one = await scene.start("plain", first=0)
    assert (await scene.cancel(one, 1))["status"] == "cancelled"
    before = await scene.bootstraps(one)
    assert (await scene.cancel(one, 0))["status"] == "cancelled"
    assert await scene.bootstraps(one) == before
    await scene.settle()
    await scene.fleet.heal()
    after = await scene.start("plain", viewers=1)
    await scene.settle()
    assert (await scene.run(after))["status"] == "succeeded"
    assert scene.fleet.notes(one.id) == []
    await scene.judge()


@pytest.mark.row("BR-49")
async def test_one_question_answered_by_many_at_once(scene: Scene) -> None:
    scene.may_decide.clear()
    one = await scene.start("plain", steps=1, question=True)
    await scene.seen(one, "approval_required")
    [question] = (await scene.bootstraps(one))[0]["interrupts"]
    path = f"/runs/{one.id}/interrupts/{question['id']}/decision"
    body = {"approved": True, "note": "go on"}
    answers = await asyncio.gather(*(scene.call("POST", path, body, i % 2) for i in range(20)))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    other = await scene.call("POST", path, {"approved": False}, 1)
    assert (other.status, other.json()["code"]) == (409, "already_decided")
    assert other.json()["details"]["decision"]["approved"] is True
    await scene.settle()
    assert [note for note in scene.fleet.notes(one.id) if "decided" in note].__len__() == 1
    await scene.judge()


@pytest.mark.row("BR-49")
async def test_two_different_answers_at_once(scene: Scene) -> None:
    """One of them counts, everybody hears which, and the agent hears that one."""
    scene.may_decide.clear()
    for _ in range(4):
        one = await scene.start("plain", steps=1, question=True, viewers=1)
        await scene.seen(one, "approval_required")
        [question] = (await scene.bootstraps(one))[0]["interrupts"]
        path = f"/runs/{one.id}/interrupts/{question['id']}/decision"
        bodies = [{"approved": True, "note": str(i)} for i in range(2)]
        answers = await asyncio.gather(*(scene.call("POST", path, body, i) for i, body in enumerate(bodies)))
        assert sorted(answer.status for answer in answers) == [200, 409]
        [won] = [answer.json() for answer in answers if answer.status == 200]
        [lost] = [answer.json() for answer in answers if answer.status == 409]
        assert lost["details"]["decision"] == won["decision"]
    await scene.settle()
    await scene.judge()


@pytest.mark.row("R26", "BR-33")
async def test_one_queued_run_is_one_attempt(scene: Scene) -> None:
    """Two workers and many runs: each is worked on once, and both workers work."""
    runs = await asyncio.gather(*(scene.start("plain", steps=3, pause=0.05, viewers=1, first=i % 2) for i in range(24)))
    await scene.settle()
    processes = set()
    for one in runs:
        notes = scene.fleet.notes(one.id)
        assert [note["n"] for note in notes if "n" in note] == [1, 2, 3, 4, 5]
        processes |= {note["process"] for note in notes}
        assert (await scene.run(one))["attempt"] == 1
    assert len(processes) == 2
    await scene.judge()


@pytest.mark.row("R26")
async def test_one_key_asked_for_by_many_at_once_is_one_run(scene: Scene) -> None:
    key = f"same-{scene.seed}-{next(scene.fleet.numbers)}"
    body = {"agent": "plain", "input": {"mark": f"canary-{key}"}, "key": key}
    headers = {"idempotency-key": key}
    answers = await asyncio.gather(*(scene.call("POST", "/runs", body, i % 2, **headers) for i in range(20)))
    assert sorted(answer.status for answer in answers) == [200] * 19 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    found = (await scene.call("GET", f"/runs?key={key}")).json()["runs"]
    assert len(found) == 1


@pytest.mark.row("BR-09", "M-split-viewers")
async def test_viewers_at_both_gateways_and_one_that_never_reads_get_their_own_copy(scene: Scene) -> None:
    one = await scene.start("plain", steps=50, gates=["at-2"])
    await scene.reached(one, "at-2")
    deaf = await scene.fleet.gateways[0].direct.open(one.id, buffer=4_096)
    early = scene.watch(one, 1)
    await until(lambda: early.screen.events)
    scene.open(one, "at-2")
    await scene.settle()
    await deaf.close()
    seen = [list(viewer.screen.events) for viewer in one.viewers]
    assert all(each == seen[0] for each in seen)
    await scene.judge()


@pytest.mark.row("BR-73")
async def test_a_hundred_viewers_cost_no_connection_to_redis(scene: Scene) -> None:
    runs = [await scene.start("plain", steps=20, gates=["at-2"], viewers=10) for _ in range(10)]
    for one in runs:
        await scene.reached(one, "at-2")
    for one in runs:
        await scene.seen(one, "step_taken")
    told = await asyncio.to_thread(scene.fleet.redis.ask, "INFO", "clients")
    text = told.decode() if isinstance(told, bytes) else str(told)
    assert "blocked_clients:0" in text or "'blocked_clients': 0" in text, text
    for gateway in scene.fleet.gateways:
        assert gateway.live.lines <= QUICK["live_connections"] + 1
    for one in runs:
        scene.open(one, "at-2")
    await scene.settle()
    await scene.judge()


@pytest.mark.row("BR-75")
async def test_viewers_who_leave_at_any_moment_leave_no_answer_to_others(scene: Scene) -> None:
    """Their calls are dropped while they are under way; nobody is ever shown a word of another run."""
    runs = [await scene.start("plain", steps=150, pause=0.01, gates=["end"]) for _ in range(4)]
    gateways = [gateway.client for gateway in scene.fleet.gateways]

    async def come_and_go(one: int) -> None:
        for _ in range(40):
            viewer = Viewer(gateways, runs[one].id, scene.chance.randrange(2))
            following = asyncio.create_task(viewer.follow())
            await asyncio.sleep(scene.chance.uniform(0.0, 0.05))
            await drop(following)
            assert viewer.marks <= {runs[one].given["mark"]}

    await asyncio.gather(*(come_and_go(i % 4) for i in range(8)))
    for one in runs:
        scene.open(one, "end")
    await scene.settle()
    await scene.judge()
