"""A reader as the laws describe it: a cursor, the view it has built, and hints that it looks at when it likes."""

from __future__ import annotations

from collections.abc import Sequence

from playhead.core import replay
from playhead.core.cursor import Cursor, parse
from playhead.core.event import Entry
from playhead.core.ids import Feed
from playhead.core.replay import Reason
from playhead.core.snapshot import Snapshot
from playhead.interfaces import Hint
from tests.machine.truth import Part
from tests.machine.world import World


class Reader:
    """`view` is what it holds of its epoch: the ids that its snapshot stood for, and those of entries it accepted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cursor: Cursor | None = None
        self.view: list[str] = []
        self.snapshot: Snapshot | None = None
        self.texts: dict[Part, bytes] = {}
        self.hints: list[Hint] = []
        self.resyncs: list[Reason] = []

    # Listener.

    def on_hints(self, hints: Sequence[Hint]) -> None:
        self.hints += hints

    def on_gap(self, feed: Feed) -> None:
        raise AssertionError("a local signal loses nothing by itself")

    async def listen(self, on: bool) -> None:
        signal = self.world.stores.signal
        await (signal.add if on else signal.remove)(self.world.truth.feed, self)
        self.hints.clear()

    # Reading.

    async def join(self, limit: int) -> None:
        """Take the snapshot, of a projection that is repaired first if it is missing."""
        world = self.world
        view = await world.stores.live.read(world.truth.feed, limit=limit)
        if view is None:
            await world.server.projector.bring(world.run.id)
            view = await world.stores.live.read(world.truth.feed, limit=limit)
        if view is None:
            assert world.run.status.final or world.stores.sky.words, "a run that goes on has a projection"
            self.cursor = None
            return
        self.cursor, self.snapshot = view.marks.cursor, view.snapshot
        self.view = list(world.truth.history[self.cursor.tag])
        shown = [entry.event.id for entry in view.entries]
        assert self.view[len(self.view) - len(shown) :] == shown, "the events of a snapshot are the newest before it"
        await self._load_text()

    async def _load_text(self) -> None:
        parts = await self.world.stores.live.read_text(self.world.truth.feed)
        self.texts = {(part.token, part.part): part.data for part in parts}
        for key, data in self.texts.items():
            assert self.world.truth.said[key].startswith(data)

    async def resume(self, given: str, view: Sequence[str], limit: int) -> Reason | None:
        """Connect with a cursor that somebody kept, and with what was held there. The reason, if it is refused."""
        cursor = parse(given)
        if cursor is None:
            await self._resync(Reason.MALFORMED, limit)
            return Reason.MALFORMED
        self.cursor, self.view, self.snapshot, self.texts = cursor, list(view), None, {}
        return await self.read(limit)

    async def read(self, limit: int) -> Reason | None:
        """Read a page; take it, or give the cursor up for the first reason that holds."""
        if self.cursor is None:
            await self.join(limit)
            return None
        world, at = self.world, self.cursor
        view = await world.stores.live.read(world.truth.feed, after=at.position, limit=limit)
        if view is None:
            await self.join(limit)
            return None
        reason = replay.refusal(at, view.marks, view.entries)
        if reason is not None:
            await self._resync(reason, limit)
            return reason
        for entry in view.entries:
            self._accept(entry)
        self.snapshot = view.snapshot
        return None

    async def read_all(self) -> None:
        """Read until there is nothing more."""
        while True:
            at = self.cursor
            await self.read(3)
            if self.cursor == at:
                return

    async def _resync(self, reason: Reason, limit: int) -> None:
        self.resyncs.append(reason)
        self.cursor = None
        try:
            await self.world.server.projector.bring(self.world.run.id)
        finally:
            await self.join(limit)

    async def look_at_all(self) -> None:
        while self.hints and self.cursor is not None:
            await self.look()

    async def look(self) -> None:
        """Look at the oldest hint. One that does not fit proves nothing: then the store is read."""
        if not self.hints or self.cursor is None:
            return
        hint = self.hints.pop(0)
        fits = hint.marks.epoch == self.cursor.epoch
        for entry in hint.entries:
            if fits and replay.continues(self.cursor, entry):
                self._accept(entry)
            else:
                fits = False
        if not fits:
            await self.read(100)
            return
        if hint.snapshot is not None and (self.snapshot is None or hint.snapshot.version > self.snapshot.version):
            self.snapshot = hint.snapshot
            self._check_snapshot(hint.snapshot, hint.marks.epoch)
        self.texts = {key: data for key, data in self.texts.items() if key[0] >= hint.voids_before}
        for piece in hint.text:
            key = piece.token, piece.part
            held = self.texts.get(key, b"")
            if piece.offset > len(held):
                await self._load_text()
                return
            self.texts[key] = held + piece.data[len(held) - piece.offset :]
            assert self.world.truth.said[key].startswith(self.texts[key]), "a part only grows, by its own attempt"

    def _check_snapshot(self, shown: Snapshot, epoch: int) -> None:
        told = (epoch, shown.version, shown.status, shown.attempt, shown.rev, shown.started_at, shown.state)
        assert told in self.world.truth.snapshots, "a hint shows what was true once"

    def _accept(self, entry: Entry) -> None:
        """Take an entry. What is held before it must be what it was written after."""
        truth = self.world.truth
        assert self.cursor is not None
        assert replay.continues(self.cursor, entry), "a page that is not refused continues its reader"
        assert entry.event.id not in self.view, "an event is shown once"
        self.view.append(entry.event.id)
        assert tuple(self.view) == truth.history[entry.tag], "a reader holds a wrong view"
        assert entry.event.body == truth.bodies[entry.event.id]
        self.cursor = replay.after(entry)

    def check_converged(self) -> None:
        line = self.world.truth.line
        if line is None:
            return
        assert self.cursor == line.cursor
        assert tuple(self.view) == self.world.truth.history[line.tags[-1]]
        assert self.view == [*line_ids(self.world)], "the view is the timeline"


def line_ids(world: World) -> list[str]:
    assert world.truth.line is not None
    return [one.event.id for one in world.truth.line.told]
