"""What becomes of the bytes of one direction, as data, and the places in a stream where something happens."""

from __future__ import annotations

import asyncio
import random
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

_WINDOW = 4_096  # the longest match that is found when it comes in pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where a connection ends: behind so many bytes, or right behind the n-th match of a pattern.

    Both are counted for each connection, from the moment in which the mode was set. `after` may be a function: it is
    asked once for each connection, and None spares that one.
    """

    after: int | Callable[[], int | None] | None = None  # bytes
    at: bytes | None = None  # a regular expression
    matches: int = 1  # which match of it
    how: Literal["reset", "close"] = "reset"
    times: int | None = None  # how many connections, at most

    def __post_init__(self) -> None:
        if (self.after is None) == (self.at is None):
            raise ValueError("a cut is after a number of bytes or at a pattern")
        if self.matches < 1 or (isinstance(self.after, int) and self.after < 0):
            raise ValueError("a cut needs a place to be at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """All of it holds at once. The default passes bytes on as they come."""

    hold: bool = False  # stay open and move nothing, not even the news of an end
    drop: bool = False  # read and discard
    delay: float = 0.0  # seconds until what came is handed over
    jitter: float = 0.0  # seconds more, at most; the order is kept
    rate: int | None = None  # bytes a second
    most: int | None = None  # bytes handed over at once: random pieces, none longer
    cut: Cut | None = None

    def __post_init__(self) -> None:
        if self.delay < 0 or self.jitter < 0:
            raise ValueError("a delay is 0 or more seconds")
        if (self.rate is not None and self.rate < 1) or (self.most is not None and self.most < 1):
            raise ValueError("a rate and a piece are 1 byte or more")


@dataclass(frozen=True, slots=True)
class Decision:
    """Something that was done: `at` in seconds of the event loop, `line` the number of the connection, or None."""

    at: float
    what: str
    line: int | None = None


class Way:
    """One direction of all connections of a proxy. `name` is `up`, towards the server, or `down`."""

    def __init__(self, name: str, log: deque[Decision], chance: random.Random) -> None:
        self.name, self.mode, self.chance = name, Mode(), chance
        self._log = log
        self._moves = asyncio.Event()
        self._moves.set()
        self._back: asyncio.TimerHandle | None = None
        self.cuts = 0  # connections that were ended by a cut
        self._cuts_before = 0  # this mode

    def set(self, mode: Mode | None = None, *, seconds: float | None = None, **changes: Any) -> None:
        """From now on this mode, for connections that are open too; after `seconds` the default again.

        Without a mode the changes are of the default one. Raises ValueError, TypeError.
        """
        made = replace(mode or Mode(), **changes)
        if self._back is not None:
            self._back.cancel()
            self._back = None
        self.mode, self._cuts_before = made, self.cuts
        if made.hold:
            self._moves.clear()
        else:
            self._moves.set()
        loop = asyncio.get_running_loop()
        self._log.append(Decision(loop.time(), f"{self.name}: {described(made)}"))
        if seconds is not None:
            self._back = loop.call_later(seconds, self.set)

    async def moving(self) -> None:
        """Return when nothing is held."""
        await self._moves.wait()

    @property
    def cut(self) -> Cut | None:
        """Where the next connection is to be cut, if any is."""
        cut = self.mode.cut
        used_up = cut is not None and cut.times is not None and self.cuts - self._cuts_before >= cut.times
        return None if used_up else cut

    def due(self) -> float:
        """Seconds for which what comes now is kept back."""
        return self.mode.delay + self.chance.uniform(0.0, self.mode.jitter)

    def piece(self, data: bytes) -> bytes:
        """What of this is handed over at once."""
        mode, size = self.mode, len(data)
        if mode.most is not None:
            size = self.chance.randint(1, mode.most)
        if mode.rate is not None:
            size = min(size, max(1, mode.rate // 20))
        return data[:size]


def described(mode: Mode) -> str:
    names = [name for name in ("hold", "drop", "delay", "jitter", "rate", "most", "cut") if getattr(mode, name)]
    return ", ".join(f"{name}={getattr(mode, name)}" for name in names) or "pass"


class Finder:
    """Counts the matches of a pattern in a stream that comes in pieces."""

    def __init__(self, pattern: bytes, wanted: int = 1) -> None:
        """`wanted` says which match is looked for."""
        self._pattern, self._left, self._kept = re.compile(pattern, re.DOTALL), wanted, b""

    def end(self, data: bytes) -> int | None:
        """Where in this piece the wanted match ends; None if it is not in it."""
        held = self._kept + data
        last = 0
        for found in self._pattern.finditer(held):
            last = found.end()
            self._left -= 1
            if self._left == 0:
                return max(0, last - len(self._kept))
        self._kept = held[last:][-_WINDOW:]
        return None


class Place:
    """Where one connection is to be cut."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        self._bytes = cut.after() if callable(cut.after) else cut.after
        self._finder = None if cut.at is None else Finder(cut.at, cut.matches)

    def end(self, data: bytes) -> int | None:
        """How much of this is still handed over before the cut; None: all of it, and no cut yet."""
        if self._finder is not None:
            return self._finder.end(data)
        if self._bytes is None:
            return None
        if self._bytes <= len(data):
            return self._bytes
        self._bytes -= len(data)
        return None
