"""The signal that tells a host's server to stop, heard early: such a server waits for open streams to close before it
tells the application, and streams close only once the application drains.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

_STOPS = (signal.SIGINT, signal.SIGTERM)


def on_stop(begin: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Have `begin` run in this event loop at the first signal to stop, beside what the server does with it.

    What this gives back ends that. Outside of the main thread, and for signals that nobody handles, it does nothing:
    Python tells only the main thread, and a default action ends the process.
    """
    loop = asyncio.get_running_loop()
    begun: list[asyncio.Future[None]] = []
    handlers: dict[int, tuple[Any, Any]] = {}

    def start() -> None:
        if not begun:
            begun.append(asyncio.ensure_future(begin()))

    def handle(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(start)
        handlers[number][1](number, frame)

    def undo() -> None:
        for number, (ours, before) in handlers.items():
            if signal.getsignal(number) is ours:
                signal.signal(number, before)

    if threading.current_thread() is threading.main_thread():
        for number in _STOPS:
            before = signal.getsignal(number)
            if callable(before):
                handlers[number] = (handle, before)
                signal.signal(number, handle)
    return undo
