"""The events of an attempt that are published and not acknowledged yet, in order, each with its number."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from playhead.core.event import Event


@dataclass(slots=True)
class Unacknowledged:
    n: int
    event: Event
    waiter: asyncio.Future[None]


class Backlog:
    def __init__(self) -> None:
        self.n = 0  # of the newest event that was published
        self.items: list[Unacknowledged] = []
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self.items)

    def add(self, event: Event) -> asyncio.Future[None]:
        """Take the event that has the next number; what is returned is done when nobody needs to wait any more."""
        self.n += 1
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.items.append(Unacknowledged(self.n, event, waiter))
        self.bytes += len(event.body)
        return waiter

    def acknowledge(self, batch: list[Unacknowledged]) -> None:
        """These, the oldest, are where viewers see them."""
        if batch and self.items and self.items[0] is batch[0]:
            del self.items[: len(batch)]
            self.bytes -= sum(len(one.event.body) for one in batch)
        _let_go(batch)

    def drop(self) -> None:
        """Give up all but the newest: its number shows that those before it are missing."""
        self.release()
        del self.items[:-1]
        self.bytes = sum(len(one.event.body) for one in self.items)

    def release(self) -> None:
        """Let everybody go who waits; the events stay."""
        _let_go(self.items)


def _let_go(items: list[Unacknowledged]) -> None:
    for one in items:
        if not one.waiter.done():
            one.waiter.set_result(None)
