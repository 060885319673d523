"""One feed that has viewers in this process: where it stands, its newest frames, its state and text."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from playhead.core import disconnect, repair, replay
from playhead.core.cursor import Cursor
from playhead.core.event import Entry
from playhead.core.ids import Feed
from playhead.core.replay import Reason
from playhead.core.run import Run
from playhead.core.snapshot import Snapshot
from playhead.core.transition import Marks
from playhead.errors import NotFound, StoreUnavailable
from playhead.interfaces import Hint, View
from playhead.runtime import frames
from playhead.runtime.documents import event_document, final_event
from playhead.runtime.ring import Ring
from playhead.runtime.subscription import Owed, Place, Viewer, owing
from playhead.runtime.textview import Ends, Key, TextView

if TYPE_CHECKING:
    from playhead.runtime.hub import Hub

MAX_PENDING = 1_000  # hints that wait for a read; beyond them everything is read again
MAX_PLACES = 256  # places for which an answer is kept ready
ROUNDS = 3  # reads in a row that are overtaken; the sweep does the rest


class LiveFeed:
    """Made by the hub alone. Everything runs in the hub's loop; only `ready` and `page` wait.

    Hints move it on as long as they continue it. Anything else is read from the store, whose answer is the only one
    that can refuse a viewer (law 7).
    """

    def __init__(self, hub: Hub, feed: Feed) -> None:
        self.feed = feed
        self.viewers: set[Viewer] = set()
        self.holds = 0  # requests that use it, with or without a viewer that is started
        self.watched = 0  # viewers that were started and have not left
        self.counts = False  # it matters whether there are any
        self.marks: Marks | None = None
        self.ring: Ring | None = None
        self.text = TextView()
        self.known = False  # it was read since it was last restarted
        self.over: Run | None = None  # the run has ended and there is nothing to follow
        self.erased = False  # the run is no more
        self.degraded: str | None = None
        self.checked = 0.0  # when a sweep compared it with the record
        self._hub = hub
        self._snapshot: Snapshot | None = None
        self._fresh: bytes | None = None  # the frame of the snapshot as it is now
        self._state = b""  # the frame that viewers were given last
        self._state_number = 0
        self._state_at = float("-inf")
        self._state_due = False
        self._told: tuple[object, ...] | None = None  # what that frame says of the run, apart from counts and times
        self._led = False  # events came since, and the state that they led to may be untold
        self._owed: dict[Place, Owed | None] = {}
        self._here: Place | None = None
        self._added = False
        self._syncing: asyncio.Task[bool] | None = None
        self._pending: list[Hint] = []
        self._again = False  # something came up that a read under way may have missed
        self._last: bytes | None = None  # what is left to say when there is nothing to follow any more
        self._pages: dict[int, asyncio.Task[View | None]] = {}
        self._idle = 0  # sweeps without a change

    # What a request asks.

    def hold(self, run: Run | None) -> None:
        """One more request uses it, which has just read the run."""
        self.holds += 1
        self.counts |= run is not None and disconnect.counts(run)

    async def ready(self) -> None:
        """Return once the feed can be followed, or is `over`. Raises StoreUnavailable, NotFound, NotReady."""
        while not self.known and self.over is None:
            await self._reading()

    async def read_again(self) -> None:
        """Read the store, from now. Raises as `ready`."""
        self.refresh()
        await self._reading()

    async def _reading(self) -> None:
        if self._syncing is None:
            self.refresh()
        assert self._syncing is not None
        if not await self._hub.answer(self._syncing):
            raise StoreUnavailable
        if self.erased:
            raise NotFound

    @property
    def version(self) -> int:
        """Of the snapshot that is known here."""
        return self._snapshot.version if self._snapshot else 0

    def agrees(self, run: Run) -> bool:
        """Whether the record's row and what is known here need no repair."""
        shown = self._snapshot.status if self._snapshot else None
        return self.over is not None or repair.needed(run, self.marks, shown=shown) is repair.Repair.NONE

    async def page(self, after: int) -> View | None:
        """The entries after a position, from the store; viewers that ask for the same share one read."""
        reading = self._pages.get(after)
        if reading is None:
            reading = self._hub.spawn(self._hub.live.read(self.feed, after=after, limit=self._hub.options.page))
            self._pages[after] = reading
            reading.add_done_callback(lambda _: self._pages.pop(after, None))
        return await self._hub.answer(reading)

    def beginning(self, named: Mapping[Key, int]) -> tuple[list[bytes], Ends, int]:
        """The frames that a new viewer begins with: the state, and each part of text whole, or from the offset that
        the viewer names; with the ends and the number of the state that it has seen then. The feed must be known."""
        ends = Ends({key: (offset, False) for key, offset in named.items() if self.text.is_place(key, offset)})
        texts = [frames.text(*piece) for piece in self.text.since(ends)]
        return [self._current(), *texts], self.text.ends, self._state_number

    def lags(self, place: Place) -> bool:
        """Whether a viewer at this place lacks more than it may."""
        lag = self.ring.lag(place.position) if self.ring else None
        if self._last is not None:
            return False
        return lag is None or lag + self.text.lag(place.ends) > self._hub.options.viewer_bytes

    def owed(self, place: Place) -> Owed | None:
        """What a viewer at this place lacks, all of it in one message; None if part of it is gone."""
        try:
            return self._owed[place]
        except KeyError:
            if len(self._owed) >= MAX_PLACES:
                self._owed.clear()
            owed = self._owed[place] = self._compute(place)
            return owed

    def _compute(self, place: Place) -> Owed | None:
        if self._last is not None:
            return owing(self._last, place, last=True)
        events = self.ring.since(place.position) if self.ring else None
        if self.ring is None or self.marks is None or events is None:
            return None
        parts = [frames.text(*piece) for piece in self.text.since(place.ends)]
        if place.state < 0 and self._snapshot is not None:
            parts.append(self._current())  # what the others were given last may be older than this viewer's screen
        elif place.state != self._state_number:
            parts.append(self._state)
        parts += events
        last = self.marks.final and self.ring.position >= self.marks.position
        if last and self._snapshot is not None:
            parts.append(frames.end(self.feed.id, self._snapshot.status))
        return owing(b"".join(parts), self._tip(self.ring), last)

    def shared(self, place: Place) -> Place:
        """The same place: one object for all viewers that have everything, so that one answer serves them all."""
        if self.ring is None:
            return place
        tip = self._tip(self.ring)
        return tip if (place.position, place.ends, place.state) == (tip.position, tip.ends, tip.state) else place

    def _tip(self, ring: Ring) -> Place:
        here, ends, state = self._here, self.text.ends, self._state_number
        if here is None or here.position != ring.position or here.ends is not ends or here.state != state:
            here = self._here = Place(ring.position, ends, state)
        return here

    # What the hub tells.

    def hint(self, hint: Hint) -> None:
        if self._syncing is None:
            if not self._apply(hint):
                self.refresh()
            self._changed()
        elif len(self._pending) < MAX_PENDING:
            self._pending.append(hint)
        else:
            self._again = True

    def refresh(self) -> None:
        """Have the feed read from the store, once, whoever asks."""
        if self._syncing is None:
            self._syncing = self._hub.spawn(self._sync())
        else:
            self._again = True

    def flush(self) -> None:
        """Give the state to the viewers now."""
        if self._state_due:
            self._changed(flush=True)

    def degrade(self, reason: str | None) -> None:
        if self.degraded != reason:
            self.degraded = reason
            self._fresh = None
            self._state_due = self._snapshot is not None
            self._changed(flush=True)

    def standing(self) -> tuple[int, int, Ends]:
        """What the store must have reached, if it is asked after this call."""
        return self.ring.position if self.ring else 0, self.version, self.text.ends

    def went_back(self, standing: tuple[int, int, Ends], marks: Marks | None, lengths: Mapping[Key, int]) -> bool:
        """Whether the store has less than it had, or something else."""
        if self.ring is None or marks is None or marks.epoch != self.ring.epoch:
            return True
        position, version, ends = standing
        known = self.ring.cursor(marks.position)
        other = known is not None and known.tag != marks.tag
        shorter = any(length > lengths.get(key, 0) for key, (length, _) in ends.of.items() if key[0] >= marks.token)
        return other or marks.position < position or marks.version < version or shorter

    def is_behind(self, marks: Marks, lengths: Mapping[Key, int]) -> bool:
        """Whether the store has what no hint has brought."""
        return (
            self.ring is None
            or self._snapshot is None
            or self.ring.position < marks.position
            or self._snapshot.version < marks.version
            or self._snapshot.rev < marks.rev
            or any(length > self.text.length(key) for key, length in lengths.items())
        )

    def quiet(self) -> bool:
        """Called at each sweep: whether nothing has happened for a while. Then no long tail is kept in memory."""
        self._idle += 1
        if self._idle > 1 and self.ring is not None:
            self.ring.shrink(self._hub.options.quiet_bytes)
        return self._idle > 1

    async def leave(self) -> None:
        """Stop listening. Nobody may use the feed after this."""
        if self._syncing is not None:
            self._syncing.cancel()
        if self._added:
            self._added = False
            await self._hub.signal.remove(self.feed, self._hub)

    # Catching up.

    def _apply(self, hint: Hint) -> bool:
        """Take over what continues this feed; False if the store has to be read."""
        if self.ring is None or self._snapshot is None or self.marks is None:
            return self.over is not None
        marks = hint.marks
        if marks.epoch != self.ring.epoch:
            return marks.epoch < self.ring.epoch
        complete = True
        if hint.voids_before:
            self.text.void(hint.voids_before)
        for entry in hint.entries:
            if entry.position <= self.ring.position:
                continue
            # A store that has lost a state that is known here gives its version a second time.
            if not replay.continues(self.ring.tip, entry) or entry.version <= self._snapshot.version:
                complete = False
                break
            self._append(entry)
        for piece in hint.text:
            complete = self.text.add(piece) and complete
        if hint.snapshot is not None and hint.snapshot.version > self._snapshot.version:
            self._note(hint.snapshot)
        complete = complete and self._snapshot.version >= marks.version and self.ring.position >= marks.position
        if self.ring.position == marks.position:
            complete = complete and self.ring.tip.tag == marks.tag
            if complete and marks.version >= self.marks.version:
                self.marks = marks
        return complete

    async def _sync(self) -> bool:
        try:
            if not self._added:
                await self._hub.left(self.feed)
                await self._hub.signal.add(self.feed, self._hub)
                self._added = True
            for turn in range(ROUNDS):
                self._again = False
                await self._catch_up()
                if self._last is not None:
                    self._pending.clear()
                    return True
                self.known = True
                pending, self._pending = self._pending, []
                complete = [self._apply(hint) for hint in pending]
                self._changed()
                if (all(complete) and not self._again) or turn == ROUNDS - 1:
                    break
                # A hint that is ahead of what was read: give the store a moment.
                await self._hub.clock.sleep(0.01 * 4**turn)
        except StoreUnavailable:
            self._pending.clear()
            self.degrade(StoreUnavailable.code)
            self._hub.recover()
            return False
        finally:
            self._syncing = None
        self.degrade(None)
        return True

    async def _catch_up(self) -> None:
        """Read up to the tip, a page at a time, or start anew where the store does not continue what is known."""
        run: Run | None = None
        while True:
            after = self.ring.position if self.ring else None
            view = await self._hub.live.read(self.feed, after=after, limit=self._hub.options.page)
            renewed = view is not None and self.ring is not None and view.marks.epoch != self.ring.epoch
            if (view is None or renewed) and run is None:
                run = await self._hub.projector.bring(self.feed.id)
                if run is None:
                    self._end(None)
                    return
                continue
            if view is None and run is not None and run.status.final:
                self._end(run)
                return
            if view is None:
                raise StoreUnavailable("The projection is missing and cannot be rebuilt now.")
            reason = replay.refusal(self.ring.tip, view.marks, view.entries) if self.ring else None
            if reason is not None:
                self._restart(reason)
                continue
            if not view.entries or view.entries[-1].position >= view.marks.position:
                text = await self._hub.texts.read_text(self.feed)
                self._take(view)  # not before: a viewer that looks now must find the state and the text of the end
                self.text.load(text)
                return
            self._take(view)
            self._changed()

    def _take(self, view: View) -> None:
        entries = view.entries
        if self.ring is None:
            # Should one be missing between them: what comes after the gap is what can be followed.
            while (whole := replay.chained(entries)) < len(entries):
                entries = entries[whole:]
            first = entries[0] if entries else None
            base = Cursor(first.epoch, first.position - 1, first.prev) if first else view.marks.cursor
            self.ring = Ring(base, self._hub.options.ring_bytes)
        for entry in entries[: replay.chained(entries)]:
            self._append(entry)
        self.marks = view.marks
        if self._snapshot is None or view.snapshot != self._snapshot:
            self._note(view.snapshot)

    def _append(self, entry: Entry) -> None:
        assert self.ring is not None
        self.ring.append(entry.tag, frames.event(replay.after(entry), entry.data))
        self._led = True

    def _note(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._fresh = None
        self._state_due = True

    def _current(self) -> bytes:
        if self._fresh is None:
            assert self._snapshot is not None
            self._fresh = frames.state(self._snapshot, self.degraded)
        return self._fresh

    def _changed(self, flush: bool = False) -> None:
        """Have the viewers woken; the state goes along when its time has come."""
        self._idle = 0
        if self._state_due and self._snapshot is not None:
            now = self._hub.clock.steady()
            says = (self._snapshot.status, self._snapshot.attempt, self._snapshot.state)
            # No viewer sees an event before the state that it led to, and the final one before the end.
            if flush or (self._led and says != self._told) or now - self._state_at >= self._hub.options.tick:
                self._state, self._state_at, self._state_due = self._current(), now, False
                self._state_number += 1
                self._told = says
                self._led = False
            else:
                self._hub.tick(self)
        self._owed.clear()
        self._here = None
        self._hub.wake(self.viewers)

    def _restart(self, reason: Reason) -> None:
        """Nothing that viewers have can be continued: each is told why and begins again."""
        ring = self.ring
        self.known = False
        self.ring = self.marks = self._snapshot = None
        self.text = TextView()
        for viewer in list(self.viewers):
            viewer.reset(reason, ring)

    def _end(self, run: Run | None) -> None:
        """Let the viewers go: the run is over and its projection is gone, or it was erased."""
        self.over, self.erased, self._last = run, run is None, b""
        if run is not None:
            self._last = frames.unplaced(event_document(final_event(run), 0))
            self._last += frames.end(run.id, run.status)
        self._changed()
