"""Runs, interrupts and text as the wire shows them; what is JSON already is joined and not encoded again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from playhead.core import payload as payloads
from playhead.core.event import Event
from playhead.core.ids import iso, iso_or_none, run_feed
from playhead.core.interrupt import Interrupt
from playhead.core.lifecycle import final_fact
from playhead.core.run import Run
from playhead.core.snapshot import Snapshot

_NULL = b"null"


def run_document(run: Run) -> bytes:
    """The run as `GET /runs/{id}` answers it."""
    head = {
        "id": run.id,
        "agent": run.agent,
        "status": run.status.value,
        "labels": dict(run.labels),
        "key": run.key,
        "attempt": run.token,
        "rev": run.rev,
        "resumable": run.policy.resumable,
        "created_at": iso(run.created_at),
        "updated_at": iso(run.updated_at),
        "started_at": iso_or_none(run.started_at),
        "ended_at": iso_or_none(run.ended_at),
        "heartbeat_at": iso_or_none(run.heartbeat_at),
        "cancel_requested": _cancel(run),
        "error": _error(run),
    }
    return join(head, input=run.input, result=run.result, partial=run.partial)


def interrupt_document(interrupt: Interrupt) -> bytes:
    """The interrupt as lists, bootstraps and answers to a decision show it."""
    head = {
        "id": interrupt.id,
        "run_id": interrupt.run_id,
        "key": interrupt.key,
        "kind": interrupt.kind,
        "status": interrupt.status.value,
        "attempt": interrupt.token,
        "digest": interrupt.digest,
        "created_at": iso(interrupt.created_at),
        "deadline": iso_or_none(interrupt.deadline),
        "closed_at": iso_or_none(interrupt.closed_at),
        "decided_by": interrupt.decided_by,
    }
    return join(head, payload=interrupt.payload, decision=interrupt.decision)


def event_document(event: Event, version: int) -> bytes:
    """An event that has no place on a timeline (any more): from the archive, or from the record alone."""
    return b'{"version":%d,%b' % (version, event.body[1:])


def final_event(run: Run) -> Event:
    """The final event of a run that has ended, made again from its row, with the id that it always has."""
    return final_fact(run, run_feed(run.id)).event


def record_snapshot(run: Run) -> Snapshot:
    """What the record alone knows of a run's snapshot. Version 0: any projection knows better."""
    known = Snapshot(run.status, run.token, 0, run.rev, run.started_at, run.heartbeat_at, run.updated_at)
    return replace(known, state=run.state) if run.state else known


def text_document(part: str, token: int, offset: int, data: bytes, final: bool, truncated: bool) -> bytes:
    """A part's text from an offset on: in a bootstrap, and as the data of a `text` frame."""
    document = {
        "part": part,
        "attempt": token,
        "offset": offset,
        "end": offset + len(data),
        "text": data.decode(),
        "final": final,
    }
    return payloads.encode(document | {"truncated": True} if truncated else document)


def join(head: dict[str, Any], **encoded: bytes | None) -> bytes:
    """One object of plain values and of values that are JSON already; `head` must not be empty."""
    rest = b"".join(b',"%b":%b' % (name.encode(), value or _NULL) for name, value in encoded.items())
    return payloads.encode(head)[:-1] + rest + b"}"


def _cancel(run: Run) -> dict[str, Any] | None:
    if run.cancel_requested_at is None:
        return None
    return {"at": iso(run.cancel_requested_at), "by": run.cancel_by, "reason": run.cancel_reason}


def _error(run: Run) -> dict[str, str] | None:
    return None if run.failure is None else {"code": run.failure.code, "message": run.failure.message}
