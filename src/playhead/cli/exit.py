"""The way out of a process that serves or works: three signals, each more urgent than the one before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Protocol

from playhead.app import App

_log = logging.getLogger("playhead")


class Leave(Protocol):
    """Called when nothing is left to be done, or nothing may be waited for any more."""

    def __call__(self, *, at_once: bool) -> None: ...


class Exit:
    """The first step begins the app's drain and leaves when it is done, the second cuts it short, the third leaves at
    once. Before `loop` is set, steps do nothing."""

    def __init__(self, app: App, leave: Leave) -> None:
        self._app, self._leave = app, leave
        self._work: set[asyncio.Task[None]] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.asked = 0

    def next_step(self) -> None:
        """From any thread and any signal handler."""
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self._next_step)

    async def settled(self) -> None:
        """Return when no step is under way."""
        if self._work:
            await asyncio.wait(self._work)

    def _next_step(self) -> None:
        self.asked += 1
        if self.asked == 1:
            self._spawn(self._drain())
        elif self.asked == 2:
            self._spawn(self._app.hurry())
        else:
            self._leave(at_once=True)

    async def _drain(self) -> None:
        try:
            await self._app.drain()
        except Exception:
            # Whatever failed, the process was told to end.
            _log.exception("the drain failed; the next start settles what it left")
        finally:
            self._leave(at_once=False)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
