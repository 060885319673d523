"""The record: who watches a run, and when it is cancelled because nobody does any more."""

from __future__ import annotations

import asyncio
from functools import partial

from playhead.core import disconnect, event
from playhead.core.run import Policy, Run, Status
from playhead.testing.check import RecordBench, Rules
from playhead.testing.ports.given import (
    DONE,
    HOSTILE,
    TTL_MS,
    facts,
    get,
    in_some_order,
    new_id,
    queued,
    running,
    types,
)

rule: Rules[RecordBench] = Rules()

AFTER = Policy(cancel_after=5.0)
AT_ONCE = Policy(cancel_after=0.0)
GRACE_MS = 20_000


async def leased(b: RecordBench, *processes: str) -> None:
    for process in processes:
        await b.store.beat(process, TTL_MS, ())


async def round_of(b: RecordBench) -> list[str]:
    """What one look does: the runs that it had cancelled."""
    return [run_id for run_id in await b.store.deserted(100) if await b.store.desert(run_id) is not None]


async def goes_on(b: RecordBench, run: Run) -> bool:
    return (await get(b, run)).cancel_requested_at is None


@rule()
async def a_run_whose_last_viewer_left_is_cancelled_once(b: RecordBench) -> None:
    """When the policy's time is over and not before, the run is asked to stop, by the policy, with one fact."""
    run = await running(b, policy=AFTER)
    await b.store.watch("p1", [run.id])
    await b.clock.advance(100.0)
    assert await round_of(b) == []
    await leased(b, "p1")
    await b.store.unwatch("p1", [run.id])
    await b.clock.advance(4.999)
    assert await round_of(b) == []
    await b.clock.advance(0.001)
    assert await b.store.deserted(100) == [run.id]
    found = await b.store.desert(run.id)
    assert found is not None
    assert (found.cancel_by, found.cancel_reason) == (disconnect.BY, disconnect.REASON)
    assert found.cancel_requested_at == b.clock.wall_ms()
    assert found == await get(b, run)
    assert await b.store.desert(run.id) is None
    assert await b.store.deserted(100) == []
    assert (await types(b, run)).count(event.CANCEL_REQUESTED) == 1


@rule()
async def a_run_that_nobody_works_on_ends(b: RecordBench) -> None:
    """A queued run that is deserted is cancelled at once, as with any wish to stop."""
    run = await queued(b, policy=AT_ONCE)
    await b.store.unwatch("p1", [run.id])
    found = await b.store.desert(run.id)
    assert found is not None
    assert found.status is Status.CANCELLED
    assert (await types(b, run))[-1] == event.FINAL_TYPES[Status.CANCELLED]


@rule()
async def viewers_on_any_process_count(b: RecordBench) -> None:
    """While anybody watches anywhere, it does not matter who left elsewhere; the time is that of the last who left."""
    run = await queued(b, policy=AFTER)
    await leased(b, "p1", "p2")
    await b.store.watch("p1", [run.id])
    await b.store.watch("p2", [run.id])
    await b.store.unwatch("p1", [run.id])
    await b.clock.advance(6.0)
    await leased(b, "p2")
    assert await b.store.deserted(100) == [run.id]
    assert await b.store.desert(run.id) is None
    assert await b.store.deserted(100) == []  # that somebody left there is dealt with
    await b.store.unwatch("p2", [run.id])
    await b.clock.advance(4.0)
    assert await round_of(b) == []
    await b.clock.advance(1.0)
    assert await round_of(b) == [run.id]


@rule()
async def of_two_that_leave_the_later_counts(b: RecordBench) -> None:
    """The run waits for the policy's time after the later of two processes, whichever is asked first."""
    run = await queued(b, policy=AFTER)
    await b.store.unwatch("p1", [run.id])
    await b.clock.advance(3.0)
    await b.store.unwatch("p2", [run.id])
    await b.clock.advance(3.0)
    assert await round_of(b) == []
    await b.clock.advance(2.0)
    assert await round_of(b) == [run.id]


@rule()
async def a_viewer_who_comes_back_in_time_stops_it(b: RecordBench) -> None:
    """Whoever watches before the time is over, at the same process or another one, cancels nothing; and may leave."""
    for process in ("p1", "p2"):
        run = await queued(b, policy=AFTER)
        await leased(b, "p1", "p2")
        await b.store.watch("p1", [run.id])
        await b.store.unwatch("p1", [run.id])
        await b.clock.advance(4.0)
        await b.store.watch(process, [run.id])
        await b.clock.advance(4.0)
        assert await round_of(b) == []
        await b.store.unwatch(process, [run.id])
        await b.clock.advance(5.0)
        assert await round_of(b) == [run.id]


