"""The run: its statuses, its row in the record, and what one decision changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playhead.core.event import Event, FactDraft
    from playhead.core.interrupt import Interrupt


class Status(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"

    @property
    def final(self) -> bool:
        """Final statuses absorb: no later write changes one."""
        return self in _FINAL


_FINAL = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED, Status.INTERRUPTED})


@dataclass(frozen=True, slots=True)
class Policy:
    """What an agent's registration says about each of its runs; stored with the run, so that a restart honours it."""

    resumable: bool = False
    max_attempts: int = 3  # crashes after which a resumable run ends `attempts_exhausted`
    cancel_after: float | None = None  # seconds after the last viewer left; None: the run goes on without viewers


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed or was interrupted: a stable code, and words for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run that somebody asks for.

    `scope` and `dedupe` are who asked and their idempotency key; `digest` is of the whole body as it was sent, so
    that another body under the same key is told apart before anything else is looked at.
    """

    id: str
    tenant: str
    agent: str
    input: bytes  # JSON
    policy: Policy
    labels: Mapping[str, str]
    key: str | None = None  # the caller's own name for it, searchable
    scope: str = ""
    dedupe: str | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A run as the record holds it. Times are wall-clock milliseconds; they are for people, and order nothing."""

    id: str
    seq: int  # the record's order of creation
    tenant: str
    agent: str
    status: Status
    input: bytes
    policy: Policy
    labels: Mapping[str, str]
    key: str | None
    digest: str
    created_at: int
    updated_at: int
    started_at: int | None = None
    ended_at: int | None = None
    token: int = 0  # of the latest attempt; 0 before the first
    crashes: int = 0
    owner: str | None = None  # the worker process whose lease covers the latest attempt
    not_before: int = 0  # wall ms before which no new attempt starts
    cancel_requested_at: int | None = None
    cancel_by: str | None = None
    cancel_reason: str | None = None
    result: bytes | None = None  # JSON
    partial: bytes | None = None  # JSON: the text that was said, when the run ended without success
    failure: Failure | None = None
    state: bytes | None = None  # the attempt's state as its last fact stored it (JSON object)
    lacking: tuple[Event, ...] = ()  # for the next fact to take along, see `Fact`
    published: int = 0  # events of the latest attempt, as many as it was heard to have published
    rev: int = 0  # of the run's feed
    epoch: int = 0  # last one minted for the run's feed; 0: none yet
    minted_at: int = 0
    heartbeat_at: int | None = None  # of the owner's lease, filled when the run is read

    @property
    def value(self) -> Any:
        """The result, decoded; None while there is none."""
        return None if self.result is None else json.loads(self.result)

    @property
    def weight(self) -> int:
        """The bytes of what may be large in a list of runs: input, result and partial text."""
        return len(self.input) + len(self.result or b"") + len(self.partial or b"")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One worker's try at a run."""

    run_id: str
    token: int
    process: str
    started_at: int
    ended_at: int | None = None
    outcome: str | None = None  # finished, released, lost


@dataclass(frozen=True, slots=True)
class Change:
    """What one decision writes, all of it in one record transaction. `run` already counts the facts in its `rev`."""

    run: Run
    facts: tuple[FactDraft, ...] = ()
    interrupts: tuple[Interrupt, ...] = ()  # inserted or replaced by id
    started: Attempt | None = None
    ended: tuple[int, str] | None = None  # token and outcome of the attempt that this ends


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt says that its run ended. `status` is final; `released` instead gives a resumable run back."""

    status: Status
    result: bytes | None = None
    failure: Failure | None = None
    state: bytes | None = None
    partial: bytes | None = None
    released: bool = False
    lacking: tuple[Event, ...] = ()  # what it published and the live store, being away, did not take
    published: int = 0  # the number of the last event that it published, these included
