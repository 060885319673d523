"""Leases: how long a process's beat covers its attempts, and when a run may be tried again.

Lease time is the record's steady clock in milliseconds, which never steps; it has no relation to the time of day.
"""

from __future__ import annotations

from dataclasses import dataclass

from playhead.core.run import Run, Status

_BACKOFF_FIRST_MS = 1_000
_BACKOFF_MOST_MS = 30_000


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker process's heartbeat row."""

    process: str
    expires: int  # steady ms
    beat_at: int  # wall ms, for display


def held(lease: Lease | None, steady_ms: int) -> bool:
    return lease is not None and lease.expires > steady_ms


def backoff_ms(crashes: int) -> int:
    """How long after its n-th crash a run waits for its next attempt."""
    return int(min(_BACKOFF_FIRST_MS * 2 ** max(0, crashes - 1), _BACKOFF_MOST_MS))


def may_start(run: Run, wall_ms: int) -> bool:
    """Whether a worker may take this run now: it is queued, or it lost its attempt and can be tried again."""
    free = run.status is Status.QUEUED or (not run.status.final and run.owner is None and run.policy.resumable)
    # A wait longer than any backoff means that the clock went back since it was written: do not sit it out.
    waits = run.not_before - wall_ms
    return free and not 0 < waits <= _BACKOFF_MOST_MS
