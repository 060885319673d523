"""What `playhead doctor` looks at where the stores are servers: whether they answer, and whether they are set up so
that promises hold."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from playhead.cli.doctor import Finding, Level
from playhead.core.run import Status
from playhead.errors import PlayheadError
from playhead.runtime.clock import SystemClock
from playhead.settings import InvalidSetting, Settings
from playhead.stores import open_live, open_record

_LEVELS: dict[str, Level] = {"error": "fail", "warning": "warn", "info": "ok"}


def servers(settings: Settings) -> Iterator[Finding]:
    """One line or more for each of the two."""
    yield from asyncio.run(_look("record", _record, settings))
    yield from asyncio.run(_look("live", _live, settings))


async def _look(name: str, look: Callable[[Settings], Awaitable[list[Finding]]], settings: Settings) -> list[Finding]:
    try:
        return await look(settings)
    except InvalidSetting as error:
        return [Finding(name, "fail", error.message, f"Correct PLAYHEAD_{name.upper()}.")]
    except PlayheadError as error:
        advice = "Look at that server, and at the way to it." if error.retryable else None
        return [Finding(name, "fail", error.message, advice)]


async def _record(settings: Settings) -> list[Finding]:
    assert settings.record is not None
    record = open_record(settings.record, SystemClock(), connections=1)
    try:
        going = await record.list_runs("local", status=(Status.QUEUED, Status.RUNNING, Status.WAITING), limit=200)
    finally:
        await record.close()
    return [Finding("record", "ok", f"{settings.place} answers; {len(going)} runs have not ended.")]


async def _live(settings: Settings) -> list[Finding]:
    live = await open_live(settings, SystemClock())
    try:
        found = await live.findings()
    finally:
        await live.close()
    return [Finding("live", _LEVELS[one.level], f"{one.server}: {one.text}") for one in found]
