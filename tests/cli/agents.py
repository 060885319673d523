"""Agents for the servers that these tests start."""

import asyncio
import time

import playhead


@playhead.agent
async def greet(run: playhead.RunContext, who: str = "world", count: int = 3) -> dict:
    """Greets."""
    for number in range(count):
        await run.event("step_taken", {"number": number}, progress=100 * number / count, current_step="greet")
    await run.text(f"Hello, {who}!\nHow are you?")
    return {"greeted": who}


@playhead.agent(resumable=True, max_attempts=10)
async def walk(run: playhead.RunContext, count: int = 40, pause: float = 0.1) -> dict:
    """Takes steps, each named by its number; a later attempt takes them all again, and quicker."""
    for number in range(count):
        await run.event("step_taken", {"number": number, "attempt": run.attempt})
        await asyncio.sleep(pause if run.attempt == 1 else pause / 10)
    return {"taken": count}


@playhead.agent
async def wait(run: playhead.RunContext, questions: int = 1) -> dict:
    """Asks all its questions at once."""
    answers = await asyncio.gather(*(run.ask({"title": f"Question {n}"}, key=f"q{n}") for n in range(questions)))
    return {"approved": [answer.approved for answer in answers], "notes": [answer.note for answer in answers]}


@playhead.agent
async def recite(run: playhead.RunContext) -> str:
    """Says something, asks, and says the rest."""
    await run.text("one\ntwo")
    await run.text("aside", "notes")
    await run.ask({"title": "Go on?"})
    await run.text(" and more\n\x1b[31mthe end")
    return "said"


@playhead.agent
async def last(run: playhead.RunContext) -> None:
    """Goes on until it is stopped."""
    await run.event("begun")
    await asyncio.sleep(3600)


@playhead.agent
async def deaf(run: playhead.RunContext) -> None:
    """Does not stop when it is asked to."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass


@playhead.agent
def block(run: playhead.SyncRun) -> None:
    """Looks at nothing while it works."""
    time.sleep(3600)


@playhead.agent
async def clog(run: playhead.RunContext) -> None:
    """Gives the loop's executor as many calls that never end as it has threads, and more."""
    await asyncio.gather(*(asyncio.to_thread(time.sleep, 3600) for _ in range(64)))


@playhead.agent
async def fail(run: playhead.RunContext) -> None:
    """Fails."""
    raise ValueError("it cannot be done")


every = [greet, walk, wait, recite, last, deaf, block, clog, fail]
