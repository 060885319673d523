"""Hands committed facts to an application's listeners, from the outbox, at least once each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from playhead.core import payload as payloads
from playhead.core.event import Fact
from playhead.core.ids import Feed
from playhead.errors import StoreUnavailable
from playhead.interfaces import Clock, RunStore

_log = logging.getLogger("playhead.listeners")
_TRIES = 3
_DEPTH = payloads.MAX_DEPTH + 8  # a payload of the greatest depth, in its envelope
_MOST = 100  # facts taken up at once

Listener = Callable[[dict[str, Any]], Awaitable[None]]


class Dispatcher:
    """A fact counts as heard when each of its listeners has returned, or has failed three times. Until then a
    restart tells it again. A slow listener holds up only its own fact."""

    def __init__(
        self,
        record: RunStore,
        clock: Clock,
        listeners: Mapping[str, Sequence[Listener]],
        *,
        every: float = 0.25,
        patience: float = 30.0,
    ) -> None:
        self._record, self._clock, self._listeners = record, clock, listeners
        self._every, self._patience = every, patience
        self._wake = asyncio.Event()
        self._telling: dict[tuple[Feed, int], asyncio.Task[None]] = {}

    def wake(self) -> None:
        self._wake.set()

    async def keep_dispatching(self) -> None:
        while self._listeners:
            self._wake.clear()
            try:
                await self.round()
            except StoreUnavailable as error:
                _log.warning("listeners wait for the store: %s", error)
            try:
                await asyncio.wait_for(self._wake.wait(), self._every)
            except TimeoutError:
                pass

    async def round(self) -> None:
        """Take up what nobody has heard yet."""
        for fact in await self._record.unheard(sorted(self._listeners), _MOST + len(self._telling)):
            key = (fact.feed, fact.rev)
            if key not in self._telling:
                self._telling[key] = asyncio.get_running_loop().create_task(self._tell_all(key, fact))

    async def drain(self, grace: float) -> None:
        """Take up the last facts and wait for the listeners that run."""
        if self._listeners:
            try:
                await self.round()
            except StoreUnavailable:
                pass  # they are told after the next start
        if self._telling:
            await asyncio.wait(list(self._telling.values()), timeout=grace)

    async def _tell_all(self, key: tuple[Feed, int], fact: Fact) -> None:
        try:
            event = payloads.parse(fact.event.body, depth=_DEPTH)
            assert isinstance(event, dict)
            await asyncio.gather(*(self._tell(one, event) for one in self._listeners[fact.event.type]))
            await self._record.heard([key])
        except StoreUnavailable:
            pass  # told again: at least once
        finally:
            del self._telling[key]

    async def _tell(self, listener: Listener, event: dict[str, Any]) -> None:
        for again in range(1, _TRIES + 1):
            try:
                await asyncio.wait_for(listener(dict(event)), self._patience)
                return
            except TimeoutError:
                _log.error("a listener for %s took more than %.0f s", event["type"], self._patience)
            except Exception:
                # Somebody else's code: whatever it raises is its own, and no reason to stop here.
                _log.exception("a listener for %s failed", event["type"])
            if again < _TRIES:
                await self._clock.sleep(0.1 * 4**again)
