"""The data folder from outside its server. The one module here that names a backend."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from playhead.backends.sqlite.lock import ServerInfo, find_server, read_server
from playhead.errors import NoServer
from playhead.interfaces import Archive, RunStore

__all__ = ["Place", "ServerInfo", "damage", "find_server", "has_wal_reset_fault", "read_record", "read_server"]

T = TypeVar("T")
RECORD = "record.db"
LIVE = "live.db"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the runs are: a data folder, or a server by its address. `keepalive` is what that server is set to."""

    data: Path
    url: str | None = None
    keepalive: float = 15.0
    record: str | None = None  # the address of a database that many servers share: no folder says where they are

    @classmethod
    def of(cls, data: Path | None, url: str | None) -> Place:
        """What the options say, and the settings where they do not. Raises InvalidSetting."""
        from playhead.settings import Settings

        settings = Settings.load(data=data)
        url = url or os.environ.get("PLAYHEAD_URL")
        return cls(settings.data, url.rstrip("/") if url else None, settings.keepalive, settings.record)

    def find(self) -> str | None:
        """The address of the server that runs now. A restarted one may have another."""
        if self.url is not None:
            return self.url
        info = None if self.record else find_server(self.data)
        return info.url.rstrip("/") if info is not None else None

    def need(self) -> str:
        """Likewise. Raises NoServer, which says how to start one."""
        found = self.find()
        if found is None and self.record:
            raise NoServer("Say which server by --url, or by PLAYHEAD_URL: this record may have many.")
        if found is None:
            raise NoServer(f"No server is running on {self.data}; start it with: playhead serve {self.option}")
        return found

    @property
    def option(self) -> str:
        """How a command line names this folder."""
        return f"--data {shlex.quote(str(self.data))}"


class Record(RunStore, Archive, Protocol):
    """What reading commands may ask."""


def read_record(place: Place, look: Callable[[Record], Awaitable[T]]) -> T:
    """Look into the record of a folder that no server has, or into a shared one. Nothing is written.

    Raises NoServer where there is no record, StoreCorrupt, StoreTooNew, StoreUnavailable, and for a shared one what
    `open_record` raises.
    """
    import logging

    from playhead.runtime.clock import SystemClock

    # What a store logs is for servers; a command has its one line.
    logging.getLogger("playhead").addHandler(logging.NullHandler())
    if place.record is not None:
        return asyncio.run(_read_shared(place.record, look))
    from playhead.backends.sqlite.record import SqliteRecord

    path = place.data / RECORD
    if not path.exists():
        raise NoServer(
            f"There are no runs in {place.data}, and no server; start it with: playhead serve {place.option}"
        )

    async def read() -> T:
        record = await SqliteRecord.open_read_only(path, clock=SystemClock())
        try:
            return await look(record)
        finally:
            await record.close()

    return asyncio.run(read())


async def _read_shared(address: str, look: Callable[[Record], Awaitable[T]]) -> T:
    from playhead.runtime.clock import SystemClock
    from playhead.stores import open_record

    record = open_record(address, SystemClock(), connections=1)
    try:
        return await look(record)
    finally:
        await record.close()


def damage(path: Path) -> str | None:
    """The first damage in a database file, or None. Reads it all, writes nothing, and may run beside a server."""
    import sqlite3

    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.Error as error:
        return str(error)
    return None if found == "ok" else " ".join(str(found).split())


def has_wal_reset_fault() -> bool:
    """Whether the SQLite of this Python has it."""
    from playhead.backends.sqlite.file import has_wal_reset_fault as has

    return has()
