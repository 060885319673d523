"""The record: questions to people, and the one answer that counts."""

from __future__ import annotations

import asyncio
from functools import partial

import orjson

from playhead.core import event
from playhead.core.ids import EVERY_TENANT
from playhead.core.interrupt import Interrupt, InterruptStatus, digest
from playhead.core.run import Status
from playhead.errors import (
    AlreadyDecided,
    ApprovalCancelled,
    ApprovalExpired,
    AttemptLost,
    NotFound,
    RunFinal,
    RunInterrupted,
)
from playhead.testing.check import RecordBench, Rules, refused
from playhead.testing.ports.given import (
    DONE,
    FAILED,
    HOSTILE,
    NO,
    TENANT,
    TTL_MS,
    YES,
    asked,
    facts,
    get,
    in_some_order,
    new_id,
    question,
    resumable,
    running,
    taken_over,
    types,
)

rule: Rules[RecordBench] = Rules()


@rule()
async def a_question_is_found_by_its_id(b: RecordBench) -> None:
    """Open or closed, however many others there are; another tenant's and one that is not there are the same."""
    run = await running(b)
    many = [await asked(b, run, f"k{number}") for number in range(205)]
    decided = await b.store.decide(TENANT, run.id, many[-1].id, YES, "ann")
    for tenant in (TENANT, EVERY_TENANT):
        assert await b.store.interrupt(tenant, many[0].id) == many[0]
        assert await b.store.interrupt(tenant, many[-1].id) == decided
    assert await b.store.interrupt("other", many[0].id) is None
    for text in HOSTILE:
        assert await b.store.interrupt(EVERY_TENANT, text) is None


@rule()
async def asking_makes_a_run_wait(b: RecordBench) -> None:
    """A question is stored open, the run waits, its state is kept, and one fact says so."""
    run = await running(b)
    deadline = b.clock.wall_ms() + 60_000
    wanted = question(within=60_000)
    one = await b.store.ask(run.id, 1, wanted, "0190163d-8694-739b-aea5-966c26f8ad90", b'{"title":"asking"}')
    assert one == Interrupt(
        "0190163d-8694-739b-aea5-966c26f8ad90",
        run.id,
        TENANT,
        "ship",
        "approval",
        wanted.payload,
        digest("approval", wanted.payload),
        1,
        b.clock.wall_ms(),
        deadline,
    )
    found = await get(b, run)
    assert (found.status, found.owner, found.state) == (Status.WAITING, "p1", b'{"title":"asking"}')
    last = (await facts(b, run))[-1]
    assert (last.event.type, last.status, last.state) == (
        event.APPROVAL_REQUIRED,
        Status.WAITING,
        b'{"title":"asking"}',
    )
    assert orjson.loads(last.event.body)["payload"]["interrupt_id"] == one.id
    assert await b.store.interrupts(TENANT) == [one]


@rule()
async def asking_can_be_repeated(b: RecordBench) -> None:
    """The same question asked again by the same attempt is the same question, and one event tells of it."""
    run = await running(b)
    one = await asked(b, run)
    assert await asked(b, run) == one
    assert await b.store.interrupts(TENANT, run.id) == [one]
    assert (await types(b, run)).count(event.APPROVAL_REQUIRED) == 1


@rule()
async def a_later_attempt_finds_the_question(b: RecordBench) -> None:
    """A new attempt that asks the same finds the open question, which is still answered under its id."""
    run = await running(b, policy=resumable())
    one = await asked(b, run)
    await b.store.leave("p1")
    await b.store.lose(run.id, 1, None)
    assert await b.store.interrupts(TENANT, run.id) == [one]
    await b.clock.advance(60)
    await b.store.beat("p2", TTL_MS, ())
    again = await b.store.claim(TENANT, run.id, "p2")
    found = await asked(b, again)
    assert (found.id, found.token, found.open) == (one.id, 2, True)
    assert (await get(b, run)).status is Status.WAITING
    assert (await types(b, run))[-1] == event.APPROVAL_REQUIRED
    await b.store.decide(TENANT, run.id, one.id, YES, "ann")
    assert (await asked(b, again)).decision == YES


