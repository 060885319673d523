"""Asking, answering and lapsing: the decisions about interrupts. The first decision in time is the one that counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from playhead.core import event as events
from playhead.core import lifecycle
from playhead.core import payload as payloads
from playhead.core.event import FactDraft
from playhead.core.ids import iso, iso_or_none
from playhead.core.interrupt import Interrupt, InterruptStatus, Question, digest
from playhead.core.run import Change, Run, Status
from playhead.errors import (
    AlreadyDecided,
    ApprovalCancelled,
    ApprovalExpired,
    NotFound,
    PlayheadError,
    RunInterrupted,
)


def ask(
    run: Run,
    token: int,
    question: Question,
    asked: Iterable[Interrupt],
    new_id: str,
    state: bytes | None,
    at: int,
    published: int = 0,
) -> tuple[Change, Interrupt]:
    """Ask, or find that this was asked before. An interrupt that closed as `expired` or `cancelled` is asked anew.

    Raises AttemptLost or RunFinal; RunCancelled is not raised here: the attempt learns of it by itself.
    """
    lifecycle.check_owner(run, token)
    mark = digest(question.kind, question.payload)
    same = [one for one in asked if one.key == question.key and one.digest == mark]
    found = next((one for one in same if one.open or one.status is InterruptStatus.DECIDED), None)
    stored = replace(lifecycle.heard(run, published), state=state or run.state, updated_at=at)
    if found is not None and not (found.open and found.token < token):
        # Decided, or asked by this very attempt, whose answer was lost on the way: one question, one event.
        return Change(stored), found
    if found is None:
        found = Interrupt(
            new_id,
            run.id,
            run.tenant,
            question.key,
            question.kind,
            question.payload,
            mark,
            token,
            at,
            None if question.within is None else at + question.within,
        )
    else:
        found = replace(found, token=token)
    waiting = replace(stored, status=Status.WAITING)
    draft = FactDraft(events.APPROVAL_REQUIRED, _shown(found), Status.WAITING, token, state)
    return lifecycle.change(waiting, [draft], interrupts=[found]), found


def _shown(interrupt: Interrupt) -> dict[str, Any]:
    title = None
    content = payloads.parse(interrupt.payload)
    if isinstance(content, dict):
        title = content.get("title")
    return {
        **interrupt.brief(),
        "title": title if isinstance(title, str) else None,
        "deadline": iso_or_none(interrupt.deadline),
    }


def decide(
    run: Run, asked: Iterable[Interrupt], interrupt_id: str, decision: bytes, by: str, at: int
) -> tuple[Change, Interrupt]:
    """Record the decision if it is the first and in time.

    The same decision again changes nothing and gives the recorded one. Raises NotFound; AlreadyDecided with the
    recorded decision; ApprovalExpired; ApprovalCancelled; RunInterrupted when the run ended without an answer.
    """
    everything = list(asked)
    found = next((one for one in everything if one.id == interrupt_id), None)
    if found is None:
        raise NotFound("There is no such interrupt.")
    if found.status is InterruptStatus.DECIDED and found.decided_alike(decision):
        return Change(run), found
    if not found.open:
        raise refusal(run, found)
    if run.cancel_requested_at is not None:  # asked by an attempt that had not learnt of the cancel yet
        raise ApprovalCancelled(interrupt_id=found.id)
    if found.deadline is not None and at >= found.deadline:
        raise ApprovalExpired(interrupt_id=found.id, deadline=iso(found.deadline))
    decided = replace(found, status=InterruptStatus.DECIDED, decision=decision, decided_by=by, closed_at=at)
    payload = {**decided.brief(), "by": by, "decision": payloads.parse(decision)}
    return _go_on(run, everything, decided, events.APPROVAL_DECIDED, payload, at), decided


def lapse(run: Run, asked: Iterable[Interrupt], at: int) -> list[Change]:
    """Close the run's open interrupts whose deadline has passed; one change each, to be applied in turn."""
    changes: list[Change] = []
    everything = list(asked)
    for one in everything:
        if one.open and one.deadline is not None and at >= one.deadline and not run.status.final:
            closed = replace(one, status=InterruptStatus.EXPIRED, closed_at=at)
            step = _go_on(run, everything, closed, events.APPROVAL_EXPIRED, closed.brief(), at)
            everything = [closed if other.id == closed.id else other for other in everything]
            run = step.run
            changes.append(step)
    return changes


def refusal(run: Run, interrupt: Interrupt) -> PlayheadError:
    """Why a decision on this closed interrupt is refused."""
    if interrupt.status is InterruptStatus.DECIDED:
        return AlreadyDecided(
            interrupt_id=interrupt.id,
            decision=payloads.parse(interrupt.decision or b"null"),
            decided_by=interrupt.decided_by,
            decided_at=iso_or_none(interrupt.closed_at),
        )
    if interrupt.status is InterruptStatus.EXPIRED:
        return ApprovalExpired(interrupt_id=interrupt.id, deadline=iso_or_none(interrupt.deadline))
    if run.status is Status.INTERRUPTED:
        return RunInterrupted(interrupt_id=interrupt.id, code=run.failure.code if run.failure else None)
    return ApprovalCancelled(interrupt_id=interrupt.id)


def _go_on(run: Run, asked: list[Interrupt], closed: Interrupt, name: str, payload: dict[str, Any], at: int) -> Change:
    """Close one interrupt; the run waits on while another is open."""
    others = any(one.open for one in asked if one.id != closed.id)
    status = Status.RUNNING if run.status is Status.WAITING and not others else run.status
    moved = replace(run, status=status, updated_at=at)
    return lifecycle.change(moved, [FactDraft(name, payload, status, run.token)], interrupts=[closed])
