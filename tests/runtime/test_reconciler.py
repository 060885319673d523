"""The reconciler: no run, no job and no store that fails keeps the others from their turn."""

from __future__ import annotations

from typing import Any

import pytest

from playhead.backends.memory import MemoryLive, MemoryRecord
from playhead.core.ids import run_feed, uuid7
from playhead.core.retention import Retention
from playhead.core.run import NewRun, Policy, Run, Status
from playhead.errors import StoreUnavailable
from playhead.runtime.projector import Projector
from playhead.runtime.reconciler import Reconciler
from playhead.testing.clock import FakeClock
from tests.runtime.whole import Faulty, plant

pytestmark = pytest.mark.anyio

LEASE = 10.0


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.record = MemoryRecord(self.clock)
        self.live = MemoryLive(self.clock, Retention(), 3_600.0, 86_400.0)
        self.projector = Projector(self.record, self.live, self.clock)
        self.reconciler = Reconciler(self.record, self.live, self.live, self.projector, self.clock, lease=LEASE)

    async def running(self, process: str = "p1") -> Run:
        new = NewRun(uuid7(self.clock.wall_ms(), self.clock.random(10)), "acme", "echo", b"{}", Policy(), {})
        run, _ = await self.record.create(new)
        await self.record.beat(process, int(LEASE * 1000), ())
        return await self.record.claim("acme", run.id, process)

    async def rounds(self, seconds: int) -> None:
        """One round a second."""
        for _ in range(seconds):
            await self.clock.advance(1.0)
            await self.reconciler.round()

    async def get(self, run: Run) -> Run:
        found = await self.record.get("acme", run.id)
        assert found is not None
        return found


async def test_a_run_that_cannot_be_projected_keeps_nobody_waiting_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    b = Bench()
    bad, good = await b.running(), await b.running()
    bring = b.projector.bring

    async def broken(run_id: str, **how: Any) -> Run | None:
        if run_id == bad.id:
            raise RuntimeError("?")
        return await bring(run_id, **how)

    plant(b.projector, "bring", broken)
    await b.rounds(3)
    assert await b.live.read(run_feed(good.id)) is not None
    assert caplog.text.count("cannot be reconciled") == 1
    plant(b.projector, "bring", bring)
    await b.rounds(3)
    assert await b.record.outbox(10) == []


async def test_a_run_that_cannot_be_reaped_keeps_nobody_waiting_behind_it() -> None:
    b = Bench()
    bad, good = await b.running(), await b.running()
    await b.record.leave("p1")
    lose = b.record.lose

    async def broken(run_id: str, *args: Any) -> Run | None:
        if run_id == bad.id:
            raise RuntimeError("?")
        return await lose(run_id, *args)

    plant(b.record, "lose", broken)
    await b.rounds(2)
    assert (await b.get(bad)).status is Status.RUNNING
    assert (await b.get(good)).status is Status.INTERRUPTED


@pytest.mark.parametrize("job", ["lapse", "expired", "outbox"])
async def test_a_job_that_fails_does_not_keep_the_others_from_their_turn(job: str) -> None:
    b = Bench()
    run, other = await b.running("p1"), await b.running("p2")
    await b.record.leave("p1")
    Faulty(b.record, job, always=RuntimeError("?"))
    await b.rounds(4)
    assert (await b.get(run)).status is (Status.RUNNING if job == "expired" else Status.INTERRUPTED)
    assert (await b.live.read(run_feed(other.id)) is None) is (job == "outbox")


@pytest.mark.row("R26")
async def test_a_live_store_that_is_away_keeps_no_dead_worker_alive() -> None:
    """The record alone says who holds a lease; that its projections cannot be brought up is no reason to wait."""
    b = Bench()
    run = await b.running()
    for name in ("stand", "open", "fact", "publish", "read", "read_text", "expire"):
        Faulty(b.live, name, always=StoreUnavailable())
    await b.rounds(int(2 * LEASE))
    assert (await b.get(run)).status is Status.INTERRUPTED


async def test_a_record_that_did_not_answer_is_given_one_whole_lease() -> None:
    b = Bench()
    run = await b.running()
    await b.rounds(9)
    outage = Faulty(b.record, "lapse", *[StoreUnavailable()] * 3)
    await b.rounds(3)
    assert outage.calls == 3
    await b.rounds(int(LEASE) - 1)
    assert (await b.get(run)).status is Status.RUNNING  # its beat may be on the way
    await b.rounds(2)
    assert (await b.get(run)).status is Status.INTERRUPTED


async def test_old_facts_are_pruned_while_the_live_store_is_away() -> None:
    b = Bench()
    run = await b.running()
    await b.rounds(4)
    for name in ("expire", "aged", "trim"):
        Faulty(b.live, name, always=StoreUnavailable())
    await b.clock.advance(90_000.0)
    with pytest.raises(StoreUnavailable):
        await b.reconciler.tidy()
    page = await b.record.facts(run_feed(run.id), 0)
    assert page is not None
    assert page.facts == ()
