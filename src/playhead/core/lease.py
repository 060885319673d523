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


def may_hold(held: tuple[str, int] | None, holder: str, wall_ms: int) -> bool:
    """Whether this holder may have what is held so: by whom, until when."""
    return held is None or held[0] == holder or held[1] <= wall_ms


def resting(wall_ms: int) -> tuple[int, int]:
    """A run whose `not_before` is above the first and up to the second still waits for its next attempt.

    A wait longer than any backoff means that the clock went back since it was written: it is not sat out.
    """
    return wall_ms, wall_ms + _BACKOFF_MOST_MS


def may_start(run: Run, wall_ms: int) -> bool:
    """Whether a worker may take this run now: it is queued, or it lost its attempt and can be tried again."""
    free = run.status is Status.QUEUED or (not run.status.final and run.owner is None and run.policy.resumable)
    low, high = resting(wall_ms)
    return free and not low < run.not_before <= high
