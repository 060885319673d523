"""The lease of a worker process, renewed on a thread of its own: a blocked event loop loses no lease."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from playhead.errors import StoreUnavailable
from playhead.interfaces import Beat, Clock, RunStore
from playhead.runtime.supervise import Outage
from playhead.runtime.threads import Threads
from playhead.runtime.waiters import woken

_log = logging.getLogger("playhead.heartbeat")


class Heartbeat:
    """Beats until stopped. The callbacks run in the loop that called `start`.

    `held` is the set of (run id, token) to keep; replace it whole, it is read from the other thread.
    """

    def __init__(
        self,
        record: RunStore,
        process: str,
        clock: Clock,
        *,
        on_beat: Callable[[Beat], None],
        on_silence: Callable[[], None],
        every: float = 3.0,
        lease: float = 10.0,
        lost_after: float = 60.0,
    ) -> None:
        self._record, self._process, self._clock = record, process, clock
        self._on_beat, self._on_silence = on_beat, on_silence
        self._every, self._lease, self._lost_after = every, lease, lost_after
        self.held: frozenset[tuple[str, int]] = frozenset()
        self.answered = clock.steady()
        self._outage = Outage(_log, "no answer to a beat")
        self._stopping = False
        self._stop: asyncio.Event | None = None
        self._beating: asyncio.AbstractEventLoop | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def start(self) -> None:
        """Take the lease, then keep it. Raises StoreUnavailable if the first beat is not answered."""
        self._home = asyncio.get_running_loop()
        await self.beat()
        self._thread = threading.Thread(target=self._run, name="playhead-heartbeat", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Stop beating and end the lease."""
        self._stopping = True  # for a thread that has no loop yet
        if self._beating is not None and self._stop is not None:
            with suppress(RuntimeError):  # its loop has ended
                self._beating.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            # Not in the loop's executor, which may be full of calls that never end.
            await Threads(1, "playhead-heartbeat-end").call(self._thread.join, 5.0)
        try:
            await self._record.leave(self._process)
        except StoreUnavailable:
            _log.info("the lease was not given back; it ends by itself")

    async def beat(self) -> None:
        """Beat once."""
        asked = self.held
        answer = await self._record.beat(self._process, int(self._lease * 1000), asked)
        self.answered = self._clock.steady()
        self._tell(self._on_beat, answer)

    def _run(self) -> None:
        asyncio.run(self._keep_beating())

    async def _keep_beating(self) -> None:
        self._stop, self._beating = asyncio.Event(), asyncio.get_running_loop()
        while not self._stopping:
            await woken(self._stop, self._every)
            if self._stopping:
                return
            try:
                await asyncio.wait_for(self.beat(), self._lease)
                self._outage.ended()
            except (StoreUnavailable, TimeoutError) as error:
                self._outage.began(error)
            except Exception:
                # Whatever it is: without this thread every run of this process would be taken for lost.
                _log.exception("a beat failed")
            if self._clock.steady() - self.answered > self._lost_after:
                self._tell(self._on_silence)

    def _tell(self, callback: Callable[..., None], *args: object) -> None:
        if self._home is None or self._home.is_closed():
            return
        with suppress(RuntimeError):  # the loop closed in between: nobody is left to be told
            self._home.call_soon_threadsafe(callback, *args)
