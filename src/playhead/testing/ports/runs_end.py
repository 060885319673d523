"""The record: how runs end, and that they end once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from playhead.core import event, lifecycle
from playhead.core.ids import run_feed
from playhead.core.run import Failure, Outcome, Run, Status
from playhead.errors import AttemptLost, NotFound, PlayheadError, RunFinal
from playhead.testing.check import RecordBench, Rules, refused
from playhead.testing.ports.given import (
    AGENT,
    DONE,
    FAILED,
    NO,
    STRANGE,
    TENANT,
    TTL_MS,
    YES,
    Act,
    asked,
    facts,
    get,
    in_some_order,
    new_id,
    question,
    queued,
    resumable,
    running,
    types,
)

rule: Rules[RecordBench] = Rules()


def _final_types(names: list[str]) -> list[str]:
    return [name for name in names if name in event.FINAL_TYPES.values()]


@rule()
async def a_result_is_stored_with_its_end(b: RecordBench) -> None:
    """`finish` stores status, result, state and the one final fact in one act."""
    run = await running(b)
    await b.clock.advance(2)
    ended = await b.store.finish(run.id, 1, replace(DONE, state=b'{"title":"done"}'))
    assert (ended.status, ended.result, ended.state) == (Status.SUCCEEDED, DONE.result, b'{"title":"done"}')
    assert (ended.ended_at, ended.owner, ended.heartbeat_at) == (b.clock.wall_ms(), None, None)
    assert (ended.failure, ended.partial) == (None, None)
    assert await get(b, run) == ended
    last = (await facts(b, run))[-1]
    assert (last.event.type, last.status, last.token, last.state) == (
        event.RUN_SUCCEEDED,
        Status.SUCCEEDED,
        1,
        b'{"title":"done"}',
    )
    assert last.started_at == run.started_at
    assert await b.store.expired(10) == []


@rule()
async def every_end_has_its_status_and_event(b: RecordBench) -> None:
    """Status and final event agree for each way to end; what failed keeps its reason and the open text."""
    for status, name in event.FINAL_TYPES.items():
        run = await running(b)
        if status is Status.CANCELLED:
            await b.store.request_cancel(TENANT, run.id, "ann", None)
        failure = Failure("code", "words")
        ended = await b.store.finish(run.id, 1, Outcome(status, b"1", failure, partial=b'["half"]'))
        assert (ended.status, _final_types(await types(b, run))) == (status, [name])
        told = status in (Status.FAILED, Status.INTERRUPTED)
        assert ended.failure == (failure if told else None)
        assert ended.partial == (None if status is Status.SUCCEEDED else b'["half"]')
        assert ended.result == (b"1" if status is Status.SUCCEEDED else None)


@rule()
async def an_end_can_be_told_again(b: RecordBench) -> None:
    """The same end told again changes nothing and gives the run; another end is refused with RunFinal."""
    run = await running(b)
    ended = await b.store.finish(run.id, 1, DONE)
    for outcome in (DONE, replace(DONE, result=b'"other"')):
        assert await b.store.finish(run.id, 1, outcome) == ended
    with refused(RunFinal):
        await b.store.finish(run.id, 1, FAILED)
    assert await get(b, run) == ended
    assert _final_types(await types(b, run)) == [event.RUN_SUCCEEDED]


@rule()
async def nothing_moves_an_ended_run(b: RecordBench) -> None:
    """A final status absorbs: no call of any kind changes the run, its facts or its answers afterwards."""
    for status in event.FINAL_TYPES:
        run = await running(b, policy=resumable())
        one = await asked(b, run)
        if status is Status.CANCELLED:
            await b.store.request_cancel(TENANT, run.id, "ann", None)
        await b.store.finish(run.id, 1, Outcome(status, failure=Failure("code", "words")))
        before, told = await get(b, run), await facts(b, run)
        calls: tuple[Act, ...] = (
            partial(b.store.finish, run.id, 1, replace(FAILED, state=b'{"title":"late"}')),
            partial(b.store.finish, run.id, 1, replace(DONE, state=b'{"title":"late"}')),
            partial(b.store.finish, run.id, 2, DONE),
            partial(b.store.request_cancel, TENANT, run.id, "bob", "late"),
            partial(b.store.lose, run.id, 1, b'"late"'),
            partial(asked, b, run, "late"),
            partial(b.store.decide, TENANT, run.id, one.id, YES, "bob"),
            partial(b.store.claim, TENANT, run.id, "p1"),
            partial(b.store.acquire, "p1", [AGENT], 10),
            partial(b.store.beat, "p1", TTL_MS, [(run.id, 1)]),
            partial(b.store.leave, "p1"),
            partial(b.store.lapse, 10),
            partial(b.store.mint_epoch, run_feed(run.id), before.epoch),
        )
        for call in calls:
            try:
                await call()
            except PlayheadError:
                pass
            assert await get(b, run) == before
        assert await facts(b, run) == told
        assert await b.store.interrupts(TENANT, run.id) == []


@rule()
async def a_queued_run_is_cancelled_at_once(b: RecordBench) -> None:
    """A run that nobody works on ends with its cancel request, is never started, and cancelling again is the same."""
    run = await queued(b)
    ended = await b.store.request_cancel(TENANT, run.id, "ann", "changed my mind")
    assert (ended.status, ended.cancel_by, ended.cancel_reason) == (Status.CANCELLED, "ann", "changed my mind")
    assert (ended.cancel_requested_at, ended.ended_at) == (b.clock.wall_ms(), b.clock.wall_ms())
    await b.clock.advance(1)
    assert await b.store.request_cancel(TENANT, run.id, "bob", "me too") == ended
    await b.store.beat("p1", TTL_MS, ())
    assert await b.store.acquire("p1", [AGENT], 10) == []
    assert await types(b, run) == [event.RUN_QUEUED, event.RUN_CANCELLED]


@rule()
async def a_running_run_is_asked_to_stop(b: RecordBench) -> None:
    """The wish to stop is recorded once, with who and why; the run goes on until its attempt ends it."""
    run = await running(b)
    wished = await b.store.request_cancel(TENANT, run.id, "ann", "enough")
    assert (wished.status, wished.owner, wished.cancel_by, wished.cancel_reason) == (
        Status.RUNNING,
        "p1",
        "ann",
        "enough",
    )
    assert await b.store.request_cancel(TENANT, run.id, "bob", None) == wished
    assert (await types(b, run))[-1] == event.CANCEL_REQUESTED
    assert (await types(b, run)).count(event.CANCEL_REQUESTED) == 1
    with refused(NotFound):
        await b.store.request_cancel(TENANT, new_id(b.clock), "ann", None)


@rule()
async def a_cancel_before_wins(b: RecordBench) -> None:
    """A cancel committed before the end makes the end a cancel, whatever the attempt reports; no result is kept."""
    for outcome in (DONE, FAILED, Outcome(Status.INTERRUPTED, failure=Failure("x", "y"))):
        run = await running(b)
        await b.store.request_cancel(TENANT, run.id, "ann", None)
        ended = await b.store.finish(run.id, 1, replace(outcome, partial=b'["half"]'))
        assert (ended.status, ended.result, ended.failure) == (Status.CANCELLED, None, None)
        assert ended.partial == b'["half"]'
        assert await b.store.finish(run.id, 1, outcome) == ended
        assert _final_types(await types(b, run)) == [event.RUN_CANCELLED]


@rule()
async def a_cancel_after_is_too_late(b: RecordBench) -> None:
    """A cancel after the end changes nothing and answers with the run as it ended."""
    run = await running(b)
    ended = await b.store.finish(run.id, 1, DONE)
    assert await b.store.request_cancel(TENANT, run.id, "ann", None) == ended
    assert ended.cancel_requested_at is None
    assert (await types(b, run))[-1] == event.RUN_SUCCEEDED


@rule()
async def cancel_and_end_agree_in_every_order(b: RecordBench) -> None:
    """However cancel, end and reaping race, there is one final event, and the status is its kind."""
    for turn in range(60):
        run = await running(b)
        calls: list[Act] = [
            partial(b.store.request_cancel, TENANT, run.id, "ann", None),
            partial(b.store.finish, run.id, 1, DONE),
            partial(b.store.request_cancel, TENANT, run.id, "bob", None),
        ]
        if turn % 3 == 0:
            await b.store.leave("p1")
            calls.append(partial(b.store.lose, run.id, 1, None))
        await in_some_order(b.clock, *calls)
        found = await get(b, run)
        assert _final_types(await types(b, run)) == [event.FINAL_TYPES[found.status]]
        if found.status is Status.CANCELLED:
            assert found.result is None
            assert found.cancel_requested_at is not None


@rule()
async def many_ends_make_one(b: RecordBench) -> None:
    """Concurrent different ends: one counts, the others are refused, and the final event is the winner's."""
    run = await running(b)
    got = await asyncio.gather(
        *(b.store.finish(run.id, 1, outcome) for outcome in [DONE, FAILED] * 5), return_exceptions=True
    )
    assert {type(one) for one in got} == {Run, RunFinal}
    found = await get(b, run)
    assert _final_types(await types(b, run)) == [event.FINAL_TYPES[found.status]]


