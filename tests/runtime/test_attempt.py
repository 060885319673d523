"""A live attempt: questions, and ends that the record does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import playhead
from playhead.core.run import Status
from playhead.errors import StoreUnavailable
from playhead.runtime import attempt as module
from tests.runtime.whole import Faulty, ended, engine, eventually, plant, start

pytestmark = pytest.mark.anyio

YES = {"approved": True, "note": None}


def asking() -> Sequence[playhead.Agent]:
    @playhead.agent
    async def asker(run: playhead.RunContext, times: int = 1) -> int:
        for i in range(times):
            await run.ask({"title": f"{i}?"})
        return times

    return [asker]


async def test_an_answer_that_comes_with_the_question_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there before the agent has begun to wait, and its wake-up is not lost."""
    monkeypatch.setattr(module, "_LOOK_AGAIN", 3_600.0)
    async with engine(asking()) as e:
        ask = e.ports.record.ask

        async def asked_and_answered(*args: Any) -> Any:
            found = await ask(*args)
            await e.decide("acme", found.run_id, found.id, YES, by="ann")
            return found

        plant(e.ports.record, "ask", asked_and_answered)
        run = await ended(e, await start(e, "asker"))
        assert run.status is Status.SUCCEEDED


async def test_a_run_with_very_many_questions_hears_the_answer_to_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_AGAIN", 0.05)
    async with engine(asking()) as e:
        run_id = await start(e, "asker", {"times": 205})

        async def answer() -> bool:
            for one in await e.interrupts("acme", run_id):
                await e.decide("acme", run_id, one.id, YES, by="ann")
            return (await e.run("acme", run_id)).status.final

        await eventually(answer, 30.0)
        assert (await e.run("acme", run_id)).value == 205


async def test_a_question_without_an_answer_is_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has recorded the decision, and no wake-up comes."""
    monkeypatch.setattr(module, "_LOOK_AGAIN", 0.05)
    async with engine(asking()) as e:
        run_id = await start(e, "asker")
        [one] = await eventually(lambda: e.interrupts("acme", run_id))
        await e.ports.record.decide("acme", run_id, one.id, b'{"approved":true}', "ann")
        assert (await ended(e, run_id)).status is Status.SUCCEEDED


async def test_an_end_waits_for_the_record_also_when_the_fence_has_shut_the_publisher() -> None:
    async with engine(asking()) as e:
        run_id = await start(e, "asker")
        await eventually(lambda: e.interrupts("acme", run_id))
        [attempt] = e.attempts.all()
        finish = Faulty(e.ports.record, "finish", StoreUnavailable(), StoreUnavailable())
        attempt.publisher.shut()
        await e.cancel("acme", run_id, by="ann")
        assert (await ended(e, run_id)).status is Status.CANCELLED
        assert finish.calls == 3


async def test_a_lost_attempt_does_not_wait_for_the_record() -> None:
    async with engine(asking()) as e:
        run_id = await start(e, "asker")
        await eventually(lambda: e.interrupts("acme", run_id))
        finish = Faulty(e.ports.record, "finish", always=StoreUnavailable())
        await e.cancel("acme", run_id, by="ann")
        await eventually(lambda: finish.calls)
        e.attempts.on_silence()
        await eventually(lambda: not e.attempts.all())
        await asyncio.sleep(0)


@pytest.mark.parametrize("away", [False, True])
async def test_an_attempt_tells_the_record_how_many_events_it_published(away: bool) -> None:
    """With its question those that were shown, with its end all: also those that the end brings along."""

    @playhead.agent
    async def teller(run: playhead.RunContext) -> None:
        for i in range(3):
            await run.event("told", {"i": i})
        await run.ask({"title": "Go on?"})
        if away:
            Faulty(e.ports.live, "publish", always=StoreUnavailable())
        for i in range(2):
            await run.event("told", {"i": i})

    async with engine([teller]) as e:
        run_id = await start(e, "teller")
        [one] = await eventually(lambda: e.interrupts("acme", run_id))
        assert (await e.run("acme", run_id)).published == 3
        await e.decide("acme", run_id, one.id, YES, by="ann")
        run = await ended(e, run_id)
        assert run.published == 5
