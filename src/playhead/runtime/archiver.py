"""Copies timeline entries to the archive, which outlives the projection, and lets the timeline be trimmed behind it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import takewhile

from playhead.core.event import FINAL_TYPES, Entry, Event
from playhead.core.ids import Feed, fact_rev, run_feed
from playhead.core.run import Run
from playhead.errors import StoreUnavailable
from playhead.interfaces import Archive, Clock, ProjectionStore, RunStore, View
from playhead.runtime.supervise import Outage
from playhead.runtime.turns import Turns

_log = logging.getLogger("playhead.archiver")
_PAGE = 500
_FEEDS = 200  # of one round


class Archiver:
    """Repeatable at any moment, in any number of processes: the archive takes an event once, by its id, and only behind
    what was its newest one before the timeline was read. So its order is the timeline's, whoever archives."""

    def __init__(self, record: RunStore, archive: Archive, live: ProjectionStore, clock: Clock, *, every: float = 0.5):
        self._record, self._archive, self._live, self._clock, self._every = record, archive, live, clock, every
        self._outage = Outage(_log, "nothing can be archived now")
        self._turns = Turns()  # the archive's own guard holds against other processes

    async def keep_archiving(self) -> None:
        while True:
            try:
                more = await self.round()
                self._outage.ended()
            except StoreUnavailable as error:
                self._outage.began(error)
                more = False
            if not more:
                await self._clock.sleep(self._every)

    async def round(self) -> bool:
        """Archive what is waiting, up to a bound; whether there may be more. Raises StoreUnavailable."""
        feeds = await self._live.unarchived(_FEEDS)
        sound = True
        for feed in feeds:
            try:
                await self.feed(feed)
            except StoreUnavailable:
                raise
            except Exception:
                # One feed that cannot be read must not keep the others waiting behind it.
                _log.exception("%s cannot be archived", feed.key)
                sound = False
        return sound and len(feeds) == _FEEDS

    async def run(self, run_id: str) -> None:
        await self.feed(run_feed(run_id))

    async def feed(self, feed: Feed) -> None:
        """Archive this feed up to its tip."""
        async with self.alone(feed):
            await self._timeline(feed)

    async def save(self, run: Run) -> None:
        """Archive all that there is of the run, before its timeline is emptied or when it will never have one.

        The timeline comes first: what it lacks of the record's facts is newer than its tip, or was lost with it.
        """
        feed = run_feed(run.id)
        async with self.alone(feed):
            while True:
                await self._timeline(feed)
                if await self._append(feed, self._facts(feed, run.rev), await self._newest(feed)):
                    return

    def alone(self, feed: Feed) -> AbstractAsyncContextManager[None]:
        """Nothing of this feed is archived by this process meanwhile, but by whoever holds this."""
        return self._turns.of(feed.key)

    async def _facts(self, feed: Feed, last: int) -> AsyncIterator[list[tuple[Event, int]]]:
        """The record's facts up to this rev with what they take along, in pages."""
        rev = 0
        while rev < last and (page := await self._record.facts(feed, rev, _PAGE)) is not None and page.facts:
            facts = [fact for fact in page.facts if fact.rev <= last]
            yield [(event, 0) for fact in facts for event in (*fact.lacking, fact.event)]
            rev = page.facts[-1].rev

    async def _newest(self, feed: Feed) -> Event | None:
        """The newest event that is archived. What is to follow it must be read after this."""
        found = await self._archive.read(feed, None, 1)
        return found[-1][0] if found else None

    async def _append(self, feed: Feed, pages: AsyncIterator[list[tuple[Event, int]]], newest: Event | None) -> bool:
        """Archive these behind what was the newest; False if somebody else archived more meanwhile.

        Nothing follows the end: a live store that went back to before it may have what was lost then, too late.
        """
        if newest is not None and newest.type in FINAL_TYPES.values():
            return True
        last = newest.id if newest else None
        async for known in pages:
            if known and (last := await self._archive.append(feed, known, last)) is None:
                return False
        return True

    async def _known(
        self, feed: Feed, view: View, known: list[tuple[Event, int]], hole: bool
    ) -> AsyncIterator[list[tuple[Event, int]]]:
        """These entries, and before them what the record has of the hole in front of them, which was trimmed before it
        was archived. Later it would come behind them."""
        if hole:
            shown = {entry.event.id for entry in view.entries}
            revs = [rev for name in shown if (rev := fact_rev(feed, name)) is not None]
            # The hole may end within what the first fact behind it took along.
            async for facts in self._facts(feed, min(revs, default=view.marks.rev)):
                yield list(takewhile(lambda known: known[0].id not in shown, facts))
        yield known

    async def _true(self, feed: Feed, entries: Sequence[Entry]) -> list[tuple[Event, int]] | None:
        """These events, as far as the record bears them out: of its own facts it alone knows what they say and took
        along, and a projection may be ahead of a record that was restored. None: there is no such run any more."""
        revs = {entry.event.id: fact_rev(feed, entry.event.id) for entry in entries}
        facts = [rev for rev in revs.values() if rev is not None]
        if not facts:
            return [(entry.event, entry.version) for entry in entries]
        page = await self._record.facts(feed, min(facts) - 1, _PAGE)
        if page is None:
            return None
        said = {fact.event.id: fact for fact in page.facts}
        known: list[tuple[Event, int]] = []
        for entry in entries:
            if (revs[entry.event.id] or 0) > page.run.rev:
                continue
            if (fact := said.get(entry.event.id)) is not None:
                # A live store that went back may have lost what the fact took along, just before it.
                known += [(event, 0) for event in fact.lacking]
            known.append((fact.event if fact else entry.event, entry.version))
        return known

    async def _erased(self, feed: Feed) -> bool:
        """Whether the archive refused it for good, and not because somebody else archived more."""
        return feed.kind == "run" and await self._record.facts(feed, 0, 1) is None

    async def _timeline(self, feed: Feed) -> None:
        while True:
            newest = await self._newest(feed)
            marks = (await self._live.stand([feed])).get(feed)
            if marks is None or marks.archived >= marks.position:
                return
            view = await self._live.read(feed, after=marks.archived, limit=_PAGE)
            if view is None or view.marks.epoch != marks.epoch or not view.entries:
                return
            known = await self._true(feed, view.entries)
            hole = view.entries[0].position > marks.archived + 1
            if known is None or not await self._append(feed, self._known(feed, view, known, hole), newest):
                if known is None or await self._erased(feed):  # it would wait to be archived for ever
                    await self._live.drop(feed)
                    return
                continue
            await self._live.archived(feed, marks.epoch, view.entries[-1].position)
            if view.entries[-1].position >= view.marks.position:
                return
