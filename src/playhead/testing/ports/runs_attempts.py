"""The record: giving runs to attempts, leases, and reaping what lost its lease."""

from __future__ import annotations

import asyncio

from playhead.core import event
from playhead.core.run import Failure, Outcome, Policy, Run, Status
from playhead.errors import AttemptLost, NotFound, RunFinal, RunNotFree
from playhead.testing.check import RecordBench, Rules, refused
from playhead.testing.ports.given import (
    AGENT,
    DONE,
    TENANT,
    TTL_MS,
    asked,
    facts,
    get,
    new_id,
    question,
    queued,
    resumable,
    running,
    taken_over,
    types,
)

rule: Rules[RecordBench] = Rules()


@rule()
async def acquiring_starts_attempts_oldest_first(b: RecordBench) -> None:
    """Up to `limit` free runs go to new attempts, oldest first; the run starts before its attempt does."""
    runs = [await queued(b) for _ in range(3)]
    await b.store.beat("p1", TTL_MS, ())
    first = await b.store.acquire("p1", [AGENT], 2)
    assert [run.id for run in first] == [run.id for run in runs[:2]]
    assert [run.id for run in await b.store.acquire("p1", [AGENT], 2)] == [runs[2].id]
    assert await b.store.acquire("p1", [AGENT], 2) == []
    for run in first:
        assert (run.status, run.token, run.owner) == (Status.RUNNING, 1, "p1")
        assert run.started_at == b.clock.wall_ms()
        assert await get(b, run) == run
    assert [(fact.event.type, fact.token) for fact in await facts(b, runs[0])] == [
        (event.RUN_QUEUED, 0),
        (event.RUN_STARTED, 0),
        (event.ATTEMPT_STARTED, 1),
    ]


@rule()
async def acquiring_takes_named_agents_only(b: RecordBench) -> None:
    """A process is given runs of the agents that it names, of any tenant, and of no other."""
    mine = await queued(b, tenant="other")
    await queued(b, agent="other_agent")
    await b.store.beat("p1", TTL_MS, ())
    assert await b.store.acquire("p1", [], 10) == []
    assert await b.store.acquire("p1", ["echo%", "*"], 10) == []
    assert await b.store.acquire("p1", [AGENT], 0) == []
    assert [run.id for run in await b.store.acquire("p1", [AGENT, "absent"], 10)] == [mine.id]


@rule()
async def no_run_is_given_twice(b: RecordBench) -> None:
    """However many processes ask at once, each run goes to one of them, once."""
    runs = [await queued(b) for _ in range(30)]
    processes = [f"p{i}" for i in range(8)]
    for process in processes:
        await b.store.beat(process, TTL_MS, ())

    async def take(process: str) -> list[tuple[str, str]]:
        mine: list[tuple[str, str]] = []
        while got := await b.store.acquire(process, [AGENT], 2):
            mine += [(run.id, process) for run in got]
        return mine

    taken = [pair for mine in await asyncio.gather(*map(take, processes)) for pair in mine]
    assert sorted(run for run, _ in taken) == sorted(run.id for run in runs)
    for run_id, process in taken:
        found = await b.store.get(TENANT, run_id)
        assert found is not None
        assert (found.owner, found.token) == (process, 1)
        assert (await types(b, found)).count(event.ATTEMPT_STARTED) == 1


@rule()
async def a_process_without_a_lease_is_given_nothing(b: RecordBench) -> None:
    """Only a process that holds a lease is given a run: another's would be lost from its first moment."""
    run = await queued(b)
    assert await b.store.acquire("p1", [AGENT], 1) == []
    with refused(RunNotFree):
        await b.store.claim(TENANT, run.id, "p1")
    await b.store.beat("p1", TTL_MS, ())
    await b.clock.advance(TTL_MS / 1000)
    assert await b.store.acquire("p1", [AGENT], 1) == []
    await b.store.beat("p1", TTL_MS, ())
    await b.store.leave("p1")
    assert await b.store.acquire("p1", [AGENT], 1) == []
    assert await types(b, run) == [event.RUN_QUEUED]


