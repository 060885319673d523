"""Time and chance for a client: one small object, so that a test can bring its own."""

from __future__ import annotations

import random

import anyio


class Clock:
    """Those of this machine."""

    def now(self) -> float:
        """Seconds that never step."""
        return anyio.current_time()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    def limit(self, seconds: float) -> anyio.CancelScope:
        """A scope that is cancelled after this time."""
        return anyio.move_on_after(seconds)

    def random(self) -> float:
        """From 0 to 1."""
        return random.random()
