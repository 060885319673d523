"""The record's rows: read as the values of core, and written as a decision of core wants them changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from playhead.backends.sqlite import queries
from playhead.core import event as events
from playhead.core import payload as payloads
from playhead.core.event import Event, Fact
from playhead.core.ids import EVERY_TENANT, fact_id, parse_feed, run_feed
from playhead.core.interrupt import Interrupt, InterruptStatus
from playhead.core.lease import Lease
from playhead.core.run import Change, Failure, NewRun, Policy, Run, Status
from playhead.errors import NotFound

SQL = queries.load(Path(__file__).with_name("record.sql"))

Row = tuple[Any, ...]


def run_of(row: Row) -> Run:
    (
        seq, id, tenant, agent, status, resumable, max_attempts, cancel_after, labels, key, digest, created_at,
        updated_at, started_at, ended_at, token, crashes, owner, not_before, cancel_requested_at, cancel_by,
        cancel_reason, failure_code, failure_message, state, rev, epoch, minted_at, input, result, partial, lacking,
        beat_at,
    ) = row  # fmt: skip
    return Run(
        id=id,
        seq=seq,
        tenant=tenant,
        agent=agent,
        status=Status(status),
        input=input,
        policy=Policy(bool(resumable), max_attempts, cancel_after),
        labels=orjson.loads(labels),
        key=key,
        digest=digest,
        created_at=created_at,
        updated_at=updated_at,
        started_at=started_at,
        ended_at=ended_at,
        token=token,
        crashes=crashes,
        owner=owner,
        not_before=not_before,
        cancel_requested_at=cancel_requested_at,
        cancel_by=cancel_by,
        cancel_reason=cancel_reason,
        result=result,
        partial=partial,
        failure=None if failure_code is None else Failure(failure_code, failure_message),
        state=state,
        lacking=events.unpack(lacking),
        rev=rev,
        epoch=epoch,
        minted_at=minted_at,
        heartbeat_at=beat_at,
    )


def fact_of(row: Row) -> Fact:
    key, rev, name, body, status, token, started_at, state, at, lacking = row[:10]
    feed = parse_feed(key)
    event = Event(fact_id(feed, rev), name, body)
    return Fact(feed, rev, event, Status(status), token, started_at, state, at, events.unpack(lacking))


def interrupt_of(row: Row) -> Interrupt:
    return replace(Interrupt(*row), status=InterruptStatus(row[10]))


def find_run(db: sqlite3.Connection, run_id: str, tenant: str = EVERY_TENANT) -> Run | None:
    row = db.execute(SQL["get_run"], (run_id, tenant)).fetchone()
    return None if row is None else run_of(row)


def load_run(db: sqlite3.Connection, run_id: str, tenant: str = EVERY_TENANT) -> Run:
    """The run. Raises NotFound."""
    run = find_run(db, run_id, tenant)
    if run is None:
        raise no_such_run(run_id)
    return run


def no_such_run(run_id: str) -> NotFound:
    return NotFound("There is no such run.", run_id=run_id[:80])


def interrupts_of_run(db: sqlite3.Connection, run_id: str) -> list[Interrupt]:
    return [interrupt_of(row) for row in db.execute(SQL["interrupts_of_run"], (run_id,))]


def find_lease(db: sqlite3.Connection, process: str) -> Lease | None:
    row = db.execute(SQL["get_lease"], (process,)).fetchone()
    return None if row is None else Lease(*row)


def insert_run(db: sqlite3.Connection, new: NewRun, change: Change, at: int) -> Run:
    run = change.run
    policy = run.policy
    db.execute(
        SQL["insert_run"],
        (
            run.seq, run.id, run.tenant, run.agent, run.status.value, policy.resumable, policy.max_attempts,
            policy.cancel_after, payloads.encode(dict(run.labels)), run.key, new.scope, new.dedupe, run.digest,
            run.created_at, run.updated_at, run.token, run.crashes, run.not_before, run.rev, run.epoch, run.minted_at,
        ),
    )  # fmt: skip
    db.execute(SQL["insert_input"], (run.seq, run.input))
    if run.labels:
        db.executemany(SQL["insert_label"], [(name, value, run.seq) for name, value in run.labels.items()])
    _insert_facts(db, change, at)
    return run


def store(db: sqlite3.Connection, before: Run, change: Change, at: int) -> Run:
    """Write what a decision changes; the run as the record then holds it."""
    run = change.run
    if run is before and not change.facts and not change.interrupts:
        return run
    failure = run.failure
    db.execute(
        SQL["update_run"],
        (
            run.status.value, run.updated_at, run.started_at, run.ended_at, run.token, run.crashes, run.owner,
            run.not_before, run.cancel_requested_at, run.cancel_by, run.cancel_reason,
            failure.code if failure else None, failure.message if failure else None, run.state, run.rev, run.seq,
        ),
    )  # fmt: skip
    if (run.result, run.partial, run.lacking) != (before.result, before.partial, before.lacking):
        db.execute(SQL["put_end"], (run.seq, run.result, run.partial, events.pack(run.lacking)))
    _insert_facts(db, change, at)
    put_interrupts(db, change.interrupts)
    if (begun := change.started) is not None:
        db.execute(SQL["insert_attempt"], (begun.run_id, begun.token, run.tenant, begun.process, begun.started_at))
    if change.ended is not None:
        token, outcome = change.ended
        db.execute(SQL["end_attempt"], (at, outcome, run.id, token))
    if run.owner != before.owner:
        lease = find_lease(db, run.owner) if run.owner else None
        run = replace(run, heartbeat_at=lease.beat_at if lease else None)
    return run


def put_interrupts(db: sqlite3.Connection, interrupts: Iterable[Interrupt]) -> None:
    for one in interrupts:
        db.execute(
            SQL["put_interrupt"],
            (
                one.id, one.run_id, one.tenant, one.key, one.kind, one.payload, one.digest, one.token, one.created_at,
                one.deadline, one.status.value, one.decision, one.decided_by, one.closed_at,
            ),
        )  # fmt: skip


def _insert_facts(db: sqlite3.Connection, change: Change, at: int) -> None:
    run = change.run
    feed = run_feed(run.id)
    first = run.rev - len(change.facts) + 1
    for rev, draft in enumerate(change.facts, first):
        fact = events.numbered(draft, feed, rev, started_at=run.started_at, at=at)
        db.execute(
            SQL["insert_fact"],
            (
                feed.key, rev, run.tenant, fact.event.type, fact.status.value, fact.token, fact.started_at, fact.at,
                fact.event.body, fact.state, events.pack(fact.lacking),
            ),
        )  # fmt: skip