@rule()
async def one_of_many_claims_wins(b: RecordBench) -> None:
    """Concurrent claims of one run: one has it, all others learn that it is not free."""
    run = await queued(b)
    for i in range(10):
        await b.store.beat(f"p{i}", TTL_MS, ())
    got = await asyncio.gather(*(b.store.claim(TENANT, run.id, f"p{i}") for i in range(10)), return_exceptions=True)
    (won,) = [one for one in got if isinstance(one, Run)]
    assert [type(one) for one in got].count(RunNotFree) == 9
    assert await get(b, run) == won
    assert (won.token, (await types(b, run)).count(event.ATTEMPT_STARTED)) == (1, 1)


@rule()
async def what_cannot_be_claimed_says_why(b: RecordBench) -> None:
    """A claim of no run is NotFound, of an ended one RunFinal, of one that another works on RunNotFree."""
    run = await running(b)
    with refused(NotFound):
        await b.store.claim(TENANT, new_id(b.clock), "p1")
    with refused(RunNotFree):
        await b.store.claim(TENANT, run.id, "p1")
    await b.store.finish(run.id, 1, DONE)
    with refused(RunFinal):
        await b.store.claim(TENANT, run.id, "p1")


@rule()
async def a_beat_keeps_what_is_its_own(b: RecordBench) -> None:
    """A beat renews the lease for its time from now, and a run shows when its owner was last heard."""
    run = await running(b)
    for _ in range(5):
        await b.clock.advance(9)
        beat = await b.store.beat("p1", TTL_MS, [(run.id, 1)])
        assert (beat.lost, dict(beat.cancelled)) == (frozenset(), {})
        assert (await get(b, run)).heartbeat_at == b.clock.wall_ms()
        assert await b.store.expired(10) == []
    await b.clock.advance(9.999)
    assert await b.store.expired(10) == []
    await b.clock.advance(0.002)
    assert [one.id for one in await b.store.expired(10)] == [run.id]


@rule()
async def a_beat_tells_what_is_lost(b: RecordBench) -> None:
    """A held attempt is lost if it is not the latest, not this process's, ended, or of no run."""
    mine = await running(b)
    ended = await running(b)
    await b.store.finish(ended.id, 1, DONE)
    others = await running(b, "p9")
    gone = new_id(b.clock)
    held = [(mine.id, 1), (mine.id, 2), (ended.id, 1), (others.id, 1), (gone, 1)]
    beat = await b.store.beat("p1", TTL_MS, held)
    assert beat.lost == set(held[1:])


@rule()
async def a_beat_tells_what_is_cancelled(b: RecordBench) -> None:
    """A beat names the held runs that were asked to stop, with the reason, until they end."""
    runs = [await running(b) for _ in range(3)]
    held = [(run.id, 1) for run in runs]
    await b.store.request_cancel(TENANT, runs[0].id, "ann", "wrong input")
    await b.store.request_cancel(TENANT, runs[1].id, "ann", None)
    for _ in range(2):
        beat = await b.store.beat("p1", TTL_MS, held)
        assert dict(beat.cancelled) == {runs[0].id: "wrong input", runs[1].id: None}
        assert beat.lost == frozenset()
    await b.store.finish(runs[0].id, 1, DONE)
    beat = await b.store.beat("p1", TTL_MS, held)
    assert beat.lost == {held[0]}
    assert dict(beat.cancelled) == {runs[1].id: None}


@rule()
async def a_late_beat_succeeds(b: RecordBench) -> None:
    """A lease that is over makes runs eligible, no more: a late beat has them back if nobody took them."""
    run = await running(b, policy=resumable())
    await b.clock.advance(60)
    assert [one.id for one in await b.store.expired(10)] == [run.id]
    assert (await b.store.beat("p1", TTL_MS, [(run.id, 1)])).lost == frozenset()
    assert await b.store.expired(10) == []
    assert (await b.store.finish(run.id, 1, DONE)).status is Status.SUCCEEDED


@rule()
async def leaving_ends_the_lease_at_once(b: RecordBench) -> None:
    """After `leave`, what the process still holds is expired, and nothing of another process is; it may come back."""
    run = await running(b)
    others = await running(b, "p9")
    await b.store.leave("p1")
    await b.store.leave("p1")
    await b.store.leave("nobody")
    assert [one.id for one in await b.store.expired(10)] == [run.id]
    assert (await b.store.beat("p1", TTL_MS, [(run.id, 1)])).lost == frozenset()
    assert await b.store.expired(10) == []
    assert (await get(b, others)).owner == "p9"


