"""The live attempts of this process: their lease, their cancel requests, and a regular sign of life."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from playhead.core.run import Run
from playhead.interfaces import Beat, Clock, RunStore, Signal
from playhead.runtime.attempt import LiveAttempt, Stop
from playhead.runtime.ear import Ear
from playhead.runtime.heartbeat import Heartbeat
from playhead.runtime.projector import Projector
from playhead.runtime.waiters import Waiters

_log = logging.getLogger("playhead.attempts")


class Attempts:
    """Register an attempt before anything is awaited for it, and let it go when it has ended."""

    def __init__(
        self,
        record: RunStore,
        signal: Signal,
        projector: Projector,
        waiters: Waiters,
        clock: Clock,
        *,
        make: Callable[[Run], LiveAttempt],
        sweep: float = 15.0,
    ) -> None:
        self._record, self._signal, self._projector, self._waiters = record, signal, projector, waiters
        self._clock, self._make, self._sweep = clock, make, sweep
        self._attempts: dict[tuple[str, int], LiveAttempt] = {}
        self._ears: dict[tuple[str, int], Ear] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._left: dict[tuple[str, int], float] = {}  # ours, says the record, and nobody here works on it: since when
        self.heartbeat: Heartbeat | None = None

    def __len__(self) -> int:
        return len(self._attempts)

    def all(self) -> list[LiveAttempt]:
        return list(self._attempts.values())

    def of(self, run_id: str) -> LiveAttempt | None:
        return next((one for one in self._attempts.values() if one.run.id == run_id), None)

    def take_up(self, run: Run) -> LiveAttempt:
        """Take up an attempt that the record gave to this process; its `begin` comes next."""
        attempt = self._make(run)
        if run.cancel_requested_at is not None:
            attempt.stop(Stop.CANCEL)
        self._attempts[attempt.key] = attempt
        self._projector.sources[run.id] = attempt.publisher
        self._hold()
        return attempt

    async def begin(self, attempt: LiveAttempt) -> None:
        """Listen to what others do to its run, and project its start."""
        ear = self._ears[attempt.key] = Ear(
            attempt.run.id,
            record=self._record,
            signal=self._signal,
            place=lambda: attempt.publisher.place,
            news=partial(self._news, attempt),
        )
        await ear.listen()
        await attempt.begin()

    def end(self, attempt: LiveAttempt) -> None:
        self._attempts.pop(attempt.key, None)
        if (ear := self._ears.pop(attempt.key, None)) is not None:
            task = asyncio.get_running_loop().create_task(ear.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        if self._projector.sources.get(attempt.run.id) is attempt.publisher:
            del self._projector.sources[attempt.run.id]
        self._hold()

    def cancel(self, run_id: str) -> None:
        """A cancel request is committed: tell the attempt, if it is here."""
        for attempt in self.all():
            if attempt.run.id == run_id:
                attempt.stop(Stop.CANCEL)

    def left(self, seconds: float) -> list[tuple[str, int]]:
        """Attempts that the record has as this process's own and on which nobody here has worked for so long.

        An end that was committed can be lost with a fail-over of the record, and a fault of ours may lose one too.
        """
        now = self._clock.steady()
        return [one for one, since in self._left.items() if one not in self._attempts and now - since >= seconds]

    def on_beat(self, beat: Beat) -> None:
        now = self._clock.steady()
        self._left = {one: self._left.get(one, now) for one in beat.left if one not in self._attempts}
        for attempt in self.all():
            if attempt.key in beat.lost and not attempt.ended:
                _log.warning("run %s attempt %d is not ours any more", *attempt.key)
                attempt.stop(Stop.LOST)
        for run_id in beat.cancelled:
            self.cancel(run_id)

    def on_silence(self) -> None:
        """The record has not answered for too long: others may own these runs by now."""
        for attempt in self.all():
            attempt.stop(Stop.LOST)

    async def keep_touching(self) -> None:
        """Publish each attempt's state now and then: viewers see that it lives, and a projection that nobody watches
        and that is missing, or went back, is found by the refusal."""
        while True:
            await self._clock.sleep(self._sweep)
            for attempt in self.all():
                attempt.publisher.touch()
            for ear in list(self._ears.values()):
                await ear.listen()

    def _news(self, attempt: LiveAttempt, run: Run) -> None:
        if attempt.ended:
            return
        if run.token != attempt.run.token or run.status.final:
            attempt.stop(Stop.LOST)
            return
        attempt.publisher.knows(run)
        if run.cancel_requested_at is not None:
            attempt.stop(Stop.CANCEL)
        self._waiters.wake(run.id)

    def _hold(self) -> None:
        if self.heartbeat is not None:
            self.heartbeat.held = frozenset(self._attempts)
