"""Publishes to many runs at a steady rate, each event with the time at which it was sent.

    python -m bench.publish_runs REDIS_URL FILE RATE SECONDS

FILE is what `bench.serve_runs` wrote. Prints {"ready": true}, waits for a line, and prints what it published.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import time
from pathlib import Path

import uvloop

from bench import redisload
from playhead.core.transition import Applied
from playhead.testing.ports.given import Scribe

STEP = 0.005  # seconds between two handfuls


async def main() -> None:
    logging.disable(logging.WARNING)
    store = await redisload.store(redisload.At(sys.argv[1]))
    rate, seconds = int(sys.argv[3]), float(sys.argv[4])
    scribes: list[Scribe] = []
    for run_id, epoch, token, rev in json.loads(Path(sys.argv[2]).read_text()):
        scribe = Scribe(redisload.CLOCK, run_id)
        scribe.epoch, scribe.token, scribe.rev = epoch, token, rev
        scribes.append(scribe)
    random.shuffle(scribes)

    async def publish(number: int) -> None:
        scribe = scribes[number % len(scribes)]
        reply = await store.publish(scribe.write(1, payload={"at": time.time(), "pad": "x" * 60}))
        assert isinstance(reply, Applied), reply

    await publish(0)  # from then on what is asked first goes out first
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    start, sent, cpu = time.perf_counter(), 0, time.process_time()
    tasks: set[asyncio.Task[None]] = set()
    while (passed := time.perf_counter() - start) < seconds:
        due = min(round(passed * rate), sent + rate)
        for number in range(sent, due):
            task = asyncio.create_task(publish(number))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        sent = max(sent, due)
        await asyncio.sleep(STEP)
    while tasks:
        await asyncio.gather(*tasks)
    wall = time.perf_counter() - start
    print(json.dumps({"sent": sent, "seconds": wall, "cpu": time.process_time() - cpu}), flush=True)
    await store.close()


if __name__ == "__main__":
    uvloop.run(main())
