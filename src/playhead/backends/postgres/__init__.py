"""The record in PostgreSQL, for any number of processes. Needs the extra `postgres`."""

from playhead.backends.postgres.record import PostgresRecord

__all__ = ["PostgresRecord"]
