"""Driving a server's `send` by hand: one step, without a task, for as long as the socket takes what it is given."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Coroutine[Any, Any, None]]


class Half:
    """A send that suspended. Await it in a task to finish it; `close` it in any case, so that its `finally` runs."""

    __slots__ = ("_sending", "_waits")

    def __init__(self, sending: Coroutine[Any, Any, None], waits: Any) -> None:
        self._sending, self._waits = sending, waits

    def __await__(self) -> Generator[Any, Any, None]:
        # What the send waits for was meant for a task that did not exist: the task that runs this gets it now.
        waits = self._waits
        while True:
            try:
                value = yield waits
            except BaseException as error:
                try:
                    waits = self._sending.throw(error)
                except StopIteration:
                    return
            else:
                try:
                    waits = self._sending.send(value)
                except StopIteration:
                    return

    def close(self) -> None:
        self._sending.close()


def step(sending: Coroutine[Any, Any, None]) -> Half | None:
    """Start a send. None: it is done. Otherwise it waits for something, and a task has to finish it.

    Only for a coroutine that does not ask which task runs it: a time limit in a middleware would hit its driver.
    """
    try:
        return Half(sending, sending.send(None))
    except StopIteration:
        return None
