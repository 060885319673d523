"""Brings what the record committed to the projection, and replaces projections that cannot be brought up (law 6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from playhead.core import cursor, repair
from playhead.core.ids import Feed, run_feed
from playhead.core.repair import Repair
from playhead.core.run import Run
from playhead.core.transition import Already, Applied, Final, Marks, Opening
from playhead.errors import StoreUnavailable
from playhead.interfaces import Clock, FactPage, ProjectionStore, RunStore

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
        self._busy: dict[str, tuple[asyncio.Lock, int]] = {}
        self._settling: dict[Feed, tuple[int, int]] = {}
        self.sources: dict[str, Source] = {}  # run id → its live attempt in this process
        # Called with a run before its timeline is emptied, or when it will never have one, so that the archive can
        # take its facts first.
        self.before_open: Callable[[Run], Awaitable[None]] | None = None
        self.statistics = {"projected": 0, "rebuilt": 0, "dropped": 0}

    async def begin(self, run: Run) -> None:
        """Open the projection of a run that was created just now, and project its first facts."""
        opening = Opening(
            run_feed(run.id), 0, run.epoch, self.tag(), 0, 0, run.status, None, run.state, self._clock.wall_ms()
        )
        async with self._alone(run.id):
            await self._live.open(opening)
        await self.bring(run.id)

    async def bring(self, run_id: str, *, rebuild: bool = False, wait: bool = True, resend: bool = True) -> Run | None:
        """Bring the run's projection to agree with the record, and return the run as the record has it.

        `rebuild` replaces it even if it agrees (an attempt had to drop events). Where another process is rebuilding,
        `wait` says whether to wait for it. A live attempt of this process has sent everything again when this
        returns, unless `resend` is off (the attempt itself calls so). None: there is no such run.
        Raises StoreUnavailable.
        """
        async with self._alone(run_id):
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
        reopened = False
        run: Run | None = None
        for _ in range(_ROUNDS):
            marks = (await self._live.stand([feed])).get(feed)
            page = await self._record.facts(feed, marks.rev if marks else 0)
            if page is None:
                await self._live.drop(feed)
                return None, False
            run = page.run
            oldest = page.oldest_rev or run.rev + 1  # with no fact kept at all, what is lacking cannot be had either
            match repair.needed(run, marks, oldest):
                case Repair.NONE if not rebuild or run.status.final:
                    if marks is None and page.facts:
                        await self._before_empty(run)
                    self._settling[feed] = (run.epoch, run.rev)
                    return run, reopened
                case Repair.DROP:
                    await self._before_empty(run)
                    await self._live.drop(feed, marks.epoch if marks else None)
                    self.statistics["dropped"] += 1
                case Repair.PROJECT if not rebuild:
                    await self._project(page)
                case Repair.PROJECT if run.status.final:
                    await self._project(page)
                case _:
                    if await self._rebuild(feed, marks, wait):
                        reopened, rebuild = True, False
                    elif not wait:
                        return run, reopened
        return run, reopened

    async def _project(self, page: FactPage) -> None:
        for fact in page.facts:
            reply = await self._live.fact(page.run.epoch, fact, self.tag())
            if not isinstance(reply, Applied | Already | Final):
                return  # somebody else moved it: look again
            self.statistics["projected"] += isinstance(reply, Applied)

    async def _rebuild(self, feed: Feed, marks: Marks | None, wait: bool) -> bool:
        seen = marks.epoch if marks else 0
        async with self._rebuilds:
            run = await self._record.mint_epoch(feed, seen)
            if run is None:
                if wait:
                    await self._clock.sleep(_MINT_WAIT)
                return False
            await self._before_empty(run)
            source = self.sources.get(feed.id)
            if source is not None and source.token != run.token:
                source = None  # overtaken and not aware of it yet: nothing that it holds may be shown any more
            state = (source.state() if source else None) or run.state
            opening = Opening(
                feed,
                seen,
                run.epoch,
                self.tag(),
                run.rev,
                run.token,
                run.status,
                run.started_at,
                state,
                self._clock.wall_ms(),
            )
            if not isinstance(await self._live.open(opening), Applied):
                return False
            self.statistics["rebuilt"] += 1
            if source is not None:
                source.reopened(run.epoch, run.rev)
            return True

    async def _before_empty(self, run: Run) -> None:
        if self.before_open is not None:
            await self.before_open(run)

    @asynccontextmanager
    async def _alone(self, run_id: str) -> AsyncIterator[None]:
        """One repair of a run at a time in this process; the store's own guards hold against others."""
        lock, users = self._busy.get(run_id, (asyncio.Lock(), 0))
        self._busy[run_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._busy[run_id]
            if users == 1:
                del self._busy[run_id]
            else:
                self._busy[run_id] = (lock, users - 1)


async def quietly(work: Projector, run_id: str) -> None:
    """Bring a run where a failure may wait for the reconciler, which comes by anyway."""
    with suppress(StoreUnavailable):
        await work.bring(run_id)
