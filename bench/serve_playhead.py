"""The server under test: one run that publishes on command.

    python -m bench.serve_playhead PORT

Standard input: `emit EVENTS BURST PAUSE` publishes EVENTS events in bursts, PAUSE seconds apart, and prints the CPU
seconds that the process used since the command; `cpu` prints the CPU so far, `rss` the resident bytes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

import uvicorn
import uvloop

import playhead
from bench.measure import rss_bytes
from playhead.cli.listen import listen
from playhead.cli.serve import SILENCE, spare_collector
from playhead.cli.server import configuration
from playhead.settings import Settings

commands: asyncio.Queue[tuple[int, int, float]] = asyncio.Queue()


@playhead.agent
async def pulse(run: playhead.RunContext) -> None:
    sent = 0
    while True:
        events, burst, pause = await commands.get()
        before = time.process_time()
        while events > 0:
            many = min(burst, events)
            marks = ({"n": sent + i, "pad": "x" * 60} for i in range(1, many + 1))
            await asyncio.gather(*(run.event("mark_set", mark) for mark in marks))
            sent, events = sent + many, events - many
            await asyncio.sleep(pause)
        print(json.dumps({"cpu": time.process_time() - before, "sent": sent}), flush=True)


async def read_commands() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while text := (await reader.readline()).decode():
        words = text.split()
        if words[0] == "emit":
            await commands.put((int(words[1]), int(words[2]), float(words[3])))
        elif words[0] == "cpu":
            print(json.dumps({"cpu": time.process_time()}), flush=True)
        elif words[0] == "rss":
            print(json.dumps({"rss": rss_bytes(os.getpid())}), flush=True)


async def main() -> None:
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        app = playhead.App([pulse], settings=Settings.load(data=Path(folder), environ={}, max_streams=20_000))
        async with app:
            run = await app.start(pulse)
            # As `playhead serve` does, which adds signal handlers.
            settings = app.settings
            taken = listen(settings.host, int(sys.argv[1]), send_buffer=settings.viewer_bytes, silence=SILENCE)
            server = uvicorn.Server(configuration(app, settings.delivery))
            serving = asyncio.create_task(server.serve(sockets=[taken]))
            while not server.started:
                await asyncio.sleep(0.01)
            spare_collector()
            print(json.dumps({"path": f"/runs/{run.id}/stream"}), flush=True)
            await asyncio.gather(serving, read_commands())


if __name__ == "__main__":
    uvloop.run(main())