@rule()
async def a_later_attempt_finds_the_answer(b: RecordBench) -> None:
    """A new attempt that asks what was answered gets that answer and does not wait; it writes no event."""
    run = await running(b, policy=resumable())
    one = await asked(b, run)
    await b.store.leave("p1")
    await b.store.lose(run.id, 1, None)
    await b.store.decide(TENANT, run.id, one.id, YES, "ann")
    await b.clock.advance(60)
    await b.store.beat("p2", TTL_MS, ())
    again = await b.store.claim(TENANT, run.id, "p2")
    before = await types(b, run)
    found = await asked(b, again)
    assert (found.id, found.decision, found.decided_by) == (one.id, YES, "ann")
    assert (await get(b, run)).status is Status.RUNNING
    assert await types(b, run) == before


@rule()
async def another_content_is_another_question(b: RecordBench) -> None:
    """An answer counts for the content that was shown: the same key with other content is asked anew."""
    run = await running(b)
    one = await asked(b, run, payload=b'{"amount":10}')
    await b.store.decide(TENANT, run.id, one.id, YES, "ann")
    two = await asked(b, run, payload=b'{"amount":1000}')
    assert two.id != one.id
    assert two.open
    assert await b.store.interrupts(TENANT, run.id) == [two]


@rule()
async def a_second_question_is_shown(b: RecordBench) -> None:
    """After one answer the next question is open, told by its own event, and it alone."""
    run = await running(b)
    one = await asked(b, run, "one")
    await b.store.decide(TENANT, run.id, one.id, YES, "ann")
    two = await asked(b, run, "two")
    assert await b.store.interrupts(TENANT, run.id) == [two]
    last = (await facts(b, run))[-1]
    assert last.event.type == event.APPROVAL_REQUIRED
    assert orjson.loads(last.event.body)["payload"]["interrupt_id"] == two.id


@rule()
async def only_the_owner_asks(b: RecordBench) -> None:
    """A superseded attempt cannot ask, and a run that ended cannot be asked about."""
    run = await taken_over(b)
    with refused(AttemptLost):
        await b.store.ask(run.id, 1, question(), new_id(b.clock), None)
    await b.store.finish(run.id, 2, DONE)
    with refused(RunFinal):
        await asked(b, run)
    assert await b.store.interrupts(TENANT, run.id, open_only=False) == []


@rule()
async def a_decision_lets_the_run_go_on(b: RecordBench) -> None:
    """The first decision is recorded with who and when, the run goes on, and one fact says so."""
    run = await running(b)
    one = await asked(b, run)
    await b.clock.advance(3)
    decided = await b.store.decide(TENANT, run.id, one.id, YES, "ann")
    assert (decided.status, decided.decision, decided.decided_by, decided.closed_at) == (
        InterruptStatus.DECIDED,
        YES,
        "ann",
        b.clock.wall_ms(),
    )
    assert (await get(b, run)).status is Status.RUNNING
    assert (await types(b, run))[-1] == event.APPROVAL_DECIDED
    assert await b.store.interrupts(TENANT, run.id) == []
    assert await b.store.interrupts(TENANT, run.id, open_only=False) == [decided]


@rule()
async def the_same_decision_again_is_the_same_answer(b: RecordBench) -> None:
    """A repeated decision gives the recorded one; another learns what was recorded, by whom and when."""
    run = await running(b)
    one = await asked(b, run)
    decided = await b.store.decide(TENANT, run.id, one.id, YES, "ann")
    await b.clock.advance(5)
    assert await b.store.decide(TENANT, run.id, one.id, YES, "bob") == decided
    with refused(AlreadyDecided) as caught:
        await b.store.decide(TENANT, run.id, one.id, NO, "ann")
    assert caught.error.details["decision"] == {"approved": True, "note": None}
    assert caught.error.details["decided_by"] == "ann"
    await b.store.finish(run.id, 1, DONE)
    assert await b.store.decide(TENANT, run.id, one.id, YES, "ann") == decided
    with refused(AlreadyDecided):
        await b.store.decide(TENANT, run.id, one.id, NO, "ann")
    assert (await types(b, run)).count(event.APPROVAL_DECIDED) == 1


