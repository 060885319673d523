"""What a stream says until the hub goes on with it, and whenever it has to start again."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl

from playhead.core import sse
from playhead.core.cursor import Cursor, parse
from playhead.core.ids import run_feed
from playhead.core.replay import Reason, after, chained, refusal
from playhead.core.run import Run
from playhead.errors import NotFound, StoreUnavailable
from playhead.runtime import frames
from playhead.runtime.bootstrap import Screens
from playhead.runtime.documents import event_document, final_event, record_snapshot
from playhead.runtime.hub import Hub
from playhead.runtime.livefeed import LiveFeed
from playhead.runtime.subscription import Place, Viewer
from playhead.runtime.textview import NOTHING, Ends, Key

Resync = Callable[[Reason, Cursor | None], Awaitable[None]]
ViewerOf = Callable[[Resync], Viewer]

AGAIN = 1.0  # seconds, before jitter, between two looks at a store that does not answer

# A part of text that a client has, as it names it: attempt, part, and the end of what it holds.
_TEXT = re.compile(r"([0-9]{1,16})\.([a-z][a-z0-9_]{0,63}):([0-9]{1,16})", re.ASCII)
_OURS = re.compile(rb";\s*client=playhead\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the request says. `cursor` is its text; None: there is none."""

    cursor: str | None = None
    inline: bool = False
    ours: bool = False
    text: Mapping[Key, int] = field(default_factory=dict)

    @classmethod
    def read(cls, scope: Mapping[str, Any]) -> Asked:
        """The header beats the query, the last of several beats the others, and an empty one is none."""
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"))
        heads: dict[bytes, bytes] = dict(scope["headers"])
        last = heads.get(b"last-event-id", b"").decode("latin-1")
        return cls(
            cursor=last or dict(query).get("cursor"),
            inline=("resync", "inline") in query,
            ours=_OURS.search(heads.get(b"accept", b"")) is not None,
            text=named_text(value for name, value in query if name == "text"),
        )


def named_text(given: Iterable[str]) -> dict[Key, int]:
    """The ends of text that these parameters name; what is not of their form is passed over."""
    named = [found for value in given if (found := _TEXT.fullmatch(value))]
    return {(int(found[1]), found[2]): int(found[3]) for found in named}


async def attach(hub: Hub, run: Run) -> LiveFeed:
    """The run's feed, however long its store takes to answer. Raises NotFound, and NotReady once the hub closes."""
    while True:
        try:
            return await hub.attach(run_feed(run.id), run)
        except StoreUnavailable:
            await hub.clock.sleep(hub.jitter(AGAIN) / 1000)


