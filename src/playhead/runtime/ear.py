"""What a live attempt hears of its run from elsewhere: a wish to stop, an answer, an epoch begun by somebody else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from playhead.core.ids import EVERY_TENANT, Feed, run_feed
from playhead.core.run import Run
from playhead.errors import StoreUnavailable
from playhead.interfaces import Hint, RunStore, Signal

_log = logging.getLogger("playhead.ear")


class Ear:
    """Listens to the feed of one run. A hint makes it look at the record, which alone says what happened (laws 1, 10).

    `place` gives the epoch and the rev that are known already, `news` is called with the run as the record has it.
    What is not heard is found all the same, later: by the next beat, look or refusal.
    """

    def __init__(
        self,
        run_id: str,
        *,
        record: RunStore,
        signal: Signal,
        place: Callable[[], tuple[int, int]],
        news: Callable[[Run], None],
    ) -> None:
        self._feed = run_feed(run_id)
        self._record, self._signal, self._place, self._news = record, signal, place, news
        self._looking: asyncio.Task[None] | None = None
        self._again = False
        self.open = False
        self._closed = False

    async def listen(self) -> None:
        """Begin, unless it has begun or is closed. A signal that is away is tried again by the next call."""
        if self.open or self._closed:
            return
        try:
            await self._signal.add(self._feed, self)
        except StoreUnavailable:
            return
        self.open = True
        if self._closed:
            await self._signal.remove(self._feed, self)

    async def close(self) -> None:
        """Hear nothing more."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
        if self.open:
            try:
                await self._signal.remove(self._feed, self)
            except StoreUnavailable:
                pass  # nobody listens there any more

    def on_hints(self, hints: Sequence[Hint]) -> None:
        epoch, rev = self._place()
        if any(hint.marks.epoch > epoch or hint.marks.rev > rev for hint in hints):
            self._look()

    def on_gap(self, feed: Feed) -> None:
        self._look()

    def _look(self) -> None:
        if self._looking is not None:
            self._again = True
        elif not self._closed:
            self._looking = asyncio.get_running_loop().create_task(self._look_at_record())

    async def _look_at_record(self) -> None:
        try:
            while True:
                self._again = False
                run = await self._record.get(EVERY_TENANT, self._feed.id)
                if run is not None and not self._closed:
                    self._news(run)
                if not self._again:
                    return
        except StoreUnavailable:
            pass
        except Exception:
            # Nobody waits for this task: what went wrong is told here or never.
            _log.exception("what happened to run %s cannot be looked at", self._feed.id)
        finally:
            self._looking = None
