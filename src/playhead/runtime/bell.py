"""The bell: has the workers of every process look when a run waits to be taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from playhead.core.ids import Feed
from playhead.errors import StoreUnavailable
from playhead.interfaces import Clock, Hint, Signal

QUEUE = Feed("topic", "/queue")  # nobody else's: every tenant has a name
_REST = 0.05  # seconds after a look in which everything that rings is answered by one more
_AGAIN = 1.0  # seconds between two tries to listen


class Bell:
    """A wake-up and no more, which may get lost: workers look now and then by themselves (law 10).

    `heard` is called in this process's event loop. However often it rings, a store is asked for one call at a time and
    `heard` is called some twenty times a second at most.
    """

    def __init__(self, signal: Signal, clock: Clock, heard: Callable[[], None]) -> None:
        self._signal, self._clock, self._heard = signal, clock, heard
        self._ringing: asyncio.Task[None] | None = None
        self._again = False
        self._resting: asyncio.TimerHandle | None = None
        self._due = False

    async def listen(self) -> None:
        """Return once this process hears it."""
        while True:
            try:
                await self._signal.add(QUEUE, self)
                return
            except StoreUnavailable:
                await self._clock.sleep(_AGAIN)

    def ring(self) -> None:
        """Something waits. Does not wait itself."""
        self._again = True
        if self._ringing is None:
            self._ringing = asyncio.get_running_loop().create_task(self._ring())

    async def close(self) -> None:
        """Hear nothing more; what rings now is told first."""
        if self._ringing is not None:
            await asyncio.wait({self._ringing})
        if self._resting is not None:
            self._resting.cancel()
        await self._signal.remove(QUEUE, self)

    def on_hints(self, hints: Sequence[Hint]) -> None:
        self.on_gap(QUEUE)

    def on_gap(self, feed: Feed) -> None:
        if self._resting is not None:
            self._due = True
            return
        self._heard()
        self._resting = asyncio.get_running_loop().call_later(_REST, self._rested)

    def _rested(self) -> None:
        self._resting = None
        if self._due:
            self._due = False
            self.on_gap(QUEUE)

    async def _ring(self) -> None:
        try:
            while self._again:
                self._again = False
                await self._signal.ring(QUEUE)
        except StoreUnavailable:
            pass  # they find it by themselves
        finally:
            self._ringing = None
