"""What the acts of the record in PostgreSQL have in common: the time of the database, and a run under its lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from playhead.backends.postgres.database import Database, Session
from playhead.backends.postgres.leases import Leases
from playhead.backends.postgres.rows import SQL, interrupt_of, run_of
from playhead.core.ids import EVERY_TENANT
from playhead.core.interrupt import Interrupt
from playhead.core.run import Run
from playhead.interfaces import Clock


@dataclass(frozen=True, slots=True)
class Locked:
    """A run under its lock: it stays as it is until the transaction ends. `at` is the time since the lock was got."""

    run: Run
    asked: tuple[Interrupt, ...]
    at: int


class Acts:
    def __init__(self, database: Database, clock: Clock, wall: Callable[[int], int]) -> None:
        self._database = database
        self._leases = Leases(clock)
        self._wall = wall

    async def _now(self, session: Session) -> int:
        ((now,),) = await session.rows(SQL["now"])
        return self._wall(now)

    async def _find(
        self, session: Session, run_id: str, tenant: str = EVERY_TENANT, how: str = "lock_run"
    ) -> Locked | None:
        who = {"id": run_id, "tenant": tenant}
        locked, found, asked, now = await session.read(
            (SQL[how], who), (SQL["get_run"], who), (SQL["interrupts_of_run"], {"id": run_id}), (SQL["now"], {})
        )
        if not locked:
            return None
        return Locked(run_of(found[0]), tuple(map(interrupt_of, asked)), self._wall(now[0][0]))
