"""The record's rows in PostgreSQL: read as the values of core, and written as a decision of core wants them changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from playhead.backends import queries, rows
from playhead.backends.postgres.database import Row, Session
from playhead.core import event as events
from playhead.core import payload as payloads
from playhead.core.ids import run_feed
from playhead.core.interrupt import Interrupt
from playhead.core.run import Change, NewRun, Run

SQL = queries.load(Path(__file__).with_name("record.sql"))

# Places of the columns that hold people's texts as bytes.
_RUN_TEXTS = (20, 21, 22, 23)
_INTERRUPT_TEXTS = (3, 12)


def stored(text: str | None) -> bytes | None:
    """A text as a column of bytes holds it: whole, U+0000 too."""
    return None if text is None else text.encode()


def told(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def run_of(row: Row) -> Run:
    return rows.run_of(_with_texts(row, _RUN_TEXTS))


def interrupt_of(row: Row) -> Interrupt:
    return rows.interrupt_of(_with_texts(row, _INTERRUPT_TEXTS))


def _with_texts(row: Row, places: tuple[int, ...]) -> Row:
    values = list(row)
    for place in places:
        values[place] = told(values[place])
    return tuple(values)


async def insert_run(session: Session, new: NewRun, change: Change, at: int) -> Run | None:
    """Write a new run; None if its id or its key has been used meanwhile."""
    run, policy = change.run, change.run.policy
    made = await session.row(
        SQL["insert_run"],
        id=run.id,
        tenant=run.tenant,
        agent=run.agent,
        status=run.status.value,
        resumable=policy.resumable,
        max_attempts=policy.max_attempts,
        cancel_after=policy.cancel_after,
        labels=payloads.encode(dict(run.labels)),
        key=run.key,
        scope=stored(new.scope),
        dedupe=new.dedupe,
        digest=run.digest,
        created_at=run.created_at,
        updated_at=run.updated_at,
        token=run.token,
        crashes=run.crashes,
        not_before=run.not_before,
        rev=run.rev,
        epoch=run.epoch,
        minted_at=run.minted_at,
    )
    if made is None:
        return None
    run = replace(run, seq=made[0])
    session.write(SQL["insert_input"], seq=run.seq, data=run.input)
    for name, value in run.labels.items():
        session.write(SQL["insert_label"], name=name, value=stored(value), seq=run.seq)
    _insert_facts(session, change, at)
    return run


def store(session: Session, before: Run, change: Change, at: int, beat_at: int | None = None) -> Run:
    """Write what a decision changes; the run as the record then holds it. `beat_at` is of the owner's lease."""
    run = change.run
    if run is before and not change.facts and not change.interrupts:
        return run
    failure = run.failure
    session.write(
        SQL["update_run"],
        status=run.status.value,
        updated_at=run.updated_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        token=run.token,
        crashes=run.crashes,
        owner=run.owner,
        not_before=run.not_before,
        cancel_requested_at=run.cancel_requested_at,
        cancel_by=stored(run.cancel_by),
        cancel_reason=stored(run.cancel_reason),
        failure_code=stored(failure.code) if failure else None,
        failure_message=stored(failure.message) if failure else None,
        state=run.state,
        published=run.published,
        rev=run.rev,
        seq=run.seq,
    )
    if (run.result, run.partial, run.lacking) != (before.result, before.partial, before.lacking):
        lacking = events.pack(run.lacking)
        session.write(SQL["put_end"], seq=run.seq, result=run.result, partial=run.partial, lacking=lacking)
    _insert_facts(session, change, at)
    _put_interrupts(session, change.interrupts)
    if (begun := change.started) is not None:
        session.write(
            SQL["insert_attempt"],
            run_id=begun.run_id,
            token=begun.token,
            tenant=run.tenant,
            process=begun.process,
            started_at=begun.started_at,
        )
    if change.ended is not None:
        token, outcome = change.ended
        session.write(SQL["end_attempt"], at=at, outcome=outcome, run_id=run.id, token=token)
    if run.owner != before.owner:
        run = replace(run, heartbeat_at=beat_at if run.owner else None)
    return run


def _put_interrupts(session: Session, interrupts: Iterable[Interrupt]) -> None:
    for one in interrupts:
        session.write(
            SQL["put_interrupt"],
            id=one.id,
            run_id=one.run_id,
            tenant=one.tenant,
            key=stored(one.key),
            kind=one.kind,
            payload=one.payload,
            digest=one.digest,
            token=one.token,
            created_at=one.created_at,
            deadline=one.deadline,
            status=one.status.value,
            decision=one.decision,
            decided_by=stored(one.decided_by),
            closed_at=one.closed_at,
        )


def _insert_facts(session: Session, change: Change, at: int) -> None:
    run = change.run
    feed = run_feed(run.id)
    first = run.rev - len(change.facts) + 1
    for rev, draft in enumerate(change.facts, first):
        fact = events.numbered(draft, feed, rev, started_at=run.started_at, at=at)
        session.write(
            SQL["insert_fact"],
            feed=feed.key,
            rev=rev,
            tenant=run.tenant,
            type=fact.event.type,
            status=fact.status.value,
            token=fact.token,
            started_at=fact.started_at,
            at=fact.at,
            body=fact.event.body,
            state=fact.state,
            lacking=events.pack(fact.lacking),
        )
