"""The record's rows: read as the values of core, and written as a decision of core wants them changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from playhead.backends import queries
from playhead.backends.rows import interrupt_of, no_such_run, run_of
from playhead.core import event as events
from playhead.core import payload as payloads
from playhead.core.ids import EVERY_TENANT, run_feed
from playhead.core.interrupt import Interrupt
from playhead.core.lease import Lease
from playhead.core.run import Change, NewRun, Run

SQL = queries.load(Path(__file__).with_name("record.sql"))


def find_run(db: sqlite3.Connection, run_id: str, tenant: str = EVERY_TENANT) -> Run | None:
    row = db.execute(SQL["get_run"], (run_id, tenant)).fetchone()
    return None if row is None else run_of(row)


def load_run(db: sqlite3.Connection, run_id: str, tenant: str = EVERY_TENANT) -> Run:
    """The run. Raises NotFound."""
    run = find_run(db, run_id, tenant)
    if run is None:
        raise no_such_run(run_id)
    return run


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
            failure.code if failure else None, failure.message if failure else None, run.state, run.published, run.rev,
            run.seq,
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
