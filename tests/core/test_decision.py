"""Questions and answers: which answer counts, in each order of decision, deadline, cancel and end."""

import itertools
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.core import decision, event
from playhead.core.interrupt import InterruptStatus, digest
from playhead.core.run import Policy, Status
from playhead.errors import (
    AlreadyDecided,
    ApprovalCancelled,
    ApprovalExpired,
    AttemptLost,
    NotFound,
    PlayheadError,
    RunFinal,
    RunInterrupted,
)
from tests.core.life import ONE_TRY, Record

DEADLINE = 5_000


def waiting(policy=ONE_TRY, deadline=DEADLINE):
    record = Record(policy)
    record.start()
    record.ask(within=deadline)
    return record


ACTS = {
    "yes": lambda record: record.decide(b"true"),
    "no": lambda record: record.decide(b"false"),
    "deadline": lambda record: setattr(record, "at", record.at + DEADLINE),
    "lapse": lambda record: record.lapse(),
    "cancel": lambda record: record.cancel(),
    "fail": lambda record: record.finish(Status.FAILED),
    "lose": lambda record: record.lose(),
}


@pytest.mark.row("BR-49", "BR-54")
@pytest.mark.parametrize("first", ACTS)
def test_the_first_to_close_a_question_closes_it(first):
    """What each answer is told, against a plain account of what happened before it."""
    for rest in itertools.permutations(ACTS.keys() - {first}, 3):
        check_order((first, *rest))


def check_order(order):
    record = waiting()
    closed: str | None = None
    late = False
    for name in order:
        if name in ("yes", "no"):
            wanted: type[PlayheadError] | None
            if closed is None:
                wanted = ApprovalExpired if late else None
            elif closed in ("yes", "no"):
                wanted = None if closed == name else AlreadyDecided
            elif closed == "lapse":
                wanted = ApprovalExpired
            else:
                wanted = RunInterrupted if record.run.status is Status.INTERRUPTED else ApprovalCancelled
            if wanted is None:
                ACTS[name](record)
                closed = name
            else:
                with pytest.raises(wanted):
                    ACTS[name](record)
            continue
        with suppress(RunFinal):  # `fail` after the run ended in another way
            ACTS[name](record)
        if name == "deadline":
            late = True
        elif closed is None and (name != "lapse" or late):
            closed = name
    (one,) = record.asked()
    answers = {"yes": b"true", "no": b"false"}
    assert one.decision == answers.get(str(closed))
    assert one.status is {
        None: InterruptStatus.OPEN,
        "yes": InterruptStatus.DECIDED,
        "no": InterruptStatus.DECIDED,
        "lapse": InterruptStatus.EXPIRED,
    }.get(closed, InterruptStatus.CANCELLED)
    told = [name for name in record.types if name.startswith("approval_")]
    assert len(told) == (1 if closed is None else 2)


@pytest.mark.row("BR-49")
def test_the_recorded_decision_is_told():
    record = waiting()
    record.decide(b'{"approved":true}')
    facts = len(record.facts)
    record.decide(b'{"approved":true}')
    assert len(record.facts) == facts
    with pytest.raises(AlreadyDecided) as caught:
        record.decide(b'{"approved":false}')
    assert caught.value.details["decision"] == {"approved": True}
    assert caught.value.details["decided_by"] == "ann"


@pytest.mark.row("BR-54")
@given(st.integers(0, 2 * DEADLINE))
def test_the_deadline_is_exact(wait):
    record = waiting()
    record.at += wait
    if wait < DEADLINE:
        record.lapse()
        record.decide()
        assert record.types[-1] == event.APPROVAL_DECIDED
    else:
        with pytest.raises(ApprovalExpired):
            record.decide()
        record.lapse()
        record.lapse()
        assert record.types[-1] == event.APPROVAL_EXPIRED
        assert record.types.count(event.APPROVAL_EXPIRED) == 1