@rule()
async def leases_ignore_the_time_of_day(b: RecordBench) -> None:
    """A clock set forward or back neither ends a lease nor makes one last."""
    run = await running(b)
    b.clock.step_wall(86_400)
    assert await b.store.expired(10) == []
    b.clock.step_wall(-3 * 86_400)
    await b.store.beat("p1", TTL_MS, [(run.id, 1)])
    await b.clock.advance(TTL_MS / 1000 + 1)
    assert [one.id for one in await b.store.expired(10)] == [run.id]


@rule()
async def only_expired_attempts_are_listed(b: RecordBench) -> None:
    """`expired` names runs whose owner's lease is over, up to its limit; not queued, free or ended ones."""
    await queued(b)
    ended = await running(b)
    await b.store.finish(ended.id, 1, DONE)
    runs = [await running(b) for _ in range(3)]
    await running(b, "p9")
    await b.store.leave("p1")
    assert {one.id for one in await b.store.expired(10)} == {run.id for run in runs}
    assert len(await b.store.expired(2)) == 2


@rule()
async def a_lost_run_that_cannot_resume_is_interrupted(b: RecordBench) -> None:
    """Reaping ends a run that is not resumable as interrupted, once, with the text that was open."""
    run = await running(b)
    await b.store.leave("p1")
    lost = await b.store.lose(run.id, 1, b'[{"text":"half"}]')
    assert lost is not None
    assert (lost.status, lost.owner, lost.partial) == (Status.INTERRUPTED, None, b'[{"text":"half"}]')
    assert lost.failure is not None
    assert lost.failure.code == "worker_lost"
    assert lost.ended_at == b.clock.wall_ms()
    assert await b.store.lose(run.id, 1, None) is None
    assert await get(b, run) == lost
    assert (await types(b, run))[-1] == event.RUN_INTERRUPTED


@rule()
async def a_lost_resumable_run_is_tried_again(b: RecordBench) -> None:
    """Reaping frees a resumable run; after its wait it goes to a new attempt with a higher token."""
    run = await running(b, policy=resumable())
    await b.store.leave("p1")
    lost = await b.store.lose(run.id, 1, None)
    assert lost is not None
    assert (lost.status, lost.owner, lost.crashes, lost.token) == (Status.RUNNING, None, 1, 1)
    assert await b.store.expired(10) == []
    await b.store.beat("p2", TTL_MS, ())
    assert await b.store.acquire("p2", [AGENT], 10) == []
    with refused(RunNotFree):
        await b.store.claim(TENANT, run.id, "p2")
    await b.clock.advance(5)
    (again,) = await b.store.acquire("p2", [AGENT], 10)
    assert (again.id, again.token, again.owner, again.started_at) == (run.id, 2, "p2", run.started_at)
    assert (await types(b, run))[-2:] == [event.ATTEMPT_STARTED, event.ATTEMPT_STARTED]


@rule()
async def attempts_run_out(b: RecordBench) -> None:
    """A run that loses each of its attempts ends as failed when they are used up."""
    run = await running(b, policy=resumable(3))
    for token in (1, 2, 3):
        await b.store.leave("p1")
        lost = await b.store.lose(run.id, token, None)
        assert lost is not None
        await b.clock.advance(60)
        await b.store.beat("p1", TTL_MS, ())
        assert len(await b.store.acquire("p1", [AGENT], 10)) == (1 if token < 3 else 0)
    found = await get(b, run)
    assert found.status is Status.FAILED
    assert found.failure is not None
    assert found.failure.code == "attempts_exhausted"
    assert (await types(b, run)).count(event.RUN_FAILED) == 1


@rule()
async def a_lost_run_that_was_cancelled_is_cancelled(b: RecordBench) -> None:
    """Whoever was asked to stop and then vanished leaves a cancelled run."""
    for policy in (Policy(), resumable()):
        run = await running(b, policy=policy)
        await b.store.request_cancel(TENANT, run.id, "ann", None)
        await b.store.leave("p1")
        lost = await b.store.lose(run.id, 1, None)
        assert lost is not None
        assert (lost.status, (await types(b, run))[-1]) == (Status.CANCELLED, event.RUN_CANCELLED)


