"""The worker: takes queued runs for the agents of this process and runs them, so many at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from playhead.core.run import Failure, Outcome, Status
from playhead.errors import AttemptLost, PlayheadError, RunCancelled
from playhead.interfaces import Clock, RunStore
from playhead.runtime.attempt import LiveAttempt, Stop
from playhead.runtime.attempts import Attempts
from playhead.runtime.supervise import Outage
from playhead.runtime.waiters import woken

_log = logging.getLogger("playhead.worker")
_DRAIN_GRACE = 1.0  # seconds for an agent to stop once the drain's grace is over


class Callee(Protocol):
    """An agent as the worker needs it."""

    @property
    def runs_here(self) -> bool:
        """Whether a worker runs it; otherwise code elsewhere claims its runs."""

    def call(self, attempt: LiveAttempt) -> Awaitable[object]: ...


class Worker:
    """Attempts that wait for a person do not count against `concurrency`; when their answers come together, more
    than that many may run for a while."""

    def __init__(
        self,
        record: RunStore,
        attempts: Attempts,
        clock: Clock,
        process: str,
        agents: Mapping[str, Callee],
        *,
        concurrency: int = 16,
        poll: float = 1.0,
        cancel_grace: float = 5.0,
    ) -> None:
        self._record, self._attempts, self._clock, self._process = record, attempts, clock, process
        self._agents = agents
        self._concurrency, self._poll, self._cancel_grace = concurrency, poll, cancel_grace
        self._tasks: dict[asyncio.Task[None], LiveAttempt] = {}
        self._left_behind: set[asyncio.Task[object]] = set()  # agents that did not stop when asked
        self._wake = asyncio.Event()
        self._outage = Outage(_log, "no run could be taken")
        self._accepting = True
        self._taking = asyncio.Lock()
        self.statistics = {"started": 0, "left_behind": 0}

    def wake(self) -> None:
        """There may be something to take."""
        self._wake.set()

    @property
    def active(self) -> int:
        return sum(1 for attempt in self._tasks.values() if not attempt.waiting)

    async def keep_working(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self.take()
                self._outage.ended()
            except PlayheadError as error:
                self._outage.began(error)
            await woken(self._wake, self._poll)

    async def take(self) -> None:
        """Take as many free runs as there is room for."""
        names = [name for name, agent in self._agents.items() if agent.runs_here]
        async with self._taking:
            room = self._concurrency - self.active
            if not self._accepting or not names or room <= 0:
                return
            for run in await self._record.acquire(self._process, names, room):
                self.statistics["started"] += 1
                attempt = self._attempts.take_up(run)
                task = asyncio.get_running_loop().create_task(self._work(attempt), name=f"playhead-run-{run.id}")
                self._tasks[task] = attempt  # the loop itself holds tasks weakly
                task.add_done_callback(self._done)

    async def drain(self, grace: float) -> None:
        """Take nothing more; give running agents `grace` seconds, then record the rest as interrupted or released."""
        self._accepting = False
        with suppress(TimeoutError):
            async with asyncio.timeout(grace), self._taking:
                pass  # what the record gave out just now is among those that run
        working = [task for task, attempt in self._tasks.items() if not attempt.waiting]
        if working:
            await asyncio.wait(working, timeout=grace)
        for attempt in list(self._tasks.values()):
            attempt.stop(Stop.DRAIN)
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=_DRAIN_GRACE + 2.0)

    async def _work(self, attempt: LiveAttempt) -> None:
        attempt.on_wait = self.wake
        try:
            try:
                await self._attempts.begin(attempt)
                outcome = await self._conduct(attempt)
            except Exception:
                # A fault of ours must not leave a run that goes on for ever with nobody at it.
                _log.exception("run %s attempt %d cannot be worked on", *attempt.key)
                outcome = attempt.broken()
            if outcome is not None:
                await attempt.finish(outcome)
        finally:
            attempt.publisher.shut()
            self._attempts.end(attempt)

    async def _conduct(self, attempt: LiveAttempt) -> Outcome | None:
        """Run the agent until it ends or must stop. None: the run is not ours any more."""
        if attempt.stopping is not None:
            return outcome_of(attempt, None, attempt.stopping)
        work = asyncio.ensure_future(self._agents[attempt.run.agent].call(attempt))
        either: set[asyncio.Future[Any]] = {work, attempt.stopped}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return outcome_of(attempt, work, None)
        work.cancel()
        # A server that stops gave its grace before; what it has left is for recording the end.
        grace = min(_DRAIN_GRACE, self._cancel_grace) if attempt.stopping is Stop.DRAIN else self._cancel_grace
        await asyncio.wait({work}, timeout=grace)
        if work.done():
            return outcome_of(attempt, work, attempt.stopping)
        self._leave_behind(work, attempt)
        return outcome_of(attempt, None, attempt.stopping)

    def _leave_behind(self, work: asyncio.Future[object], attempt: LiveAttempt) -> None:
        _log.warning("run %s attempt %d: the agent does not stop; its writes are refused from now on", *attempt.key)
        self.statistics["left_behind"] += 1
        if isinstance(work, asyncio.Task):
            self._left_behind.add(work)
            work.add_done_callback(self._forget)

    def _forget(self, work: asyncio.Task[object]) -> None:
        self._left_behind.discard(work)
        if not work.cancelled():
            work.exception()  # looked at, so that nobody is told of it

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("an attempt ended badly", exc_info=error)


def outcome_of(attempt: LiveAttempt, work: asyncio.Future[object] | None, why: Stop | None) -> Outcome | None:
    """What an attempt reports, from how its agent ended (None: it did not), and why it was made to (None: it was not).

    An agent that was made to stop has not done its work, whatever it then returned. None: there is nothing to report,
    the run belongs to somebody else.
    """
    error = work.exception() if work is not None and not work.cancelled() else None
    if isinstance(error, RunCancelled):
        why = why or attempt.stopping  # it saw that it has to stop before anybody here did
    if attempt.lost and (why is not None or isinstance(error, AttemptLost)):
        return None
    if attempt.stopping is Stop.FAULT and (why is not None or error is not None):
        return attempt.broken()
    if why is Stop.CANCEL:  # whatever the agent made of it
        return Outcome(Status.CANCELLED)
    if why is Stop.DRAIN:
        failure = Failure("server_stopped", "The server was stopped while the run was going on.")
        return Outcome(Status.INTERRUPTED, failure=failure, released=True)
    if work is None or work.cancelled() or isinstance(error, RunCancelled):
        return Outcome(Status.FAILED, failure=Failure("agent_cancelled", "The agent cancelled itself."))
    if error is None:
        return attempt.succeeded(work.result())
    _log.info("run %s attempt %d failed:\n%s", *attempt.key, attempt.trace(error))
    return attempt.failed(error)
