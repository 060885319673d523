"""Questions to a person: durable, answered once, true on every screen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import playhead
from playhead.errors import ApprovalExpired
from tests.support.stage import BACKENDS, Gates, Stage, stage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", BACKENDS)]


def asking(gates: Gates) -> Sequence[playhead.Agent]:
    @playhead.agent
    async def asker(run: playhead.RunContext, times: int = 1, deadline: float | None = None) -> list[Any]:
        answers = []
        for i in range(1, times + 1):
            decision = await run.ask({"title": f"May I {i}?", "amount": i}, deadline=deadline)
            gates.calls += 1  # the side effect
            answers.append([decision.approved, decision.note, decision.by])
        return answers

    @playhead.agent(resumable=True)
    async def keeper(run: playhead.RunContext) -> list[Any]:
        decision = await run.ask({"title": "Keep it?"}, key="keep")
        return [run.attempt, decision.approved]

    @playhead.agent
    async def patient(run: playhead.RunContext) -> list[Any]:
        decision = await run.ask({"title": "Soon?"}, deadline=0.2, on_deadline="return")
        return [decision.approved, decision.expired]

    return [asker, keeper, patient]


async def waiting(s: Stage, run_id: str, number: int = 1) -> dict[str, Any]:
    """The open question of a run once it is the n-th one, as the bootstrap shows it."""
    async with s.client.stream(run_id) as stream:
        await stream.type("approval_required", number)
    shown = await s.client.bootstrap(run_id)
    assert shown["run"]["status"] == "waiting"
    [question] = shown["interrupts"]
    return dict(question)


def decision(run_id: str, interrupt_id: str) -> str:
    return f"/runs/{run_id}/interrupts/{interrupt_id}/decision"


@pytest.mark.row("BR-49")
async def test_ten_clicks_are_one_decision(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, asking) as s:
        run_id = await s.client.start("asker")
        question = await waiting(s, run_id)
        path = decision(run_id, question["id"])
        answers = await asyncio.gather(*(s.client.post(path, {"approved": True, "note": "ok"}) for _ in range(10)))
        assert {answer.status for answer in answers} == {200}
        assert len({(a.json()["closed_at"], str(a.json()["decision"])) for a in answers}) == 1
        other = await s.client.post(path, {"approved": False})
        assert (other.status, other.json()["code"]) == (409, "already_decided")
        assert other.json()["details"]["decision"]["approved"] is True
        run = await s.client.ended(run_id)
        assert (run["result"], s.gates.calls) == ([[True, "ok", "local"]], 1)
        async with s.client.stream(run_id) as stream:
            await stream.end()
        assert stream.types.count("approval_decided") == 1


@pytest.mark.row("BR-51", "M-stale-interrupt", "R9")
async def test_the_second_question_is_shown_and_the_first_is_not(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, asking) as s:
        run_id = await s.client.start("asker", {"times": 2})
        first = await waiting(s, run_id)
        await s.client.post(decision(run_id, first["id"]), {"approved": True})
        second = await waiting(s, run_id, 2)
        assert second["id"] != first["id"]
        assert second["payload"] == {"title": "May I 2?", "amount": 2}
        everything = (await s.client.get("/interrupts")).json()["interrupts"]
        assert [one["id"] for one in everything] == [second["id"]]
        await s.client.post(decision(run_id, second["id"]), {"approved": False, "note": "no"})
        run = await s.client.ended(run_id)
        assert run["result"] == [[True, None, "local"], [False, "no", "local"]]


@pytest.mark.row("BR-54")
async def test_after_the_deadline_nothing_can_be_approved(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, asking) as s:
        run_id = await s.client.start("asker", {"deadline": 2.0})
        question = await waiting(s, run_id)
        async with s.client.stream(run_id) as stream:
            await stream.end()
        late = await s.client.post(decision(run_id, question["id"]), {"approved": True})
        assert (late.status, late.json()["code"]) == (409, "approval_expired")
        run = await s.client.run(run_id)
        assert (run["status"], run["error"]["code"], s.gates.calls) == ("failed", ApprovalExpired.code, 0)
        assert stream.types.count("approval_expired") == 1
        assert (await s.client.bootstrap(run_id))["interrupts"] == []

        other = await s.client.start("patient")
        assert (await s.client.ended(other))["result"] == [False, True]


@pytest.mark.row("BR-54")
async def test_after_a_cancel_nothing_can_be_approved(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, asking) as s:
        run_id = await s.client.start("asker")
        question = await waiting(s, run_id)
        await s.client.post(f"/runs/{run_id}/cancel")
        await s.client.ended(run_id)
        late = await s.client.post(decision(run_id, question["id"]), {"approved": True})
        assert (late.status, late.json()["code"], s.gates.calls) == (409, "approval_cancelled", 0)
        async with s.client.stream(run_id) as stream:
            await stream.end()
        assert stream.types[-3:] == ["approval_cancelled", "cancel_requested", "run_cancelled"]


@pytest.mark.row("BR-52")
@pytest.mark.parametrize("agent", ["asker", "keeper"])
async def test_a_pending_question_survives_a_restart(backend: str, tmp_path: Path, agent: str) -> None:
    async with stage(backend, tmp_path, asking, settings={"beat": 60.0, "lease": 120.0}) as s:
        run_id = await s.client.start(agent)
        question = await waiting(s, run_id)
        # The process is gone, as after kill -9: its lease row went with it.
        run = await s.engine.ports.record.get("local", run_id)
        await s.engine.ports.record.leave(run.owner)
        await s.engine.reconciler.reap()
        await s.engine.heartbeat.beat()

        if agent == "asker":  # it cannot resume: the run is over, and the decision is refused with that reason
            ended = await s.client.run(run_id)
            assert ended["status"] == "interrupted"
            late = await s.client.post(decision(run_id, question["id"]), {"approved": True})
            assert (late.status, late.json()["code"]) == (409, "run_interrupted")
        else:  # the same question stays open, the answer reaches the next attempt
            shown = await s.client.bootstrap(run_id)
            assert [one["id"] for one in shown["interrupts"]] == [question["id"]]
            assert shown["interrupts"][0]["payload"] == question["payload"]
            answer = await s.client.post(decision(run_id, question["id"]), {"approved": True})
            assert answer.status == 200
            assert (await s.client.ended(run_id))["result"] == [2, True]


@pytest.mark.row("R8")
async def test_waiting_takes_no_place_from_others(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, asking, settings={"concurrency": 1}) as s:
        ids = [await s.client.start("asker") for _ in range(3)]
        questions = [await waiting(s, run_id) for run_id in ids]
        for run_id, question in zip(ids, questions, strict=True):
            await s.client.post(decision(run_id, question["id"]), {"approved": True})
        assert [(await s.client.ended(run_id))["status"] for run_id in ids] == ["succeeded"] * 3
