"""A server over Redis with many live runs, whose record is in memory: what is measured is the way from Redis to a
viewer.

    python -m bench.serve_runs PORT REDIS_URL RUNS FILE

Writes (id, epoch, token, rev) of each run to FILE as JSON; on standard input, `cpu` prints the CPU so far.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import uvicorn
import uvloop

from bench import redisload
from playhead.app import App
from playhead.backends.memory import MemoryRecord
from playhead.backends.redis import RedisLive
from playhead.cli.listen import listen
from playhead.cli.serve import SILENCE, spare_collector
from playhead.cli.server import configuration
from playhead.runtime.setup import Ports
from playhead.settings import Settings

TENANT = "local"  # of the one who asks from this machine


class InMemory(App):
    """An app whose record is in memory."""

    url = ""

    async def _open_ports(self, stack: AsyncExitStack) -> Ports:
        record = MemoryRecord(self.clock)
        live = await RedisLive.at(self.url, clock=self.clock, deadline=redisload.PATIENCE)
        stack.push_async_callback(live.close)
        return Ports(record, record, live, live, live.signal)


async def read_commands() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        print(json.dumps({"cpu": time.process_time()}), flush=True)


async def main() -> None:
    logging.disable(logging.WARNING)
    port, url, count, file = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    # Nobody works here: whoever publishes is another process, whose lease nobody has to renew.
    app = InMemory([], settings=Settings.load(environ={}, max_streams=20_000, worker=False, archive="off"))
    app.url = url
    async with app:
        record, projector = app.engine.ports.record, app.engine.projector
        assert isinstance(record, MemoryRecord)
        runs = []
        for start in range(0, count, 200):
            some = range(start, min(count, start + 200))
            runs += await asyncio.gather(*(redisload.begun(record, projector, tenant=TENANT) for _ in some))
        file.write_text(json.dumps([(run.id, run.epoch, run.token, run.rev) for run in runs]))
        taken = listen("127.0.0.1", port, send_buffer=app.settings.viewer_bytes, silence=SILENCE)
        server = uvicorn.Server(configuration(app, app.settings.delivery))
        serving = asyncio.create_task(server.serve(sockets=[taken]))
        while not server.started:
            await asyncio.sleep(0.01)
        spare_collector()
        print(json.dumps({"runs": count}), flush=True)
        await asyncio.gather(serving, read_commands())


if __name__ == "__main__":
    uvloop.run(main())
