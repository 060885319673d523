"""Agents that stand still for as long as they are told, in the event loop or in a thread of their own."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

import playhead

How = Literal["asleep", "busy"]


def block(how: How, seconds: float) -> None:
    """Asleep lets other threads of the process run; busy makes them wait for their turn every time."""
    if how == "asleep":
        time.sleep(seconds)
        return
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@playhead.agent
async def loop(run: playhead.RunContext, how: How, seconds: float) -> str:
    """Blocks the event loop, and so the whole server but its threads."""
    await run.event("work_begun", current_step="a long call")
    await asyncio.sleep(0.5)  # whoever started it has its answer by then
    block(how, seconds)
    return how


@playhead.agent
def thread(run: playhead.SyncRun, how: How, seconds: float) -> str:
    """Blocks its own thread."""
    run.event("work_begun", current_step="a long call")
    block(how, seconds)
    return how


@playhead.agent
async def bystander(run: playhead.RunContext) -> str:
    """Waits for the others to end."""
    decision = await run.ask({"title": "Done?"})
    return "approved" if decision.approved else "rejected"


every = [loop, thread, bystander]