@rule()
async def ten_clicks_are_one_decision(b: RecordBench) -> None:
    """Concurrent equal decisions all get the same answer, and one event is written."""
    run = await running(b)
    one = await asked(b, run)
    got = await asyncio.gather(*(b.store.decide(TENANT, run.id, one.id, YES, f"u{i}") for i in range(10)))
    assert len(set(got)) == 1
    assert (await types(b, run)).count(event.APPROVAL_DECIDED) == 1
    with refused(AlreadyDecided):
        await b.store.decide(TENANT, run.id, one.id, NO, "ann")


@rule()
async def of_two_opinions_the_first_counts(b: RecordBench) -> None:
    """Concurrent different decisions: one is recorded, and the others learn which."""
    run = await running(b)
    one = await asked(b, run)
    got = await asyncio.gather(
        *(b.store.decide(TENANT, run.id, one.id, (YES, NO)[i % 2], f"u{i}") for i in range(10)),
        return_exceptions=True,
    )
    (recorded,) = await b.store.interrupts(TENANT, run.id, open_only=False)
    assert [type(answer) for answer in got].count(AlreadyDecided) == 5
    assert {answer for answer in got if isinstance(answer, Interrupt)} == {recorded}
    assert (await types(b, run)).count(event.APPROVAL_DECIDED) == 1


@rule()
async def two_open_questions_are_answered_one_by_one(b: RecordBench) -> None:
    """The run waits until the last of its open questions is answered; each answer reaches its own question."""
    for first in (0, 1):
        run = await running(b)
        pair = [await asked(b, run, "one"), await asked(b, run, "two")]
        assert len({one.id for one in pair}) == 2
        await b.store.decide(TENANT, run.id, pair[first].id, YES, "ann")
        assert (await get(b, run)).status is Status.WAITING
        assert await b.store.interrupts(TENANT, run.id) == [pair[1 - first]]
        await b.store.decide(TENANT, run.id, pair[1 - first].id, NO, "ann")
        assert (await get(b, run)).status is Status.RUNNING
        answers = {one.id: one.decision for one in await b.store.interrupts(TENANT, run.id, open_only=False)}
        assert answers == {pair[first].id: YES, pair[1 - first].id: NO}


@rule()
async def a_decision_finds_its_own_question_only(b: RecordBench) -> None:
    """A question is found under its run, tenant and id, all three."""
    run, other = await running(b), await running(b)
    one = await asked(b, run)
    for tenant, run_id, interrupt_id in (
        (TENANT, other.id, one.id),
        (TENANT, run.id, new_id(b.clock)),
        (TENANT, new_id(b.clock), one.id),
        ("other", run.id, one.id),
    ):
        with refused(NotFound):
            await b.store.decide(tenant, run_id, interrupt_id, YES, "ann")
    assert await b.store.interrupts(TENANT) == [one]


@rule()
async def after_the_deadline_no_answer_counts(b: RecordBench) -> None:
    """From the deadline on an answer is refused, also before anybody noted that it passed; one event tells of it."""
    run = await running(b)
    one = await asked(b, run, within=5_000)
    other = await asked(b, run, "other", within=60_000)
    await b.clock.advance(4.999)
    assert await b.store.lapse(10) == []
    await b.clock.advance(0.001)
    with refused(ApprovalExpired):
        await b.store.decide(TENANT, run.id, one.id, YES, "ann")
    assert await b.store.lapse(10) == [run.id]
    assert await b.store.lapse(10) == []
    with refused(ApprovalExpired):
        await b.store.decide(TENANT, run.id, one.id, YES, "ann")
    assert await b.store.interrupts(TENANT, run.id) == [other]
    assert (await get(b, run)).status is Status.WAITING
    await b.store.decide(TENANT, run.id, other.id, YES, "ann")
    found = await get(b, run)
    assert (found.status, found.owner) == (Status.RUNNING, "p1")
    names = await types(b, run)
    assert (names.count(event.APPROVAL_EXPIRED), names.count(event.APPROVAL_DECIDED)) == (1, 1)
    again = await asked(b, run)
    assert again.id != one.id
    assert again.open


@rule()
async def an_answer_in_time_does_not_lapse(b: RecordBench) -> None:
    """What was answered before its deadline is not closed by it later."""
    run = await running(b)
    one = await asked(b, run, within=5_000)
    decided = await b.store.decide(TENANT, run.id, one.id, YES, "ann")
    await b.clock.advance(60)
    assert await b.store.lapse(10) == []
    assert await b.store.decide(TENANT, run.id, one.id, YES, "ann") == decided
    assert event.APPROVAL_EXPIRED not in await types(b, run)


