"""uvicorn with a life that fits open streams: they are ended by a drain, which begins in the signal handler.

uvicorn alone waits for connections to close before it tells the app to stop, and streams do not close by themselves.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from types import FrameType
from typing import Any

import uvicorn

from playhead.app import App
from playhead.cli.listen import BACKLOG
from playhead.settings import Delivery

_log = logging.getLogger("playhead")
LAST_REQUESTS = 1  # seconds that plain requests get once everything else has ended


def configuration(app: Any, delivery: Delivery = "direct", **options: Any) -> uvicorn.Config:
    """How uvicorn serves an app whose streams are long and whose query strings belong in no log."""
    given: dict[str, Any] = {
        "http": protocol(delivery),
        "lifespan": "off",  # its end would wait for the streams, which wait for it
        "access_log": False,
        "log_config": None,
        "log_level": logging.WARNING,
        "proxy_headers": False,
        "server_header": False,
        "backlog": BACKLOG,
        "timeout_graceful_shutdown": LAST_REQUESTS,
    }
    return uvicorn.Config(app, **{**given, **options})


def protocol(delivery: Delivery) -> Any:
    """What uvicorn is to speak to its sockets with; without httptools there is only its own choice."""
    if delivery == "direct" and find_spec("httptools") is not None:
        from playhead.cli.direct import DirectProtocol

        return DirectProtocol
    return "auto"


class Server(uvicorn.Server):
    """Opens the app, serves it, and closes it. `ready` is awaited once requests are answered.

    The first signal, or `stop`, begins the drain; the second cuts it short; the third leaves at once.
    """

    def __init__(self, app: App, ready: Callable[[], Awaitable[None]]) -> None:
        super().__init__(configuration(app, app.settings.delivery))
        self._app, self._ready = app, ready
        self._asked = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Begin to stop, or hurry; from any thread and any signal handler."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._next_step)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not kept for later: uvicorn would raise the signal again at its end, and the exit would not be clean.
        self.stop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await self._app.open()
        await super().startup(sockets)
        if not self._asked:
            await self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self._work:
            await asyncio.wait(self._work)

    def _next_step(self) -> None:
        self._asked += 1
        if self._asked == 1:
            self._spawn(self._drain())
        elif self._asked == 2:
            self._spawn(self._app.hurry())
        else:
            self.should_exit = self.force_exit = True

    async def _drain(self) -> None:
        try:
            await self._app.drain()
        except Exception:
            _log.exception("the drain failed; the next start settles what it left")
        finally:
            self.should_exit = True

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
