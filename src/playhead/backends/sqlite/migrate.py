"""Bring a database file to the schema of this code: numbered `.sql` files, each applied whole or not at all."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playhead.backends.sqlite.faults import corrupt
from playhead.errors import StoreTooNew, StoreUnavailable


@dataclass(frozen=True, slots=True)
class Step:
    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def load(folder: Path) -> tuple[Step, ...]:
    """Read the steps of a folder, `001_first.sql` and on, in order."""
    files = sorted(folder.glob("[0-9][0-9][0-9]_*.sql"))
    steps = tuple(Step(int(each.name[:3]), each.stem, each.read_text("utf-8")) for each in files)
    if [step.version for step in steps] != list(range(1, len(steps) + 1)):
        raise ValueError(f"The schema steps in {folder} are not numbered 1, 2, 3 and on.")
    return steps


def check(connection: sqlite3.Connection, steps: tuple[Step, ...], path: Path) -> int:
    """The version that the file has. Raises StoreTooNew, or StoreCorrupt for a file that is not ours."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(steps):
        raise StoreTooNew(
            f"{path} has schema {version} and this version of playhead knows {len(steps)}. It is left as it is.",
            file=str(path),
            found=version,
            known=len(steps),
        )
    if version == 0:
        if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            raise corrupt(path, "it holds tables that are not playhead's")
        return 0
    applied = dict(connection.execute("SELECT version, checksum FROM schema_step"))
    for step in steps[:version]:
        if applied.get(step.version) != step.checksum:
            raise StoreTooNew(
                f"{path} was made by another version of playhead: its schema step {step.name} is not the one here.",
                file=str(path),
                step=step.name,
            )
    return version


def check_current(connection: sqlite3.Connection, steps: tuple[Step, ...], path: Path) -> None:
    """Raise unless the file can be read as it is, with nothing to apply."""
    version = check(connection, steps, path)
    if version < len(steps):
        raise StoreUnavailable(
            f"{path} has schema {version} and needs {len(steps)}; starting the server upgrades it.", file=str(path)
        )


def apply(connection: sqlite3.Connection, steps: tuple[Step, ...], path: Path) -> int:
    """Apply what is missing; how many steps were. A process killed on the way leaves the file at a whole step."""
    done = 0
    while check(connection, steps, path) < len(steps):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Read again under the lock: another process may have applied it meanwhile.
            version = check(connection, steps, path)
            if version < len(steps):
                _apply(connection, steps[version])
                done += 1
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return done


def _apply(connection: sqlite3.Connection, step: Step) -> None:
    for statement in statements(step.text):
        connection.execute(statement)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_step"
        " (version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL)"
    )
    connection.execute("INSERT INTO schema_step VALUES (?, ?, ?)", (step.version, step.name, step.checksum))
    # Last, and within the transaction: the version says that everything before it is there.
    connection.execute(f"PRAGMA user_version = {step.version}")


def statements(text: str) -> Iterator[str]:
    """Split a script. (`executescript` would commit first.) A statement begins on a line of its own."""
    part = ""
    for line in text.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            yield part
            part = ""
    rest = [line for line in part.splitlines() if line.strip() and not line.lstrip().startswith("--")]
    if rest:
        raise ValueError(f"The statement is not closed: {rest[0]}")
