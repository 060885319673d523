"""A clock that stands still until it is told to move."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from dataclasses import dataclass, field
from threading import Event, Lock

_START_MS = 1_767_225_600_000  # 2026-01-01, so that times in a failure are easy to read
_ROUNDS = 25  # turns that a loop gets to follow up on a wake-up


@dataclass(order=True, slots=True)
class _Sleeper:
    due: float
    number: int
    loop: asyncio.AbstractEventLoop = field(compare=False)
    woken: asyncio.Future[None] = field(compare=False)


class FakeClock:
    """Time moves by `advance` alone, and chance comes from a seed. May be shared by loops in several threads."""

    def __init__(self, wall_ms: int = _START_MS, seed: int = 0) -> None:
        self._lock = Lock()
        self._steady = 0.0
        self._wall_base = float(wall_ms)
        self._random = random.Random(seed)
        self._sleepers: list[_Sleeper] = []
        self._numbers = itertools.count()

    def wall_ms(self) -> int:
        # Rounded, so that the noise of floats never makes a deadline a millisecond early.
        return round(self._wall_base + self._steady * 1000)

    def steady(self) -> float:
        return self._steady

    def random(self, size: int) -> bytes:
        with self._lock:
            return self._random.randbytes(size)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        with self._lock:
            sleeper = _Sleeper(self._steady + seconds, next(self._numbers), loop, loop.create_future())
            heapq.heappush(self._sleepers, sleeper)
        await sleeper.woken

    async def advance(self, seconds: float) -> None:
        """Let this much time pass: sleepers wake in the order of their time, each at its time."""
        target = self._steady + seconds
        await _settle()
        while True:
            with self._lock:
                if not self._sleepers or self._sleepers[0].due > target:
                    self._steady = max(self._steady, target)
                    break
                sleeper = heapq.heappop(self._sleepers)
                self._steady = max(self._steady, sleeper.due)
            await _wake(sleeper)
        await _settle()

    def step_wall(self, seconds: float) -> None:
        """Set the time of day forward or back; steady time goes on as if nothing had happened."""
        self._wall_base += seconds * 1000


async def _settle() -> None:
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)


async def _wake(sleeper: _Sleeper) -> None:
    def wake() -> None:
        if not sleeper.woken.done():
            sleeper.woken.set_result(None)

    loop = sleeper.loop
    if loop is asyncio.get_running_loop():
        wake()
        await _settle()
        return

    done = Event()

    def turn(left: int) -> None:
        if left:
            loop.call_soon(turn, left - 1)
        else:
            done.set()

    try:
        loop.call_soon_threadsafe(wake)
        loop.call_soon_threadsafe(turn, _ROUNDS)
    except RuntimeError:  # the loop ended with its sleeper
        return
    while not done.is_set() and loop.is_running():  # noqa: ASYNC110 - another loop's event cannot be awaited here
        await asyncio.sleep(0.0005)
