"""What the driver and the server report, in playhead's own words. No exception of the driver goes further than this."""

from __future__ import annotations

import psycopg

from playhead.errors import PlayheadError, StoreCorrupt, StoreFull, StoreUnavailable

_FULL = "53100"
_CORRUPT = frozenset({"XX001", "XX002"})
_ROLLED_BACK = frozenset({"40001", "40P01"})  # serialization failure, deadlock
# The server ends the session: shutting down, crashed, starting, or this session was silent for too long.
_GONE = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"})
_TIMED_OUT = frozenset({"55P03", "57014"})  # waited too long for a lock, or ran too long
_READ_ONLY = "25006"  # a standby, to which the name of the primary led
# Connection, account, database, resources, rights, and the machine under the server.
_UNAVAILABLE = ("08", "28", "3D", "53", "58")
_FORBIDDEN = "42501"


def rolled_back(error: psycopg.Error) -> bool:
    """Whether the server gave the transaction up for the sake of another, so that the same may work now."""
    return error.sqlstate in _ROLLED_BACK


def connection_lost(error: psycopg.Error) -> bool:
    """Whether the fault is of the connection, so that another one may work."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state.startswith("08") or state in _GONE or state == _READ_ONLY


def typed(error: psycopg.Error, where: str) -> PlayheadError:
    """The error to raise in place of the driver's. `where` names the database, without a password."""
    state, told = error.sqlstate, _first_line(error)
    if state == _FULL:
        return StoreFull(f"The disk of {where} is full: nothing was written, reading goes on.", database=where)
    if state in _CORRUPT:
        return StoreCorrupt(f"{where} is damaged: {told}. It is left as it is.", database=where)
    if state == _READ_ONLY:
        return StoreUnavailable(f"{where} is read-only, a standby perhaps: nothing was written.", database=where)
    if state in _TIMED_OUT:
        return StoreUnavailable(f"{where} took too long: {told}.", database=where)
    if connection_lost(error) or rolled_back(error):
        return StoreUnavailable(f"{where} cannot be reached: {told}.", database=where)
    if state is not None and (state[:2] in _UNAVAILABLE or state == _FORBIDDEN):
        return StoreUnavailable(f"{where} cannot be used: {told}.", database=where)
    # A statement that PostgreSQL refuses: a fault in this code, not in the store.
    return PlayheadError(f"A statement on {where} failed: {told}.", database=where)


def _first_line(error: psycopg.Error) -> str:
    told = error.diag.message_primary or str(error)
    return (told.strip().splitlines() or [type(error).__name__])[0].rstrip(".")
