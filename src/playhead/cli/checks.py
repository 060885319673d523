"""What `playhead doctor` looks at: the folder, the stores, the server, and the machine under them."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import anyio

from playhead.cli.doctor import Finding
from playhead.cli.folder import (
    LIVE,
    RECORD,
    Place,
    Record,
    damage,
    find_server,
    has_wal_reset_fault,
    read_record,
    read_server,
)
from playhead.cli.mounts import NETWORK, file_system
from playhead.client import Client
from playhead.core.run import Status
from playhead.errors import PlayheadError
from playhead.settings import Settings

MADE = datetime(2026, 11, 1, tzinfo=UTC)  # no clock that is right shows an earlier day to this version
LITTLE, TOO_LITTLE = 1 << 30, 64 << 20  # bytes of free space
AHEAD = 120.0  # seconds that a file may be newer than now
SPARE_FILES = 256


def folder(settings: Settings) -> Iterator[Finding]:
    data = settings.data
    if not data.exists():
        yield Finding("folder", "warn", f"{data} is not there yet.", "`playhead serve` makes it.")
    elif not data.is_dir():
        yield Finding("folder", "fail", f"{data} is not a folder.", "Choose another one with --data.")
        return
    place = _existing(data)
    try:
        # Asking for rights alone would not notice a file system that is read-only or full.
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"playhead")
    except OSError as error:
        yield Finding("writable", "fail", f"{place} cannot be written: {error.strerror}.", "Give this user the right.")
    else:
        yield Finding("writable", "ok", f"{place} can be written.")
    yield _space(place)
    kind = file_system(place)
    if kind is not None and NETWORK.fullmatch(kind):
        yield Finding(
            "file system",
            "warn",
            f"{place} is on {kind}, a network file system: locks and shared memory may not hold there.",
            "Use a local disk.",
        )
    else:
        yield Finding("file system", "ok", kind or "unknown")
    if data.is_dir():
        yield _permissions(data)


def stores(settings: Settings) -> Iterator[Finding]:
    version = sqlite3.sqlite_version
    if has_wal_reset_fault():
        yield Finding(
            "sqlite",
            "warn",
            f"{version} has the WAL reset fault (3.7.0 to 3.51.2): very rarely, two connections that copy the log back "
            "at once lose a commit.",
            "Use a Python with SQLite 3.51.3 or newer.",
        )
    else:
        yield Finding("sqlite", "ok", version)
    for name, what in ((RECORD, "record"), (LIVE, "live")):
        path = settings.data / name
        if not path.exists():
            yield Finding(what, "ok", f"{name} is not there yet.")
        elif (found := damage(path)) is not None:
            advice = (
                "Stop the server and restore it from a backup; keep the damaged file."
                if name == RECORD
                else "Stop the server and move the file away: it is made again from the record."
            )
            yield Finding(what, "fail", f"{path} is damaged: {found}.", advice)
        else:
            yield _record(settings) if name == RECORD else Finding(what, "ok", f"{name} is sound.")


def server(settings: Settings) -> Iterator[Finding]:
    left, running = read_server(settings.data), find_server(settings.data)
    if running is None:
        if left is None:
            yield Finding("server", "ok", "none is running.")
        else:
            message = f"none is running; server.json was left by process {left.pid}, which did not end by itself."
            yield Finding("server", "ok", message)
        return
    who = f"process {running.pid} ({running.version}) at {running.url}"
    try:
        status = anyio.run(Client(running.url, timeout=5.0).exchange, "GET", "/readyz").status
    except PlayheadError as error:
        message = f"{who} holds the folder and does not answer: {error.message}"
        yield Finding("server", "fail", message, "Look at its log; stop it and start it again.")
        return
    if status == 200:
        yield Finding("server", "ok", f"{who} is ready.")
    else:
        yield Finding("server", "warn", f"{who} answers {status}: it starts or drains.")


def machine(settings: Settings) -> Iterator[Finding]:
    now = datetime.now(UTC)
    newest = max((path.stat().st_mtime for path in _files(settings.data)), default=0.0)
    first = time.monotonic()
    if now < MADE:
        yield Finding("clock", "fail", f"It shows {now:%Y-%m-%d}, before this version was made.", "Set the clock.")
    elif newest > now.timestamp() + AHEAD:
        yield Finding(
            "clock", "warn", "Files of the data folder are newer than now: it was set back.", "Set the clock."
        )
    elif time.monotonic() < first or not time.get_clock_info("monotonic").monotonic:
        yield Finding("clock", "fail", "The steady clock goes back.", "Run on another machine.")
    else:
        yield Finding("clock", "ok", f"{now:%Y-%m-%d %H:%M:%S} UTC")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.max_streams + SPARE_FILES
    if hard != resource.RLIM_INFINITY and hard < wanted:
        message = f"At most {hard} open files, and {settings.max_streams} streams need {wanted}."
        yield Finding("open files", "warn", message, "Raise the hard limit (`ulimit -Hn`), or lower max_streams.")
    else:
        yield Finding("open files", "ok", f"{soft} now; a server raises it to {wanted} for itself.")


def _record(settings: Settings) -> Finding:
    async def look(record: Record) -> int:
        return len(await record.list_runs("local", status=(Status.QUEUED, Status.RUNNING, Status.WAITING), limit=200))

    try:
        going = read_record(Place(settings.data), look)
    except PlayheadError as error:
        return Finding("record", "fail", error.message, "Use the newest playhead.")
    return Finding("record", "ok", f"{RECORD} is sound; {going} runs have not ended.")


def _space(place: Path) -> Finding:
    free = shutil.disk_usage(place).free
    told = f"{free / (1 << 30):.1f} GiB free."
    if free < TOO_LITTLE:
        return Finding("space", "fail", told, "Make room: writes are refused on a full disk.")
    return Finding("space", "warn", told, "Make room soon.") if free < LITTLE else Finding("space", "ok", told)


def _permissions(data: Path) -> Finding:
    def open_to_others(path: Path) -> bool:
        return bool(stat.S_IMODE(path.stat().st_mode) & (stat.S_IRGRP | stat.S_IROTH))

    if open_to_others(data) and (seen := [path.name for path in _files(data) if open_to_others(path)]):
        message = f"Other users of this machine can read {', '.join(seen)}."
        return Finding("permissions", "warn", message, f"Run: chmod -R go-rwx {data}")
    return Finding("permissions", "ok", "Only this user can read the data.")


def _files(data: Path) -> list[Path]:
    return sorted(path for path in data.glob("*") if path.is_file()) if data.is_dir() else []


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    path = Path(os.path.abspath(path))
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
