"""One server per data folder: an OS lock on `server.lock`, and `server.json`, which says who holds it.

The lock ends with its process, however that ends. `server.json` may stay behind; it counts only while the lock is held.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from playhead.errors import DataLocked, FolderUnusable

_LOCK = "server.lock"
_SERVER = "server.json"
_PATIENCE_S = 0.3  # somebody who looks whether the lock is held has it for a moment


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Who serves a data folder, and where. `started_at` is wall ms."""

    pid: int
    url: str
    started_at: int
    version: str


class DataLock:
    """The right to serve a data folder; held until `release` or the end of the process."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        """See `acquire`."""
        self.folder = folder
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, folder: Path) -> DataLock:
        """Lock the folder, made if it is missing.

        Raises DataLocked, naming the holder where it can be known, and FolderUnusable with the reason.
        """
        descriptor = _open(folder)
        try:
            end = time.monotonic() + _PATIENCE_S
            while not _try(descriptor, fcntl.LOCK_EX, folder):
                if time.monotonic() > end:
                    raise _locked(folder, descriptor)
                time.sleep(0.02)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        except OSError as error:
            os.close(descriptor)
            raise _unusable(folder, error) from error
        except BaseException:
            os.close(descriptor)
            raise
        return cls(folder, descriptor)

    def announce(self, info: ServerInfo) -> None:
        """Write `server.json`, whole or not at all. Raises FolderUnusable."""
        new = self.folder / f"{_SERVER}.new"
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(asdict(info), file)
            new.replace(self.folder / _SERVER)
        except OSError as error:
            raise _unusable(self.folder, error) from error

    def release(self) -> None:
        """Remove `server.json` and let go. Safe to call twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            (self.folder / _SERVER).unlink(missing_ok=True)
        except OSError:
            pass  # it counts for nothing without the lock
        os.close(descriptor)  # the lock file stays: removing it could split two servers over two files of one name


def find_server(folder: Path) -> ServerInfo | None:
    """The server that runs on this folder now; None also when `server.json` was left behind by one that is gone."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _try(descriptor, fcntl.LOCK_SH, folder):
            return None
        return read_server(folder)
    finally:
        os.close(descriptor)


def read_server(folder: Path) -> ServerInfo | None:
    """What `server.json` says, whether it still holds or not; None if it is missing or not readable."""
    try:
        found = json.loads((folder / _SERVER).read_bytes())
        return ServerInfo(int(found["pid"]), str(found["url"]), int(found["started_at"]), str(found["version"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _open(folder: Path) -> int:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(folder, error) from error


def _try(descriptor: int, how: int, folder: Path) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise FolderUnusable(
            f"{folder} is on a file system without locks: {error.strerror}.", folder=str(folder)
        ) from error
    return True


def _locked(folder: Path, descriptor: int) -> DataLocked:
    holder = os.pread(descriptor, 20, 0)
    pid = int(holder) if holder.isdigit() else None
    info = read_server(folder)
    if info is not None and info.pid == pid:
        message = f"Another server (process {pid}, {info.url}) is using {folder}."
        return DataLocked(message, folder=str(folder), pid=pid, url=info.url)
    who = f" (process {pid})" if pid is not None else ""
    return DataLocked(f"Another server{who} is using {folder}.", folder=str(folder), pid=pid)


def _unusable(folder: Path, error: OSError) -> FolderUnusable:
    return FolderUnusable(f"The data folder {folder} cannot be used: {error.strerror}.", folder=str(folder))