@rule()
async def whoever_comes_between_the_look_and_the_act_counts(b: RecordBench) -> None:
    """That a run was deserted when somebody looked cancels nothing: it must be so in the act."""
    run = await queued(b, policy=AT_ONCE)
    await b.store.unwatch("p1", [run.id])
    assert await b.store.deserted(100) == [run.id]
    await leased(b, "p2")
    await b.store.watch("p2", [run.id])
    assert await b.store.desert(run.id) is None
    assert await goes_on(b, run)


@rule()
async def a_run_that_nobody_watched_goes_on(b: RecordBench) -> None:
    """A run without any viewer so far is not deserted, however long it goes on."""
    run = await queued(b, policy=AT_ONCE)
    await b.clock.advance(100_000.0)
    assert await b.store.unwatch_expired(0, 100) == 0
    assert await round_of(b) == []
    assert await b.store.desert(run.id) is None
    assert await goes_on(b, run)


@rule()
async def a_run_that_goes_on_without_viewers_has_no_rows(b: RecordBench) -> None:
    """A policy to continue means that nothing is kept and nothing is done."""
    run = await queued(b)
    await b.store.watch("p1", [run.id])
    assert await b.store.unwatch_expired(0, 100) == 0
    await b.store.unwatch("p1", [run.id])
    assert await b.store.deserted(100) == []
    assert await b.store.desert(run.id) is None
    assert await goes_on(b, run)


@rule()
async def a_process_without_a_lease_took_its_viewers_along(b: RecordBench) -> None:
    """When a lease is over the viewers there have left: the grace and then the policy's time, from when it is seen."""
    run, other = [await queued(b, policy=AFTER) for _ in range(2)]
    await leased(b, "p1", "p2")
    await b.store.watch("p1", [run.id, other.id])
    await b.store.watch("p2", [other.id])
    assert await b.store.unwatch_expired(GRACE_MS, 100) == 0
    for _ in range(11):
        await b.clock.advance(1.0)
        await leased(b, "p2")
    assert await b.store.unwatch_expired(GRACE_MS, 100) == 2
    assert await b.store.unwatch_expired(GRACE_MS, 100) == 0
    for seconds, cancelled in ((24.0, []), (1.0, [run.id])):
        await b.clock.advance(seconds)
        await leased(b, "p2")
        assert await round_of(b) == cancelled
    assert await goes_on(b, other)


@rule()
async def a_lease_that_is_given_back_is_over(b: RecordBench) -> None:
    """A process that drains is no viewer that left: its viewers have the grace too, and may come to another one."""
    run, other = [await queued(b, policy=AT_ONCE) for _ in range(2)]
    await leased(b, "p1", "p2")
    await b.store.watch("p1", [run.id, other.id])
    await b.store.leave("p1")
    assert await b.store.unwatch_expired(GRACE_MS, 100) == 2
    await b.clock.advance(5.0)
    await leased(b, "p2")
    await b.store.watch("p2", [run.id])
    assert await round_of(b) == []
    for _ in range(3):
        await b.clock.advance(5.0)
        await leased(b, "p2")
    assert await round_of(b) == [other.id]
    assert await goes_on(b, run)


@rule()
async def a_process_that_was_taken_for_dead_tells_again(b: RecordBench) -> None:
    """A late beat is one in time: what the process tells from then on counts, within the grace or after it."""
    run = await queued(b, policy=AT_ONCE)
    await leased(b, "p1")
    await b.store.watch("p1", [run.id])
    await b.clock.advance(11.0)
    assert await b.store.unwatch_expired(GRACE_MS, 100) == 1
    await b.clock.advance(15.0)
    await leased(b, "p1")
    await b.store.watch("p1", [run.id])
    await b.clock.advance(9.0)
    assert await round_of(b) == []
    assert await b.store.unwatch_expired(GRACE_MS, 100) == 0
    assert await goes_on(b, run)


