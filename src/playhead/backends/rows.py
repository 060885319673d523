"""Rows of the record as the values of core. Both SQL backends read the same columns in the same order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Any

import orjson

from playhead.core import event as events
from playhead.core.event import Event, Fact
from playhead.core.ids import fact_id, parse_feed
from playhead.core.interrupt import Interrupt, InterruptStatus
from playhead.core.run import Failure, Policy, Run, Status
from playhead.errors import NotFound

Row = tuple[Any, ...]


def run_of(row: Row) -> Run:
    (
        seq, id, tenant, agent, status, resumable, max_attempts, cancel_after, labels, key, digest, created_at,
        updated_at, started_at, ended_at, token, crashes, owner, not_before, cancel_requested_at, cancel_by,
        cancel_reason, failure_code, failure_message, state, published, rev, epoch, minted_at, input, result, partial,
        lacking, beat_at,
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
        published=published,
        rev=rev,
        epoch=epoch,
        minted_at=minted_at,
        heartbeat_at=beat_at,
    )


def first_of(runs: Iterable[Run], limit: int, most_bytes: int | None) -> list[Run]:
    """The first ones, as a list has them; no more are asked for than these."""
    found: list[Run] = []
    held = 0
    for run in islice(runs, max(0, limit)):
        found.append(run)
        held += run.weight
        if most_bytes is not None and held >= most_bytes:
            break
    return found


def fact_of(row: Row) -> Fact:
    key, rev, name, body, status, token, started_at, state, at, lacking = row[:10]
    feed = parse_feed(key)
    event = Event(fact_id(feed, rev), name, body)
    return Fact(feed, rev, event, Status(status), token, started_at, state, at, events.unpack(lacking))


def interrupt_of(row: Row) -> Interrupt:
    return replace(Interrupt(*row), status=InterruptStatus(row[10]))


def no_such_run(run_id: str) -> NotFound:
    return NotFound("There is no such run.", run_id=run_id[:80])
