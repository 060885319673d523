"""The real clock."""

from __future__ import annotations

import asyncio
import secrets
import time


class SystemClock:
    """Time and chance of this machine."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def random(self, size: int) -> bytes:
        return secrets.token_bytes(size)