@pytest.mark.row("BR-54")
def test_a_question_asked_after_the_cancel_takes_no_answer():
    record = Record()
    record.start()
    record.cancel()
    record.ask(within=DEADLINE)
    with pytest.raises(ApprovalCancelled):
        record.decide()
    record.finish()
    assert record.run.status is Status.CANCELLED
    with pytest.raises(ApprovalCancelled):
        record.decide()


@pytest.mark.row("BR-51")
def test_a_second_question_is_told_and_alone_open():
    record = waiting()
    record.decide()
    second = record.ask("other")
    assert [one.id for one in record.asked() if one.open] == [second.id]
    assert record.types[-1] == event.APPROVAL_REQUIRED
    assert record.facts[-1].payload["interrupt_id"] == second.id


@given(st.permutations(["a", "b", "c"]))
def test_the_run_waits_for_its_last_question(order):
    record = Record()
    record.start()
    ids = {key: record.ask(key).id for key in "abc"}
    for left, key in zip((2, 1, 0), order, strict=True):
        record.decide(index=list(record.interrupts).index(ids[key]))
        assert record.run.status is (Status.WAITING if left else Status.RUNNING)


def test_asking_again_in_the_same_attempt_is_one_question():
    record = waiting()
    facts = len(record.facts)
    again = record.ask(within=DEADLINE)
    assert (again.id, len(record.facts)) == ("i1", facts)


def test_a_new_attempt_finds_what_was_asked():
    record = waiting(Policy(resumable=True), deadline=None)
    record.lose()
    record.at += 60_000
    record.start()
    found = record.ask()
    assert (found.id, found.token, record.types[-1]) == ("i1", 2, event.APPROVAL_REQUIRED)
    record.decide()
    assert record.ask().decision == b"true"
    assert len(record.asked()) == 1


def test_an_answer_between_two_attempts_is_kept():
    record = waiting(Policy(resumable=True))
    record.lose()
    record.decide()
    assert (record.run.status, record.run.owner) == (Status.RUNNING, None)
    record.at += 60_000
    record.start()
    facts = len(record.facts)
    assert record.ask().decision == b"true"
    assert len(record.facts) == facts


def test_an_expired_question_is_asked_anew():
    record = waiting()
    record.at += DEADLINE
    record.lapse()
    assert record.ask().id == "i2"


def test_who_does_not_own_the_run_does_not_ask():
    record = waiting()
    with pytest.raises(AttemptLost):
        record.ask(token=0)


def test_there_is_no_such_question():
    record = waiting()
    with pytest.raises(NotFound):
        decision.decide(record.run, record.asked(), "i2", b"true", "ann", record.at)


def test_a_digest_binds_the_kind_and_the_content():
    seen = {digest(kind, payload) for kind in ("approval", "choice") for payload in (b"{}", b'{"a":1}')}
    assert len(seen) == 4
    assert digest("a", b"b") != digest("ab", b"")
    assert all(len(one) == 64 for one in seen)
    record = waiting()
    [one] = record.asked()
    assert one.digest == digest(one.kind, one.payload)


def test_questions_that_lapse_together_leave_nothing_to_wait_for():
    record = waiting()
    record.ask("other", within=DEADLINE)
    record.ask("later", within=2 * DEADLINE)
    record.at += DEADLINE
    record.lapse()
    assert (record.run.status, record.types[-2:]) == (Status.WAITING, [event.APPROVAL_EXPIRED] * 2)
    assert [fact.status for fact in record.facts[-2:]] == [Status.WAITING] * 2
    record.ask("last", within=DEADLINE)
    record.at += DEADLINE
    record.lapse()
    assert record.run.status is Status.RUNNING
    assert [fact.status for fact in record.facts[-2:]] == [Status.WAITING, Status.RUNNING]
    assert {one.status for one in record.asked()} == {InterruptStatus.EXPIRED}
    assert record.lapse() is None
    assert record.types.count(event.APPROVAL_EXPIRED) == 4
