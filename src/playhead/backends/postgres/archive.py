"""The archive in PostgreSQL: events for the long run, in the order in which any number of processes appended them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from playhead.backends.postgres.database import Database, Session
from playhead.backends.postgres.rows import SQL
from playhead.core.event import UNREADABLE, Event, readable
from playhead.core.ids import Feed

log = logging.getLogger(__name__)


class PostgresArchive:
    """Archive in a database whose schema is there."""

    def __init__(self, database: Database) -> None:
        self.unreadable = 0
        self._database = database

    async def append(self, feed: Feed, entries: Sequence[tuple[Event, int]], after: str | None) -> str | None:
        newest = (SQL["newest_archived"], {"feed": feed.key})

        async def act(session: Session) -> str | None:
            lock = (SQL["lock_archive"], {"feed": feed.key})
            _, found, run = await session.read(lock, newest, (SQL["has_run"], {"id": feed.id}))
            erased = feed.kind == "run" and not run
            if erased or (found[0][0] if found else None) != after:
                return None
            for event, version in entries:
                session.write(
                    SQL["insert_archived"],
                    feed=feed.key,
                    event_id=event.id,
                    type=event.type,
                    version=version,
                    body=event.body,
                )
            (found,) = await session.read(newest, last=True)
            return found[0][0] if found else None

        return await self._database.act(act)

    async def read(self, feed: Feed, before: str | None, limit: int) -> list[tuple[Event, int]]:
        if before is None:
            asked = (SQL["archived_before"], {"feed": feed.key, "limit": limit})
        else:
            asked = (SQL["archived_before_event"], {"feed": feed.key, "event_id": before, "limit": limit})
        (rows,) = await self._database.read(asked)
        found = [
            (readable(feed, Event(event_id, name, body)), version) for event_id, name, body, version in reversed(rows)
        ]
        unreadable = sum(event.type == UNREADABLE for event, _ in found)
        if unreadable:
            self.unreadable += unreadable
            log.warning("%d archived events of %s cannot be read.", unreadable, feed.key)
        return found

    async def forget(self, feed: Feed) -> None:
        async def act(session: Session) -> None:
            session.write(SQL["delete_archived"], feed=feed.key)

        await self._database.act(act)