@rule()
async def a_free_run_is_cancelled_at_once(b: RecordBench) -> None:
    """A run between two attempts has nobody to stop, so its cancel ends it, and no attempt follows."""
    run = await running(b, policy=resumable())
    one = await asked(b, run)
    await b.store.leave("p1")
    await b.store.lose(run.id, 1, None)
    ended = await b.store.request_cancel(TENANT, run.id, "ann", None)
    assert ended.status is Status.CANCELLED
    await b.clock.advance(60)
    await b.store.beat("p1", TTL_MS, ())
    assert await b.store.acquire("p1", [AGENT], 10) == []
    assert (await types(b, run))[-2:] == [event.APPROVAL_CANCELLED, event.RUN_CANCELLED]
    (closed,) = await b.store.interrupts(TENANT, run.id, open_only=False)
    assert (closed.id, closed.status.value) == (one.id, "cancelled")


@rule()
async def an_end_closes_open_questions_first(b: RecordBench) -> None:
    """Questions that are open at the end close before the final fact, which is the last."""
    run = await running(b)
    await asked(b, run, "one")
    await asked(b, run, "two")
    await b.store.finish(run.id, 1, FAILED)
    told = await facts(b, run)
    assert [fact.event.type for fact in told[-3:]] == [
        event.APPROVAL_CANCELLED,
        event.APPROVAL_CANCELLED,
        event.RUN_FAILED,
    ]
    assert [fact.final for fact in told[-3:]] == [False, False, True]


