"""From the settings to the ports: the one module of the library that names backends.

Embedded, the default: two SQLite files in the data folder, for one server. Otherwise PostgreSQL and Redis, for any
number of processes; their drivers are imported only then.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from playhead.backends.sqlite.live import SqliteLive
from playhead.backends.sqlite.lock import DataLock, ServerInfo
from playhead.backends.sqlite.record import SqliteRecord
from playhead.core.retention import Retention
from playhead.errors import PlayheadError
from playhead.interfaces import Clock
from playhead.runtime.setup import Ports
from playhead.settings import InvalidSetting, Settings

if TYPE_CHECKING:
    from playhead.backends.postgres.record import PostgresRecord
    from playhead.backends.redis.live import RedisLive

__all__ = ["DataLock", "ServerInfo", "open_embedded", "open_live", "open_record", "open_servers"]

RECORD = "record.db"
LIVE = "live.db"


async def open_embedded(settings: Settings, clock: Clock, stack: AsyncExitStack) -> tuple[Ports, DataLock]:
    """The two files of the data folder, and the lock that keeps other servers out of it; `stack` closes them.

    Raises DataLocked, FolderUnusable, StoreCorrupt, StoreTooNew.
    """
    lock = DataLock.acquire(settings.data)
    stack.callback(lock.release)
    record = await SqliteRecord.open(settings.data / RECORD, clock=clock)
    stack.push_async_callback(record.close)
    live = await SqliteLive.at(
        settings.data / LIVE,
        clock=clock,
        retention=retention(settings),
        timeline_ttl=settings.timeline_ttl,
        snapshot_ttl=settings.snapshot_ttl,
        idle_ttl=settings.idle_ttl,
    )
    stack.push_async_callback(live.close)
    return Ports(record, record, live, live, live.signal), lock


async def open_servers(settings: Settings, clock: Clock, stack: AsyncExitStack) -> Ports:
    """PostgreSQL and Redis at their addresses; `stack` closes them. Neither need be there yet.

    Raises InvalidSetting for an address that is none, and MissingExtra where a driver is not installed.
    """
    assert settings.record is not None
    record = open_record(settings.record, clock, connections=settings.record_connections)
    stack.push_async_callback(record.close)
    live = await open_live(settings, clock)
    stack.push_async_callback(live.close)
    return Ports(record, record, live, live, live.signal)


def open_record(address: str, clock: Clock, *, connections: int) -> PostgresRecord:
    """Raises as `open_servers`."""
    try:
        from playhead.backends.postgres.record import PostgresRecord
    except ModuleNotFoundError as error:
        raise MissingExtra(extra="postgres", lacks=error.name) from None
    try:
        return PostgresRecord.at(address, clock=clock, max_size=connections)
    except ValueError as error:
        raise InvalidSetting(f"record cannot be used: {error}", setting="record") from None


async def open_live(settings: Settings, clock: Clock) -> RedisLive:
    """Raises as `open_servers`."""
    assert settings.live is not None
    try:
        from playhead.backends.redis.live import RedisLive
    except ModuleNotFoundError as error:
        raise MissingExtra(extra="redis", lacks=error.name) from None
    try:
        return await RedisLive.at(
            settings.live,
            clock=clock,
            retention=retention(settings),
            timeline_ttl=settings.timeline_ttl,
            snapshot_ttl=settings.snapshot_ttl,
            idle_ttl=settings.idle_ttl,
            prefix=settings.live_prefix,
            connections=settings.live_connections,
            pipelined=settings.live_pipelined,
        )
    except ValueError as error:
        raise InvalidSetting(f"live cannot be used: {error}", setting="live") from None


def retention(settings: Settings) -> Retention:
    return Retention(settings.keep_events, settings.keep_age, settings.keep_bytes, settings.archive != "off")


class MissingExtra(PlayheadError):
    """The driver of this store is not installed."""

    code = "missing_extra"

    def __init__(self, *, extra: str, lacks: str | None) -> None:
        super().__init__(f"{lacks} is not installed: pip install 'playhead[{extra}]'", extra=extra)