@rule()
async def nothing_is_lost_that_was_renewed(b: RecordBench) -> None:
    """An owner that renews between the listing and the reaping keeps its run; a wrong token or run loses nothing."""
    run = await running(b)
    await b.clock.advance(60)
    assert [one.id for one in await b.store.expired(10)] == [run.id]
    for run_id, token in ((run.id, 0), (run.id, 2), (new_id(b.clock), 1)):
        assert await b.store.lose(run_id, token, None) is None
    await b.store.beat("p1", TTL_MS, [(run.id, 1)])
    assert await b.store.lose(run.id, 1, None) is None
    found = await get(b, run)
    assert (found.status, found.owner, found.rev) == (Status.RUNNING, "p1", run.rev)


@rule()
async def beat_and_reaper_agree(b: RecordBench) -> None:
    """When a late beat and a reaper race, either the run is lost and the beat says so, or it is kept."""
    for _ in range(20):
        run = await running(b)
        await b.clock.advance(60)
        lost, beat = await asyncio.gather(b.store.lose(run.id, 1, None), b.store.beat("p1", TTL_MS, [(run.id, 1)]))
        found = await get(b, run)
        assert found.status.final == (lost is not None)
        later = await b.store.beat("p1", TTL_MS, [(run.id, 1)])
        assert bool(later.lost) == (lost is not None)
        assert later.lost >= beat.lost
        if lost is None:
            await b.store.finish(run.id, 1, DONE)


@rule()
async def many_reapers_reap_once(b: RecordBench) -> None:
    """Concurrent reaping of one attempt counts one crash and writes one end."""
    run = await running(b)
    again = await running(b, policy=resumable())
    await b.store.leave("p1")
    for one in (run, again):
        got = await asyncio.gather(*(b.store.lose(one.id, 1, None) for _ in range(10)))
        assert len([lost for lost in got if lost is not None]) == 1
    assert (await types(b, run)).count(event.RUN_INTERRUPTED) == 1
    assert (await get(b, again)).crashes == 1


@rule()
async def a_superseded_attempt_writes_nothing(b: RecordBench) -> None:
    """Every write with a token that is not the latest is refused, and changes nothing."""
    run = await taken_over(b)
    assert run.token == 2
    before = await get(b, run)
    for token in (0, 1, 3):
        with refused(AttemptLost):
            await b.store.finish(run.id, token, DONE)
        with refused(AttemptLost):
            await b.store.ask(run.id, token, question(), new_id(b.clock), b'{"title":"stale"}')
        with refused(AttemptLost):
            await b.store.note(TENANT, run.id, token, "tool_called", "agent", b"{}")
        assert await b.store.lose(run.id, token, None) is None
        assert (await b.store.beat("p1", TTL_MS, [(run.id, token)])).lost == {(run.id, token)}
    assert (await b.store.beat("p1", TTL_MS, [(run.id, 2)])).lost == {(run.id, 2)}
    assert await get(b, run) == before
    assert await b.store.interrupts(TENANT, run.id) == []
    assert [one for one in await b.store.audit(TENANT, run.id) if one.kind == "tool_called"] == []
    await b.store.note(TENANT, run.id, 2, "tool_called", "agent", b"{}")
    assert (await b.store.finish(run.id, 2, DONE)).status is Status.SUCCEEDED
    with refused(AttemptLost):
        await b.store.finish(run.id, 1, DONE)


@rule()
async def a_reaped_attempt_writes_nothing(b: RecordBench) -> None:
    """An attempt that was reaped is refused also while nobody has taken its run yet."""
    run = await running(b, policy=resumable())
    await b.store.leave("p1")
    await b.store.lose(run.id, 1, None)
    before = await get(b, run)
    with refused(AttemptLost):
        await b.store.finish(run.id, 1, DONE)
    with refused(AttemptLost):
        await asked(b, run)
    assert (await b.store.beat("p1", TTL_MS, [(run.id, 1)])).lost == {(run.id, 1)}
    assert await get(b, run) == before


@rule()
async def tokens_only_grow(b: RecordBench) -> None:
    """Each attempt of a run has the next token, whatever ended the one before it."""
    run = await running(b, policy=resumable(100))
    release = Outcome(Status.INTERRUPTED, failure=Failure("released", ""), released=True)
    for token in range(1, 8):
        if token % 2:
            await b.store.leave("p1")
            assert await b.store.lose(run.id, token, None) is not None
        else:
            await b.store.finish(run.id, token, release)
        await b.clock.advance(60)
        await b.store.beat("p1", TTL_MS, ())
        (again,) = await b.store.acquire("p1", [AGENT], 1)
        assert again.token == token + 1
    found = await get(b, run)
    assert (found.token, found.crashes) == (8, 4)
