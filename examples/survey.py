"""The agent that the pages of the examples show: it counts the lines of Python's standard library."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import playhead

SMALL = ("json", "html", "sqlite3", "logging")
LARGE = ("asyncio", "email", "http", "unittest")


@playhead.agent(resumable=True)
async def survey(run: playhead.RunContext, pause: float = 0.2) -> str:
    """Count some packages, ask whether to go on, count the others; `pause` seconds between them let people watch."""
    names = list(SMALL)
    await run.event("survey_planned", {"packages": names}, title="Survey of the standard library", total=8, done=0)
    lines = [await count(run, done, name, pause) for done, name in enumerate(SMALL, 1)]
    answer = await run.ask({"title": "Count the large packages too?"})
    if answer.approved:
        lines += [await count(run, done, name, pause) for done, name in enumerate(LARGE, len(SMALL) + 1)]
    return "".join(lines)


async def count(run: playhead.RunContext, done: int, name: str, pause: float) -> str:
    found = await asyncio.to_thread(lines_of, name)
    line = f"{name}: {found} lines\n"
    await run.text(line)
    state = {"progress": 100 * done / 8, "done": done, "current_step": "count_lines", "detail": name}
    await run.event("package_counted", {"package": name, "lines": found}, **state)
    await asyncio.sleep(pause)
    return line


def lines_of(package: str) -> int:
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    files = [path for folder in folders or () for path in Path(folder).rglob("*.py")]
    return sum(path.read_bytes().count(b"\n") for path in files)