@rule()
async def a_released_run_is_free_with_its_state(b: RecordBench) -> None:
    """A resumable run given back keeps its state, costs no crash, and is free for the next attempt at once."""
    run = await running(b, policy=resumable())
    released = Outcome(Status.INTERRUPTED, state=b'{"title":"here"}', released=True)
    free = await b.store.finish(run.id, 1, released)
    assert (free.status.final, free.owner, free.crashes, free.state) == (False, None, 0, b'{"title":"here"}')
    assert await b.store.expired(10) == []
    with refused(AttemptLost):
        await asked(b, run)
    (again,) = await b.store.acquire("p1", [AGENT], 10)
    assert (again.id, again.token, again.state) == (run.id, 2, b'{"title":"here"}')


@rule()
async def an_end_brings_along_what_the_live_store_did_not_take(b: RecordBench) -> None:
    """Events that an attempt reports with its end come back with the next fact, byte for byte, and with no other."""
    for released in (False, True):
        run = await running(b, policy=resumable())
        await asked(b, run)
        last = tuple(event.published(run.id, 1, n, "step_done", {"t": STRANGE}, n) for n in (7, 8))
        outcome = Outcome(Status.INTERRUPTED, lacking=last, released=released)
        for _ in range(2):
            try:
                await b.store.finish(run.id, 1, outcome)
            except AttemptLost:
                assert released  # it was given back before
        if released:
            assert all(not fact.lacking for fact in await facts(b, run))
            await b.store.acquire("p1", [AGENT], 10)
        later = [(fact.event.type, fact.lacking) for fact in await facts(b, run, run.rev + 1)]
        first = event.ATTEMPT_STARTED if released else event.APPROVAL_CANCELLED
        assert later[0] == (first, last)
        assert [lacking for _, lacking in later[1:]] == [()] * (len(later) - 1)
        assert (await get(b, run)).lacking == ()