@rule()
async def lapsing_goes_on_after_its_limit(b: RecordBench) -> None:
    """`lapse` closes a bounded number at a time, all of them in the end, each once."""
    runs = [await running(b) for _ in range(5)]
    for run in runs:
        await asked(b, run, within=1_000)
    await b.clock.advance(2)
    seen: list[str] = []
    while some := await b.store.lapse(2):
        assert len(some) <= 2
        seen += some
    assert sorted(seen) == sorted(run.id for run in runs)
    for run in runs:
        assert (await types(b, run)).count(event.APPROVAL_EXPIRED) == 1


@rule()
async def after_a_cancel_no_answer_counts(b: RecordBench) -> None:
    """A cancel closes what is open, and an answer is refused from then on, also to a question asked too late."""
    run = await running(b)
    one = await asked(b, run)
    await b.store.request_cancel(TENANT, run.id, "ann", None)
    assert await b.store.interrupts(TENANT, run.id) == []
    assert (await get(b, run)).status is Status.RUNNING
    assert (await types(b, run))[-2:] == [event.APPROVAL_CANCELLED, event.CANCEL_REQUESTED]
    with refused(ApprovalCancelled):
        await b.store.decide(TENANT, run.id, one.id, YES, "ann")
    late = await asked(b, run, "late")
    with refused(ApprovalCancelled):
        await b.store.decide(TENANT, run.id, late.id, YES, "ann")
    await b.store.finish(run.id, 1, DONE)
    with refused(ApprovalCancelled):
        await b.store.decide(TENANT, run.id, one.id, YES, "ann")
    assert event.APPROVAL_DECIDED not in await types(b, run)


@rule()
async def after_the_end_no_answer_counts(b: RecordBench) -> None:
    """An answer to a run that ended is refused with the reason: cancelled, or interrupted."""
    run = await running(b)
    one = await asked(b, run)
    await b.store.finish(run.id, 1, FAILED)
    with refused(ApprovalCancelled):
        await b.store.decide(TENANT, run.id, one.id, YES, "ann")
    run = await running(b)
    one = await asked(b, run)
    await b.store.leave("p1")
    await b.store.lose(run.id, 1, None)
    with refused(RunInterrupted):
        await b.store.decide(TENANT, run.id, one.id, YES, "ann")


@rule()
async def deadline_decision_and_cancel_agree_in_every_order(b: RecordBench) -> None:
    """Of deadline, decision and cancel, in whatever order, the first closes the question and the others find that."""
    closing = {
        event.APPROVAL_EXPIRED: InterruptStatus.EXPIRED,
        event.APPROVAL_DECIDED: InterruptStatus.DECIDED,
        event.APPROVAL_CANCELLED: InterruptStatus.CANCELLED,
    }
    for turn in range(30):
        run = await running(b)
        one = await asked(b, run, within=1_000)
        if turn % 2:
            await b.clock.advance(1)
        await in_some_order(
            b.clock,
            partial(b.store.decide, TENANT, run.id, one.id, YES, "ann"),
            partial(b.store.lapse, 10),
            partial(b.store.request_cancel, TENANT, run.id, "ann", None),
        )
        (closed,) = await b.store.interrupts(TENANT, run.id, open_only=False)
        (name,) = [name for name in await types(b, run) if name in closing]
        assert closing[name] is closed.status
        assert turn % 2 == 0 or name != event.APPROVAL_DECIDED


@rule()
async def questions_are_listed_oldest_first(b: RecordBench) -> None:
    """Everything that waits for a tenant, or for one run, oldest first, up to a limit; closed ones on request."""
    run, other = await running(b), await running(b)
    made = [await asked(b, one, key) for one, key in ((run, "one"), (other, "two"), (run, "three"))]
    assert await b.store.interrupts(TENANT) == made
    assert await b.store.interrupts(TENANT, run.id) == [made[0], made[2]]
    assert await b.store.interrupts(TENANT, limit=2) == made[:2]
    decided = await b.store.decide(TENANT, run.id, made[0].id, YES, "ann")
    assert await b.store.interrupts(TENANT) == made[1:]
    assert await b.store.interrupts(TENANT, run.id, open_only=False) == [decided, made[2]]
