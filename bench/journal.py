"""The embedded journal: publishes that are durable, against bare sqlite3 on the same disk in the same run.

    python3 dev.py bench journal

The limit at 1,000 publishers is executemany of the same rows in transactions of 1,000; at one publisher it is a loop
that inserts and commits. Both with synchronous=FULL, as the record has it; ours on uvloop.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

import uvloop

from bench import measure
from playhead.backends.sqlite.file import SqliteFile

ROW = ("run:0190", 1, "step_taken", b"x" * 190)
TABLE = "CREATE TABLE IF NOT EXISTS journal (n INTEGER PRIMARY KEY, feed TEXT, token INTEGER, type TEXT, body BLOB)"
INSERT = "INSERT INTO journal (feed, token, type, body) VALUES (?, ?, ?, ?)"


def bare(folder: Path, total: int, batch: int) -> float:
    """Rows a second of sqlite3 alone."""
    db = sqlite3.connect(folder / f"bare-{batch}.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute(TABLE)
    start = time.perf_counter()
    for _ in range(total // batch):
        db.execute("BEGIN IMMEDIATE")
        db.executemany(INSERT, [ROW] * batch)
        db.execute("COMMIT")
    took = time.perf_counter() - start
    db.close()
    return total / took


def ours(folder: Path, total: int, publishers: int) -> float:
    """Acknowledged rows a second of so many publishers through the group commit."""

    async def run() -> float:
        schema = folder / "schema"
        schema.mkdir(exist_ok=True)
        (schema / "001_first.sql").write_text(TABLE + ";")
        file = await SqliteFile.open(folder / f"ours-{publishers}.db", schema=schema, durable=True)

        async def publisher(times: int) -> None:
            for _ in range(times):
                await file.write(lambda db: db.execute(INSERT, ROW).lastrowid)

        start = time.perf_counter()
        await asyncio.gather(*(publisher(total // publishers) for _ in range(publishers)))
        took = time.perf_counter() - start
        await file.close()
        return total / took

    return uvloop.run(run())


def main() -> None:
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        many, limit = measure.rounds(5, lambda: ours(folder, 50_000, 1_000), lambda: bare(folder, 50_000, 1_000))
        one, loop = measure.rounds(5, lambda: ours(folder, 2_000, 1), lambda: bare(folder, 2_000, 1))
    print(f"1,000 publishers: {statistics.median(many):,.0f} rows/s, executemany {statistics.median(limit):,.0f}")
    print(f"one publisher: {statistics.median(one):,.0f} rows/s, commit loop {statistics.median(loop):,.0f}")
    measure.report("journal_1000_to_executemany", measure.ratio(many, limit), "x", peer="bare executemany")
    measure.report("journal_1_to_commit_loop", measure.ratio(one, loop), "x", peer="a bare commit loop")


if __name__ == "__main__":
    main()