@rule()
async def the_newest_events_of_an_attempt_are_known_by_number(b: RecordBench) -> None:
    """The fact behind an attempt's events says how many there were: as many as it told with its end, or, when it was
    lost, with its last question. Where nothing was told nothing is said."""
    run = await running(b, policy=resumable())
    await b.store.finish(run.id, 1, Outcome(Status.INTERRUPTED, released=True, published=2**53 - 1))
    assert (await get(b, run)).published == 2**53 - 1
    await b.store.acquire("p1", [AGENT], 10)
    assert (await get(b, run)).published == 0
    for key, count in (("one", 4), ("two", 5), ("one", 3)):
        await b.store.ask(run.id, 2, question(key), new_id(b.clock), None, count)
    assert (await get(b, run)).published == 5
    await b.store.leave("p1")
    await b.store.lose(run.id, 2, None)
    for token in (3, 4):  # the third says nothing at all
        await b.clock.advance(600)
        await b.store.beat("p1", TTL_MS, ())
        assert (await b.store.claim(TENANT, run.id, "p1")).token == token
        if token == 3:
            await b.store.finish(run.id, 3, Outcome(Status.INTERRUPTED, released=True))
    ended = await b.store.finish(run.id, 4, replace(DONE, published=6))
    assert (await get(b, run)).published == ended.published == 6
    said = [(fact.event.type, event.published_before(fact.event)) for fact in await facts(b, run)]
    started = [told for name, told in said if name == event.ATTEMPT_STARTED]
    assert started == [None, (1, 2**53 - 1), (2, 5), None]
    assert said[-1] == (event.RUN_SUCCEEDED, (4, 6))
    assert lifecycle.final_fact(ended, run_feed(run.id)).event == (await facts(b, run))[-1].event


@rule()
async def a_cancelled_run_is_not_given_back(b: RecordBench) -> None:
    """An attempt that gives back a run which was asked to stop ends it as cancelled."""
    run = await running(b, policy=resumable())
    await b.store.request_cancel(TENANT, run.id, "ann", None)
    ended = await b.store.finish(run.id, 1, Outcome(Status.INTERRUPTED, released=True))
    assert (ended.status, (await types(b, run))[-1]) == (Status.CANCELLED, event.RUN_CANCELLED)


@rule()
async def decision_and_end_agree_in_every_order(b: RecordBench) -> None:
    """However decisions, cancel and end race, facts stay contiguous and nothing follows the final one."""
    for _ in range(30):
        run = await running(b)
        one = await asked(b, run)
        await in_some_order(
            b.clock,
            partial(b.store.decide, TENANT, run.id, one.id, YES, "ann"),
            partial(b.store.decide, TENANT, run.id, one.id, NO, "bob"),
            partial(b.store.request_cancel, TENANT, run.id, "ann", None),
            partial(b.store.finish, run.id, 1, DONE),
        )
        names = await types(b, run)
        assert len(_final_types(names)) == 1
        assert names.count(event.APPROVAL_DECIDED) + names.count(event.APPROVAL_CANCELLED) == 1