class Follower:
    """Brings one connection from the place that it asked for to where the hub goes on with it."""

    __slots__ = (
        "_asked",
        "_begun",
        "_cursor",
        "_ends",
        "_head",
        "_hub",
        "_resynced",
        "_run",
        "_screens",
        "_state",
        "_version",
        "viewer",
    )

    def __init__(self, viewer_of: ViewerOf, asked: Asked, run: Run, hub: Hub, screens: Screens, head: bytes) -> None:
        """`head` is sent in front of whatever comes first."""
        self._asked, self._run, self._hub, self._screens, self._head = asked, run, hub, screens, head
        self._cursor: Cursor | None = None  # what the client has, as far as it was pushed
        self._begun = False  # it was told state and text once
        self._ends = NOTHING
        self._state = -1
        self._version = -1  # of the snapshot on the screen that it was shown
        self._resynced = float("-inf")
        self.viewer = viewer_of(self.resync)

    async def begin(self) -> None:
        """Say what the client has to know first, replay what it lacks, and hand the viewer over."""
        given = self._asked.cursor
        at = self._cursor = parse(given) if given is not None else None
        if given is not None and at is None:
            await self.resync(Reason.MALFORMED, None)
        elif at is not None and self.viewer.feed.over is not None:
            await self.resync(Reason.EXPIRED, at)
        elif at is None and (run := self._untold()) is not None:
            told = frames.state(record_snapshot(run), None) + frames.unplaced(event_document(final_event(run), 0))
            await self._push(told + frames.end(run.id, run.status), last=True)
        else:
            await self._follow()

    async def resync(self, reason: Reason, at: Cursor | None) -> None:
        """Go on with a client that the feed let go of: from where it is, or from a new screen, or not at all.

        `reason` is said of the feed's tip. After the store went back, a client that is behind may still be where it
        can go on, and only a read from its own place tells.
        """
        if at is not None and reason in (Reason.AHEAD, Reason.FOREIGN):
            self._cursor, self._begun = at, False
            self._asked = replace(self._asked, text={})  # it has more by now than it named
        elif not await self._restart(reason, at):
            return
        await self._follow()

    def _untold(self) -> Run | None:
        """The run, if it has ended and the record alone can tell of it: nothing of its timeline is left."""
        live, marks = self.viewer.feed, self.viewer.feed.marks
        emptied = marks is not None and marks.final and marks.floor >= marks.position
        return live.over or (self._run if emptied and self._run.status.final else None)

    async def _follow(self) -> None:
        while not self.viewer.gone:
            try:
                if await self._step():
                    return
            except NotFound:
                await self.viewer.push(b"", last=True)
                return
            except StoreUnavailable:
                await self._wait()

    async def _step(self) -> bool:
        """Go one piece of the way; True when there is no more to go."""
        live = self.viewer.feed
        await live.ready()
        ring, marks, at = live.ring, live.marks, self._cursor
        if live.over is not None or ring is None or marks is None:
            self.viewer.start(Place(0))  # the feed has its own last word for everybody
            return True
        if at is None and ring.base <= marks.floor:
            at = self._cursor = ring.cursor(ring.base)
        if at is not None and ring.cursor(at.position) == at:
            if self._begun:
                if live.version < self._version:
                    self._version = -1  # looked at once: a store that went back has no more
                    await live.read_again()
                    return False
                self.viewer.start(Place(at.position, self._ends, self._state))
                return True
            self._cursor = ring.tip
            await self._tell(ring.since(at.position) or [])
            return False
        view = await live.page(at.position if at else 0)
        if view is None or not live.known:
            await live.read_again()
            return False
        reason = refusal(at, view.marks, view.entries) if at else None
        if reason is not None:
            return not await self._restart(reason, at)
        if view.entries:
            whole = view.entries[: chained(view.entries)]
            self._cursor = after(whole[-1])
            await self._tell([frames.event(after(entry), entry.data) for entry in whole])
        else:
            # Everything is read, and the hub does not know this place: it missed something.
            self._cursor = at or view.marks.cursor
            await live.read_again()
        return False

    async def _tell(self, events: list[bytes]) -> None:
        beginning: list[bytes] = []
        if not self._begun:
            beginning, self._ends, self._state = self.viewer.feed.beginning(self._asked.text)
            self._begun = True
        await self._push(b"".join([*beginning, *events]))

    async def _push(self, body: bytes, *, last: bool = False) -> None:
        head, self._head = self._head, b""
        await self.viewer.push(head + body, last=last)

    async def _wait(self) -> None:
        await self._push(sse.comment())
        await self._hub.clock.sleep(self._hub.jitter(AGAIN) / 1000)

    async def _restart(self, reason: Reason, at: Cursor | None) -> bool:
        """Say why the client cannot go on; whether it was then shown a screen from which it can be followed."""
        self._hub.count(reason)
        if not self._asked.inline:
            oldest, newest = await self._bounds()
            await self._push(frames.resync(reason, requested=at, oldest=oldest, newest=newest), last=True)
            return False
        if self._hub.clock.steady() - self._resynced < AGAIN:
            await self._wait()  # whatever is wrong there, it must not make us spin
        while not self.viewer.gone:
            self._resynced = self._hub.clock.steady()
            try:
                screen = await self._screens.bootstrap(self._run)
            except NotFound:
                await self._push(b"", last=True)
                return False
            except StoreUnavailable:
                await self._wait()
                continue
            self._run = screen.run
            if screen.cursor is None and not screen.run.status.final:
                await self._wait()  # a degraded screen leads nowhere
                continue
            oldest, newest = await self._bounds()
            follows = None if self.viewer.feed.over is not None else screen.cursor
            said = frames.resync(
                reason, requested=at, oldest=oldest, newest=newest, bootstrap=screen.body, cursor=follows
            )
            if follows is None:
                await self._push(said + frames.end(screen.run.id, screen.run.status), last=True)
                return False
            await self._push(said)
            self._cursor, self._ends, self._begun = follows, Ends(screen.text), True
            self._state, self._version = -1, screen.version
            return True
        return False

    async def _bounds(self) -> tuple[Cursor | None, Cursor | None]:
        """The oldest entry that there is, and the newest."""
        try:
            view = await self._hub.live.read(run_feed(self._run.id), after=0, limit=1)
        except StoreUnavailable:
            view = None
        if view is None:
            return None, None
        return after(view.entries[0]) if view.entries else None, view.marks.cursor
