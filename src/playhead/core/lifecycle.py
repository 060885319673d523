"""The run's life: every decision about a status, in one place. Each takes the rows as they are and says what to write.

A decision that finds the caller is not entitled raises: AttemptLost for a token that is not the latest, RunFinal for
a run that has ended. The backend calls these inside its transaction, so what they saw is what they change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from playhead.core import event as events
from playhead.core.event import Fact, FactDraft
from playhead.core.ids import Feed, check_whole, iso_or_none
from playhead.core.interrupt import Interrupt, InterruptStatus
from playhead.core.lease import backoff_ms
from playhead.core.repair import next_epoch
from playhead.core.run import Attempt, Change, Failure, NewRun, Outcome, Run, Status
from playhead.errors import AttemptLost, RunFinal, RunNotFree


def create(new: NewRun, seq: int, at: int) -> Change:
    run = Run(
        id=new.id,
        seq=seq,
        tenant=new.tenant,
        agent=new.agent,
        status=Status.QUEUED,
        input=new.input,
        policy=new.policy,
        labels=dict(new.labels),
        key=new.key,
        digest=new.digest,
        created_at=at,
        updated_at=at,
        epoch=next_epoch(0, at),  # whoever projects the first fact opens it, with no transaction of its own
        minted_at=at,
    )
    return change(run, [_draft(run, events.RUN_QUEUED, {"agent": new.agent})])


def start(run: Run, process: str, at: int) -> Change:
    """Give the run to a new attempt. The caller has made sure that it is free (see `lease.may_start`)."""
    if run.status.final:
        raise RunFinal(run_id=run.id, status=run.status)
    check_whole(run.token + 1)
    first = run.token == 0
    started = replace(
        run,
        status=Status.RUNNING,
        token=run.token + 1,
        owner=process,
        started_at=run.started_at or at,
        updated_at=at,
        published=0,
        not_before=0,  # this wait is over, whatever the time of day says when the attempt gives the run back
    )
    facts = []
    if first:
        # The run starts before its attempt does: the token is set by `attempt_started` alone (law 5).
        facts.append(_draft(replace(started, token=run.token), events.RUN_STARTED, {"agent": run.agent}))
    # Every part of an earlier attempt is void; a reader drops what it shows of them.
    payload = {"attempt": started.token, "voids_attempts_before": started.token, **_published(run)}
    facts.append(_draft(started, events.ATTEMPT_STARTED, payload))
    return change(started, facts, started=Attempt(run.id, started.token, process, at))


def check_owner(run: Run, token: int) -> None:
    """Raise unless this token is the latest, and the run goes on, and the attempt was not given up or reaped."""
    if run.token != token:
        raise AttemptLost(run_id=run.id, token=token, latest=run.token)
    check_whole(token)  # 1.0 and True are equal to 1, and are no tokens
    if run.status.final:
        raise RunFinal(run_id=run.id, status=run.status)
    if run.owner is None:
        raise AttemptLost(run_id=run.id, token=token, latest=run.token)


def finish(run: Run, token: int, outcome: Outcome, asked: Iterable[Interrupt], at: int) -> Change:
    """End the attempt, and with it the run unless it is released.

    A cancel request committed before wins over whatever the attempt reports. The same end told twice changes
    nothing and is no error, so that an answer lost on the way can be asked for again.
    """
    if run.status.final and run.token == token:
        if run.status is _ends_as(run, outcome):
            return Change(run)
        raise RunFinal(run_id=run.id, status=run.status)
    check_owner(run, token)
    held = replace(heard(run, outcome.published), state=outcome.state or run.state, lacking=outcome.lacking)
    if outcome.released and run.policy.resumable and run.cancel_requested_at is None:
        return Change(replace(held, owner=None, updated_at=at), ended=(token, "released"))
    status = _ends_as(run, outcome)
    return _end(
        held,
        status,
        asked,
        at,
        result=outcome.result if status is Status.SUCCEEDED else None,
        partial=outcome.partial if status is not Status.SUCCEEDED else None,
        failure=outcome.failure if status in (Status.FAILED, Status.INTERRUPTED) else None,
        state=outcome.state,
        outcome="finished",
    )


def heard(run: Run, published: int) -> Run:
    """The run, whose latest attempt says that it has published so many events."""
    check_whole(published)
    return replace(run, published=max(run.published, published))


def _ends_as(run: Run, outcome: Outcome) -> Status:
    return Status.CANCELLED if run.cancel_requested_at is not None else outcome.status


def cancel(run: Run, asked: Iterable[Interrupt], by: str, reason: str | None, at: int) -> Change:
    """Record the wish to stop. A run that nobody works on ends at once; asked twice, or too late, nothing changes."""
    if run.status.final or run.cancel_requested_at is not None:
        return Change(run)
    wished = replace(run, cancel_requested_at=at, cancel_by=by, cancel_reason=reason, updated_at=at)
    if run.owner is None:
        return _end(wished, Status.CANCELLED, asked, at, outcome=None)  # its last attempt, if any, ended before
    closed = [_close(one, InterruptStatus.CANCELLED, at) for one in asked if one.open]
    running = replace(wished, status=Status.RUNNING)
    facts = [_draft(running, events.APPROVAL_CANCELLED, one.brief()) for one in closed]
    facts.append(_draft(running, events.CANCEL_REQUESTED, {"by": by, "reason": reason}))
    return change(running, facts, interrupts=closed)


def lose(run: Run, asked: Iterable[Interrupt], at: int, partial: bytes | None = None) -> Change:
    """What becomes of a run that lost its lease: eligible again, cancelled, interrupted, or out of attempts."""
    if run.status.final or run.owner is None:
        return Change(run)
    crashes = run.crashes + 1
    lost = replace(run, owner=None, crashes=crashes, updated_at=at)
    if run.cancel_requested_at is not None:
        return _end(lost, Status.CANCELLED, asked, at, partial=partial, outcome="lost")
    if not run.policy.resumable:
        failure = Failure("worker_lost", "The process that worked on this run is gone.")
        return _end(lost, Status.INTERRUPTED, asked, at, partial=partial, failure=failure, outcome="lost")
    if crashes >= run.policy.max_attempts:
        failure = Failure("attempts_exhausted", f"The run was lost {crashes} times.")
        return _end(lost, Status.FAILED, asked, at, partial=partial, failure=failure, outcome="lost")
    return Change(replace(lost, not_before=at + backoff_ms(crashes)), ended=(run.token, "lost"))


def claim(run: Run, free: bool) -> None:
    """Raise unless this run can be given to an attempt that asks for it by id."""
    if run.status.final:
        raise RunFinal(run_id=run.id, status=run.status)
    if not free:
        raise RunNotFree(run_id=run.id, status=run.status)


def _end(
    run: Run,
    status: Status,
    asked: Iterable[Interrupt],
    at: int,
    *,
    result: bytes | None = None,
    partial: bytes | None = None,
    failure: Failure | None = None,
    state: bytes | None = None,
    outcome: str | None,
) -> Change:
    ended = replace(
        run,
        status=status,
        owner=None,
        ended_at=at,
        updated_at=at,
        result=result,
        partial=partial,
        failure=failure,
    )
    closed = [_close(one, InterruptStatus.CANCELLED, at) for one in asked if one.open]
    # The questions close while the run still goes on: nothing may follow its final fact.
    facts = [_draft(replace(ended, status=Status.RUNNING), events.APPROVAL_CANCELLED, one.brief()) for one in closed]
    facts.append(_draft(ended, events.FINAL_TYPES[status], _last_words(ended), state))
    return change(ended, facts, interrupts=closed, ended=(run.token, outcome) if outcome else None)


def final_fact(run: Run, feed: Feed) -> Fact:
    """The fact with which a final run ended, made again from its row, byte for byte: nothing follows a final fact."""
    draft = _draft(run, events.FINAL_TYPES[run.status], _last_words(run))
    return events.numbered(draft, feed, run.rev, started_at=run.started_at, at=run.ended_at or run.updated_at)


def _last_words(run: Run) -> dict[str, Any]:
    """The final event's payload: what a screen says, small; the result itself stays in the record."""
    said = _published(run)
    if run.status is Status.SUCCEEDED:
        return {"result_bytes": len(run.result or b""), **said}
    if run.status is Status.CANCELLED:
        requested_at = iso_or_none(run.cancel_requested_at)
        return {"by": run.cancel_by, "reason": run.cancel_reason, "requested_at": requested_at, **said}
    failure = run.failure or Failure("unknown", "")
    return {"code": failure.code, "message": failure.message, **said}


def _published(run: Run) -> dict[str, Any]:
    """What the fact that ends an attempt's events says of them, so that it shows when the newest are missing."""
    return {"published": {"attempt": run.token, "events": run.published} if run.published else None}


def _close(interrupt: Interrupt, status: InterruptStatus, at: int) -> Interrupt:
    return replace(interrupt, status=status, closed_at=at)


def _draft(run: Run, name: str, payload: dict[str, Any], state: bytes | None = None) -> FactDraft:
    return FactDraft(name, payload, run.status, run.token, state)


def change(
    run: Run,
    facts: Iterable[FactDraft],
    *,
    interrupts: Iterable[Interrupt] = (),
    started: Attempt | None = None,
    ended: tuple[int, str] | None = None,
) -> Change:
    """A change whose run counts its facts. The first of them takes along what waits for one."""
    drafts = list(facts)
    if run.lacking and drafts:
        drafts[0] = replace(drafts[0], lacking=run.lacking)
        run = replace(run, lacking=())
    counted = replace(run, rev=run.rev + len(drafts))
    return Change(counted, tuple(drafts), tuple(interrupts), started, ended)
