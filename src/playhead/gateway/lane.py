"""One feed of a multiplexed stream: what a single stream has, with the shared connection in the place of a socket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Protocol

from playhead.core.composite import OVER, Held
from playhead.core.cursor import parse
from playhead.core.ids import run_feed
from playhead.core.multiplexed import Told, refused, rewrite
from playhead.core.run import Run
from playhead.errors import Forbidden, NotFound, NotReady, StoreUnavailable
from playhead.gateway.follow import Asked, Follower, Resync, attach
from playhead.runtime import frames
from playhead.runtime.bootstrap import Screens
from playhead.runtime.delivery import Message
from playhead.runtime.documents import record_snapshot
from playhead.runtime.hub import Hub
from playhead.runtime.livefeed import LiveFeed
from playhead.runtime.subscription import Viewer, message

# Asked with a run: the code with which the same request would be refused now, or None.
Recheck = Callable[[Run], Awaitable[str | None]]

_KEPT = 256  # pieces
_KEPT_BYTES = 16 << 10  # a piece that is larger is made again for each viewer


class Line(Protocol):
    """The connection, as its lanes see it."""

    hub: Hub
    screens: Screens
    recheck: Recheck | None
    recheck_every: float

    async def put(self, frames: bytes, *, moved: bool = False) -> None:
        """Say this next; nothing: that the connection is alive. While a send is under way, return once it was sent.

        `moved`: the lane's place is another one now.
        """

    def part(self, farewell: bytes | None = None) -> None:
        """Say this last, for all lanes; None: when to come back."""

    def cut(self) -> None:
        """End the connection at once."""


class Lane:
    __slots__ = ("_asked", "_line", "_live", "_refusal", "_run", "_viewer", "feed", "held", "over", "silent")

    def __init__(self, line: Line, run: Run, asked: Asked) -> None:
        self.feed = run_feed(run.id)
        at = parse(asked.cursor or "")
        self.held = Held(at) if at else None  # where the client is, as far as frames were put
        self.silent = True  # nothing was said of this feed so far
        self.over = False  # nothing more is
        self._line, self._run, self._asked = line, run, asked
        self._live: LiveFeed | None = None
        self._viewer: Viewer | None = None
        self._refusal = NotFound.code  # why there is nothing more, unless there was an end

    async def begin(self) -> None:
        """Bring the client to where the hub goes on with it, however long the store takes."""
        hub = self._line.hub
        try:
            self._live = hub.attached(self.feed, self._run) or await attach(hub, self._run)
            await Follower(self._view, self._asked, self._run, hub, self._line.screens, b"").begin()
        except NotFound:
            await self.send(message(b"", last=True))
        except NotReady:
            self._line.part()

    async def send(self, said: Message) -> None:
        """Take what a single stream would send. It asks for no task, so that the hub can drive it."""
        told = rewritten(self.feed.key, said["body"])
        body = told.frames
        self.silent = self.silent and not body
        if told.ended:
            self.held = OVER
        elif told.cursor is not None:
            self.held = Held(told.cursor)
        if told.farewell:
            self._line.part(told.farewell)
        elif not said["more_body"]:
            self.over, self.silent = True, False
            if not told.ended:
                body += refused(self.feed.key, self._refusal)
        await self._line.put(body, moved=told.ended or told.cursor is not None)

    def degraded(self) -> bytes:
        """What the record alone knows, for as long as the store does not answer."""
        said = frames.state(record_snapshot(self._run), StoreUnavailable.code)
        return rewrite(self.feed.key, said).frames

    def close(self) -> None:
        """Give back what the lane holds."""
        if self._viewer is not None:
            self._viewer.leave()
        self._release()

    def _view(self, resync: Resync) -> Viewer:
        assert self._live is not None
        line = self._line
        self._viewer = Viewer(
            line.hub,
            self._live,
            self.send,
            abort=line.cut,
            ended=self._release,
            resync=resync,
            driven=True,
            recheck=None if line.recheck is None else self._recheck,
            recheck_every=line.recheck_every,
        )
        return self._viewer

    async def _recheck(self) -> bool:
        assert self._line.recheck is not None
        refusal = await self._line.recheck(self._run)
        if refusal in (NotFound.code, Forbidden.code):
            self._refusal = refusal
            return False
        if refusal is not None:
            self._line.part(b"")  # nothing about this run: whoever asks is not known any more
        return True

    def _release(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            self._line.hub.detach(live)


def rewritten(feed: str, piece: bytes) -> Told:
    """As `rewrite`: once for all viewers of the feed that get the same piece."""
    return _once(feed, piece) if len(piece) <= _KEPT_BYTES else rewrite(feed, piece)


_once = lru_cache(_KEPT)(rewrite)
