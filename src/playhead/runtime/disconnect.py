"""Tells the record which runs have viewers at this process, for runs that are not to go on without any (law 9)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import islice

from playhead.core.ids import Feed
from playhead.errors import PlayheadError
from playhead.interfaces import Clock, Presence
from playhead.runtime.supervise import Outage
from playhead.runtime.waiters import woken

_log = logging.getLogger("playhead.disconnect")
_AT_ONCE = 500  # runs in one act


class DisconnectPolicy:
    """The hub says which runs gain their first viewer here or lose their last one. Whether a run is cancelled the
    record decides, which knows of every process; `on_left` is awaited when somebody left.

    Who watches is told again well within each `grace`: others may have taken this process for dead meanwhile.
    """

    def __init__(
        self,
        record: Presence,
        process: str,
        clock: Clock,
        *,
        grace: float = 30.0,
        retry: float = 1.0,
        on_left: Callable[[], Awaitable[None]],
    ) -> None:
        self._record, self._process, self._clock = record, process, clock
        self._grace, self._retry, self._on_left = grace, retry, on_left
        self._watched: set[str] = set()
        self._untold: set[str] = set()  # runs of which the record does not know yet what they are here
        self._told_all = clock.steady()
        self._wake = asyncio.Event()
        self._outage = Outage(_log, "the record is not told who watches")
        self._closed = False

    def came(self, feed: Feed) -> None:
        self._note(feed, self._watched.add)

    def left(self, feed: Feed) -> None:
        self._note(feed, self._watched.discard)

    def _note(self, feed: Feed, change: Callable[[str], None]) -> None:
        if not self._closed:
            change(feed.id)
            self._untold.add(feed.id)
            self._wake.set()

    async def close(self) -> None:
        """A server that stops is no viewer that left: the end of its lease says that it is gone."""
        self._closed = True

    async def keep_telling(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self.tell()
                self._outage.ended()
            except PlayheadError as error:
                self._outage.began(error)
                await self._clock.sleep(self._retry)
            await woken(self._wake, self._retry)

    async def tell(self) -> None:
        """Tell what has changed. What the record does not answer is told the next time, as it is then."""
        now = self._clock.steady()
        if now - self._told_all >= self._grace / 2:
            self._untold |= self._watched
            self._told_all = now
        anybody_left = False
        while some := set(islice(self._untold, _AT_ONCE)):
            self._untold -= some
            came, left = some & self._watched, some - self._watched
            try:
                if came:
                    await self._record.watch(self._process, came)
                if left:
                    await self._record.unwatch(self._process, left)
                    anybody_left = True
            except BaseException:
                self._untold |= some
                raise
        if anybody_left:
            await self._on_left()
