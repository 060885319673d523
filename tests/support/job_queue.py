"""A worker of somebody's job queue: takes job ids from a table and does each as an attempt of its run.

python -m tests.support.job_queue DSN     # of the database with the tables; the stores are named by PLAYHEAD_RECORD …
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import psycopg

import playhead
from playhead.errors import RunCancelled, RunNotFree

TABLES = """
CREATE TABLE job (id bigserial PRIMARY KEY, run_id text NOT NULL, taken boolean NOT NULL DEFAULT false, outcome text);
CREATE TABLE gate (run_id text PRIMARY KEY);
"""
_TAKE = """
UPDATE job SET taken = true
WHERE id = (SELECT id FROM job WHERE NOT taken ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, run_id
"""
_LOOK = 0.05  # seconds between two looks at a table


async def work(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as queue:
        while True:
            job = await (await queue.execute(_TAKE)).fetchone()
            if job is not None:
                number, run_id = job
                outcome = await do(dsn, run_id)
                await queue.execute(
                    "UPDATE job SET taken = %s, outcome = %s WHERE id = %s", (outcome is not None, outcome, number)
                )
            await asyncio.sleep(_LOOK)


async def do(dsn: str, run_id: str) -> str | None:
    """How it ended; None: not yet, and somebody shall try again."""
    try:
        async with playhead.attempt(run_id) as run:
            await run.event("rows_read", {"by": run.attempt}, progress=50)
            await run.text(f"by {run.attempt}")
            await opened(dsn, run_id)
            await run.event("rows_written", {"by": run.attempt}, progress=100)
            run.result = {"by": run.attempt}
    except RunNotFree:  # another attempt has it, or had it a moment ago
        return None
    except RunCancelled:
        return "cancelled"
    return "done"


async def opened(dsn: str, run_id: str) -> None:
    """Return once the gate of this run is open."""
    while not await asyncio.to_thread(_find, dsn, run_id):
        await asyncio.sleep(_LOOK)


def _find(dsn: str, run_id: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as db:
        return db.execute("SELECT 1 FROM gate WHERE run_id = %s", (run_id,)).fetchone()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
