"""The embedded stores: the record and the live projections, a SQLite file each."""

from playhead.backends.sqlite.live import SqliteLive
from playhead.backends.sqlite.record import SqliteRecord

__all__ = ["SqliteLive", "SqliteRecord"]
