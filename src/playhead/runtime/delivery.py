"""Handing bytes to a server: one step of its `send` by hand, without a task, or straight to its socket, for as long as
the socket takes what it is given."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, MutableMapping, Sequence
from typing import Any, Protocol

Message = MutableMapping[str, Any]
Headers = Sequence[tuple[bytes, bytes]]
Send = Callable[[Message], Coroutine[Any, Any, None]]


class Direct(Protocol):
    """A server's socket, for one response of HTTP/1.1: writes that a `send` of the same would only pass on."""

    def begin(self, headers: Headers) -> bool:
        """Begin a response with status 200 and a body of unknown length. False: use `send`, from then on alone."""

    def write(self, chunk: bytes) -> bool:
        """Hand over a piece of the body, framed as a chunk. False: nothing was taken; `send` waits, or knows why."""

    def send(self, message: Message) -> Coroutine[Any, Any, None]:
        """The server's own `send`, in its place among the writes."""


def framed(body: bytes) -> bytes:
    """The body as a chunk of HTTP/1.1. Nothing for nothing: an empty chunk would end the response."""
    return b"%x\r\n%b\r\n" % (len(body), body) if body else b""


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
