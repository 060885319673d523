"""What the driver reports, in playhead's own words. No exception of the driver goes further than this."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from pathlib import Path

from playhead.errors import PlayheadError, StoreCorrupt, StoreFull, StoreUnavailable

_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: "is locked by another process",
    sqlite3.SQLITE_LOCKED: "is locked",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_READONLY: "cannot be written",
    sqlite3.SQLITE_PERM: "may not be used",
    sqlite3.SQLITE_AUTH: "may not be used",
    sqlite3.SQLITE_INTERRUPT: "was read for longer than a read may take",
    sqlite3.SQLITE_IOERR: "cannot be read or written",
    sqlite3.SQLITE_NOMEM: "needs more memory than there is",
}


class Complaints:
    """What goes wrong with one file, told once for each kind of failure until it works again.

    A folder that vanished fails every commit's housekeeping, and a log of nothing else hides what happened first.
    """

    def __init__(self, log: logging.Logger, file: str) -> None:
        self._log, self._file = log, file
        self._told: dict[str, set[str]] = {}

    def failed(self, what: str, error: BaseException) -> None:
        told = self._told.setdefault(what, set())
        reason = f"{type(error).__name__}: {error}"
        if reason not in told:
            told.add(reason)
            expected = isinstance(error, OSError | sqlite3.Error | PlayheadError)
            self._log.error(
                "%s: %s failed, which is not told again until it works: %s",
                self._file,
                what,
                error,
                exc_info=None if expected else error,
            )

    def works(self, what: str) -> None:
        if self._told and self._told.pop(what, set()):
            self._log.warning("%s: %s works again.", self._file, what)


def primary_code(error: BaseException) -> int:
    """The SQLite result code without its extension; 0 if the error is not SQLite's."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF if isinstance(code, int) else 0


def spoils_transaction(error: sqlite3.Error) -> bool:
    """Whether the fault is of the file or the machine, so that going on with the same transaction makes no sense."""
    code = primary_code(error)
    return code in _UNAVAILABLE or code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def typed(error: BaseException, path: Path) -> PlayheadError:
    """The error to raise in place of the driver's."""
    if isinstance(error, PlayheadError):
        return error
    code = primary_code(error)
    if code == sqlite3.SQLITE_FULL or _no_space(error, path):
        return StoreFull(f"The disk is full: nothing was written to {path.name}, reading goes on.", file=path.name)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return corrupt(path, str(error))
    if code in _UNAVAILABLE:
        return StoreUnavailable(f"The database file {path} {_UNAVAILABLE[code]}: {error}.", file=path.name)
    if isinstance(error, OSError):
        return StoreUnavailable(f"The database file {path} cannot be used: {error.strerror}.", file=path.name)
    # A statement that SQLite refuses: a fault in this code, not in the store.
    return PlayheadError(f"A statement on {path.name} failed: {error}.", file=path.name)


def corrupt(path: Path, why: str) -> StoreCorrupt:
    """Name the damaged file, and the newest backup beside it if there is one."""
    backup = last_backup(path)
    advice = f"The last backup beside it is {backup.name}." if backup else "There is no backup beside it."
    message = f"The database file {path} is damaged ({why}). It is left as it is. {advice}"
    return StoreCorrupt(message, file=str(path), backup=str(backup) if backup else None)


def last_backup(path: Path) -> Path | None:
    found = list(path.parent.glob(f"{path.name}.backup-*"))
    return max(found, key=lambda each: (each.stat().st_mtime, each.name), default=None)


def _no_space(error: BaseException, path: Path) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    if primary_code(error) != sqlite3.SQLITE_IOERR:
        return False
    # SQLite calls it an I/O error when the shared index of the log cannot grow.
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < 64 * 1024
