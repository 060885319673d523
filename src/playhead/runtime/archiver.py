"""Copies timeline entries to the archive, which outlives the projection, and lets the timeline be trimmed behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from playhead.core.event import Event
from playhead.core.ids import Feed, run_feed
from playhead.core.run import Run
from playhead.errors import StoreUnavailable
from playhead.interfaces import Archive, Clock, ProjectionStore, RunStore

_log = logging.getLogger("playhead.archiver")
_PAGE = 500
_FEEDS = 200  # of one round


class Archiver:
    """Repeatable at any moment: the archive takes an event once, by its id."""

    def __init__(self, record: RunStore, archive: Archive, live: ProjectionStore, clock: Clock, *, every: float = 0.5):
        self._record, self._archive, self._live, self._clock, self._every = record, archive, live, clock, every
        self._busy: dict[Feed, asyncio.Lock] = {}

    async def keep_archiving(self) -> None:
        while True:
            try:
                more = await self.round()
            except StoreUnavailable as error:
                _log.warning("nothing can be archived now: %s", error)
                more = False
            if not more:
                await self._clock.sleep(self._every)

    async def round(self) -> bool:
        """Archive what is waiting, up to a bound; whether there may be more."""
        feeds = await self._live.unarchived(_FEEDS)
        for feed in feeds:
            await self.feed(feed)
        return len(feeds) == _FEEDS

    async def run(self, run_id: str) -> None:
        await self.feed(run_feed(run_id))

    async def feed(self, feed: Feed) -> None:
        """Archive this feed up to its tip. One at a time in this process, so that the order is the timeline's."""
        lock = self._busy.setdefault(feed, asyncio.Lock())
        try:
            async with lock:
                while await self._page(feed):
                    pass
        finally:
            if not lock.locked():
                self._busy.pop(feed, None)

    async def keep(self, run: Run, lacking: Sequence[Event]) -> None:
        """Archive events that never came to the timeline, behind the facts that the record knows."""
        await self.facts(run)
        await self._archive.append(run_feed(run.id), [(event, 0) for event in lacking])

    async def facts(self, run: Run) -> None:
        """Archive the run's facts from the record, before its timeline is emptied: a lost one may have held them."""
        page = await self._record.facts(run_feed(run.id), 0)
        if page is not None:
            known = [(fact.event, 0) for fact in page.facts if fact.rev <= run.rev]
            await self._archive.append(run_feed(run.id), known)

    async def _page(self, feed: Feed) -> bool:
        marks = (await self._live.stand([feed])).get(feed)
        if marks is None or marks.archived >= marks.position:
            return False
        view = await self._live.read(feed, after=marks.archived, limit=_PAGE)
        if view is None or view.marks.epoch != marks.epoch or not view.entries:
            return False
        await self._archive.append(feed, [(entry.event, entry.version) for entry in view.entries])
        await self._live.archived(feed, marks.epoch, view.entries[-1].position)
        return view.entries[-1].position < view.marks.position
