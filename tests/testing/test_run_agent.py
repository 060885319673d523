"""What an author of agents gets from `run_agent`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import playhead
from playhead.errors import InvalidInput
from playhead.testing import Unanswered, run_agent

pytestmark = pytest.mark.anyio


async def greet(run: playhead.RunContext, who: str = "world") -> dict[str, str]:
    await run.event("greeting_begun", {"who": who}, progress=50, current_step="greet")
    await run.text("Hello, ")
    await run.text(f"{who}!")
    return {"greeted": who}


async def spend(run: playhead.RunContext, deadline: float | None = None) -> str:
    answer = await run.ask({"title": "Spend?"}, key="spend", deadline=deadline, on_deadline="return")
    return "expired" if answer.expired else f"{answer.approved} {answer.note} {answer.value} {answer.by}"


async def test_everything_of_a_run_comes_back():
    ran = await run_agent(greet, {"who": "you"})
    assert (ran.status, ran.result, ran.error) == ("succeeded", {"greeted": "you"}, None)
    assert ran.types == ["run_queued", "run_started", "attempt_started", "greeting_begun", "run_succeeded"]
    assert [event["payload"] for event in ran.events if event["type"] == "greeting_begun"] == [{"who": "you"}]
    assert ran.text == {"answer": "Hello, you!"}
    assert ran.interrupts == []
    versions = [snapshot["version"] for snapshot in ran.snapshots]
    assert versions == sorted(versions)
    assert [s["progress"] for s in ran.snapshots if s["current_step"] == "greet"] == [50]
    assert ran.snapshots[-1]["status"] == "succeeded"


async def test_an_agent_and_a_plain_function_run_too():
    def shout(run: playhead.SyncRun, word: str = "hey") -> str:
        run.text(word.upper())
        return word.upper()

    assert (await run_agent(playhead.agent(greet))).result == {"greeted": "world"}
    ran = await run_agent(shout)
    assert (ran.result, ran.text) == ("HEY", {"answer": "HEY"})


@pytest.mark.parametrize(
    ("decisions", "result"),
    [
        ({"spend": True}, "True None None test"),
        ({"spend": False}, "False None None test"),
        ({"spend": {"approved": True, "note": "ok", "value": 3}}, "True ok 3 test"),
        ({"spend": playhead.Decision(approved=True, note="ok", by="Kim")}, "True ok None Kim"),
        (lambda asked: asked["payload"]["title"] == "Spend?", "True None None test"),
    ],
)
async def test_questions_are_answered(decisions, result):
    ran = await run_agent(spend, decisions=decisions)
    assert ran.result == result
    assert [asked["status"] for asked in ran.interrupts] == ["decided"]


async def test_a_deadline_passes_without_waiting_for_it():
    begun = time.monotonic()
    ran = await run_agent(spend, {"deadline": 86_400})
    assert ran.result == "expired"
    assert "approval_expired" in ran.types
    assert time.monotonic() - begun < 60


async def test_a_question_that_would_wait_for_ever_is_named():
    with pytest.raises(Unanswered) as raised:
        await run_agent(spend, decisions={"other": True})
    assert raised.value.details["key"] == "spend"


async def test_failures_are_told_as_the_run_tells_them():
    async def fall(run: playhead.RunContext) -> None:
        await run.text("so far")
        raise ValueError("over the edge")

    ran = await run_agent(fall)
    assert (ran.status, ran.error) == ("failed", {"code": "agent_error", "message": "ValueError: over the edge"})
    assert ran.text == {"answer": "so far"}
    with pytest.raises(InvalidInput):
        await run_agent(greet, {"whom": "you"})


async def test_an_agent_that_does_not_end_is_stopped():
    stopped: list[Any] = []

    async def stay(run: playhead.RunContext) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError as error:
            stopped.append(error)
            raise

    with pytest.raises(TimeoutError):
        await run_agent(stay, timeout=0.3)
    assert len(stopped) == 1
