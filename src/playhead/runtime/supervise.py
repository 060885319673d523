"""Keeping loops alive, beginning when the store answers, and saying once that it does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from playhead.errors import PlayheadError, StoreUnavailable
from playhead.interfaces import Clock

_log = logging.getLogger("playhead")
_PAUSE = 1.0  # seconds before a loop that failed begins again


class Outage:
    """Tells of a store that does not answer when that begins and when it ends, however often it is asked meanwhile."""

    def __init__(self, log: logging.Logger, words: str) -> None:
        """`words` say what does not go on; the error is added."""
        self._log, self._words = log, words
        self._told: type[BaseException] | None = None

    def began(self, error: BaseException) -> None:
        """It did not answer, or not as it should: an error of another kind is told too."""
        if self._told is not type(error):
            self._told = type(error)
            self._log.warning("%s: %s", self._words, error)

    def ended(self) -> None:
        """It answered."""
        if self._told is not None:
            self._told = None
            self._log.warning("%s: that is over", self._words)


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


async def until_answered(begin: Callable[[], Coroutine[Any, Any, None]], clock: Clock, pause: float) -> None:
    """Begin again, every `pause` seconds, until the store answers and takes it."""
    _log.warning("the record does not answer; this process begins when it does")
    refused = ""
    while True:
        await clock.sleep(pause)
        try:
            await begin()
        except StoreUnavailable:
            continue
        except PlayheadError as error:  # such as a schema that somebody has to upgrade first
            if str(error) != refused:
                refused = str(error)
                _log.error("this process cannot begin yet: %s", error)
            continue
        _log.warning("the record answers; this process has begun")
        return
