"""Somebody's plain functions, in threads that nobody waits for at the end of the process."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any


class Threads:
    """Calls plain functions, at most `most` at once; others wait for their turn. May be used by several loops.

    The executors of the standard library are joined at exit: there one function that never ends keeps the process.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._gate = threading.Lock()
        self._waiting: deque[tuple[asyncio.Future[object], Callable[[], object]]] = deque()
        self._busy = 0

    def call(self, function: Callable[..., object], *args: Any, **named: Any) -> asyncio.Future[object]:
        """What it returns or raises. Cancelled before its turn, it is not called; later, it goes on unheard."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        with self._gate:
            self._waiting.append((future, partial(copy_context().run, function, *args, **named)))
            if self._busy == self._most:
                return future
            self._busy += 1
        threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._gate:
                if not self._waiting:
                    self._busy -= 1
                    return
                future, call = self._waiting.popleft()
            if future.cancelled():
                continue
            value, error = _outcome(call)
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                future.get_loop().call_soon_threadsafe(_settle, future, value, error)


def _outcome(call: Callable[[], object]) -> tuple[object, Exception | None]:
    try:
        return call(), None
    except BaseException as raised:  # carried to the loop, which decides what it means
        return None, ordinary(raised)


def _settle(future: asyncio.Future[object], value: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)


def ordinary(raised: BaseException) -> Exception:
    """The same as an exception that a task may raise: for SystemExit asyncio ends the process, StopIteration it
    cannot carry, and a cancellation would seem to be ours."""
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
        return raised
    error = RuntimeError(f"{type(raised).__name__} was raised: {raised}")
    error.__cause__ = raised
    return error
