"""The whole server is killed at any moment; a viewer sees it through, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from playhead.core.ids import uuid7
from playhead.core.run import NewRun, Policy
from tests.crash.plans import Plan, plans
from tests.crash.scene import Scene, Started
from tests.plugins.histories import seed
from tests.support.agents import counting
from tests.support.nursery import Nursery
from tests.support.stage import stage
from tests.support.wire import PATIENCE

pytestmark = pytest.mark.anyio

ROWS = {"before_commit": "F1", "after_commit": "F2", "projected": "F3", "text": "F4"}


def marked(plan: Plan) -> object:
    rows = ["H-kill", *([ROWS[plan.point]] if plan.point in ROWS else [])]
    return pytest.param(plan, id=plan.name, marks=pytest.mark.row(*rows))


@pytest.mark.parametrize("plan", [marked(plan) for plan in plans()])
async def test_a_killed_server_loses_nothing_and_shows_nothing_twice(
    plan: Plan, tmp_path: Path, nursery: Nursery
) -> None:
    print(f"PLAYHEAD_SEED={seed()} {plan}")
    scene = Scene(nursery, tmp_path, ("--set", f"archive={plan.archive}"))
    if plan.point != "waiting":  # there the question has to stay open
        scene.may_decide.set()
    try:
        kill = None if plan.point == "random" else f"{plan.point}:{plan.nth}"
        server = await (await scene.start(kill)).ready()
        if plan.point in ("random", "drain"):
            number = signal.SIGKILL if plan.point == "random" else signal.SIGTERM
            asyncio.get_running_loop().call_later(plan.seconds, server.signal, number)
        await scene.work_until_death(plan.cancels)
        assert server.code == -signal.SIGKILL
        scene.may_decide.set()
        await scene.start()
        await scene.settle()
        await scene.verify()
        await scene.verify_files()
    finally:
        await scene.close()


@dataclass(frozen=True)
class Case:
    """One moment that has a name, and what is left of a plain and a resumable run that were in it."""

    rows: tuple[str, ...]
    kill: str
    plain: str
    resumable: int  # attempts it took


CASES = {
    "nothing_is_left_of_half_a_write": Case(("M-torn-write", "F1"), "before_commit@publish:3", "interrupted", 2),
    "nothing_is_left_of_half_a_fact": Case(("M-torn-write",), "before_commit@fact:4", "interrupted", 2),
    "right_after_acceptance": Case(("M-crash-after-start",), "after_commit@create:1", "succeeded", 1),
    "before_acceptance": Case(("F1",), "before_commit@create:1", "succeeded", 1),
    "after_the_start": Case(("F2", "M-restart"), "after_commit@acquire:1", "interrupted", 2),
    "before_the_outcome": Case(("M-crash-before-outcome",), "before_commit@finish:1", "interrupted", 2),
    "after_the_outcome": Case(("BR-33", "M-crash-before-outcome", "F2"), "after_commit@finish:1", "succeeded", 1),
    "before_the_answer_to_a_publish": Case(("F3",), "projected@publish:4", "interrupted", 2),
}


@pytest.mark.parametrize("agent", ["plain", "resumable"])
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name, marks=pytest.mark.row(*case.rows)) for name, case in CASES.items()]
)
async def test_a_kill_at_a_moment_that_has_a_name(case: Case, agent: str, tmp_path: Path, nursery: Nursery) -> None:
    scene = Scene(nursery, tmp_path)
    scene.may_decide.set()
    try:
        server = await (await scene.start(case.kill)).ready()
        asked = asyncio.create_task(scene.ask_for(agent, steps=3))
        assert await server.ended() == -signal.SIGKILL
        before = scene.acknowledged()
        await scene.start()
        one = await asked
        await scene.settle()
        await scene.verify()
        run = await scene.client.run(str(one.id))
        expected = (case.plain, 1) if agent == "plain" else ("succeeded", case.resumable)
        assert (run["status"], run["attempt"]) == expected
        if case.kill.startswith("before_commit@publish"):
            # The third write of the attempt was under way: what is told of it is what was acknowledged.
            screen = scene.viewers[one.key].screen
            first = [name for name in screen.events if name.startswith(f"{one.id}:1:")]
            assert first == [f"{one.id}:1:{ack['n']}" for ack in before]
        await scene.verify_files()
    finally:
        await scene.close()


@pytest.mark.row("BR-33", "M-restart", "F11")
async def test_after_a_crash_every_run_is_closed_once_and_its_place_is_free(tmp_path: Path, nursery: Nursery) -> None:
    """And a recovery that is killed itself, before and after its commit, is done again and shows once."""
    scene = Scene(nursery, tmp_path, ("--set", "concurrency=2"))
    try:
        server = await (await scene.start()).ready()
        held = [await scene.ask_for("endless"), await scene.ask_for("endless")]
        queued = await scene.ask_for("plain", steps=1, question=False)
        await until(lambda: all("work_begun" in types(scene, one) for one in held))
        server.signal()
        await server.ended()
        for kill in ("before_commit@lose:1", "after_commit@lose:1", "projected@fact:1"):
            assert await (await scene.start(kill)).ended() == -signal.SIGKILL
        loop = asyncio.get_running_loop()
        began = loop.time()
        await (await scene.start()).ready()
        # As many as before run at once, and a stop finds nothing to wait for.
        more = [await scene.ask_for("plain", steps=1, question=False) for _ in range(3)]
        await scene.settle()
        assert loop.time() - began < 5.0
        for one in held:
            assert types(scene, one)[-1] == "run_interrupted"
            assert types(scene, one).count("run_interrupted") == 1
            run = await scene.client.run(str(one.id))
            assert (run["status"], run["error"]["code"], run["attempt"]) == ("interrupted", "worker_lost", 1)
            await scene.cancel(one)
            assert await scene.client.run(str(one.id)) == run
        for one in (queued, *more):
            assert types(scene, one)[-1] == "run_succeeded"
        for _ in range(2):  # recovery again finds nothing to do
            seen = {one.key: await scene.history(str(one.id)) for one in scene.runs}
            assert scene.server is not None
            scene.server.signal()
            await scene.server.ended()
            await (await scene.start()).ready()
            assert {one.key: await scene.history(str(one.id)) for one in scene.runs} == seen
    finally:
        await scene.close()


@pytest.mark.row("BR-52")
@pytest.mark.parametrize("agent", ["plain", "resumable"])
async def test_a_question_survives_a_kill_or_its_run_says_why_not(agent: str, tmp_path: Path, nursery: Nursery) -> None:
    scene = Scene(nursery, tmp_path)
    try:
        server = await (await scene.start()).ready()
        one = await scene.ask_for(agent, steps=1)
        viewer = scene.viewers[one.key]
        await until(lambda: viewer.screen.interrupts)
        [question] = viewer.screen.interrupts
        server.signal()
        await server.ended()
        await (await scene.start()).ready()
        if agent == "resumable":
            shown = await scene.client.bootstrap(str(one.id))
            assert [(asked["id"], asked["payload"]) for asked in shown["interrupts"]] == [
                (question, {"title": "Go on?", "steps": 1})
            ]
        scene.may_decide.set()
        await scene.settle()
        await scene.verify()
        if agent == "plain":
            path = f"/runs/{one.id}/interrupts/{question}/decision"
            late = await scene.client.post(path, {"approved": True})
            assert (late.status, late.json()["code"]) == (409, "run_interrupted")
        else:
            assert scene.decisions == {question: 200}
            assert scene.acknowledged()[-2]["approved"] is True
    finally:
        await scene.close()


@pytest.mark.row("F2", "H-kill")
async def test_a_run_that_ended_before_it_was_ever_shown_has_its_history(tmp_path: Path) -> None:
    """Its server died between accepting it and showing it, and it was cancelled before the next one got to it."""
    async with stage("sqlite", tmp_path, counting, settings={"reconcile": 60.0}) as s:
        record, clock = s.engine.ports.record, s.engine.clock
        new = NewRun(uuid7(clock.wall_ms(), clock.random(10)), "local", "count", b"{}", Policy(), {})
        await record.create(new)
        await s.client.post(f"/runs/{new.id}/cancel")
        shown = await s.client.bootstrap(new.id)
        assert [event["type"] for event in shown["events"]] == ["run_queued", "run_cancelled"]
        assert (shown["timeline"]["complete"], shown["cursor"]) == (True, None)
        async with s.client.stream(new.id) as stream:
            await stream.end()
        assert stream.types == ["run_cancelled"]


def types(scene: Scene, one: Started) -> list[str]:
    return [event["type"] for event in scene.viewers[one.key].screen.events.values()]


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.01)
