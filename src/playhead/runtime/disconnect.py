"""What becomes of a run whose last viewer left (law 9): nothing, unless its policy says otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from playhead.core.ids import EVERY_TENANT, Feed
from playhead.interfaces import Clock, RunStore


class DisconnectPolicy:
    """Told by the hub of first and last viewers. A run that nobody ever watched is never cancelled by this."""

    def __init__(self, record: RunStore, clock: Clock, cancel: Callable[[str], Awaitable[object]]) -> None:
        self._record, self._clock, self._cancel = record, clock, cancel
        self._leaving: dict[Feed, asyncio.Task[None]] = {}
        self._closed = False

    def came(self, feed: Feed) -> None:
        if (task := self._leaving.pop(feed, None)) is not None:
            task.cancel()

    def left(self, feed: Feed) -> None:
        if feed.kind == "run" and not self._closed:
            self.came(feed)
            self._leaving[feed] = asyncio.get_running_loop().create_task(self._wait(feed))

    async def close(self) -> None:
        """A server that stops is no viewer that left."""
        self._closed = True
        tasks, self._leaving = list(self._leaving.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self, feed: Feed) -> None:
        try:
            run = await self._record.get(EVERY_TENANT, feed.id)
            if run is not None and not run.status.final and run.policy.cancel_after is not None:
                await self._clock.sleep(run.policy.cancel_after)
                await self._cancel(run.id)
        finally:
            if self._leaving.get(feed) is asyncio.current_task():
                del self._leaving[feed]
