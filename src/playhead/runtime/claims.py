"""Attempts of code that no worker runs: a block that claims its run by id, and is the attempt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playhead.core.ids import EVERY_TENANT
from playhead.errors import AttemptLost, RunCancelled
from playhead.interfaces import RunStore
from playhead.runtime.attempt import LiveAttempt, Stop
from playhead.runtime.attempts import Attempts
from playhead.runtime.worker import outcome_of


class Claims:
    def __init__(self, record: RunStore, attempts: Attempts, process: str) -> None:
        self._record, self._attempts, self._process = record, attempts, process
        self._claimed: dict[LiveAttempt, asyncio.Event] = {}

    @asynccontextmanager
    async def attempt(self, run_id: str, *, tenant: str = EVERY_TENANT) -> AsyncIterator[LiveAttempt]:
        """Claim a queued run for the code in this block, which gets lease, fence and heartbeat.

        The block's end is the run's: it succeeds with the attempt's `result`, or fails with what the block raised.
        When the run is asked to stop, the block is cancelled and RunCancelled is raised from here; when the fence is
        lost, AttemptLost. Raises NotFound, RunFinal, RunNotFree.
        """
        run = await self._record.claim(tenant, run_id, self._process)
        attempt = await self._attempts.begin(run)
        task = asyncio.current_task()
        assert task is not None
        self._claimed[attempt] = asyncio.Event()
        body: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def cancel_block(why: Stop) -> None:
            if not body.done():
                task.cancel()

        attempt.on_stop = cancel_block
        if attempt.stopping is not None:  # it was stopped before anybody listened
            cancel_block(attempt.stopping)
        try:
            yield attempt
            body.set_result(attempt.result)
        except asyncio.CancelledError:
            body.cancel()
            if attempt.stopping is None:
                raise
            task.uncancel()
            if attempt.stopping is Stop.LOST:
                raise AttemptLost(run_id=run.id, token=run.token) from None
            raise RunCancelled(run_id=run.id, why=attempt.stopping.value) from None
        except Exception as error:
            body.set_exception(error)
            raise
        finally:
            await asyncio.shield(self._end(attempt, body))

    async def drain(self, grace: float) -> None:
        """Give the blocks `grace` seconds to end, then stop them and wait until each is recorded."""
        ended = [asyncio.ensure_future(event.wait()) for event in self._claimed.values()]
        if not ended:
            return
        _, late = await asyncio.wait(ended, timeout=grace)
        for attempt in list(self._claimed):
            attempt.stop(Stop.DRAIN)
        if late:
            await asyncio.wait(late, timeout=2.0)
        for waiting in late:
            waiting.cancel()

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
            self._claimed.pop(attempt).set()
