"""Apps as a module has them."""

import asyncio
import time

import playhead
from tests.cli.agents import greet

app = playhead.App([greet])


@playhead.on("run_succeeded")
def hang(event):
    """Never returns."""
    time.sleep(3600)


@playhead.on("run_succeeded")
async def hang_elsewhere(event):
    """Waits for a thread that never ends."""
    await asyncio.to_thread(time.sleep, 3600)


hanging = playhead.App([greet], listeners=[hang, *[hang_elsewhere] * 64])
