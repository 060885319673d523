"""Agents that go on for as long as a test wants, and tell of it all the while."""

from __future__ import annotations

import asyncio
from pathlib import Path

import playhead
from playhead.demo.review import licence_review


async def _work(run: playhead.RunContext, gate: str, question: bool, pace: float) -> dict[str, str]:
    said, n = "", 0
    while not Path(gate).exists():
        n += 1
        await run.event("step_taken", {"n": n}, done=n, progress=n % 100)
        piece = f"{run.attempt}.{n} Grüße,\n"
        await run.text(piece)
        said += piece
        await asyncio.sleep(pace)
    if question:
        await run.ask({"title": "Go on?"}, key="go")
    return {"markdown": said}


@playhead.agent
async def plain(run: playhead.RunContext, gate: str, question: bool = False, pace: float = 0.1) -> dict[str, str]:
    return await _work(run, gate, question, pace)


@playhead.agent(resumable=True, max_attempts=9)
async def steady(run: playhead.RunContext, gate: str, question: bool = False, pace: float = 0.1) -> dict[str, str]:
    """As `plain`, and begins anew where its server was lost."""
    return await _work(run, gate, question, pace)


AGENTS = [plain, steady, licence_review]
