"""The run's life, over any order of calls, against what must hold after each of them."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.core import event, lease, lifecycle, repair
from playhead.core.ids import iso, run_feed
from playhead.core.interrupt import InterruptStatus
from playhead.core.run import Attempt, Failure, NewRun, Policy, Status
from playhead.errors import AttemptLost, PlayheadError, RunFinal, RunNotFree
from tests.core.life import FINALS, Record

ACTS = {
    "start": lambda record, _: record.start(),
    "succeed": lambda record, _: record.finish(),
    "fail": lambda record, _: record.finish(Status.FAILED),
    "succeed stale": lambda record, _: record.finish(token=record.run.token - 1),
    "release": lambda record, _: record.finish(Status.INTERRUPTED, released=True),
    "cancel": lambda record, i: record.cancel(f"u{i}"),
    "lose": lambda record, _: record.lose(),
    "ask": lambda record, i: record.ask(f"q{i % 3}", within=5_000 if i % 2 else None),
    "ask stale": lambda record, i: record.ask(f"q{i % 3}", token=record.run.token - 1),
    "yes": lambda record, i: record.interrupts and record.decide(b"true", i % len(record.interrupts)),
    "no": lambda record, i: record.interrupts and record.decide(b"false", i % len(record.interrupts)),
    "lapse": lambda record, _: record.lapse(),
    "wait": lambda record, i: setattr(record, "at", record.at + i * 3_000),
    "back": lambda record, i: setattr(record, "at", max(1, record.at - i * 3_000)),
}


@pytest.mark.row("BR-26", "A12")
@settings(max_examples=400)
@given(
    st.booleans(),
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(sorted(ACTS)), st.integers(0, 9)), max_size=40),
)
def test_every_life_keeps_the_laws(resumable, most, acts):
    record = Record(Policy(resumable=resumable, max_attempts=most))
    for name, i in acts:
        before, closed = record.run, {k for k, one in record.interrupts.items() if not one.open}
        kept = {key: record.interrupts[key] for key in closed}
        try:
            ACTS[name](record, i)
        except PlayheadError:
            assert record.run is before
        run = record.run
        if before.status.final:
            assert run == before
        assert run.token - before.token in (0, 1)
        assert run.token == record.types.count(event.ATTEMPT_STARTED)
        assert run.rev == len(record.facts)
        assert run.cancel_requested_at == before.cancel_requested_at or before.cancel_requested_at is None
        # A closed question never opens, and its answer never changes.
        assert all(record.interrupts[key] == one for key, one in kept.items())
        waiting = [one for one in record.asked() if one.open]
        assert (run.status is Status.WAITING) <= bool(waiting)
        assert not (run.status.final and waiting)
        assert (run.owner is None) or run.status in (Status.RUNNING, Status.WAITING)
        # The end: one event, the last, and of the status.
        assert record.finals == ([event.FINAL_TYPES[run.status]] if run.status.final else [])
        assert not run.status.final or record.types[-1] in FINALS
        assert record.facts[-1].status is run.status or not run.status.final
        assert run.result is None or run.status is Status.SUCCEEDED
        assert run.cancel_requested_at is None or run.status not in (Status.SUCCEEDED, Status.FAILED)
        assert (run.ended_at is not None) == run.status.final
        # An attempt ends once.
        assert len({token for token, _ in record.ends}) == len(record.ends)
    closings = [
        name
        for name in record.types
        if name in (event.APPROVAL_DECIDED, event.APPROVAL_CANCELLED, event.APPROVAL_EXPIRED)
    ]
    assert len(closings) == len([one for one in record.asked() if not one.open])


@pytest.mark.row("BR-26")
@given(st.permutations(["cancel", "succeed", "lose", "fail", "cancel"]))
def test_one_end_in_every_order(order):
    record = Record()
    record.start()
    for name in order:
        with suppress(RunFinal):
            ACTS[name](record, 0)
    assert len(record.finals) == 1
    assert (
        record.run.status
        is {
            "cancel": Status.CANCELLED,
            "succeed": Status.SUCCEEDED,
            "lose": Status.INTERRUPTED,
            "fail": Status.FAILED,
        }[order[0]]
    )


def test_a_start_tells_the_run_before_the_attempt():
    record = Record(Policy(resumable=True))
    record.start()
    assert [(fact.type, fact.token) for fact in record.facts[1:]] == [
        (event.RUN_STARTED, 0),
        (event.ATTEMPT_STARTED, 1),
    ]
    record.lose()
    record.at += 60_000
    record.start()
    assert [(fact.type, fact.token) for fact in record.facts[3:]] == [(event.ATTEMPT_STARTED, 2)]
    assert record.facts[-1].payload["voids_attempts_before"] == 2


@pytest.mark.parametrize("status", [status for status in Status if status.final])
def test_an_end_says_what_became_of_the_run_and_its_final_fact_can_be_made_again(status):
    record = Record()
    record.start()
    if status is Status.CANCELLED:
        record.cancel("ann")
    record.at += 7
    record.finish(status, state=b'{"title":"t"}')
    run = record.run
    assert (run.status, run.owner, run.ended_at, run.updated_at, run.state) == (
        status, None, record.at, record.at, b'{"title":"t"}',
    )  # fmt: skip
    assert run.result == (b"1" if status is Status.SUCCEEDED else None)
    assert run.value == (1 if status is Status.SUCCEEDED else None)
    assert run.partial == (None if status is Status.SUCCEEDED else b'"half"')
    told = status in (Status.FAILED, Status.INTERRUPTED)
    assert run.failure == (Failure("code", "words") if told else None)
    last = record.facts[-1]
    words: dict[Status, dict[str, object]] = {
        Status.SUCCEEDED: {"result_bytes": 1},
        Status.FAILED: {"code": "code", "message": "words"},
        Status.INTERRUPTED: {"code": "code", "message": "words"},
        Status.CANCELLED: {"by": "ann", "reason": None, "requested_at": iso(record.at - 7)},
    }
    assert dict(last.payload) == {**words[status], "published": None}
    assert (last.status, last.token, last.state) == (status, 1, b'{"title":"t"}')
    feed = run_feed(run.id)
    made = event.numbered(last, feed, run.rev, started_at=run.started_at, at=record.at)
    assert replace(lifecycle.final_fact(run, feed), state=last.state) == made


def test_a_run_begins_queued_and_counts_what_is_told_of_it():
    new = NewRun("r", "acme", "echo", b"{}", Policy(), {"a": "b"}, key="k", digest="d")
    made = lifecycle.create(new, 7, 1_000)
    run = made.run
    assert (run.status, run.seq, run.rev, run.token, run.crashes, run.owner) == (Status.QUEUED, 7, 1, 0, 0, None)
    assert (run.created_at, run.updated_at, run.minted_at, run.epoch) == (1_000, 1_000, 1_000, 1_000)
    assert (run.started_at, run.ended_at, run.not_before, run.cancel_requested_at) == (None, None, 0, None)
    assert (run.labels, run.key, run.digest, run.input) == ({"a": "b"}, "k", "d", b"{}")
    assert [(fact.type, dict(fact.payload), fact.token) for fact in made.facts] == [
        (event.RUN_QUEUED, {"agent": "echo"}, 0)
    ]
    started = lifecycle.start(run, "p", 2_000)
    assert (started.run.status, started.run.token, started.run.owner) == (Status.RUNNING, 1, "p")
    assert (started.run.started_at, started.run.updated_at, started.run.rev) == (2_000, 2_000, 3)
    assert started.started == Attempt("r", 1, "p", 2_000)


def test_a_lost_run_waits_and_says_how_often_it_was_lost():
    record = Record(Policy(resumable=True, max_attempts=2))
    record.start()
    record.lose()
    assert (record.run.status, record.run.owner, record.run.crashes) == (Status.RUNNING, None, 1)
    assert record.run.not_before == record.at + lease.backoff_ms(1)
    before = record.run
    record.lose()  # nobody has it
    assert record.run == before
    record.at += 60_000
    record.start()
    record.lose()
    assert record.run.failure == Failure("attempts_exhausted", "The run was lost 2 times.")
    assert record.run.partial == b'"half"'
    single = Record()
    single.start()
    single.lose()
    assert single.run.failure is not None
    assert (single.run.status, single.run.failure.code) == (Status.INTERRUPTED, "worker_lost")


def test_a_wish_to_stop_says_who_and_when_and_ends_the_waiting():
    record = Record()
    record.start()
    record.ask()
    assert record.run.status is Status.WAITING
    record.at += 5
    record.cancel("ann")
    run = record.run
    assert (run.status, run.cancel_requested_at, run.cancel_by, run.updated_at) == (
        Status.RUNNING, record.at, "ann", record.at,
    )  # fmt: skip
    assert record.types[-2:] == [event.APPROVAL_CANCELLED, event.CANCEL_REQUESTED]
    assert [one.closed_at for one in record.asked()] == [record.at]
    record.at += 5
    record.cancel("bob")
    assert record.run == run


def test_what_an_attempt_could_not_show_goes_with_the_next_fact_once():
    last = (event.published("r", 1, 4, "step_done", {}, 0),)
    record = Record(Policy(resumable=True))
    record.start()
    record.finish(Status.INTERRUPTED, released=True, lacking=last)
    assert record.run.lacking is last
    record.at += 60_000
    record.start()
    assert (record.facts[-1].type, record.facts[-1].lacking) == (event.ATTEMPT_STARTED, last)
    assert not record.run.lacking
    more = (event.published("r", 2, 1, "step_done", {}, 0),)
    record.ask()
    record.finish(lacking=more)
    assert [(fact.type, fact.lacking) for fact in record.facts[-2:]] == [
        (event.APPROVAL_CANCELLED, more),
        (event.RUN_SUCCEEDED, ()),
    ]
    assert not record.run.lacking


def said(fact):
    """What a fact says of the events before it."""
    return fact.payload.get("published")


def test_the_fact_behind_an_attempt_says_how_many_events_it_published():
    record = Record(Policy(resumable=True, max_attempts=9))
    record.start()
    record.finish(Status.INTERRUPTED, released=True, published=7)
    record.start()
    assert said(record.facts[-1]) == {"attempt": 1, "events": 7}
    assert record.run.published == 0  # the next one begins anew
    record.ask("a", published=2)
    record.ask("b", published=4)
    record.ask("a", published=3)  # told late
    record.lose()  # and cannot say any more how many came behind its question
    record.at += 60_000
    record.start()
    assert said(record.facts[-1]) == {"attempt": 2, "events": 4}
    record.lose()
    record.at += 600_000
    record.start()
    assert said(record.facts[-1]) is None  # nothing is known of the one that was lost
    record.ask("c", published=5)
    record.finish(published=6)
    told = [said(fact) for fact in record.facts if said(fact)]
    assert told == [{"attempt": 1, "events": 7}, {"attempt": 2, "events": 4}, {"attempt": 4, "events": 6}]
    assert said(record.facts[-1]) == told[-1]


@pytest.mark.parametrize("status", [one for one in Status if one.final])
def test_every_end_says_how_many_events_were_published_also_when_it_is_made_again(status):
    record = Record(Policy(resumable=True))
    record.start()
    if status is Status.CANCELLED:
        record.finish(Status.INTERRUPTED, released=True, published=3)
        record.cancel()
    else:
        record.finish(status, published=3)
    fact = event.numbered(record.facts[-1], run_feed("r"), record.run.rev, started_at=1_000_000, at=record.at)
    assert event.published_before(fact.event) == (1, 3)
    assert lifecycle.final_fact(record.run, run_feed("r")).event == fact.event


def test_a_number_of_events_is_a_whole_number():
    for wrong in (-1, 1.0, True, "3", 2**53):
        record = Record()
        record.start()
        with pytest.raises(ValueError, match="not a whole number"):
            record.finish(published=wrong)
        with pytest.raises(ValueError, match="not a whole number"):
            record.ask(published=wrong)


def test_an_attempt_ends_once_and_by_its_own_reason():
    record = Record(Policy(resumable=True))
    record.start()
    record.lose()
    record.cancel()
    assert record.ends == [(1, "lost")]
    queued = Record()
    queued.cancel()
    assert queued.ends == []
    assert queued.types == [event.RUN_QUEUED, event.RUN_CANCELLED]


@pytest.mark.parametrize("crashes", [1, 2, 3])
def test_attempts_are_counted_by_crashes_alone(crashes):
    record = Record(Policy(resumable=True, max_attempts=3))
    for _ in range(crashes):
        record.start()
        record.finish(Status.INTERRUPTED, released=True)
        record.start()
        record.lose()
        record.at += 60_000
    assert (record.run.status is Status.FAILED) == (crashes == 3)
    assert record.run.crashes == crashes


def test_who_does_not_own_the_run_is_told_so():
    record = Record(Policy(resumable=True))
    with pytest.raises(AttemptLost):
        lifecycle.check_owner(record.run, 0)
    record.start()
    lifecycle.check_owner(record.run, 1)
    for token in (0, 2):
        with pytest.raises(AttemptLost):
            lifecycle.check_owner(record.run, token)
    record.lose()
    with pytest.raises(AttemptLost):
        lifecycle.check_owner(record.run, 1)
    record.at += 60_000
    record.start()
    record.finish()
    with pytest.raises(RunFinal):
        lifecycle.check_owner(record.run, 2)
    with pytest.raises(RunFinal):
        lifecycle.start(record.run, "p", record.at)
    with pytest.raises(RunFinal):
        lifecycle.claim(record.run, free=True)
    with pytest.raises(RunNotFree):
        lifecycle.claim(Record().run, free=False)


def test_the_end_closes_questions_first():
    record = Record()
    record.start()
    record.ask("a")
    record.ask("b")
    record.finish(Status.FAILED)
    assert record.types[-3:] == [event.APPROVAL_CANCELLED, event.APPROVAL_CANCELLED, event.RUN_FAILED]
    assert {one.status for one in record.asked()} == {InterruptStatus.CANCELLED}


def test_a_wait_between_attempts_is_short_also_when_the_clock_went_back():
    assert [lease.backoff_ms(n) for n in (0, 1, 2, 3, 5, 6, 99)] == [1_000, 1_000, 2_000, 4_000, 16_000, 30_000, 30_000]
    record = Record(Policy(resumable=True))
    record.start()
    record.lose()
    until = record.run.not_before
    assert not lease.may_start(record.run, until - 1)
    assert lease.may_start(record.run, until)
    assert lease.may_start(record.run, until - 86_400_000)


def test_a_wait_that_was_sat_out_is_not_sat_out_again():
    record = Record(Policy(resumable=True))
    record.start()
    record.lose()
    record.at = until = record.run.not_before
    record.start()
    assert record.run.token == 2
    given_back = replace(record.run, owner=None)  # by a worker that stops
    assert lease.may_start(given_back, until - 1)  # the clock went back


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_epochs_grow_past_all_that_was_seen(epoch, minted_at, seen, at):
    run = replace(Record().run, epoch=epoch, minted_at=minted_at)
    minted = repair.mint(run, seen, at)
    young = 0 <= at - minted_at < repair.MINT_GUARD_MS
    assert (minted is None) == (young and seen != epoch)
    if minted is not None:
        assert minted.epoch > max(epoch, seen)
        assert minted.epoch >= at
        assert (minted.minted_at, minted.rev, minted.status) == (at, run.rev, run.status)
    assert repair.mint(replace(run, status=Status.FAILED), seen, at) is None
