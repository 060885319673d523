"""Keeping loops alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

_log = logging.getLogger("playhead")
_PAUSE = 1.0  # seconds before a loop that failed begins again


async def forever(name: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Keep a loop going: a fault in one round must not end all rounds."""
    while True:
        try:
            await loop()
            return
        except Exception:
            # Whatever it is, it is a fault of ours: say so loudly, and go on.
            _log.exception("the %s loop failed and is started again", name)
            await asyncio.sleep(_PAUSE)
