"""A worker process on a record in PostgreSQL, for tests that stop or kill one: `python -m … DSN PROCESS TTL_MS COUNT`.

It takes COUNT runs, one at a time, and keeps them: it beats until its standard input closes. One line of JSON for each
thing it learns.
"""

import asyncio
import json
import sys

from playhead.backends.postgres import PostgresRecord
from playhead.runtime.clock import SystemClock
from playhead.testing.ports.given import AGENT


def tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


async def work(dsn: str, process: str, ttl_ms: int, count: int) -> None:
    record = await PostgresRecord.open(dsn, clock=SystemClock(), deadline=30.0)
    closed = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    held: set[tuple[str, int]] = set()
    await record.beat(process, ttl_ms, ())
    tell(ready=True)
    while not closed.done():
        if len(held) < count:
            for run in await record.acquire(process, [AGENT], 1):
                held.add((run.id, run.token))
                tell(took=run.id, token=run.token)
        beat = await record.beat(process, ttl_ms, held)
        for run_id, token in sorted(beat.lost):
            tell(lost=run_id, token=token)
        held -= beat.lost
        await asyncio.sleep(0.02)
    await record.close()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
