"""Wake-ups within one process: from any thread to listeners in any event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from threading import Lock

from playhead.core.ids import Feed
from playhead.interfaces import Hint, Listener

_Wanted = Callable[[asyncio.AbstractEventLoop, Listener], bool]


class LocalSignal:
    """Passes hints on, with one call into each event loop per batch, however many listeners it has there."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._listeners: dict[Feed, list[tuple[asyncio.AbstractEventLoop, Listener]]] = {}

    async def add(self, feed: Feed, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            present = self._listeners.setdefault(feed, [])
            if not any(one is listener for _, one in present):
                present.append((loop, listener))

    async def remove(self, feed: Feed, listener: Listener) -> None:
        with self._lock:
            self._keep(feed, lambda _, one: one is not listener)

    def notify(self, hints: Sequence[Hint]) -> None:
        with self._lock:
            batches: dict[asyncio.AbstractEventLoop, list[Hint]] = {}
            for hint in hints:
                for loop in {loop for loop, _ in self._listeners.get(hint.feed, ())}:
                    batches.setdefault(loop, []).append(hint)
            # Still under the lock, so that batches of several writers reach a loop in the order of their coming.
            for loop, batch in batches.items():
                self._hand_over(loop, self._deliver, batch)

    async def ring(self, feed: Feed) -> None:
        self.gap([feed])

    def gap(self, feeds: Sequence[Feed]) -> None:
        """Tell the listeners of these feeds that hints were lost, in the order with those that were not."""
        with self._lock:
            for loop in {loop for feed in feeds for loop, _ in self._listeners.get(feed, ())}:
                self._hand_over(loop, self._confess, feeds)

    def _hand_over(
        self, loop: asyncio.AbstractEventLoop, deliver: Callable[..., None], batch: Sequence[object]
    ) -> None:
        try:
            if asyncio._get_running_loop() is loop:
                loop.call_soon(deliver, loop, batch)
            else:
                loop.call_soon_threadsafe(deliver, loop, batch)
        except RuntimeError:  # the loop is closed, and nobody in it will ever remove its listeners
            for feed in list(self._listeners):
                self._keep(feed, lambda other, _: other is not loop)

    def _deliver(self, loop: asyncio.AbstractEventLoop, batch: list[Hint]) -> None:
        calls: dict[int, tuple[Listener, list[Hint]]] = {}
        with self._lock:  # looked up now, so that who was removed meanwhile hears nothing
            for hint in batch:
                for other, listener in self._listeners.get(hint.feed, ()):
                    if other is loop:
                        calls.setdefault(id(listener), (listener, []))[1].append(hint)
        for listener, heard in calls.values():
            try:
                listener.on_hints(heard)
            except Exception as error:  # one listener's fault must not keep the hints from the others
                loop.call_exception_handler({"message": "a listener raised on hints", "exception": error})

    def _confess(self, loop: asyncio.AbstractEventLoop, feeds: Sequence[Feed]) -> None:
        with self._lock:
            calls = [(one, feed) for feed in feeds for other, one in self._listeners.get(feed, ()) if other is loop]
        for listener, feed in calls:
            try:
                listener.on_gap(feed)
            except Exception as error:  # as above
                loop.call_exception_handler({"message": "a listener raised on a gap", "exception": error})

    def _keep(self, feed: Feed, wanted: _Wanted) -> None:
        kept = [pair for pair in self._listeners.get(feed, ()) if wanted(*pair)]
        if kept:
            self._listeners[feed] = kept
        else:
            self._listeners.pop(feed, None)
