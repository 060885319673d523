"""Leases as one process sees them: by what it saw change, and by its own clock that never steps."""

from __future__ import annotations

from collections.abc import Collection

from playhead.backends.postgres.database import Row
from playhead.core import lease as leases
from playhead.core.lease import Lease
from playhead.interfaces import Clock


class Leases:
    """PostgreSQL has no clock that never steps, and a fail-over sets another one.

    So a lease lasts from the moment in which a process first sees its latest beat, by that process's own steady
    clock. Nobody sees a beat before it is made: no lease is shorter than its holder believes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[int, int]] = {}  # process → the number of its beat, when it was first seen

    def now(self) -> int:
        """Steady milliseconds."""
        return round(self._clock.steady() * 1000)

    def note(self, process: str, beat: int, at: int) -> None:
        """This beat was made by ourselves, not before this time of `now`."""
        self._seen[process] = (beat, at)

    def held(self, row: Row | None) -> bool:
        """Whether a row of the leases, which was just read, is of a process that holds its lease."""
        if row is None:
            return False
        process, beat, ttl_ms, beat_at = row
        now = self.now()
        seen = self._seen.get(process)
        if seen is None or seen[0] != beat:
            seen = self._seen[process] = (beat, now)
        return ttl_ms > 0 and leases.held(Lease(process, seen[1] + ttl_ms, beat_at), now)

    def keep(self, processes: Collection[str]) -> None:
        """Forget all but these."""
        for process in self._seen.keys() - set(processes):
            self._seen.pop(process, None)
