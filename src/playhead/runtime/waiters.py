"""Waiting to be woken: by an event, and by looking again now and then, as a wake-up from elsewhere may never come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress


async def woken(event: asyncio.Event, look_again: float) -> None:
    """Return when the event is set, or after `look_again` seconds."""
    # Not `wait_for`, which may swallow a cancellation that comes with the event: then a loop would never end.
    with suppress(TimeoutError):
        async with asyncio.timeout(look_again):
            await event.wait()


class Waiters:
    """Who in this process waits for something to happen to a run. Used in one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Event]] = {}

    def wake(self, run_id: str) -> None:
        for event in self._waiting.get(run_id, ()):
            event.set()

    @contextmanager
    def listening(self, run_id: str) -> Iterator[asyncio.Event]:
        """An event that is set by every wake-up from here on; clear it before looking."""
        event = asyncio.Event()
        self._waiting.setdefault(run_id, []).append(event)
        try:
            yield event
        finally:
            left = self._waiting[run_id]
            left.remove(event)
            if not left:
                del self._waiting[run_id]
