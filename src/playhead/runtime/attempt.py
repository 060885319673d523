"""A live attempt: what agent code does through its context, and how the attempt begins, waits and ends."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from playhead.core import payload as payloads
from playhead.core.event import Event
from playhead.core.ids import EVERY_TENANT, published_place, run_feed, uuid7
from playhead.core.interrupt import Interrupt, Question
from playhead.core.redaction import Redactor
from playhead.core.run import Failure, Outcome, Run, Status
from playhead.core.snapshot import State, decode_state
from playhead.errors import AttemptLost, PayloadTooLarge, PlayheadError, RunCancelled, RunFinal, StoreUnavailable
from playhead.interfaces import Clock, RunStore
from playhead.runtime.projector import Projector, quietly
from playhead.runtime.publisher import Publisher
from playhead.runtime.waiters import Waiters, woken

_T = TypeVar("_T")
_log = logging.getLogger("playhead.attempt")
_LOOK_AGAIN = 2.0  # seconds between two looks at an open interrupt that nobody woke us for
_RETRY = 0.25  # seconds between two tries of a record write that was not answered
_MESSAGE = 2_000  # characters of an error's words that are kept


class Stop(StrEnum):
    """Why an attempt has to stop before its agent is done."""

    CANCEL = "cancel"
    LOST = "lost"
    DRAIN = "drain"
    FAULT = "fault"  # of ours: it cannot be shown any more


class LiveAttempt:
    """One attempt in this process. Used in one event loop."""

    def __init__(
        self,
        run: Run,
        *,
        title: str | None,
        record: RunStore,
        projector: Projector,
        waiters: Waiters,
        clock: Clock,
        redactor: Redactor,
        make_publisher: Callable[[Run, State, Callable[[BaseException | None], None]], Publisher],
        max_result: int = 8 << 20,
    ) -> None:
        self.run = run
        self._record, self._projector, self._waiters, self._clock = record, projector, waiters, clock
        self._redactor, self._max_result = redactor, max_result
        before = decode_state(run.state)
        # A new attempt starts its work over; what names the run stays.
        state = State(title=before.title or title, subtitle=before.subtitle)
        self.publisher = make_publisher(run, state, lambda error: self.stop(Stop.FAULT if error else Stop.LOST))
        self._stopped: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()
        self._calls: dict[str, None] = {}  # tool calls begun and not ended, in their order
        self.result: object = None  # what a block that claimed its run itself wants recorded
        self._asking = 0  # questions that are open
        self.lost = False  # as far as this process knows
        self.ended = False
        self.on_wait: Callable[[], None] = lambda: None  # called when `waiting` changes
        self.on_stop: Callable[[Stop], None] = lambda why: None

    @property
    def key(self) -> tuple[str, int]:
        return self.run.id, self.run.token

    @property
    def waiting(self) -> bool:
        """Whether it waits for a person."""
        return self._asking > 0

    @property
    def stopping(self) -> Stop | None:
        return self._stopped.result() if self._stopped.done() else None

    @property
    def stopped(self) -> asyncio.Future[Stop]:
        """Done when the attempt has to stop. Do not cancel it: shield it, or wait with asyncio.wait."""
        return self._stopped

    def stop(self, why: Stop) -> None:
        """Ask the agent to stop; the first reason counts, but nothing outranks the fence."""
        if why is Stop.LOST:
            self.lost = True
            self.publisher.shut()
        if not self._stopped.done():
            self._stopped.set_result(why)
            self._waiters.wake(self.run.id)
            self.on_stop(why)

    def check(self) -> None:
        """Raise RunCancelled or AttemptLost if the agent should stop."""
        if self.publisher.closed:
            raise AttemptLost(run_id=self.run.id, token=self.run.token)
        if self.stopping is not None:
            raise RunCancelled(run_id=self.run.id, why=self.stopping.value)

    async def begin(self) -> None:
        """Project the attempt's start, before agent code runs (law 5)."""
        try:
            run = await self._projector.bring(self.run.id, resend=False)
        except StoreUnavailable:
            return  # the fence holds all the same: the first publish finds the projection behind
        if run is not None:
            self.publisher.knows(run)

    async def event(self, name: str, payload: object, changes: Mapping[str, Any]) -> None:
        await self.publisher.event(name, payload, changes)
        call = payload.get("call_id") if isinstance(payload, Mapping) else None
        if isinstance(call, str) and name == "tool_call_started":
            self._calls[call] = None
        elif isinstance(call, str) and name == "tool_executed":
            self._calls.pop(call, None)

    async def audit(self, kind: str, data: object) -> None:
        """Append to the audit trail, which no browser sees. Raises AttemptLost."""
        body = payloads.bounded(self._redactor.value(data))
        await self._surely(
            lambda: self._record.note(
                EVERY_TENANT, self.run.id, self.run.token, kind, f"attempt:{self.run.token}", body
            )
        )

    async def ask(self, key: str, kind: str, payload: object, within: int | None) -> Interrupt:
        """Ask a person and wait for the question to close; the closed interrupt. Raises RunCancelled, AttemptLost."""
        self.check()
        question = Question(key, kind, payloads.bounded(self._redactor.value(payload)), within)
        await self.publisher.flush()  # an attempt's publishes come before its facts (law 3)
        new_id = uuid7(self._clock.wall_ms(), self._clock.random(10))
        # From before it is asked: the answer may be there as soon as the question is.
        with self._waiters.listening(self.run.id) as event:
            asked = await self._surely(
                lambda: self._record.ask(
                    self.run.id, self.run.token, question, new_id, self.publisher.state(), self.publisher.acknowledged
                )
            )
            await self._after_fact()
            if asked.open:
                self._wait_for(+1)
                try:
                    while asked.open:
                        await woken(event, _LOOK_AGAIN)
                        event.clear()
                        self.check()
                        asked = await self._surely(partial(self._look, asked.id))
                finally:
                    self._wait_for(-1)
        await self._after_fact()
        return asked

    async def finish(self, outcome: Outcome) -> Run | None:
        """End the attempt: open text and tool calls are closed, all is sent, then the record decides.

        What the live store, being away, did not take goes into the record with the end, which brings it along.
        The run as it ended, or None if it was not this attempt's to end any more. Waits out an unavailable record
        for as long as the attempt is not told that it is lost.
        """
        if self.ended:
            return None
        try:
            lacking = await self._close_up(outcome)
            # Only now: of a part that was open, the end is held back until it is known to be no secret.
            said = self._partial() if outcome.status is not Status.SUCCEEDED else None
            ending = Outcome(
                outcome.status,
                outcome.result,
                outcome.failure,
                self.publisher.state(),
                said,
                outcome.released,
                lacking,
                published_place(lacking[-1].id)[1] if lacking else self.publisher.acknowledged,
            )
            return await self._surely(lambda: self._record.finish(self.run.id, self.run.token, ending), final=True)
        except (AttemptLost, RunFinal) as error:
            _log.info("run %s attempt %d: its end was refused: %s", *self.key, error.code)
            return None
        finally:
            self.ended = True
            self.publisher.shut()
            await quietly(self._projector, self.run.id)

    def succeeded(self, value: object) -> Outcome:
        """The outcome for an agent that returned this. A result that cannot be kept is a failure that says so."""
        try:
            result = payloads.encode(self._redactor.value(value))
            if len(result) > self._max_result:
                raise PayloadTooLarge(f"The result has {len(result)} bytes; {self._max_result} are kept.")
        except PlayheadError as error:
            return Outcome(Status.FAILED, failure=Failure(error.code, error.message))
        return Outcome(Status.SUCCEEDED, result)

    def failed(self, error: BaseException) -> Outcome:
        """The outcome for an agent that raised this."""
        code = error.code if isinstance(error, PlayheadError) else "agent_error"
        words = error.message if isinstance(error, PlayheadError) else f"{type(error).__name__}: {error}"
        safe = self._redactor.value(payloads.well_formed(words))
        return Outcome(Status.FAILED, failure=Failure(code, str(safe)[:_MESSAGE]))

    def broken(self) -> Outcome:
        """The outcome where a fault of ours ended the attempt: the log has the rest."""
        words = "playhead failed while it worked on this run."
        return Outcome(Status.FAILED, failure=Failure("internal_error", words))

    def trace(self, error: BaseException) -> str:
        """Where an agent failed, for the log: its words, and the lines of its code, may hold a secret."""
        return str(self._redactor.value(payloads.well_formed("".join(traceback.format_exception(error)))))

    async def _close_up(self, outcome: Outcome) -> tuple[Event, ...]:
        """Say the last words; the events that the projection still lacks."""
        state = "interrupted" if outcome.failure is None else "failed"
        try:
            for call in list(self._calls):
                await self.publisher.event("tool_executed", {"call_id": call, "state": state}, {})
            if not outcome.released:
                self.publisher.close_parts()
                self.publisher.set_state({"current_step": None, "next_action": None})
            lacking = await self.publisher.settle()
        except AttemptLost:
            return ()  # the projection refuses us; whether the run is ours to end, the record says
        if (epoch := self.publisher.holed) is not None:
            # Its timeline lacks events that are nowhere: under a new epoch it does not count as whole.
            await self._surely(lambda: self._record.mint_epoch(run_feed(self.run.id), epoch), final=True)
        return tuple(lacking)

    def _partial(self) -> bytes | None:
        text = self.publisher.parts.said()
        return payloads.encode([{"part": part, "text": said} for part, said in text.items()]) if text else None

    async def _look(self, interrupt_id: str) -> Interrupt:
        found = await self._record.interrupt(EVERY_TENANT, interrupt_id)
        if found is None:
            raise AttemptLost(run_id=self.run.id, token=self.run.token)
        return found

    async def _after_fact(self) -> None:
        try:
            run = await self._projector.bring(self.run.id, resend=False)
        except StoreUnavailable:
            return
        if run is not None:
            self.publisher.knows(run)

    async def _surely(self, act: Callable[[], Awaitable[_T]], *, final: bool = False) -> _T:
        """Do a record act until it is answered: every one of them can be repeated."""
        while True:
            try:
                return await act()
            except StoreUnavailable:
                if self.lost:
                    raise AttemptLost(run_id=self.run.id, token=self.run.token) from None
                if not final:
                    self.check()
                await self._clock.sleep(_RETRY)

    def _wait_for(self, more: int) -> None:
        """An agent may ask several people at once: it waits for as long as one of them has not answered."""
        before, self._asking = self.waiting, self._asking + more
        if self.waiting != before:
            self.on_wait()
