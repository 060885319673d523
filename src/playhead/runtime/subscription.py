"""One viewer of a live feed: its place, and how what it lacks gets to its socket. It has no queue and, while its
socket takes everything, no task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from playhead.core import sse
from playhead.core.cursor import Cursor
from playhead.core.replay import Reason
from playhead.runtime.delivery import Direct, Half, Message, Send, framed, step
from playhead.runtime.textview import NOTHING, Ends

if TYPE_CHECKING:
    from playhead.runtime.hub import Hub
    from playhead.runtime.livefeed import LiveFeed
    from playhead.runtime.ring import Ring

_log = logging.getLogger("playhead.hub")

_COMMENT = (sse.comment(), framed(sse.comment()))


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """What a viewer was given so far: the timeline up to a position, text up to these ends, this state.

    Compared by identity: viewers in step share one, and so one lookup finds what all of them are owed.
    """

    position: int
    ends: Ends = NOTHING
    state: int = -1


@dataclass(frozen=True, slots=True)
class Owed:
    """What every viewer at one place gets next, the same bytes for all, and where it leads."""

    body: bytes
    chunk: bytes  # the body, framed for sockets that are written to directly
    place: Place
    last: bool  # the stream ends with it


def owing(body: bytes, place: Place, last: bool = False) -> Owed:
    return Owed(body, framed(body), place, last)


class Viewer:
    """A stream that is being served.

    Its request owns it: it sends the beginning (`push`), hands it to the hub (`start`) and takes it back (`leave`).
    Between these the hub sends. Sends never overlap.
    """

    __slots__ = (
        "_abort",
        "_context",
        "_direct",
        "_driven",
        "_ended",
        "_farewell",
        "_hub",
        "_resync",
        "_send",
        "_task",
        "busy",
        "counted",
        "feed",
        "gone",
        "place",
        "queued",
        "recheck",
        "recheck_at",
        "recheck_every",
        "sending_since",
    )

    def __init__(
        self,
        hub: Hub,
        feed: LiveFeed,
        send: Send,
        *,
        abort: Callable[[], None],
        ended: Callable[[], None] | None = None,
        resync: Callable[[Reason, Cursor | None], Awaitable[None]],
        driven: bool = False,
        direct: Direct | None = None,
        context: Context | None = None,
        recheck: Callable[[], Awaitable[bool]] | None = None,
        recheck_every: float = float("inf"),
    ) -> None:
        """Begin, held by the request.

        `abort` ends the connection at once; `ended` is called when the hub has nothing more to do with the viewer.
        `resync` is awaited, in a task of the viewer's own, when the feed cannot continue it from the given cursor; it
        pushes what it has to say and starts the viewer again, or ends it. `driven`: `send` is a server's own, to be
        driven by hand; otherwise each send runs in a task, in `context`. `direct`, if there is one, takes what that
        `send` would only pass on. `recheck` is awaited by the keep-alive sweep
        every so many seconds; False ends the stream.
        """
        self._hub = hub
        self._direct = direct if driven else None
        self._send = send if self._direct is None else self._direct.send
        self._abort = abort
        self._ended = ended
        self._resync = resync
        self._driven = driven
        self._context = context
        self._farewell: bytes | None = None
        self._task: asyncio.Task[None] | None = None
        self.feed = feed
        self.place = Place(0)
        self.recheck = recheck
        self.recheck_every = recheck_every
        self.recheck_at = hub.clock.steady() + recheck_every
        self.busy = True  # somebody sends for it
        self.counted = False  # among those that watch the feed
        self.gone = False
        self.queued = False  # the hub will wake it
        self.sending_since: float | None = None  # when a send began that has not ended
        hub.enter(self)

    async def push(self, body: bytes, *, last: bool = False) -> None:
        """Send as the one who holds the viewer."""
        if self._direct is not None and not last and self._direct.write(framed(body)):
            return
        await self._await(self._send(message(body, last=last)))
        if last:
            self.leave()

    def start(self, place: Place) -> None:
        """Let the hub go on from this place."""
        if self.gone:
            return
        self.place = self.feed.shared(place)
        self.busy = False
        self.feed.viewers.add(self)
        self._hub.watch(self)
        self.wake()

    def wake(self) -> None:
        """Give the viewer what it lacks. Does not wait."""
        if self.gone:
            return
        if self.busy:
            if self in self.feed.viewers and self.feed.lags(self.place):
                self.drop("lagging")
            return
        owed = self.feed.owed(self.place) if self._farewell is None else self._next()
        if owed is None:
            self.drop("lagging")
        elif owed.chunk or owed.last:
            self._deliver(owed)

    def comment(self) -> None:
        """Send something that changes nothing, if the viewer is idle."""
        if not self.busy and not self.gone:
            self._deliver(Owed(*_COMMENT, self.place, False))

    def finish(self, body: bytes) -> None:
        """Say this last and end the stream."""
        self._farewell = body
        self.wake()

    def reset(self, reason: Reason, ring: Ring | None) -> None:
        """Take the viewer off its feed and have it resynchronized; the ring knows the cursor of its place."""
        if self.gone:
            return
        self.feed.viewers.discard(self)
        self.busy = True
        before = self._task
        self._task = self._spawn(self._restart(before, reason, ring))
        if before is not None:
            self._task.add_done_callback(lambda _: before.cancel())

    def drop(self, reason: str) -> None:
        """Close the connection, whatever is under way."""
        if not self.gone:
            self._hub.count(reason)
            self.leave()
            self._abort()

    def leave(self) -> None:
        """Have nothing more to do with the hub. A send that is under way is given up."""
        if self.gone:
            return
        self.gone = True
        task, self._task = self._task, None
        self._hub.leave(self)
        if self._ended is not None:
            self._ended()
        if task is not None and task is not _current_task():
            task.cancel()

    def _next(self) -> Owed | None:
        if self._farewell is not None:
            return owing(self._farewell, self.place, last=True)
        return self.feed.owed(self.place)

    def _deliver(self, owed: Owed) -> None:
        if not self._driven:
            self.busy = True
            self._task = self._spawn(self._pour(owed))
            return
        try:
            if self._direct is not None and not owed.last and self._direct.write(owed.chunk):
                self.place = owed.place
                return
            half = step(self._send(message(owed.body, last=owed.last)))
        except Exception as error:
            self._broken(error)
            return
        if half is None:
            self._given(owed)
            return
        # Parked: what comes meanwhile waits in the ring, and goes out in one piece.
        self.busy = True
        self.sending_since = self._hub.clock.steady()
        self._task = self._spawn(self._pour(owed, half))
        # A task that is cancelled before its first step never comes to its `finally`.
        self._task.add_done_callback(lambda _: half.close())

    async def _pour(self, owed: Owed | None, half: Half | None = None) -> None:
        """Send this, and then all that has come meanwhile, until nothing is owed."""
        try:
            while owed is not None and (owed.body or owed.last):
                await self._await(half or self._send(message(owed.body, last=owed.last)))
                half = None
                self._given(owed)
                if self.gone or self not in self.feed.viewers:
                    return
                owed = self._next()
        except Exception as error:
            self._broken(error)
            return
        if owed is None:
            self.drop("lagging")
        self._task = None
        self.busy = False

    async def _await(self, sending: Awaitable[None]) -> None:
        self.sending_since = self._hub.clock.steady()
        await sending
        self.sending_since = None

    async def _restart(self, before: asyncio.Task[None] | None, reason: Reason, ring: Ring | None) -> None:
        try:
            if before is not None:
                await asyncio.wait({before})
            # Only now: what was under way has moved the viewer's place.
            await self._resync(reason, ring.cursor(self.place.position) if ring else None)
        except Exception as error:
            self._broken(error)

    def _given(self, owed: Owed) -> None:
        if owed.last:
            self.leave()
        else:
            self.place = owed.place

    def _broken(self, error: Exception) -> None:
        if not self.gone:
            _log.debug("a send failed: %r", error)
            self.drop("broken")

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        return self._hub.spawn(work, self._context)


def message(body: bytes, *, last: bool) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": not last}


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
