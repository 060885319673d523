"""The hub: brings every live feed of this process to all its viewers, from one reader and one encoding."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from playhead.core.ids import EVERY_TENANT, Feed
from playhead.core.run import Run
from playhead.errors import NotReady, PlayheadError, StoreUnavailable
from playhead.interfaces import Clock, Hint, ProjectionStore, RunStore, Signal, TextChannel
from playhead.runtime import frames
from playhead.runtime.livefeed import LiveFeed
from playhead.runtime.projector import Projector
from playhead.runtime.pulse import Pulse
from playhead.runtime.subscription import Viewer

_log = logging.getLogger("playhead.hub")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """Seconds and bytes."""

    keepalive: float = 15.0
    sweep: float = 15.0
    tick: float = 0.1  # between two states of one feed
    grace: float = 10.0  # for which a feed without viewers stays ready
    stall: float = 30.0  # after which a viewer whose socket took nothing is closed
    retry: float = 3.0  # what clients are told to wait, before jitter
    settle: float = 0.25  # for a hint to arrive, before the sweep takes it for lost
    recover: float = 1.0  # between two looks at a store that was down
    page: int = 100
    viewer_bytes: int = 256 << 10
    ring_bytes: int = 512 << 10  # of one feed
    quiet_bytes: int = 4 << 10  # likewise, when nothing has happened for a while
    slice: int = 300  # viewers that are served before the loop gets its turn
    batch: int = 500  # feeds in one question to the store
    checks: int = 50  # silent feeds that one sweep compares with the record


class Hub:
    """One for a process, in one event loop; it is a `Listener` on the signal. `run` has to run as long as it is used.

    `on_first` and `on_empty` are told of feeds that gain their first viewer or lose their last one, where that matters.
    """

    def __init__(
        self,
        record: RunStore,
        live: ProjectionStore,
        texts: TextChannel,
        signal: Signal,
        projector: Projector,
        clock: Clock,
        *,
        options: HubOptions | None = None,
        on_first: Callable[[Feed], None] | None = None,
        on_empty: Callable[[Feed], None] | None = None,
    ) -> None:
        self.live, self.texts, self.signal = live, texts, signal
        self.projector, self.clock, self.options = projector, clock, options or HubOptions()
        self._record = record
        self.on_first, self.on_empty = on_first, on_empty
        self.draining = False
        self.streams = 0  # requests that are being served, whatever they wait for
        self.viewers: set[Viewer] = set()
        self.pulse = Pulse()
        self.statistics: dict[str, int] = {}  # resyncs by reason, viewers that were closed by cause
        self._feeds: dict[Feed, LiveFeed] = {}
        self._empty: dict[Feed, float] = {}  # since when
        self._leaving: dict[Feed, asyncio.Task[None]] = {}
        self._waking: deque[Viewer] = deque()
        self._pumping = False
        self._ticking: set[LiveFeed] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loops: dict[str, asyncio.Task[None]] = {}

    # What a request uses.

    async def attach(self, feed: Feed, run: Run | None = None) -> LiveFeed:
        """The feed, ready to be followed or `over`; to be given back with `detach`.

        `run`, as the record had it just now, is compared with the projection (law 6).
        Raises StoreUnavailable, NotFound, and NotReady once the hub closes.
        """
        if self.draining:
            raise NotReady
        found = self._feeds.get(feed)
        if found is None:
            found = self._feeds[feed] = LiveFeed(self, feed)
        self._hold(found, run)
        try:
            await found.ready()
            if run is not None and not found.agrees(run):
                await self.projector.bring(run.id)
                await found.read_again()
        except BaseException:
            self.detach(found)
            raise
        return found

    def attached(self, feed: Feed, run: Run) -> LiveFeed | None:
        """What `attach` would give, if it is there without waiting."""
        found = self._feeds.get(feed)
        if found is None or not found.known or not found.agrees(run):
            return None
        self._hold(found, run)
        return found

    def _hold(self, live: LiveFeed, run: Run | None) -> None:
        live.hold(run)
        self._empty.pop(live.feed, None)

    def detach(self, live: LiveFeed) -> None:
        live.holds -= 1
        if live.holds == 0 and self._feeds.get(live.feed) is live:  # else the hub has closed
            self._empty[live.feed] = self.clock.steady()
            self._keep("grace", self._let_go)

    def watched(self, feed: Feed) -> int:
        """How many viewers the feed has in this process."""
        found = self._feeds.get(feed)
        return found.watched if found else 0

    @property
    def feeds(self) -> int:
        """How many feeds are live, those in their grace included."""
        return len(self._feeds)

    async def run(self) -> None:
        """Sweep and keep alive, until cancelled."""
        async with asyncio.TaskGroup() as group:
            sweeping, beating = group.create_task(self._sweep()), group.create_task(self.pulse.beat())
            await self._keep_alive()
            await asyncio.gather(sweeping, beating)

    async def drain(self, window: float) -> None:
        """Close every stream, spread over the window, each with its own time to come back; then close."""
        self.draining = True
        viewers = sorted(self.viewers, key=lambda _: self.clock.random(4))
        steps = max(1, min(len(viewers), round(window * 20)))
        for part in range(steps):
            if part:
                await self.clock.sleep(window / steps)
            for viewer in viewers[part::steps]:
                viewer.finish(frames.draining(self.jitter(self.options.retry)))
        if self.viewers:  # sockets that were full when they were told
            await self.clock.sleep(window / steps)
        await self.close()

    async def close(self) -> None:
        """Drop the viewers that are left, and leave the signal."""
        for viewer in list(self.viewers):
            viewer.drop("closed")
        feeds, self._feeds = self._feeds, {}
        for live in feeds.values():
            try:
                await live.leave()
            except StoreUnavailable:
                pass  # with the connection, the subscription is gone too
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def jitter(self, seconds: float) -> int:
        """Milliseconds between half and one and a half times this."""
        return round(seconds * (500 + 1000 * int.from_bytes(self.clock.random(4), "big") / 2**32))

    # Listener.

    def on_hints(self, hints: Sequence[Hint]) -> None:
        for hint in hints:
            live = self._feeds.get(hint.feed)
            if live is not None:
                live.hint(hint)

    def on_gap(self, feed: Feed) -> None:
        live = self._feeds.get(feed)
        if live is not None:
            live.refresh()

    # What feeds and viewers use.

    def enter(self, viewer: Viewer) -> None:
        self.viewers.add(viewer)

    def watch(self, viewer: Viewer) -> None:
        """Count a viewer that was started, once."""
        if not viewer.counted:
            viewer.counted = True
            viewer.feed.watched += 1
            if viewer.feed.watched == 1 and viewer.feed.counts and self.on_first is not None:
                self.on_first(viewer.feed.feed)

    def leave(self, viewer: Viewer) -> None:
        self.viewers.discard(viewer)
        viewer.feed.viewers.discard(viewer)
        if viewer.counted:
            viewer.feed.watched -= 1
            if viewer.feed.watched == 0 and viewer.feed.counts and self.on_empty is not None:
                self.on_empty(viewer.feed.feed)

    def wake(self, viewers: Iterable[Viewer]) -> None:
        """Have these viewers served in this loop's next turn: what comes until then goes out in the same piece."""
        for viewer in viewers:
            if not viewer.queued:
                viewer.queued = True
                self._waking.append(viewer)
        if self._waking and not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def tick(self, live: LiveFeed) -> None:
        """Have the feed's state flushed at the next tick."""
        self._ticking.add(live)
        self._keep("tick", self._tick)

    def recover(self) -> None:
        """Look for the store until it answers, and read the feeds that missed something."""
        self._keep("recover", self._recover)

    def count(self, what: str) -> None:
        self.statistics[what] = self.statistics.get(what, 0) + 1

    def spawn(self, work: Coroutine[Any, Any, T], context: Context | None = None) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def answer(self, task: asyncio.Task[T]) -> T:
        """What a task of the hub's gives, for all who wait for it. Raises NotReady when the hub closed meanwhile."""
        await asyncio.wait({task})  # its cancellation is not ours, as it would be with a shield
        if task.cancelled():
            raise NotReady
        return task.result()

    # Loops.

    def _pump(self) -> None:
        for _ in range(min(self.options.slice, len(self._waking))):
            viewer = self._waking.popleft()
            viewer.queued = False
            try:
                viewer.wake()
            except Exception:
                _log.exception("a viewer could not be served")
                viewer.drop("broken")
        self._pumping = bool(self._waking)
        if self._pumping:
            asyncio.get_running_loop().call_soon(self._pump)

    async def _tick(self) -> None:
        while self._ticking:
            await self.clock.sleep(self.options.tick)
            due, self._ticking = self._ticking, set()
            for live in due:
                live.flush()

    async def _keep_alive(self) -> None:
        """One comment for every idle viewer; and a look at those that are stuck, or whose grants are due."""
        while True:
            await self.clock.sleep(self.options.keepalive)
            now = self.clock.steady()
            for viewers in _slices(list(self.viewers), self.options.slice):
                for viewer in viewers:
                    if viewer.recheck is not None and now >= viewer.recheck_at:
                        viewer.recheck_at = float("inf")
                        _ = self.spawn(self._recheck(viewer, now))
                    if viewer.sending_since is not None and now - viewer.sending_since > self.options.stall:
                        viewer.drop("stalled")
                    else:
                        viewer.comment()
                await asyncio.sleep(0)

    async def _recheck(self, viewer: Viewer, now: float) -> None:
        """Ask whether the viewer may still see this; when nobody can say, ask again at the next sweep."""
        assert viewer.recheck is not None
        try:
            allowed = await viewer.recheck()
        except StoreUnavailable:
            viewer.recheck_at = 0.0
            return
        except Exception:
            _log.exception("the grants of a stream could not be checked")
            allowed = False
        if allowed:
            viewer.recheck_at = now + viewer.recheck_every  # from the sweep, or each would miss the next one
        else:
            viewer.finish(b"")

    async def _sweep(self) -> None:
        while True:
            await self.clock.sleep(self.options.sweep)
            for feeds in _slices(list(self._feeds.values()), self.options.batch):
                try:
                    await self._compare(feeds)
                except StoreUnavailable:
                    for live in feeds:
                        live.degrade(StoreUnavailable.code)
                    self.recover()
                except Exception:
                    _log.exception("a sweep failed")

    async def _compare(self, feeds: Sequence[LiveFeed]) -> None:
        """Find what hints did not tell: something was lost, or the store went back (law 10)."""
        names = [live.feed for live in feeds]
        before = [live.standing() for live in feeds]
        stands = await self.live.stand(names)
        lengths = await self.texts.lengths(names)
        await self.live.watched(names)
        behind, quiet = [], []
        for live, standing in zip(feeds, before, strict=True):
            marks, held = stands.get(live.feed), lengths.get(live.feed, {})
            if live.over is not None:
                continue
            if marks is None or live.went_back(standing, marks, held):
                live.refresh()
            elif live.is_behind(marks, held):
                behind.append((live, marks, held))
            elif live.quiet():
                quiet.append(live)
        if behind:
            await self.clock.sleep(self.options.settle)
            for live, marks, held in behind:
                if live.is_behind(marks, held):
                    self.count("hint_lost")
                    live.refresh()
        # The silent ones in turn, longest unasked first: does the record agree that nothing happens?
        for live in sorted(quiet, key=lambda live: live.checked)[: self.options.checks]:
            live.checked = self.clock.steady()
            await self._check(live)

    async def _check(self, live: LiveFeed) -> None:
        try:
            run = await self._record.get(EVERY_TENANT, live.feed.id)
            if run is None or not live.agrees(run):
                await self.projector.bring(live.feed.id)
                live.refresh()
        except StoreUnavailable:
            pass  # without the record viewers go on with what is shown

    async def _recover(self) -> None:
        while True:
            await self.clock.sleep(self.options.recover)
            waiting = [live for live in self._feeds.values() if live.degraded is not None]
            try:
                await self.live.stand([live.feed for live in waiting[:1]])
            except StoreUnavailable:
                continue
            for live in waiting:
                live.refresh()
            return

    async def _let_go(self) -> None:
        """Leave feeds that nobody used for their grace."""
        while self._empty:
            feed, since = next(iter(self._empty.items()))
            rest = since + self.options.grace - self.clock.steady()
            if rest > 0:
                await self.clock.sleep(rest)
                continue
            del self._empty[feed]
            leaving = self._leaving[feed] = self.spawn(self._feeds.pop(feed).leave())
            leaving.add_done_callback(partial(self._left, feed))

    def _left(self, feed: Feed, done: asyncio.Task[None]) -> None:
        if self._leaving.get(feed) is done:
            del self._leaving[feed]

    async def left(self, feed: Feed) -> None:
        """Return once an earlier interest in this feed was withdrawn: the signal knows the two apart by time alone."""
        if leaving := self._leaving.get(feed):
            await asyncio.wait({leaving})

    def _keep(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have this loop run, once."""
        running = self._loops.get(name)
        if running is None or running.done():
            self._loops[name] = self.spawn(work())

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, PlayheadError):
            _log.error("a task of the hub failed", exc_info=error)


def _slices(items: list[T], size: int) -> Iterator[list[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
