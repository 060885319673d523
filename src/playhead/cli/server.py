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
from playhead.cli.exit import Exit
from playhead.cli.listen import BACKLOG
from playhead.settings import Delivery

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
    if find_spec("httptools") is None:
        return "auto"
    if delivery == "direct":
        from playhead.cli.direct import DirectProtocol

        return DirectProtocol
    from playhead.cli.bounded import BoundedProtocol

    return BoundedProtocol


class Server(uvicorn.Server):
    """Opens the app, serves it, and closes it. `ready` is awaited once requests are answered.

    Signals, and `stop`, take its `Exit` a step further.
    """

    def __init__(self, app: App, ready: Callable[[], Awaitable[None]]) -> None:
        super().__init__(configuration(app, app.settings.delivery))
        self._app, self._ready = app, ready
        self._exit = Exit(app, self._leave)

    def stop(self) -> None:
        """Begin to stop, or hurry; from any thread and any signal handler."""
        self._exit.next_step()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not kept for later: uvicorn would raise the signal again at its end, and the exit would not be clean.
        self.stop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._exit.loop = asyncio.get_running_loop()
        await self._app.open(patient=True)
        await super().startup(sockets)
        if not self._exit.asked:
            await self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await self._exit.settled()

    def _leave(self, *, at_once: bool) -> None:
        self.should_exit = True
        self.force_exit = self.force_exit or at_once
