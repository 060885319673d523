"""What becomes of a run whose last viewer left, also when the record does not answer then."""

from __future__ import annotations

import asyncio

import pytest

from playhead.backends.memory import MemoryRecord
from playhead.core.ids import run_feed, uuid7
from playhead.core.run import NewRun, Policy
from playhead.errors import NotFound, StoreUnavailable
from playhead.runtime.disconnect import DisconnectPolicy
from playhead.testing.clock import FakeClock
from tests.runtime.whole import Faulty

pytestmark = pytest.mark.anyio


class Bench:
    def __init__(self, *errors: Exception) -> None:
        self.clock = FakeClock()
        self.record = MemoryRecord(self.clock)
        self.cancelled: list[str] = []
        self.errors = list(errors)
        self.policy = DisconnectPolicy(self.record, self.clock, self.cancel)

    async def cancel(self, run_id: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.cancelled.append(run_id)

    async def run(self, after: float | None = 5.0) -> str:
        policy = Policy(cancel_after=after)
        new = NewRun(uuid7(self.clock.wall_ms(), self.clock.random(10)), "acme", "echo", b"{}", policy, {})
        return (await self.record.create(new))[0].id


async def test_a_record_that_is_away_delays_the_cancellation_and_does_not_lose_it() -> None:
    b = Bench(StoreUnavailable(), StoreUnavailable())
    run = await b.run()
    Faulty(b.record, "get", StoreUnavailable(), StoreUnavailable())
    b.policy.left(run_feed(run))
    await b.clock.advance(20.0)
    assert b.cancelled == [run]
    assert not b.policy._leaving


async def test_a_viewer_that_comes_back_in_the_meantime_counts() -> None:
    b = Bench()
    run = await b.run()
    Faulty(b.record, "get", always=StoreUnavailable())
    b.policy.left(run_feed(run))
    await b.clock.advance(20.0)
    b.policy.came(run_feed(run))
    await b.clock.advance(20.0)
    assert b.cancelled == []


@pytest.mark.parametrize("error", [NotFound(), RuntimeError("?")])
async def test_a_cancellation_that_fails_is_told_and_leaves_nothing_behind(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    b = Bench(error)
    b.policy.left(run_feed(await b.run()))
    await b.clock.advance(20.0)
    assert "could not be cancelled" in caplog.text
    assert not b.policy._leaving


async def test_a_run_without_the_policy_goes_on() -> None:
    b = Bench()
    b.policy.left(run_feed(await b.run(None)))
    await b.clock.advance(1_000.0)
    assert b.cancelled == []
    await b.policy.close()
    b.policy.left(run_feed(await b.run()))
    await asyncio.sleep(0)
    assert not b.policy._leaving
