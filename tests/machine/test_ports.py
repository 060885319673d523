"""Random hostile histories of one run at the level of the ports, with readers as the laws describe them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from playhead.core.cursor import Cursor, parse
from playhead.core.replay import Reason
from tests.machine.history import PLANS, SEEDS, History, play
from tests.machine.reader import Reader
from tests.plugins import histories

READERS = 3
SHARES = {"redis": 0.2, "servers": 0.05}  # of the histories, for a backend that takes longer over each
LIMITS = st.sampled_from([1, 2, 3, 100])
WHICH = st.integers(0, READERS - 1)
NONSENSE = [
    "",
    "0",
    "end",
    "1-2",
    "1-2.XYZ",
    "01-2.0123456789ab",
    "9007199254740992-0.0123456789ab",
    "1-2.0123456789ab\n",
]


class Ports(History):
    readers: list[Reader]

    async def began(self) -> None:
        self.readers = [Reader(self.world) for _ in range(READERS)]
        await self.readers[0].listen(True)

    @rule(which=WHICH, limit=LIMITS, plan=PLANS, seed=SEEDS)
    def join(self, which: int, limit: int, plan: list[str], seed: int) -> None:
        self.step(lambda: self.readers[which].join(limit), plan, seed)

    @rule(which=WHICH, limit=LIMITS)
    def read(self, which: int, limit: int) -> None:
        """The reason, or that there is none, is what the model says."""
        reader = self.readers[which]
        expected = self.expected(reader.cursor)
        found = self.step(lambda: reader.read(limit))
        assert found == expected

    @rule(which=WHICH, how=st.sampled_from(["listen", "deafen", "look", "lose", "look at all"]), plan=PLANS, seed=SEEDS)
    def follow(self, which: int, how: str, plan: list[str], seed: int) -> None:
        reader = self.readers[which]
        if how in ("listen", "deafen"):
            self.step(lambda: reader.listen(how == "listen"))
        elif how == "lose":
            del reader.hints[:2]
        elif how == "look":
            self.step(reader.look, plan, seed)
        else:
            self.step(reader.look_at_all, plan, seed)

    @rule(which=WHICH, back=st.integers(0, 30), limit=LIMITS)
    def resume_old(self, which: int, back: int, limit: int) -> None:
        """From any place that there ever was, with what was held there."""
        cursors = self.world.truth.cursors
        cursor = cursors[-1 - back % len(cursors)]
        self.resume(which, str(cursor), limit, self.world.truth.history[cursor.tag])

    @rule(which=WHICH, place=st.integers(0, 30), limit=LIMITS, other=st.booleans())
    def resume_foreign(self, which: int, place: int, limit: int, other: bool) -> None:
        """From a place of another run, or with a tag that nobody gave out."""
        line = self.world.truth.line
        if other:
            cursor = self.world.other.cursors[place % len(self.world.other.cursors)]
        else:
            epoch, position = (line.epoch, line.position) if line else (1, 0)
            cursor = Cursor(epoch, place % (position + 1), "0123456789ab")
        self.resume(which, str(cursor), limit, ["not of this run"])

    @rule(which=WHICH, ahead=st.integers(1, 3), limit=LIMITS)
    def resume_ahead(self, which: int, ahead: int, limit: int) -> None:
        line = self.world.truth.line
        if line is not None:
            cursor = Cursor(line.epoch, line.position + ahead, line.tags[-1])
            self.resume(which, str(cursor), limit, ["from the future"])

    @rule(which=WHICH, text=st.sampled_from(NONSENSE), limit=LIMITS)
    def resume_malformed(self, which: int, text: str, limit: int) -> None:
        reader = self.readers[which]
        assert self.step(lambda: reader.resume(text, (), limit)) in (Reason.MALFORMED, None)
        assert reader.resyncs[-1] is Reason.MALFORMED

    def resume(self, which: int, given: str, limit: int, view: Sequence[str]) -> None:
        reader = self.readers[which]
        expected = self.expected(parse(given))
        found = self.step(lambda: reader.resume(given, view, limit))
        assert found == expected

    def expected(self, cursor: Cursor | None) -> Reason | None:
        """What a reader has to be told that reads from here now."""
        if cursor is None or self.world.truth.line is None or self.world.stores.sky.down:
            return None
        return self.world.truth.reason(cursor)

    async def converge(self) -> None:
        for reader in self.readers:
            await reader.read_all()

    def agreed(self) -> None:
        for reader in self.readers:
            reader.check_converged()


@pytest.mark.slow
@pytest.mark.timeout(600 + 6 * histories.count())
@pytest.mark.row("H-machine", "A3", "A5", "A6", "A8", "A12", "A14", "A33", "R6", "R22", "R26", "R32", "F2", "F3")
@pytest.mark.row("M-cursor-expired", "M-foreign-cursor", "M-bad-cursor", "BR-90")
@pytest.mark.parametrize("backend", ["memory", "sqlite", "redis", "servers"])
def test_hostile_histories(backend):
    play(Ports, backend, histories.count(SHARES.get(backend, 1.0)))