@rule()
async def a_run_that_has_ended_is_forgotten(b: RecordBench) -> None:
    """Who watches a run that ended, was asked to stop or was erased does not matter, whatever comes late."""
    ended, stopped, erased = [await running(b, policy=AT_ONCE) for _ in range(3)]
    runs = [run.id for run in (ended, stopped, erased)]
    await b.store.watch("p1", runs)
    await b.store.watch("p2", runs)
    await b.store.watch("p3", runs)
    for run in (ended, erased):
        await b.store.finish(run.id, run.token, DONE)
    await b.store.request_cancel(stopped.tenant, stopped.id, "ann", None)
    await b.store.delete(erased.tenant, erased.id)
    before = [await facts(b, run) for run in (ended, stopped)]
    await b.store.unwatch("p1", runs)
    await b.store.watch("p4", runs)
    await b.store.leave("p1")
    await b.store.unwatch_expired(0, 100)
    assert await round_of(b) == []
    assert await b.store.deserted(100) == []
    assert await b.store.unwatch_expired(0, 100) == 0
    assert [await facts(b, run) for run in (ended, stopped)] == before
    assert (await get(b, stopped)).cancel_by == "ann"


@rule()
async def telling_it_again_changes_nothing(b: RecordBench) -> None:
    """Each call can be repeated; only that viewers left begins the time again."""
    run = await queued(b, policy=AFTER)
    await leased(b, "p1")
    for _ in range(3):
        await b.store.watch("p1", [run.id, run.id])
    await b.store.unwatch("p1", [run.id, run.id])
    await b.clock.advance(3.0)
    await b.store.unwatch("p1", [run.id])
    await b.clock.advance(3.0)
    assert await round_of(b) == []
    await b.clock.advance(2.0)
    assert await round_of(b) == [run.id]
    assert (await types(b, run)).count(event.FINAL_TYPES[Status.CANCELLED]) == 1


@rule()
async def several_at_once_are_each_dealt_with(b: RecordBench) -> None:
    """Each call takes any number of runs, and every look a bounded number, longest over first."""
    runs = [await queued(b, policy=AFTER) for _ in range(5)]
    ids = [run.id for run in runs]
    await leased(b, "p1")
    await b.store.watch("p1", ids)
    await b.store.watch("p1", [])
    await b.store.leave("p1")
    assert [await b.store.unwatch_expired(0, 2) for _ in range(4)] == [2, 2, 1, 0]
    await b.store.unwatch("p1", ids[::-1])
    await b.store.unwatch("p1", [])
    await b.clock.advance(1.0)
    await b.store.unwatch("p1", ids[2:])
    await b.clock.advance(5.0)
    assert set(await b.store.deserted(2)) == set(ids[:2])
    assert await b.store.deserted(0) == []
    assert set(await b.store.deserted(100)) == set(ids)
    assert len(await round_of(b)) == 5


@rule()
async def coming_leaving_and_looking_agree_in_every_order(b: RecordBench) -> None:
    """However these meet, a run is cancelled once or not at all, and never while it is known to be watched."""
    for _ in range(20):
        run = await queued(b, policy=AT_ONCE)
        await leased(b, "p1", "p2")
        await b.store.watch("p1", [run.id])
        await in_some_order(
            b.clock,
            partial(b.store.unwatch, "p1", [run.id]),
            partial(b.store.watch, "p2", [run.id]),
            partial(b.store.desert, run.id),
            partial(b.store.desert, run.id),
        )
        await round_of(b)
        if await goes_on(b, run):
            await b.store.unwatch("p2", [run.id])
            assert await round_of(b) == [run.id]
        assert (await types(b, run)).count(event.FINAL_TYPES[Status.CANCELLED]) == 1


@rule()
async def many_who_look_at_once_cancel_once(b: RecordBench) -> None:
    """Every process may look at once: one of them has the run cancelled."""
    run = await running(b, policy=AT_ONCE)
    await b.store.unwatch("p1", [run.id])
    found = await asyncio.gather(*(b.store.desert(run.id) for _ in range(8)))
    assert len([one for one in found if one is not None]) == 1
    assert (await types(b, run)).count(event.CANCEL_REQUESTED) == 1


@rule()
async def runs_that_nobody_made_are_passed_over(b: RecordBench) -> None:
    """Ids that nobody made find nothing and do no harm."""
    names = [*HOSTILE, new_id(b.clock)]
    await b.store.watch("p1", names)
    await b.store.unwatch("p1", names)
    for name in names:
        assert await b.store.desert(name) is None
    assert await b.store.deserted(100) == []
    assert await b.store.unwatch_expired(0, 100) == 0
