"""Presence in PostgreSQL: a row for each run and process with viewers, and for a while after they left."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from playhead.backends import queries
from playhead.backends.postgres.acts import Acts
from playhead.backends.postgres.database import Session
from playhead.backends.postgres.rows import SQL as RECORD
from playhead.backends.postgres.rows import store
from playhead.core import disconnect
from playhead.core.run import Run

SQL = queries.load(Path(__file__).with_name("presence.sql"))


class PostgresPresence(Acts):
    """Presence in a database whose schema is there."""

    async def watch(self, process: str, runs: Collection[str]) -> None:
        async def act(session: Session) -> None:
            session.write(SQL["watch"], process=process, ids=_names(runs))

        if runs:
            await self._database.act(act)

    async def unwatch(self, process: str, runs: Collection[str]) -> None:
        names = _names(runs)

        async def act(session: Session) -> None:
            found, ((now,),) = await session.read((SQL["of_those"], {"ids": names}), (RECORD["now"], {}))
            at = self._wall(now)
            dues = {run_id: disconnect.due_at(after, at) for run_id, after in found}
            _put(session, {(run_id, process): due for run_id, due in dues.items()})
            session.write(SQL["forget"], process=process, ids=[name for name in names if name not in dues])

        if names:
            await self._database.act(act)

    async def unwatch_expired(self, grace_ms: int, limit: int) -> int:
        watching, rows = await self._database.read((SQL["watching"], {}), (RECORD["leases"], {}))
        held = {row[0] for row in rows if self._leases.held(row)}
        gone = [process for (process,) in watching if process not in held]

        async def act(session: Session) -> int:
            asked = {"processes": gone, "limit": limit}
            found, ((now,),) = await session.read((SQL["watched_at"], asked), (RECORD["now"], {}))
            at = self._wall(now)
            _put(session, {(run_id, who): disconnect.due_at(after, at, grace_ms) for run_id, who, after in found})
            return len(found)

        return await self._database.act(act) if gone else 0

    async def deserted(self, limit: int) -> list[str]:
        rows, ((now,),) = await self._database.read((SQL["first_due"], {"limit": limit}), (RECORD["now"], {}))
        return list(dict.fromkeys(run_id for run_id, due in rows if due <= self._wall(now)))

    async def desert(self, run_id: str) -> Run | None:
        async def act(session: Session) -> Run | None:
            found = await self._find(session, run_id)
            if found is None:
                for name in _names([run_id]):  # erased while its viewers were told of
                    session.write(RECORD["delete_presence"], id=name)
                return None
            dues = [due for _, due in await session.rows(SQL["of_run"], id=run_id)]
            change = disconnect.desert(found.run, dues, found.asked, found.at)
            session.write(SQL["forget_due"], id=run_id, at=found.at)
            return store(session, found.run, change, found.at) if change else None

        return await self._database.act(act)


def _names(runs: Collection[str]) -> list[str]:
    """In their order, each once, those that a column can hold."""
    return sorted({name for name in runs if "\0" not in name})


def _put(session: Session, dues: dict[tuple[str, str], int]) -> None:
    if dues:
        ids, processes = zip(*dues, strict=True)
        session.write(SQL["put_due"], ids=list(ids), processes=list(processes), dues=list(dues.values()))
