"""What becomes of a run whose last viewer left (law 9): nothing, unless its policy says otherwise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from playhead.core.ids import EVERY_TENANT, Feed
from playhead.errors import StoreUnavailable
from playhead.interfaces import Clock, RunStore

_T = TypeVar("_T")
_log = logging.getLogger("playhead.disconnect")
_RETRY = 1.0  # seconds between two tries of a record that does not answer


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
            run = await self._surely(lambda: self._record.get(EVERY_TENANT, feed.id))
            if run is not None and not run.status.final and run.policy.cancel_after is not None:
                await self._clock.sleep(run.policy.cancel_after)
                await self._surely(lambda: self._cancel(feed.id))
        except Exception:
            # Nobody waits for this task: what went wrong is told here or never.
            _log.exception("%s could not be cancelled after its last viewer left", feed.key)
        finally:
            if self._leaving.get(feed) is asyncio.current_task():
                del self._leaving[feed]

    async def _surely(self, act: Callable[[], Awaitable[_T]]) -> _T:
        """The policy holds for as long as nobody came back, however long the record takes to answer."""
        while True:
            try:
                return await act()
            except StoreUnavailable:
                await self._clock.sleep(_RETRY)
