"""The worker's faults: whatever breaks, a run that it took does not stay running with nobody at it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

import playhead
from playhead.core.run import Run, Status
from playhead.errors import AttemptLost, PlayheadError, StoreUnavailable
from tests.runtime.whole import Faulty, Held, ended, engine, eventually, plant, start

pytestmark = pytest.mark.anyio


def agents(gate: asyncio.Event, seen: list[str]) -> Sequence[playhead.Agent]:
    @playhead.agent
    async def steps(run: playhead.RunContext) -> str:
        try:
            await run.event("step_taken")
            await gate.wait()
            await run.event("step_taken")
        except BaseException as error:
            seen.append(type(error).__name__)
            raise
        return "done"

    @playhead.agent
    async def mistaken(run: playhead.RunContext) -> None:
        raise AttemptLost("of another run")

    return [steps, mistaken]


async def test_a_run_that_cannot_be_begun_ends_and_is_not_running_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    async with engine(agents(asyncio.Event(), [])) as e:
        bring = e.projector.bring

        async def broken(run_id: str, **how: bool) -> Run | None:
            if how.get("resend") is False:  # as an attempt asks
                raise PlayheadError("of a kind that nobody expects")
            return await bring(run_id, **how)

        plant(e.projector, "bring", broken)
        run = await ended(e, await start(e, "steps"))
    assert (run.status, run.failure and run.failure.code) == (Status.FAILED, "internal_error")
    assert "cannot be worked on" in caplog.text


@pytest.mark.parametrize("waits", [True, False])
async def test_a_run_that_cannot_be_published_any_more_fails_and_is_not_running_for_ever(waits: bool) -> None:
    gate, seen = asyncio.Event(), list[str]()
    async with engine(agents(gate, seen)) as e:
        run_id = await start(e, "steps")
        await eventually(lambda: e.attempts.all() and e.attempts.all()[0].publisher._acked_n)
        Faulty(e.ports.live, "publish", RuntimeError("a fault of ours"))
        if waits:
            e.attempts.all()[0].publisher.touch()
        else:
            gate.set()
        run = await ended(e, run_id)
    assert (run.status, run.failure and run.failure.code) == (Status.FAILED, "internal_error")
    assert seen in (["CancelledError"], ["AttemptLost"])


async def test_an_agent_that_is_mistaken_about_its_loss_ends_its_run() -> None:
    async with engine(agents(asyncio.Event(), [])) as e:
        run = await ended(e, await start(e, "mistaken"))
    assert (run.status, run.failure and run.failure.code) == (Status.FAILED, "attempt_lost")


async def test_a_run_that_is_given_out_while_the_server_stops_is_recorded_as_stopped() -> None:
    gate = asyncio.Event()
    async with engine(agents(gate, [])) as e:
        acquire = Held(e.ports.record, "acquire")
        run_id = await start(e, "steps")
        await acquire.done.wait()
        draining = asyncio.create_task(e.drain())
        await asyncio.sleep(0.05)
        acquire.go.set()
        await draining
        run = await e.run("acme", run_id)
        assert (run.status, run.failure and run.failure.code) == (Status.INTERRUPTED, "server_stopped")
        assert len(e.attempts) == 0


@pytest.mark.parametrize("resumable", [False, True])
async def test_an_agent_that_sees_the_stop_before_the_worker_does_has_not_cancelled_itself(resumable: bool) -> None:
    """It raises what it is told at the very moment at which it is told."""

    @playhead.agent(resumable=resumable)
    async def asker(run: playhead.RunContext) -> None:
        await run.ask({"title": "?"})

    async with engine([asker]) as e:
        run_id = await start(e, "asker")
        await eventually(lambda: e.interrupts("acme", run_id))
        await e.drain()
        run = await e.run("acme", run_id)
    if resumable:
        assert (run.status, run.owner, run.crashes) == (Status.WAITING, None, 0)
    else:
        assert (run.status, run.failure and run.failure.code) == (Status.INTERRUPTED, "server_stopped")


async def test_nothing_is_taken_once_the_server_stops() -> None:
    async with engine(agents(asyncio.Event(), [])) as e:
        await e.worker.drain(0.0)
        run_id = await start(e, "steps")
        await e.worker.take()
        assert (await e.run("acme", run_id)).status is Status.QUEUED


async def test_an_attempt_that_cannot_be_recorded_is_let_go_when_the_server_has_stopped() -> None:
    """The record is away for good: the server leaves, and no task of it goes on asking."""
    gate = asyncio.Event()
    gate.set()
    async with engine(agents(gate, []), drain_grace=0.05) as e:
        Faulty(e.ports.record, "finish", always=StoreUnavailable())
        await start(e, "steps")
        await eventually(lambda: e.worker._tasks)
        await e.drain()
        await eventually(lambda: not e.worker._tasks)


@pytest.mark.parametrize("plain", [False, True])
async def test_an_agent_that_leaves_by_system_exit_ends_its_own_run_alone(plain: bool) -> None:
    """As `sys.exit` does, or a command line that an agent calls."""
    gate, seen = asyncio.Event(), list[str]()

    @playhead.agent(name="leaver")
    async def leave(run: playhead.RunContext) -> None:
        raise SystemExit(3)

    @playhead.agent(name="leaver")
    def leave_plainly(run: playhead.SyncRun) -> None:
        raise SystemExit(3)

    async with engine([*agents(gate, seen), leave_plainly if plain else leave]) as e:
        other = await start(e, "steps")
        run = await ended(e, await start(e, "leaver"))
        assert (run.status, run.failure and run.failure.code) == (Status.FAILED, "agent_error")
        assert run.failure is not None
        assert "SystemExit" in run.failure.message
        gate.set()
        assert (await ended(e, other)).status is Status.SUCCEEDED


async def test_an_agent_that_asks_two_people_waits_until_both_have_answered() -> None:
    """Its place is another run's meanwhile, and a server that stops does not wait for it."""
    answered = list[str]()

    @playhead.agent
    async def two(run: playhead.RunContext) -> list[bool]:
        async def ask(name: str) -> bool:
            answer = await run.ask({}, key=name)
            answered.append(name)
            return answer.approved

        return list(await asyncio.gather(ask("legal"), ask("safety")))

    @playhead.agent
    async def quick(run: playhead.RunContext) -> None: ...

    async with engine([two, quick], concurrency=1) as e:
        asking = await start(e, "two")

        async def asked() -> list[str]:
            return [one.id for one in await e.interrupts("acme", asking) if one.open]

        async def both() -> list[str]:
            return found if len(found := await asked()) == 2 else []

        first, second = await eventually(both)
        await e.decide("acme", asking, first, {"approved": True}, by="ann")
        await eventually(lambda: answered)
        assert e.attempts.all()[0].waiting
        assert (await ended(e, await start(e, "quick"))).status is Status.SUCCEEDED
        assert not e.attempts.all()[0].ended
        await e.decide("acme", asking, second, {"approved": True}, by="ann")
        assert (await ended(e, asking)).result == b"[true,true]"
