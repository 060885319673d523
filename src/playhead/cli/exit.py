"""The way out of a process that serves or works: three signals, each more urgent than the one before, and an end that
nothing of others holds up."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Coroutine
from typing import Any, NoReturn, Protocol

from playhead.app import App
from playhead.cli import output

_log = logging.getLogger("playhead")
_PATIENCE = 2.0  # seconds for the threads of the loop's executor, once everything else has ended
_FLUSHING = 1.0  # seconds for what was logged and printed: whoever reads it may hang too


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


def run(runner: asyncio.Runner, work: Coroutine[Any, Any, None]) -> int:
    """Do this work, which closes all that it opened, and close the loop; the exit code.

    An agent that does not stop, or a call in the loop's executor that does not end, would hold up the end for ever:
    then the process is left here. So it is at a signal that comes when the work is done.
    """
    try:
        runner.run(work)
    except BaseException as error:
        if not _executor_ends(runner):
            leave(output.report(error, debug=False) if isinstance(error, Exception) else 1)
        runner.close()
        raise
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: leave(0))
    if asyncio.all_tasks(runner.get_loop()) or not _executor_ends(runner):
        leave(0)
    runner.close()
    return 0


def leave(code: int) -> NoReturn:
    """End the process now, whatever still runs in it."""
    flushing = threading.Thread(target=_flush, daemon=True)
    flushing.start()
    flushing.join(_FLUSHING)
    os._exit(code)


def _flush() -> None:
    try:
        logging.shutdown()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _executor_ends(runner: asyncio.Runner) -> bool:
    """Shut down the loop's executor, and wait a little for its threads."""

    async def shut() -> bool:
        # Neither cancelled nor bounded by itself: Python 3.11 would wait for the threads all the same.
        shutting = asyncio.ensure_future(asyncio.get_running_loop().shutdown_default_executor())
        done, _ = await asyncio.wait({shutting}, timeout=_PATIENCE)
        return bool(done)

    return runner.run(shut())
