"""Agents that real worker processes run. Tests hold them at gates, and read what they were told, through files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from starlette.requests import HTTPConnection

import playhead
from playhead.errors import AttemptLost
from playhead.gateway import Principal
from playhead.runtime.clock import SystemClock

FOLDER = Path(os.environ.get("SCENARIO_FOLDER", "."))
LOOK = 0.01
SKEW_MS = int(float(os.environ.get("SCENARIO_SKEW", "0")) * 1000)
EVERY = "every"  # the gates of a run, all open from now on


def note(run: playhead.RunContext, **what: Any) -> None:
    """What an agent was told is done, where it outlives its process: one line is one write, whole or not there."""
    line = json.dumps({"run": run.id, "attempt": run.attempt, "process": os.getpid(), **what}).encode() + b"\n"
    descriptor = os.open(FOLDER / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


async def gate(run: playhead.RunContext, name: str) -> None:
    note(run, reached=name)
    while not any((FOLDER / f"{run.id}.{opened}").exists() for opened in (name, EVERY)):
        await asyncio.sleep(LOOK)


async def work(run: playhead.RunContext, given: dict[str, Any]) -> dict[str, Any]:
    """Events, text, one question, a result that repeats the text; it waits at the gates that its input names."""
    n, said, steps, mark, gates = 0, "", given["steps"], given["mark"], given["gates"]

    async def event(name: str, payload: dict[str, Any], **state: Any) -> None:
        nonlocal n
        await run.event(name, {"mark": mark, **payload}, **state)
        n += 1
        note(run, n=n)

    await event("work_begun", {"attempt": run.attempt}, progress=0, current_step="work", total=steps)
    for i in range(1, steps + 1):
        if f"at-{i}" in gates:
            await gate(run, f"at-{i}")
        await event("step_taken", {"i": i}, progress=90 * i / steps, done=i, detail=f"step {i}")
        piece = f"{run.attempt}.{i} Grüße {mark}, "
        await run.text(piece)
        said += piece
        await asyncio.sleep(given["pause"])
    if given["question"]:
        await run.flush()
        decision = await run.ask({"title": "Go on?", "mark": mark}, key="go")
        note(run, decided=decision.approved)
    if "end" in gates:
        await run.flush()
        await gate(run, "end")
    await event("work_ended", {}, progress=100)
    await run.text("End.")
    return {"attempt": run.attempt, "text": said + "End."}


def _given(**given: Any) -> dict[str, Any]:
    return given


@playhead.agent
async def plain(
    run: playhead.RunContext,
    steps: int = 4,
    question: bool = False,
    mark: str = "",
    gates: tuple[str, ...] = (),
    pause: float = 0.005,
) -> dict[str, Any]:
    return await work(run, _given(steps=steps, question=question, mark=mark, gates=gates, pause=pause))


@playhead.agent(resumable=True, max_attempts=20)
async def resumable(
    run: playhead.RunContext,
    steps: int = 4,
    question: bool = False,
    mark: str = "",
    gates: tuple[str, ...] = (),
    pause: float = 0.005,
) -> dict[str, Any]:
    return await work(run, _given(steps=steps, question=question, mark=mark, gates=gates, pause=pause))


@playhead.agent(resumable=True, max_attempts=20)
async def stubborn(run: playhead.RunContext, mark: str = "") -> dict[str, Any]:
    """Goes on writing whatever it is told, and brings its result late. The second attempt does what it should."""
    await run.event("work_begun", {"attempt": run.attempt, "mark": mark}, progress=run.attempt)
    if run.attempt > 1:
        await gate(run, "end")
        return {"attempt": run.attempt, "text": ""}
    await gate(run, "late")
    for i in range(5):
        try:
            await run.event("late_word", {"i": i, "mark": mark}, progress=99)
            note(run, accepted=i)
        except AttemptLost:
            note(run, refused=i)
        except asyncio.CancelledError:
            note(run, cancelled=i)
    return {"attempt": run.attempt, "text": "late"}


@playhead.agent(resumable=True, max_attempts=20)
async def hurried(run: playhead.RunContext, mark: str = "") -> dict[str, Any]:
    """Asks something that has to be answered within a minute."""
    await run.event("work_begun", {"attempt": run.attempt, "mark": mark}, progress=run.attempt)
    await gate(run, f"ask-{run.attempt}")
    decision = await run.ask({"title": "Quick?", "mark": mark}, key="quick", deadline=60.0, on_deadline="return")
    note(run, decided=decision.approved)
    return {"attempt": run.attempt, "text": "", "expired": decision.expired}


@playhead.agent(resumable=True, max_attempts=3)
async def deadly(run: playhead.RunContext, mark: str = "") -> None:
    """Kills its worker, each time."""
    await run.event("work_begun", {"attempt": run.attempt, "mark": mark})
    note(run, dies=run.attempt)
    os.kill(os.getpid(), signal.SIGKILL)


every = [plain, resumable, stubborn, hurried, deadly]


def anybody(request: HTTPConnection) -> Principal:
    """Whoever asks; through a proxy too, where the default does not answer."""
    return Principal("local", "local")


class Skewed(SystemClock):
    """Of a machine whose time of day is wrong."""

    def wall_ms(self) -> int:
        return super().wall_ms() + SKEW_MS


app = playhead.App(every, authenticate=anybody, clock=Skewed())


def _count(number: int, frame: FrameType | None) -> None:
    """Say how many tasks the loop has, to whoever sent the signal."""
    try:
        names = sorted(task.get_name() for task in asyncio.all_tasks())
    except RuntimeError:  # not in the loop just now
        return
    half = FOLDER / f"tasks-{os.getpid()}.half"
    half.write_text(json.dumps(names))
    half.rename(half.with_suffix(""))


if "SCENARIO_FOLDER" in os.environ and "pytest" not in sys.modules:
    signal.signal(signal.SIGUSR1, _count)
