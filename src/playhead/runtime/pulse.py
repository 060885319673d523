"""Notices when the event loop stood still: somebody's code blocks it, and every viewer of this process waits."""

from __future__ import annotations

import asyncio
import logging

_log = logging.getLogger("playhead")
_EVERY = 0.5  # seconds between two looks
_LATE = 1.0  # a look that comes so much too late is told of


class Pulse:
    """`blocked` counts how often. It goes by the loop's own time, whatever clock the process was given."""

    def __init__(self) -> None:
        self.blocked = 0

    async def beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _EVERY
            await asyncio.sleep(_EVERY)
            if (late := loop.time() - due) > _LATE:
                self.blocked += 1
                _log.warning("the event loop stood still for %.1f s; code that blocks belongs in a plain def", late)
