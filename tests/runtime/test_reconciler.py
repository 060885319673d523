"""The reconciler: no run, no job and no store that fails keeps the others from their turn."""

from __future__ import annotations

from typing import Any

import pytest

from playhead.backends.memory import MemoryLive, MemoryRecord
from playhead.core.ids import run_feed, uuid7
from playhead.core.retention import Retention
from playhead.core.run import NewRun, Policy, Run, Status
from playhead.errors import StoreUnavailable
from playhead.runtime.attempts import Attempts
from playhead.runtime.projector import Projector
from playhead.runtime.reconciler import Reconciler
from playhead.runtime.waiters import Waiters
from playhead.testing.clock import FakeClock
from tests.runtime.whole import Faulty, plant

pytestmark = pytest.mark.anyio

LEASE = 10.0
ON = Policy()


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.record = MemoryRecord(self.clock)
        self.live = MemoryLive(self.clock, Retention(), 3_600.0, 86_400.0)
        self.projector = Projector(self.record, self.live, self.clock)
        self.reconciler = Reconciler(self.record, self.live, self.live, self.projector, self.clock, lease=LEASE)

    async def running(self, process: str = "p1", policy: Policy = ON) -> Run:
        new = NewRun(uuid7(self.clock.wall_ms(), self.clock.random(10)), "acme", "echo", b"{}", policy, {})
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


@pytest.mark.row("F41")
async def test_an_attempt_of_ours_that_nobody_works_on_is_given_up_after_a_lease() -> None:
    """And not before: one that was begun a moment ago is not known here yet."""
    b = Bench()
    make: Any = Held
    attempts = Attempts(b.record, b.live.signal, b.projector, Waiters(), b.clock, make=make)
    b.reconciler = Reconciler(
        b.record, b.live, b.live, b.projector, b.clock, lease=LEASE, process="p1", left=attempts.left
    )
    known, unknown, late = await b.running(), await b.running(), await b.running()
    attempts.take_up(known)
    for second in range(int(LEASE) + 3):
        beat = await b.record.beat("p1", int(LEASE * 1000), [one.key for one in attempts.all()])
        attempts.on_beat(beat)
        if second == int(LEASE) - 1:
            attempts.take_up(late)
        status = (await b.get(unknown)).status
        assert status is (Status.RUNNING if second < LEASE else Status.INTERRUPTED), second
        await b.rounds(1)
    assert [(await b.get(run)).status for run in (known, late)] == [Status.RUNNING] * 2


class Held:
    """An attempt as far as it is looked at here."""

    def __init__(self, run: Run) -> None:
        self.run, self.publisher = run, None
        self.key = run.id, run.token


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


async def test_viewers_of_a_process_that_is_gone_have_a_grace_to_come_elsewhere() -> None:
    """And then the policy's time. Nobody is taken for gone before the record has answered for one whole lease."""
    b = Bench()
    changed: list[str] = []
    b.reconciler = Reconciler(
        b.record,
        b.live,
        b.live,
        b.projector,
        b.clock,
        lease=LEASE,
        viewer_grace=20.0,
        on_change=changed.append,
    )
    run = await b.running("p1", Policy(cancel_after=5.0))
    other = await b.running("p1", Policy(cancel_after=5.0))
    await b.record.watch("p2", [run.id, other.id])  # no beat of this process is ever seen
    for second in range(1, 37):
        await b.record.beat("p1", int(LEASE * 1000), ())
        if second == 20:
            await b.record.watch("p1", [other.id])
        await b.rounds(1)
        assert ((await b.get(run)).cancel_requested_at is None) is (second < LEASE + 25), second
    assert changed == [run.id]
    assert b.reconciler.statistics["deserted"] == 1
    shown = await b.live.read(run_feed(run.id))
    assert shown is not None
    assert shown.entries[-1].event.type == "cancel_requested"
    assert (await b.get(other)).cancel_requested_at is None


async def test_a_run_that_cannot_be_cancelled_keeps_nobody_waiting_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    b = Bench()
    bad, good = [await b.running("p1", Policy(cancel_after=0.0)) for _ in range(2)]
    await b.rounds(3)  # they are projected
    desert = b.record.desert

    async def broken(run_id: str) -> Run | None:
        if run_id == bad.id:
            raise RuntimeError("?")
        return await desert(run_id)

    plant(b.record, "desert", broken)
    await b.record.unwatch("p1", [bad.id, good.id])
    await b.rounds(2)
    assert (await b.get(good)).cancel_by == "disconnect_policy"
    assert caplog.text.count("cannot be reconciled") == 1
    plant(b.record, "desert", desert)
    await b.rounds(1)
    assert (await b.get(bad)).cancel_by == "disconnect_policy"
