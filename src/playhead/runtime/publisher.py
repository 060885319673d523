"""One attempt's way to the projection: events, state and text, fenced, in order, conflated and sent in batches.

What one tick of the event loop brings goes out in one write. An event is acknowledged when it is in the projection;
state and text are not waited for. While the store is down nothing waits: up to `pending` events or `pending_bytes`
are kept, and beyond that all but the newest are dropped and the timeline is rebuilt with an honest hole (law 3).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from playhead.core import event as events
from playhead.core.event import Event
from playhead.core.ids import run_feed
from playhead.core.redaction import Redactor
from playhead.core.run import Run
from playhead.core.snapshot import State
from playhead.core.text import TextAlready, TextApplied, TextFrom, TextReply, TextWrite
from playhead.core.transition import (
    Already,
    Applied,
    Behind,
    Final,
    Gap,
    Guard,
    NeedsRebuild,
    Publish,
    Stale,
    StaleVersion,
    WrongEpoch,
)
from playhead.errors import AttemptLost, StoreUnavailable
from playhead.interfaces import Clock, ProjectionStore, TextChannel
from playhead.runtime.backlog import Backlog, Unacknowledged
from playhead.runtime.parts import Part, Parts
from playhead.runtime.projector import Projector

_log = logging.getLogger("playhead.publisher")
_BATCH = 256  # events of one write
_TEXT_AHEAD = 64 << 10  # bytes of text that may wait to be sent
_BACKOFF = (0.05, 2.0)  # seconds, first and most, while the store is down


@dataclass(frozen=True, slots=True)
class PublisherOptions:
    state_flush: float = 0.05
    text_flush: float = 0.02
    text_bytes: int = 2_048
    pending: int = 1_000
    pending_bytes: int = 1 << 20


class Publisher:
    """See the module. Must be used in one event loop. `lost` is called once, when the fence refuses this attempt, or
    with the error that keeps it from being published."""

    def __init__(
        self,
        run: Run,
        state: State,
        *,
        live: ProjectionStore,
        texts: TextChannel,
        projector: Projector,
        clock: Clock,
        redactor: Redactor,
        lost: Callable[[BaseException | None], None],
        archive: Callable[[str], Awaitable[None]] | None = None,
        options: PublisherOptions | None = None,
    ) -> None:
        self._run_id, self._feed = run.id, run_feed(run.id)
        self._token, self._epoch, self._rev = run.token, run.epoch, run.rev
        self._live, self._texts, self._projector, self._clock = live, texts, projector, clock
        self._redactor, self._lost, self._archive = redactor, lost, archive
        self._options = options or PublisherOptions()
        self._backlog = Backlog()
        self._acked_n = 0
        self._state, self._encoded = state, state.encode()
        self._state_version, self._acked_state = 1, 0  # the first state is owed from the start
        self._state_owed = 1
        self.parts = Parts(redactor)
        self._drainer: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._state_due = 0.0  # loop time
        self._urgent = False  # somebody waits for all to be sent: no window counts
        self._flushers: list[asyncio.Future[None]] = []
        self._pause: asyncio.Future[None] | None = None  # before the next look at a store that is down
        self._hole: int | None = None  # the epoch under which events were dropped
        self.down = False
        self.closed = False  # refused by the fence, or shut

    # What the agent says.

    async def event(self, name: str, payload: object, changes: Mapping[str, Any]) -> None:
        """Publish one event with the state it leads to; returns when the projection has it, or the store is down."""
        self._check_open()
        events.check_type(name)
        clean, at = self._redactor.value(payload), self._clock.wall_ms()
        event = events.published(self._run_id, self._token, self._backlog.n + 1, name, clean, at)
        self.set_state(changes)  # validated before anything is counted
        waiter = self._backlog.add(event)
        full = len(self._backlog.items) > self._options.pending or self._backlog.bytes > self._options.pending_bytes
        if full and self.down:
            self._backlog.drop()
            self._hole = self._epoch
        self._kick(0)
        if not self.down:
            await asyncio.shield(waiter)
            self._check_open()

    def set_state(self, changes: Mapping[str, Any]) -> None:
        """Change snapshot fields; sent within the state window, or with the next event. Raises InvalidState."""
        self._check_open()
        clean = self._redactor.value(dict(changes))
        new = self._state.changed(clean, self._clock.wall_ms())
        if new != self._state:
            self._state, self._encoded = new, new.encode()
            self._owe_state()
            self._kick(self._options.state_flush)

    def touch(self) -> None:
        """Send the state again, so that viewers see that the attempt lives."""
        if not self.closed:
            self._owe_state()
            self._kick(self._options.state_flush)

    def text(self, part: str, piece: str) -> None:
        """Add to a text part. Raises InvalidPart. Text beyond the part's bound is left out and the part says so."""
        self._check_open()
        held = self.parts.get(part)
        held.add(piece)
        if held.owed:
            self._kick(self._text_wait(held, asyncio.get_running_loop().time()))

    def close_part(self, part: str) -> None:
        """Nothing follows in this part."""
        self.parts.get(part).close()
        self._kick(0)

    def close_parts(self) -> None:
        for part in self.parts:
            part.close()

    @property
    def crowded(self) -> bool:
        """Whether text comes faster than the store takes it: the agent should wait for it."""
        return not self.down and self.parts.unsent() > _TEXT_AHEAD

    # What the projector and the attempt ask.

    @property
    def token(self) -> int:
        return self._token

    @property
    def place(self) -> tuple[int, int]:
        """The epoch it writes under, and the highest rev it knows."""
        return self._epoch, self._rev

    @property
    def acknowledged(self) -> int:
        """The number of the newest event that viewers were shown, or was given up."""
        return self._backlog.n - len(self._backlog.items)

    def state(self) -> bytes | None:
        return None if self.closed else self._encoded

    def knows(self, run: Run) -> None:
        """Note facts that this attempt must not publish ahead of."""
        self._rev = max(self._rev, run.rev)
        if run.epoch > self._epoch:
            self.reopened(run.epoch, run.rev)

    def reopened(self, epoch: int, rev: int) -> None:
        if epoch <= self._epoch or self.closed:
            return
        self._epoch, self._rev = epoch, max(self._rev, rev)
        self._acked_n, self._acked_state = 0, 0
        self._owe_state()
        self.parts.send_again()
        self._kick(0)

    async def resend(self) -> None:
        await self.flush()

    async def flush(self) -> None:
        """Return when all is sent, when the store is down, or when the attempt was refused."""
        while self._owes() and not self.closed and not self.down:
            self._urgent = True
            self._kick(0)
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._flushers.append(waiter)
            await waiter

    @property
    def holed(self) -> int | None:
        """The epoch whose timeline lacks events that were dropped, until another one begins."""
        return self._hole if self._hole == self._epoch else None

    async def settle(self) -> list[Event]:
        """Try once more to send all, also to a store that was down; the events that it still lacks."""
        if self.down:
            self.down = False
            self._try_now()
        await self.flush()
        return [one.event for one in self._backlog.items]

    def shut(self) -> None:
        """Send nothing more; who waits for an acknowledgement is let go."""
        self.closed = True
        self._try_now()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._backlog.release()
        self._wake_flushers()

    # The sending side.

    def _check_open(self) -> None:
        if self.closed:
            raise AttemptLost(run_id=self._run_id, token=self._token)

    def _owe_state(self) -> None:
        self._state_version += 1
        if not self._state_owed:
            self._state_due = asyncio.get_running_loop().time() + self._options.state_flush
        self._state_owed = self._state_version

    def _kick(self, delay: float) -> None:
        """See that the drainer runs within `delay`. An earlier appointment stands."""
        if self.closed or (self._drainer is not None and not self._drainer.done()):
            return  # it makes the next appointment when it ends
        loop = asyncio.get_running_loop()
        at = loop.time() + delay if delay > 0 else 0.0
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = loop.call_at(at, self._start) if at else loop.call_soon(self._start)

    def _start(self) -> None:
        self._timer = None
        self._drainer = asyncio.get_running_loop().create_task(self._drain())
        self._drainer.add_done_callback(self._drained)

    def _try_now(self) -> None:
        if self._pause is not None:
            self._pause.cancel()

    def _owes(self) -> bool:
        return bool(self._backlog) or self._state_owed > 0 or bool(self.parts.owed())

    def _state_wait(self, now: float) -> float:
        return 0.0 if self._urgent or self._backlog else max(0.0, self._state_due - now)

    def _text_wait(self, part: Part, now: float) -> float:
        return 0.0 if self._urgent else part.wait(now, self._options.text_flush, self._options.text_bytes)

    async def _drain(self) -> None:
        """Send what is due, until nothing is."""
        loop = asyncio.get_running_loop()
        backoff = _BACKOFF[0]
        while not self.closed:
            now = loop.time()
            write_due = bool(self._backlog) or (self._state_owed > 0 and not self._state_wait(now))
            parts = [part for part in self.parts.owed() if not self._text_wait(part, now)]
            if not write_due and not parts and self.holed is None:
                return
            try:
                if self.holed is not None:
                    await self._bring(rebuild=True)
                    if self.holed is not None:  # what follows would hide it
                        raise StoreUnavailable("The timeline cannot be rebuilt now.")
                if write_due:
                    await self._send_events()
                for part in parts:
                    if part.owed and not self.closed:
                        await self._send_text(part)
                self.down, backoff = False, _BACKOFF[0]
            except StoreUnavailable:
                self.down = True
                self._backlog.release()
                self._wake_flushers()
                self._pause = asyncio.ensure_future(self._clock.sleep(backoff))
                await asyncio.wait({self._pause})
                backoff = min(2 * backoff, _BACKOFF[1])

    def _drained(self, task: asyncio.Task[None]) -> None:
        self._drainer = None
        self._urgent = False
        self._wake_flushers()
        if task.cancelled() or self.closed:
            return
        if (error := task.exception()) is not None:
            # A fault of ours: an attempt that cannot publish must not go on as if it could.
            _log.error("run %s attempt %d cannot publish", self._run_id, self._token, exc_info=error)
            self.shut()
            self._lost(error)
            return
        if self._owes():
            now = asyncio.get_running_loop().time()
            waits = [self._text_wait(part, now) for part in self.parts.owed()]
            if self._backlog or self._state_owed:
                waits.append(self._state_wait(now))
            self._kick(min(waits))

    def _wake_flushers(self) -> None:
        waiters, self._flushers = self._flushers, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _guard(self) -> Guard:
        return Guard(self._epoch, self._token, self._rev, self._acked_n, self._acked_state)

    async def _send_events(self) -> None:
        batch = self._backlog.items[:_BATCH]
        version = self._state_version
        # With a state that is known there, the store would refuse the events for it.
        state = self._encoded if version > self._acked_state else None
        write = Publish(
            self._feed,
            self._guard(),
            batch[0].n if batch else self._backlog.n + 1,
            tuple(one.event for one in batch),
            tuple(self._projector.tag() for _ in batch),
            state,
            version,
            self._clock.wall_ms(),
        )
        epoch = self._epoch
        match await self._live.publish(write):
            case Applied() | Already():
                if self._archive is not None and batch:
                    await self._archive(self._run_id)
                if self._epoch == epoch:
                    if batch:  # a state alone says nothing of n: a new epoch begins without any
                        self._acked_n = write.last_n
                    self._acked_state = version
                self._sent(batch, version)
            case StaleVersion():
                if self._epoch == epoch:
                    self._acked_state = version
                self._sent([], version)
                if batch:
                    self._owe_state()
            case other:
                await self._refused(other)

    def _sent(self, batch: list[Unacknowledged], version: int) -> None:
        if self._state_owed <= version:
            self._state_owed = 0
        self._backlog.acknowledge(batch)

    async def _send_text(self, part: Part) -> None:
        offset, end, final = part.sent, len(part.data), part.final
        write = TextWrite(
            self._feed, self._guard(), part.name, offset, bytes(part.data[offset:end]), final, final and part.truncated
        )
        epoch = self._epoch
        part.at = asyncio.get_running_loop().time()
        match await self._texts.append(write):
            case TextApplied() | TextAlready():
                if self._epoch == epoch:
                    part.sent, part.final_sent = end, final
            case TextFrom(length):
                if self._epoch == epoch:
                    part.sent = min(length, len(part.data))
            case other:
                await self._refused(other)

    async def _refused(self, reply: TextReply) -> None:
        match reply:
            case Stale():
                self.shut()
                self._lost(None)
            case WrongEpoch(epoch):
                self.reopened(epoch, self._rev)
            case Final() | Behind() | Gap() | NeedsRebuild():
                # The record says whether the run is over: it may have lost the end that the projection shows. Under
                # our own epoch the projection went back: its marks may agree with the record all the same.
                back = isinstance(reply, NeedsRebuild) and reply.seen == self._epoch
                await self._bring(rebuild=back)
            case _:
                raise AssertionError(reply)

    async def _bring(self, *, rebuild: bool) -> None:
        run = await self._projector.bring(self._run_id, rebuild=rebuild, resend=False)
        if run is None or run.status.final or run.token != self._token:
            self.shut()
            self._lost(None)
        else:
            self.knows(run)
