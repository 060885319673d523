"""Who in this process waits for an interrupt to close: woken at once, and by looking again now and then otherwise."""

from __future__ import annotations

import asyncio


class Waiters:
    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def wake(self, run_id: str) -> None:
        """Wake everything of this run that waits. Must be called in the loop that waits."""
        for waiter in self._waiting.get(run_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, run_id: str, look_again: float) -> None:
        """Return when woken, or after `look_again` seconds: another process may have recorded the answer."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, set()).add(waiter)
        try:
            await asyncio.wait([waiter], timeout=look_again)
        finally:
            left = self._waiting[run_id]
            left.discard(waiter)
            if not left:
                del self._waiting[run_id]
