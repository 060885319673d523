"""Brings what the record committed to the projection, and replaces projections that cannot be brought up (law 6)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from playhead.core import cursor, repair
from playhead.core.ids import Feed, run_feed
from playhead.core.repair import Repair
from playhead.core.run import Run, Status
from playhead.core.transition import Already, Applied, Final, Marks, NeedsRebuild, Opening, carried
from playhead.errors import StoreUnavailable
from playhead.interfaces import Clock, FactPage, ProjectionStore, RunStore
from playhead.runtime.turns import Turns

_log = logging.getLogger("playhead.projector")
_ROUNDS = 12  # each ends in agreement unless somebody else writes, or mints, meanwhile
_MINT_WAIT = 0.25  # seconds between two looks while another rebuilder's epoch is young


class Source(Protocol):
    """A live attempt in this process: it knows more than the record does."""

    @property
    def token(self) -> int: ...

    def state(self) -> bytes | None: ...

    def reopened(self, epoch: int, rev: int) -> None:
        """Note that everything must be sent again under this epoch. Must not block."""

    async def resend(self) -> None:
        """Send it; returns when the projection has it, or the attempt has ended."""


class Projector:
    """One for a process. Safe to run anywhere, any number of times, at once."""

    def __init__(self, record: RunStore, live: ProjectionStore, clock: Clock, *, rebuilds: int = 32) -> None:
        self._record = record
        self._live = live
        self._clock = clock
        self._rebuilds = asyncio.Semaphore(rebuilds)
        self._turns = Turns()  # the store's own guards hold against other processes
        self._settling: dict[Feed, tuple[int, int]] = {}
        self.sources: dict[str, Source] = {}  # run id → its live attempt in this process
        # Called with a run before its timeline is emptied, or when it will never have one, so that the archive can
        # take first what there is.
        self.before_empty: Callable[[Run], Awaitable[None]] | None = None
        self.statistics = {"projected": 0, "rebuilt": 0, "dropped": 0}

    async def begin(self, run: Run) -> None:
        """Open the projection of a run that was created just now, and project its first facts."""
        opening = Opening(
            run_feed(run.id), 0, run.epoch, self.tag(), 0, 0, run.status, None, run.state, self._clock.wall_ms()
        )
        async with self._turns.of(run.id):
            await self._live.open(opening)
        await self.bring(run.id)

    async def bring(self, run_id: str, *, rebuild: bool = False, wait: bool = True, resend: bool = True) -> Run | None:
        """Bring the run's projection to agree with the record, and return the run as the record has it.

        `rebuild` replaces it even if it agrees (an attempt had to drop events). Where another process is rebuilding,
        `wait` says whether to wait for it. A live attempt of this process has sent everything again when this
        returns, unless `resend` is off (the attempt itself calls so). None: there is no such run.
        Raises StoreUnavailable.
        """
        async with self._turns.of(run_id):
            run, reopened = await self._agree(run_feed(run_id), rebuild, wait)
        if reopened and resend and run is not None and (source := self.sources.get(run_id)):
            await source.resend()
        return run

    async def settle(self) -> None:
        """Tell the record what was projected since the last call."""
        settling, self._settling = self._settling, {}
        try:
            await asyncio.gather(*(self._record.settle(feed, *done) for feed, done in settling.items()))
        except StoreUnavailable:
            return  # the outbox still has them: they are projected again, which changes nothing

    def tag(self) -> str:
        return cursor.tag(self._clock.random(6))

    async def _agree(self, feed: Feed, rebuild: bool, wait: bool) -> tuple[Run | None, bool]:
        reopened = projected = False
        run: Run | None = None
        for _ in range(_ROUNDS):
            marks = await self._marks(feed)
            page = await self._record.facts(feed, marks.rev if marks else 0)
            if page is None:
                await self._live.drop(feed)
                return None, False
            run = page.run
            oldest = page.oldest_rev or run.rev + 1  # with no fact kept at all, what is lacking cannot be had either
            shown = await self._end_shown(feed, run, marks) if not projected else None
            match repair.needed(run, marks, oldest, shown=shown):
                case Repair.NONE if not rebuild or run.status.final:
                    if marks is None and page.facts:
                        await self._before_empty(run)
                    self._settling[feed] = (run.epoch, run.rev)
                    return run, reopened
                case Repair.DROP if marks is not None:
                    await self._drop(run, marks)
                case Repair.PROJECT if marks is not None and (run.status.final or not rebuild):
                    if await self._project(page, marks):
                        projected = True
                        continue
                    if run.status.final:
                        await self._drop(run, marks)
                    else:
                        rebuild = True
                case _:
                    if await self._rebuild(feed, marks.epoch if marks else 0, wait):
                        reopened, rebuild = True, False
                    elif not wait:
                        return run, reopened
        return run, reopened

    async def _project(self, page: FactPage, marks: Marks) -> bool:
        """Project these facts, as far as nobody else moves the projection; False if it turns out to have gone back."""
        for fact in page.facts:
            if fact.lacking:
                write = carried(fact, marks, [self.tag() for _ in fact.lacking])
                reply = await self._live.publish(write)
                if not isinstance(reply, Applied | Already):
                    return not isinstance(reply, NeedsRebuild)
            reply = await self._live.fact(page.run.epoch, fact, self.tag())
            if not isinstance(reply, Applied | Already | Final):
                return True
            self.statistics["projected"] += isinstance(reply, Applied)
        return True

    async def _drop(self, run: Run, marks: Marks) -> None:
        await self._before_empty(run)
        await self._live.drop(run_feed(run.id), marks.epoch)
        self.statistics["dropped"] += 1

    async def _rebuild(self, feed: Feed, seen: int, wait: bool) -> bool:
        async with self._rebuilds:
            run = await self._record.mint_epoch(feed, seen)
            if run is not None:
                return await self._reopen(feed, seen, run)
        if wait:
            await self._clock.sleep(_MINT_WAIT)
        return False

    async def _reopen(self, feed: Feed, seen: int, run: Run) -> bool:
        """Replace the projection that has this epoch by what the record says, once the archive has what it held."""
        source = self.sources.get(feed.id)
        if source is not None and source.token != run.token:
            source = None  # overtaken and not aware of it yet: nothing that it holds may be shown any more
        if source is not None:
            source.reopened(run.epoch, run.rev)  # now, so that it adds nothing to what is about to be emptied
        for more in reversed(range(_ROUNDS)):
            marks = await self._marks(feed)
            if (marks.epoch if marks else 0) != seen:
                return False
            await self._before_empty(run)
            opening = Opening(
                feed,
                seen,
                run.epoch,
                self.tag(),
                run.rev,
                run.token,
                run.status,
                run.started_at,
                (source.state() if source else None) or run.state,
                self._clock.wall_ms(),
                marks.tag if marks and more else None,
            )
            if isinstance(await self._live.open(opening), Applied):
                self.statistics["rebuilt"] += 1
                return True
        return False

    async def _marks(self, feed: Feed) -> Marks | None:
        return (await self._live.stand([feed])).get(feed)

    async def _end_shown(self, feed: Feed, run: Run, marks: Marks | None) -> Status | None:
        """How a run that is over has ended, as the projection shows it that somebody else brought there."""
        if marks is None or not marks.final or not run.status.final:
            return None
        view = await self._live.read(feed, limit=1)
        return view.snapshot.status if view is not None and view.marks.epoch == marks.epoch else None

    async def _before_empty(self, run: Run) -> None:
        if self.before_empty is not None:
            await self.before_empty(run)


async def quietly(work: Projector, run_id: str) -> None:
    """Bring a run where a failure may wait for the reconciler, which comes by anyway."""
    try:
        await work.bring(run_id)
    except StoreUnavailable:
        pass
    except Exception:
        # What the record has committed must not look refused because it cannot be shown.
        _log.exception("run %s cannot be projected", run_id)
