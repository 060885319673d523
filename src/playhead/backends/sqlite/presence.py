"""Presence in SQLite: a row for each run and process with viewers, and for a while after they left."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from pathlib import Path

from playhead.backends import queries
from playhead.backends.sqlite.rows import find_lease, find_run, interrupts_of_run, store
from playhead.core import disconnect
from playhead.core import lease as leases
from playhead.core.run import Run

SQL = queries.load(Path(__file__).with_name("presence.sql"))


def watch(db: sqlite3.Connection, process: str, runs: Collection[str]) -> None:
    rows = [(run_id, process) for run_id in runs if _seconds(db, run_id) is not None]
    db.executemany(SQL["watch"], rows)


def unwatch(db: sqlite3.Connection, places: Iterable[tuple[str, str]], at: int, grace_ms: int = 0) -> None:
    """The viewers of these runs at these processes left."""
    for run_id, process in places:
        if (after := _seconds(db, run_id)) is None:
            db.execute(SQL["forget"], (run_id, process))
        else:
            db.execute(SQL["put_due"], (run_id, process, disconnect.due_at(after, at, grace_ms)))


def expired(db: sqlite3.Connection, steady_ms: int, limit: int) -> list[tuple[str, str]]:
    """Runs with the processes at which they are watched and which hold no lease."""
    watching = [process for (process,) in db.execute(SQL["watching"])]
    gone = [process for process in watching if not leases.held(find_lease(db, process), steady_ms)]
    found: list[tuple[str, str]] = []
    for process in gone:
        found += db.execute(SQL["watched_at"], (process, limit - len(found)))
    return found


def deserted(db: sqlite3.Connection, at: int, limit: int) -> list[str]:
    return list(dict.fromkeys(run_id for (run_id,) in db.execute(SQL["first_due"], (at, limit))))


def desert(db: sqlite3.Connection, run_id: str, at: int) -> Run | None:
    run = find_run(db, run_id)
    dues = [due for (due,) in db.execute(SQL["of_run"], (run_id,))]
    db.execute(SQL["forget_due"], (run_id, at))
    change = disconnect.desert(run, dues, interrupts_of_run(db, run_id), at) if run is not None else None
    return store(db, run, change, at) if run is not None and change is not None else None


def _seconds(db: sqlite3.Connection, run_id: str) -> float | None:
    """Of the policy of a run that counts; None for any other."""
    row = db.execute(SQL["counts"], (run_id,)).fetchone()
    return None if row is None else float(row[0])
