"""What an attempt hears of another process's acts at once, where no beat and no second look would tell it in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import playhead
from playhead.core.ids import run_feed
from playhead.core.run import Status
from playhead.errors import StoreUnavailable
from playhead.runtime import attempt as attempts
from tests.runtime.whole import Faulty, ended, engine, eventually, start

pytestmark = pytest.mark.anyio

# Nothing but a hint may be in time: no beat, no second look, no sign of life, no look at the outbox.
DEAF: dict[str, Any] = {"beat": 500.0, "lease": 1_000.0, "sweep": 1_000.0}


@pytest.fixture(autouse=True)
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "_LOOK_AGAIN", 1_000.0)


@playhead.agent
async def lasting(run: playhead.RunContext) -> None:
    await run.event("begun", progress=40)
    await asyncio.Event().wait()


@playhead.agent
async def asking(run: playhead.RunContext) -> str:
    decision = await run.ask({"title": "Go on?"})
    return str(decision.note)


async def test_a_stop_through_another_process_is_heard_at_once() -> None:
    async with engine([lasting], **DEAF) as one, engine([], ports=one.ports, **DEAF) as other:
        run_id = await start(one, "lasting")
        await eventually(lambda: one.attempts.of(run_id))
        await other.cancel("acme", run_id, by="ann")
        assert (await ended(one, run_id)).status is Status.CANCELLED


async def test_an_answer_through_another_process_is_heard_at_once() -> None:
    async with engine([asking], **DEAF) as one, engine([], ports=one.ports, **DEAF) as other:
        run_id = await start(one, "asking")
        (asked,) = await eventually(lambda: other.interrupts("acme", run_id))
        await other.decide("acme", run_id, asked.id, {"approved": True, "note": "yes"}, by="ann")
        run = await ended(one, run_id)
        assert (run.status, run.result) == (Status.SUCCEEDED, b'"yes"')


async def test_an_attempt_sends_all_again_once_another_process_has_rebuilt() -> None:
    async with engine([lasting], **DEAF) as one, engine([], ports=one.ports, **DEAF) as other:
        run_id = await start(one, "lasting")
        feed = run_feed(run_id)
        await eventually(lambda: one.attempts.of(run_id))

        async def has_said() -> bool:
            view = await one.ports.live.read(feed)
            return view is not None and b'"progress":40' in view.snapshot.encode()

        await eventually(has_said)
        one.ports.live.lose()  # type: ignore[attr-defined]  # of the memory store alone
        assert not await has_said()
        await other.projector.bring(run_id)  # a viewer of the other process came
        await eventually(has_said)


async def test_an_attempt_that_was_taken_over_hears_it() -> None:
    async with engine([lasting], **DEAF) as one, engine([], ports=one.ports, **DEAF) as other:
        run_id = await start(one, "lasting")
        attempt = await eventually(lambda: one.attempts.of(run_id))
        await one.ports.record.leave(one.process)
        await other.reconciler.round()  # its lease is over: it is given up
        await eventually(lambda: attempt.lost)


async def test_a_signal_that_is_away_at_first_is_tried_again() -> None:
    async with engine([lasting], **{**DEAF, "sweep": 0.05}) as one, engine([], ports=one.ports, **DEAF) as other:
        signal = Faulty(one.ports.signal, "add", StoreUnavailable(), StoreUnavailable())
        run_id = await start(one, "lasting")
        await eventually(lambda: signal.calls > 2)
        await other.cancel("acme", run_id, by="ann")
        assert (await ended(one, run_id)).status is Status.CANCELLED


async def test_nobody_listens_once_an_attempt_has_ended() -> None:
    async with engine([asking]) as one:
        run_id = await start(one, "asking")
        (asked,) = await eventually(lambda: one.interrupts("acme", run_id))
        listening: dict[Any, Any] = one.ports.signal._listeners  # type: ignore[attr-defined]  # of the local one
        assert run_feed(run_id) in listening
        await one.decide("acme", run_id, asked.id, {"approved": True}, by="ann")
        await ended(one, run_id)
        await eventually(lambda: run_feed(run_id) not in listening)
