"""Claimed runs: whatever cancels the block, the run's end is recorded and the right one is told."""

from __future__ import annotations

import asyncio

import pytest

import playhead
from playhead.core.run import Status
from playhead.errors import PlayheadError, RunCancelled, StoreUnavailable
from tests.runtime.whole import Faulty, Held, ended, engine, plant, start

pytestmark = pytest.mark.anyio

AGENTS = [playhead.external_agent("loader")]


async def test_a_claim_that_is_cancelled_on_its_way_leaves_no_run_behind() -> None:
    """The record has given the run, and nobody is there any more to take it."""
    async with engine(AGENTS) as e:
        claim = Held(e.ports.record, "claim")
        run_id = await start(e, "loader")

        async def block() -> None:
            async with e.attempt(run_id):
                raise AssertionError("it never got there")

        task = asyncio.create_task(block())
        await claim.done.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await e.run("acme", run_id)).status is Status.RUNNING
        claim.go.set()
        run = await ended(e, run_id)
        assert (run.status, run.failure and run.failure.code) == (Status.FAILED, "agent_cancelled")
        assert len(e.attempts) == 0


async def test_a_claim_that_is_cancelled_and_refused_is_over() -> None:
    async with engine(AGENTS) as e:
        run_id = await start(e, "loader")
        Faulty(e.ports.record, "claim", StoreUnavailable())
        task = asyncio.create_task(e.attempt(run_id).__aenter__())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises((asyncio.CancelledError, StoreUnavailable)):
            await task
        async with e.attempt(run_id):
            pass
        assert (await ended(e, run_id)).status is Status.SUCCEEDED


async def test_a_drain_waits_for_a_claim_that_is_on_its_way() -> None:
    async with engine(AGENTS) as e:
        claim = Held(e.ports.record, "claim")
        run_id = await start(e, "loader")

        async def block() -> None:
            async with e.attempt(run_id):
                await asyncio.sleep(30)

        task = asyncio.create_task(block())
        await claim.done.wait()
        draining = asyncio.create_task(e.drain())
        await asyncio.sleep(0.05)
        claim.go.set()
        await draining
        with pytest.raises(RunCancelled):
            await task
        run = await e.run("acme", run_id)
        assert (run.status, run.failure and run.failure.code) == (Status.INTERRUPTED, "server_stopped")


async def test_a_block_that_never_waits_is_told_of_its_stop_all_the_same() -> None:
    async with engine(AGENTS) as e:
        run_id = await start(e, "loader")
        with pytest.raises(RunCancelled):
            async with e.attempt(run_id) as attempt:
                await e.cancel("acme", run_id, by="ann")
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)  # the cancellation is spent
        assert attempt.ended
        assert (await e.run("acme", run_id)).status is Status.CANCELLED


async def test_a_block_that_goes_on_after_its_stop_leaves_no_cancellation_behind() -> None:
    async with engine(AGENTS) as e:
        run_id = await start(e, "loader")
        async with e.attempt(run_id):
            try:
                await e.cancel("acme", run_id, by="ann")
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                pass
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        assert (await e.run("acme", run_id)).status is Status.CANCELLED


@pytest.mark.parametrize("first", ["run", "task"])
async def test_the_cancellation_of_the_task_itself_is_not_taken_for_the_run_s(first: str) -> None:
    async with engine(AGENTS) as e:
        run_id = await start(e, "loader")
        begun = asyncio.Event()

        async def block() -> None:
            async with e.attempt(run_id):
                begun.set()
                await asyncio.sleep(30)

        task = asyncio.create_task(block())
        await begun.wait()
        if first == "run":
            e.attempts.cancel(run_id)
        task.cancel()
        e.attempts.cancel(run_id)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert (await ended(e, run_id)).status.final


async def test_a_timeout_around_a_block_is_a_timeout() -> None:
    async with engine(AGENTS) as e:
        run_id = await start(e, "loader")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                async with e.attempt(run_id):
                    await asyncio.sleep(30)
        assert (await ended(e, run_id)).status is Status.FAILED


async def test_a_block_that_cannot_be_begun_fails() -> None:
    async with engine(AGENTS) as e:
        run_id = await start(e, "loader")
        bring = e.projector.bring

        async def broken(run_id: str, **how: bool) -> object:
            if how.get("resend") is False:
                raise PlayheadError("of a kind that nobody expects")
            return await bring(run_id, **how)

        plant(e.projector, "bring", broken)
        with pytest.raises(PlayheadError, match="nobody expects"):
            async with e.attempt(run_id):
                raise AssertionError("it never got there")
        assert (await ended(e, run_id)).status is Status.FAILED
        assert len(e.attempts) == 0
