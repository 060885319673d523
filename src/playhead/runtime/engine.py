"""The engine: ports and loops put together, and the calls that routes, the command line and applications make.

It names no backend: whoever builds it brings the ports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from playhead.core import payload as payloads
from playhead.core import request
from playhead.core.ids import EVERY_TENANT, is_id, run_feed, uuid7
from playhead.core.interrupt import Interrupt
from playhead.core.redaction import Redactor
from playhead.core.run import NewRun, Run, Status
from playhead.core.snapshot import State
from playhead.errors import InvalidRequest, KeyConflict, NotFound, NotReady, StoreUnavailable, UnknownAgent
from playhead.interfaces import Clock
from playhead.runtime.archiver import Archiver
from playhead.runtime.attempt import LiveAttempt
from playhead.runtime.attempts import Attempts
from playhead.runtime.bell import Bell
from playhead.runtime.bootstrap import Screens
from playhead.runtime.claims import Claims
from playhead.runtime.disconnect import DisconnectPolicy
from playhead.runtime.dispatcher import Dispatcher, Listener
from playhead.runtime.heartbeat import Heartbeat
from playhead.runtime.hub import Hub
from playhead.runtime.projector import Projector, quietly
from playhead.runtime.publisher import Publisher, PublisherOptions
from playhead.runtime.reconciler import Reconciler
from playhead.runtime.setup import AgentLike, EngineOptions, Ports
from playhead.runtime.supervise import forever, until_answered
from playhead.runtime.waiters import Waiters
from playhead.runtime.worker import Worker

_log = logging.getLogger("playhead")


class Engine:
    """Start it, use it in one event loop, drain it."""

    def __init__(
        self,
        ports: Ports,
        clock: Clock,
        agents: Sequence[AgentLike],
        *,
        listeners: Mapping[str, Sequence[Listener]] | None = None,
        redactor: Redactor | None = None,
        options: EngineOptions | None = None,
    ) -> None:
        self.ports, self.clock, self.options = ports, clock, options or EngineOptions()
        self.agents: dict[str, AgentLike] = {}
        for one in agents:
            if one.name in self.agents:
                raise InvalidRequest(f"Two agents are called {one.name}.")
            self.agents[one.name] = one
        self._redactor = redactor or Redactor()
        self.process = uuid7(clock.wall_ms(), clock.random(10))
        self.projector = Projector(ports.record, ports.live, clock)
        self.archiver = Archiver(ports.record, ports.archive, ports.live, clock)
        if self.options.archive != "off":
            self.projector.before_empty = self.archiver.save
        self.waiters = Waiters()
        self.attempts = Attempts(
            ports.record,
            ports.signal,
            self.projector,
            self.waiters,
            clock,
            make=self._make_attempt,
            sweep=self.options.sweep,
        )
        self.worker = Worker(
            ports.record,
            self.attempts,
            clock,
            self.process,
            self.agents,
            concurrency=self.options.concurrency,
            poll=self.options.reconcile,
            cancel_grace=self.options.cancel_grace,
        )
        self.bell = Bell(ports.signal, clock, self.worker.wake)
        self.heartbeat = self.attempts.heartbeat = Heartbeat(
            ports.record,
            self.process,
            clock,
            on_beat=self.attempts.on_beat,
            on_silence=self.attempts.on_silence,
            every=self.options.beat,
            lease=self.options.lease,
            lost_after=self.options.lost_after,
        )
        self.reconciler = Reconciler(
            ports.record,
            ports.live,
            ports.texts,
            self.projector,
            clock,
            every=self.options.reconcile,
            lease=self.options.lease,
            outbox_ttl=self.options.outbox_ttl,
            viewer_grace=self.options.viewer_grace,
            on_change=self._changed,
            process=self.process,
            left=self.attempts.left,
        )
        self.dispatcher = Dispatcher(ports.record, clock, listeners or {}, self.process)
        self.claims = Claims(ports.record, self.attempts, self.process)
        self.disconnect = DisconnectPolicy(
            ports.record, self.process, clock, grace=self.options.viewer_grace, on_left=self.reconciler.desert
        )
        self.hub = Hub(
            ports.record,
            ports.live,
            ports.texts,
            ports.signal,
            self.projector,
            clock,
            options=self.options.hub,
            on_first=self.disconnect.came,
            on_empty=self.disconnect.left,
        )
        self.screens = Screens(ports.record, ports.archive, ports.live, ports.texts, self.projector)
        self._loops: list[asyncio.Task[None]] = []
        self._drain: asyncio.Task[None] | None = None
        self.ready = False
        self.draining = False

    @property
    def unreadable(self) -> int:
        """How often a stored event that cannot be read any more was told as a placeholder."""
        return self.ports.live.unreadable + self.ports.archive.unreadable

    # Its life.

    async def start(self, *, patient: bool = False) -> None:
        """Take the lease, close what an earlier process left open, and begin to work.

        Raises StoreUnavailable where the record does not answer; with `patient` it returns then, and goes on trying
        until it does. `ready` says when it has.
        """
        try:
            await self._begin()
        except StoreUnavailable:
            if not patient:
                raise
            beginning = until_answered(self._begin, self.clock, self.options.reconcile)
            self._loops.append(asyncio.get_running_loop().create_task(beginning, name="playhead-begin"))

    async def _begin(self) -> None:
        await self.heartbeat.start()
        await self.reconciler.round()
        loops: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "reconciler": self.reconciler.keep_reconciling,
            "attempts": self.attempts.keep_touching,
            "dispatcher": self.dispatcher.keep_dispatching,
            "hub": self.hub.run,
            "disconnect": self.disconnect.keep_telling,
        }
        if self.options.worker:
            loops["worker"] = self.worker.keep_working
            loops["bell"] = self.bell.listen
        if self.options.archive != "off":
            loops["archiver"] = self.archiver.keep_archiving
        for name, loop in loops.items():
            self._loops.append(asyncio.get_running_loop().create_task(forever(name, loop), name=f"playhead-{name}"))
        self.ready = True

    async def drain(self) -> None:
        """Stop taking work and viewers, end what runs within its grace, and give everything back. Repeatable: whoever
        asks later returns when it is done, too, and who does not wait for that changes nothing."""
        if self._drain is None:
            self.ready, self.draining = False, True
            self._drain = asyncio.get_running_loop().create_task(self._drain_all(), name="playhead-drain")
        await asyncio.shield(self._drain)

    async def _drain_all(self) -> None:
        window, grace = self.options.drain_window, self.options.drain_grace
        await self._surely(self.disconnect.close)
        await asyncio.gather(
            self._surely(lambda: self.hub.drain(window)),
            self._surely(lambda: self.worker.drain(grace)),
            self._surely(lambda: self.claims.drain(grace)),
        )
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._surely(self.bell.close)
        await self._surely(lambda: self.dispatcher.drain(2.0))
        await self._surely(self.reconciler.round)
        if self.options.archive != "off":
            await self._surely(self.archiver.round)
        await self._surely(self.heartbeat.stop)
        self.attempts.on_silence()  # whoever is left here has no lease any more

    async def _surely(self, step: Callable[[], Awaitable[object]]) -> None:
        """A step of the drain: one that fails must not keep the next from their turn."""
        try:
            await step()
        except StoreUnavailable:
            pass  # what it left is settled after the next start
        except Exception:
            _log.exception("a step of the drain failed; the next start settles what it left")

    # What is asked of it.

    async def create(
        self,
        agent: str,
        given: object = None,
        *,
        tenant: str,
        subject: str,
        labels: Mapping[str, str] | None = None,
        key: str | None = None,
        dedupe: str | None = None,
    ) -> tuple[Run, bool]:
        """Start a run: stored and on its timeline when this returns; True if it is new.

        The same `dedupe` of the same subject gives the run that it made before, or KeyConflict if the rest differs;
        that is looked at before anything else. Raises UnknownAgent, InvalidInput, InvalidRequest, NotReady.
        """
        if self.draining:
            raise NotReady
        digest = request.digest({"agent": agent, "input": given, "labels": dict(labels or {}), "key": key})
        request.checked_key(dedupe, "An idempotency key")
        if dedupe is not None:
            before = await self.ports.record.find_dedupe(tenant, subject, dedupe)
            if before is not None:
                if before.digest != digest:
                    raise KeyConflict(run_id=before.id)
                return before, False
        found = self.agents.get(agent)
        if found is None:
            raise UnknownAgent(agent=agent[:80], known=sorted(self.agents))
        new = NewRun(
            id=uuid7(self.clock.wall_ms(), self.clock.random(10)),
            tenant=tenant,
            agent=agent,
            input=found.validate(given),
            policy=found.policy,
            labels=request.checked_labels(labels or {}),
            key=request.checked_key(key),
            scope=subject,
            dedupe=dedupe,
            digest=digest,
        )
        run, created = await self.ports.record.create(new)
        if created:
            try:
                await self.projector.begin(run)
            except StoreUnavailable:
                _log.warning("run %s is recorded; it shows when the live store is back", run.id)
            self.worker.wake()
            self.bell.ring()
            self.dispatcher.wake()
        return run, created

    async def run(self, tenant: str, run_id: str) -> Run:
        """Raises NotFound, for another tenant's run as for none."""
        run = await self.ports.record.get(tenant, run_id) if is_id(run_id) else None
        if run is None:
            raise NotFound("There is no such run.")
        return run

    async def runs(
        self,
        tenant: str,
        *,
        status: Collection[Status] = (),
        agent: str | None = None,
        labels: Mapping[str, str] | None = None,
        key: str | None = None,
        before_seq: int | None = None,
        limit: int = 50,
        most_bytes: int | None = None,
    ) -> list[Run]:
        """Newest first; see `RunStore.list_runs`."""
        return await self.ports.record.list_runs(
            tenant,
            status=status,
            agent=agent,
            labels=labels,
            key=key,
            before_seq=before_seq,
            limit=limit,
            most_bytes=most_bytes,
        )

    async def cancel(self, tenant: str, run_id: str, *, by: str, reason: str | None = None) -> Run:
        """Ask the run to stop, durably; the run as it is then (it may have ended before: see its status)."""
        await self.run(tenant, run_id)
        run = await self.ports.record.request_cancel(tenant, run_id, by, _cut(self._redactor, reason))
        self.attempts.cancel(run_id)
        await self._committed(run_id)
        return run

    async def decide(
        self, tenant: str, run_id: str, interrupt_id: str, decision: Mapping[str, Any], *, by: str
    ) -> Interrupt:
        """Answer a question; the first answer counts. Raises NotFound, AlreadyDecided, ApprovalExpired,
        ApprovalCancelled, RunInterrupted."""
        await self.run(tenant, run_id)
        if not is_id(interrupt_id):
            raise NotFound("There is no such interrupt.")
        answer = {"approved": bool(decision.get("approved")), **{one: decision.get(one) for one in ("note", "value")}}
        encoded = payloads.bounded(self._redactor.value(answer))
        interrupt = await self.ports.record.decide(tenant, run_id, interrupt_id, encoded, by)
        await self._committed(run_id)
        self.worker.wake()
        self.bell.ring()  # its attempt may have been released
        return interrupt

    async def interrupts(self, tenant: str, run_id: str | None = None) -> list[Interrupt]:
        """Open questions, oldest first."""
        return await self.ports.record.interrupts(tenant, run_id)

    async def delete(self, tenant: str, run_id: str) -> None:
        """Erase an ended run: projection, record, archive. Raises NotFound, RunNotFree."""
        run = await self.run(tenant, run_id)
        feed = run_feed(run.id)
        # Nothing is left to be archived once it is gone: what came to the archive later would stay there for good.
        async with self.archiver.alone(feed):
            if run.status.final:
                await self.ports.live.drop(feed)
            await self.ports.record.delete(tenant, run_id)

    async def bootstrap(self, run: Run, limit: int = 50) -> bytes:
        """The whole screen of a run, as JSON."""
        return (await self.screens.bootstrap(run, limit)).body

    async def earlier(self, run: Run, before: str | None, limit: int = 50) -> bytes:
        """Events before one, from timeline and archive without a seam, as JSON."""
        return await self.screens.earlier(run, before, limit)

    def attempt(self, run_id: str, *, tenant: str = EVERY_TENANT) -> AbstractAsyncContextManager[LiveAttempt]:
        """See `Claims.attempt`. Raises NotReady too."""
        if not self.ready:
            raise NotReady
        return self.claims.attempt(run_id, tenant=tenant)

    # Inside.

    def _make_attempt(self, run: Run) -> LiveAttempt:
        found = self.agents.get(run.agent)

        def make_publisher(run: Run, state: State, lost: Callable[[BaseException | None], None]) -> Publisher:
            return Publisher(
                run,
                state,
                live=self.ports.live,
                texts=self.ports.texts,
                projector=self.projector,
                clock=self.clock,
                redactor=self._redactor,
                lost=lost,
                archive=self.archiver.run if self.options.archive == "sync" else None,
                options=PublisherOptions(
                    self.options.state_flush,
                    self.options.text_flush,
                    self.options.text_bytes,
                    self.options.pending_publishes,
                    self.options.pending_bytes,
                ),
            )

        return LiveAttempt(
            run,
            title=found.title if found else None,
            record=self.ports.record,
            projector=self.projector,
            waiters=self.waiters,
            clock=self.clock,
            redactor=self._redactor,
            make_publisher=make_publisher,
            max_result=self.options.max_result,
        )

    async def _committed(self, run_id: str) -> None:
        self._changed(run_id)
        await quietly(self.projector, run_id)

    def _changed(self, run_id: str) -> None:
        self.waiters.wake(run_id)
        self.dispatcher.wake()
        self.worker.wake()


def _cut(redactor: Redactor, words: str | None) -> str | None:
    return None if words is None else str(redactor.value(payloads.well_formed(words)))[:500]
