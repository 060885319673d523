"""The regular look at the record: facts nobody projected, leases that ended, deadlines that passed, old rows.

Every job here may run in every process at once; each asks the record to act only if what it saw still holds.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import TypeVar

from playhead.core import payload as payloads
from playhead.core.ids import run_feed
from playhead.errors import StoreUnavailable
from playhead.interfaces import Clock, ProjectionStore, RunStore, TextChannel
from playhead.runtime.projector import Projector, quietly
from playhead.runtime.supervise import Outage

_T = TypeVar("_T")
_log = logging.getLogger("playhead.reconciler")
_LIMIT = 500
_HOUSEKEEPING = 60.0  # seconds between two rounds of expiry and pruning


class Reconciler:
    def __init__(
        self,
        record: RunStore,
        live: ProjectionStore,
        texts: TextChannel,
        projector: Projector,
        clock: Clock,
        *,
        every: float = 1.0,
        lease: float = 10.0,
        outbox_ttl: float = 86_400.0,
        viewer_grace: float = 30.0,
        on_change: Callable[[str], None] = lambda run_id: None,
        process: str | None = None,
        left: Callable[[float], Collection[tuple[str, int]]] = lambda seconds: (),
    ) -> None:
        """`left` gives the attempts of this `process` on which nobody here has worked for so many seconds."""
        self._record, self._live, self._texts, self._projector, self._clock = record, live, texts, projector, clock
        self._every, self._lease, self._outbox_ttl = every, lease, outbox_ttl
        self._viewer_grace = viewer_grace
        self._on_change = on_change  # a run whose status this process changed
        self._process, self._left = process, left
        self._answered_since = clock.steady()  # since when the record has answered every time
        self._last = clock.steady()
        self._tidied = clock.steady()
        self._outage = Outage(_log, "a store does not answer")
        self._failing: set[str] = set()  # runs, told of already
        self.statistics = {"reaped": 0, "lapsed": 0, "reconciled": 0, "deserted": 0}

    async def keep_reconciling(self) -> None:
        while True:
            await self.round()
            await self._clock.sleep(self._every)

    async def round(self) -> None:
        """Look once at everything. A store that does not answer is tried again next time."""
        now = self._clock.steady()
        if now - self._last > max(self._lease / 2, 3 * self._every):
            self._answered_since = now  # this process itself stood still: its view of time is no ground for reaping
        self._last = now
        jobs: list[Callable[[], Awaitable[None]]]
        jobs = [self.lapse, self.reap, self.miss, self.desert, self.project, self._projector.settle]
        if now - self._tidied >= _HOUSEKEEPING:
            self._tidied = now
            jobs.append(self.tidy)
        away = False
        for job in jobs:
            try:
                await job()
            except StoreUnavailable as error:
                away = True
                self._outage.began(error)
            except Exception:
                # A fault in one job must not keep the others from their turn.
                _log.exception("reconciling failed")
        if not away:
            self._outage.ended()

    async def lapse(self) -> None:
        """Close questions whose deadline has passed."""
        for run_id in await self._answer(self._record.lapse(_LIMIT)):
            self.statistics["lapsed"] += 1
            await quietly(self._projector, run_id)
            self._on_change(run_id)

    async def reap(self) -> None:
        """End attempts whose lease is over, and those of this process that nobody works on.

        One without any lease row was given up, by its own process or by the holder of the data folder. One whose
        lease ran out is left alone until the record has answered for one whole lease: its beat may be on the way.
        """
        patient = self._patient
        for run in await self._answer(self._record.expired(_LIMIT)):
            if patient and run.heartbeat_at is not None:
                continue
            await self._lose(run.id, run.token)
        for run_id, token in self._left(self._lease):
            await self._lose(run_id, token, self._process)

    async def _lose(self, run_id: str, token: int, by: str | None = None) -> None:
        async with self._alone(run_id):
            lost = await self._answer(self._record.lose(run_id, token, await self._partial(run_id, token), by))
            if lost is not None:
                self.statistics["reaped"] += 1
                _log.warning("run %s attempt %d was lost: %s", run_id, token, lost.status)
                await quietly(self._projector, run_id)
                self._on_change(run_id)

    async def miss(self) -> None:
        """Note that viewers left with their process, once the record has answered for one whole lease."""
        if not self._patient:
            await self._answer(self._record.unwatch_expired(int(self._viewer_grace * 1000), _LIMIT))

    async def desert(self) -> None:
        """Cancel runs that nobody watches any more, and whose policy it is to end then."""
        for run_id in await self._answer(self._record.deserted(_LIMIT)):
            async with self._alone(run_id):
                if await self._answer(self._record.desert(run_id)) is not None:
                    self.statistics["deserted"] += 1
                    await quietly(self._projector, run_id)
                    self._on_change(run_id)

    async def project(self) -> None:
        """Project committed facts that nobody did: their process died, or the projection was away."""
        for feed in await self._answer(self._record.outbox(_LIMIT)):
            self.statistics["reconciled"] += 1
            async with self._alone(feed.id):
                await self._projector.bring(feed.id, wait=False)

    async def tidy(self) -> None:
        """Prune, expire and trim."""
        await self._record.prune(self._clock.wall_ms() - int(self._outbox_ttl * 1000))
        await self._live.expire()
        for feed in await self._live.aged(_LIMIT):
            await self._live.trim(feed)

    @property
    def _patient(self) -> bool:
        """Whether a lease that seems to be over may have been renewed: the beat may be on the way."""
        return self._clock.steady() - self._answered_since < self._lease

    async def _answer(self, asked: Awaitable[_T]) -> _T:
        """What the record answers. If it does not, the reaper's patience begins anew."""
        try:
            return await asked
        except StoreUnavailable:
            self._answered_since = self._clock.steady()
            raise

    @asynccontextmanager
    async def _alone(self, run_id: str) -> AsyncIterator[None]:
        """What goes wrong with this run is told once, and keeps nobody else waiting behind it."""
        try:
            yield
            self._failing.discard(run_id)
        except StoreUnavailable:
            raise
        except Exception:
            if run_id not in self._failing:
                self._failing.add(run_id)
                _log.exception("run %s cannot be reconciled", run_id)

    async def _partial(self, run_id: str, token: int) -> bytes | None:
        """What a lost attempt had said, as far as the live store still has it.

        Closed parts too: an attempt closes them on its way to an end that then was not recorded.
        """
        try:
            parts = await self._texts.read_text(run_feed(run_id))
        except StoreUnavailable:
            return None
        said = [
            {"part": part.part, "text": part.data.decode(errors="replace")}
            for part in parts
            if part.token == token and part.data
        ]
        return payloads.encode(said) if said else None
