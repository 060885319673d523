"""Attempts of code that no worker runs: a block that claims its run by id, and is the attempt."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

from playhead.core.ids import EVERY_TENANT
from playhead.core.run import Run
from playhead.errors import AttemptLost, PlayheadError, RunCancelled
from playhead.interfaces import RunStore
from playhead.runtime.attempt import LiveAttempt, Stop
from playhead.runtime.attempts import Attempts
from playhead.runtime.worker import outcome_of

_log = logging.getLogger("playhead.claims")


class Claims:
    def __init__(self, record: RunStore, attempts: Attempts, process: str) -> None:
        self._record, self._attempts, self._process = record, attempts, process
        self._claiming: set[asyncio.Task[Run]] = set()
        self._claimed: dict[LiveAttempt, asyncio.Future[None]] = {}  # done when its end is recorded
        self._ending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def attempt(self, run_id: str, *, tenant: str = EVERY_TENANT) -> AsyncIterator[LiveAttempt]:
        """Claim a queued run for the code in this block, which gets lease, fence and heartbeat.

        The block's end is the run's: it succeeds with the attempt's `result`, or fails with what the block raised.
        When the run is asked to stop, the block is cancelled and RunCancelled is raised from here; when the fence is
        lost, AttemptLost. Raises NotFound, RunFinal, RunNotFree.
        """
        attempt = self._take_up(await self._claim(tenant, run_id))
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        body: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        told = ours = False

        def cancel_block(why: Stop) -> None:
            nonlocal told
            if not body.done() and not told:
                told = True
                task.cancel()

        attempt.on_stop = cancel_block
        if attempt.stopping is not None:  # it was stopped before anybody listened
            cancel_block(attempt.stopping)
        try:
            try:
                await self._attempts.begin(attempt)
                yield attempt
                body.set_result(attempt.result)
            except asyncio.CancelledError:
                body.cancel()
                raise
            except Exception as error:
                body.set_exception(error)
                raise
            finally:
                try:
                    await self._through(self._end(attempt, body))
                finally:
                    # Also where the block went on regardless, or ended before it could be told.
                    ours = told and task.uncancel() <= before
        except asyncio.CancelledError:
            if not ours:  # somebody else wants this task to end, whatever becomes of the run
                raise
            if attempt.stopping is Stop.LOST:
                raise AttemptLost(run_id=attempt.run.id, token=attempt.run.token) from None
            raise RunCancelled(run_id=attempt.run.id, why=str(attempt.stopping)) from None

    async def drain(self, grace: float) -> None:
        """Give the blocks `grace` seconds to end, then stop them and wait until each is recorded."""
        if self._claiming:
            await asyncio.wait(self._claiming, timeout=grace)
        if not self._claimed:
            return
        _, late = await asyncio.wait(self._claimed.values(), timeout=grace)
        for attempt in list(self._claimed):
            attempt.stop(Stop.DRAIN)
        if late:
            await asyncio.wait(late, timeout=2.0)

    async def _claim(self, tenant: str, run_id: str) -> Run:
        claiming = asyncio.get_running_loop().create_task(self._record.claim(tenant, run_id, self._process))
        self._claiming.add(claiming)
        claiming.add_done_callback(self._claiming.discard)
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # The record may give it to us all the same, and nobody would ever work on it.
            _ = self._keep(self._give_up(claiming))
            raise

    async def _give_up(self, claiming: asyncio.Task[Run]) -> None:
        try:
            attempt = self._take_up(await claiming)
        except PlayheadError:
            return  # it was not given
        body: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        await self._end(attempt, body)

    def _take_up(self, run: Run) -> LiveAttempt:
        attempt = self._attempts.take_up(run)
        self._claimed[attempt] = asyncio.get_running_loop().create_future()
        return attempt

    async def _end(self, attempt: LiveAttempt, body: asyncio.Future[object]) -> None:
        if not body.done():
            body.cancel()  # the block was left in another way, as by closing a generator
        try:
            outcome = outcome_of(attempt, body, attempt.stopping if body.cancelled() else None)
            if outcome is not None:
                await attempt.finish(outcome)
        finally:
            attempt.publisher.shut()
            self._attempts.end(attempt)
            self._claimed.pop(attempt).set_result(None)

    async def _through(self, work: Coroutine[None, None, None]) -> None:
        """Do this to its end, also when the caller is cancelled meanwhile; then the caller learns of that."""
        task = self._keep(work)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            raise

    def _keep(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._kept)
        return task

    def _kept(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the end of a claimed run was not recorded", exc_info=error)
