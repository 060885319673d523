"""Hands committed facts to an application's listeners, from the outbox, at least once each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from playhead.core import payload as payloads
from playhead.core.event import Fact
from playhead.core.ids import Feed
from playhead.errors import BadJson, StoreUnavailable
from playhead.interfaces import Clock, RunStore
from playhead.runtime.supervise import Outage
from playhead.runtime.waiters import woken

_log = logging.getLogger("playhead.listeners")
_TRIES = 3
_MOST = 100  # facts taken up at once
_BUSY = 1_000  # facts that are told at once; others wait for their turn
# Seconds for which a fact that is told here is told nowhere else; prolonged while it goes on.
_HOLD = 10.0
_LAST = 1.0  # seconds for a listener to stop once it is cancelled

Listener = Callable[[dict[str, Any]], Awaitable[None]]


class Dispatcher:
    """A fact counts as heard when each of its listeners has returned, or has failed three times. Until then a
    restart tells it again, or another process once this one has not prolonged its hold. A slow listener holds up
    only its own fact, until 1,000 wait for it."""

    def __init__(
        self,
        record: RunStore,
        clock: Clock,
        listeners: Mapping[str, Sequence[Listener]],
        process: str,
        *,
        every: float = 0.25,
        patience: float = 30.0,
    ) -> None:
        self._record, self._clock, self._listeners, self._process = record, clock, listeners, process
        self._every, self._patience = every, patience
        self._outage = Outage(_log, "listeners wait for the store")
        self._wake = asyncio.Event()
        self._telling: dict[tuple[Feed, int], asyncio.Task[None]] = {}
        self._held = float("-inf")  # when all that this process tells was last held against others
        self._told: set[tuple[Feed, int]] = set()  # and not noted in the record yet

    def wake(self) -> None:
        self._wake.set()

    async def keep_dispatching(self) -> None:
        while self._listeners:
            self._wake.clear()
            try:
                await self.round()
                self._outage.ended()
            except StoreUnavailable as error:
                self._outage.began(error)
            await woken(self._wake, self._every)

    async def round(self) -> None:
        """Take up what nobody has heard yet."""
        room = min(_MOST, _BUSY - len(self._telling))
        if room <= 0:
            return
        types, most = sorted(self._listeners), room + len(self._telling)
        found = await self._record.unheard(types, most, self._process)
        due = self._clock.steady() - self._held > _HOLD / 2
        if found and (due or any((fact.feed, fact.rev) not in self._telling for fact in found)):
            self._held = self._clock.steady()
            found = await self._record.unheard(types, most, self._process, int(_HOLD * 1_000))
        for fact in found:
            key = (fact.feed, fact.rev)
            if key not in self._telling:
                self._telling[key] = asyncio.get_running_loop().create_task(self._hear(key, fact))

    async def drain(self, grace: float) -> None:
        """Take up the last facts and wait for the listeners that run; those that run on are told again later."""
        if self._listeners:
            try:
                await self.round()
            except StoreUnavailable:
                pass  # they are told after the next start
        if self._telling:
            _, late = await asyncio.wait(self._telling.values(), timeout=grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=_LAST)

    async def _hear(self, key: tuple[Feed, int], fact: Fact) -> None:
        try:
            if key not in self._told:
                await self._tell_all(fact)
                self._told.add(key)  # a record that cannot note it now is no reason to tell it again
            await self._record.heard([key])
            self._told.discard(key)
        except StoreUnavailable:
            pass  # noted later
        except Exception:
            # Nobody waits for this task: what went wrong is told here or never.
            _log.exception("that listeners heard %s could not be noted", fact.event.id)
        finally:
            del self._telling[key]

    async def _tell_all(self, fact: Fact) -> None:
        try:
            event = payloads.parse(fact.event.body, depth=payloads.DOCUMENT_DEPTH)
        except BadJson as error:
            _log.error("listeners cannot hear %s, which cannot be read: %s", fact.event.id, error)
            return
        await asyncio.gather(*(self._tell(one, event) for one in self._listeners[fact.event.type]))

    async def _tell(self, listener: Listener, event: dict[str, Any]) -> None:
        for again in range(1, _TRIES + 1):
            try:
                await asyncio.wait_for(listener(dict(event)), self._patience)
                return
            except TimeoutError:
                _log.error("a listener for %s took more than %.0f s", event["type"], self._patience)
            except (Exception, asyncio.CancelledError):
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                # Somebody else's code: whatever it raises is its own, and no reason to stop here.
                _log.exception("a listener for %s failed", event["type"])
            if again < _TRIES:
                await self._clock.sleep(0.1 * 4**again)
