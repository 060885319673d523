"""The signal: wake-ups for whoever listens in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from playhead.core.ids import Feed, run_feed
from playhead.core.transition import Marks
from playhead.interfaces import Hint, Signal
from playhead.testing.check import Rules, eventually

rule: Rules[Signal] = Rules()

ONE = run_feed("0190163d-8694-739b-aea5-966c26f8ad90")
TWO = run_feed("0190163d-8694-739b-aea5-966c26f8ad91")


def _hint(feed: Feed, position: int) -> Hint:
    return Hint(feed, Marks(1, 0, 0, False, position, "0" * 12))


class Ear:
    """A listener that keeps what it hears, and the thread in which it heard it."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[Feed, int]]] = []
        self.threads: set[int] = set()
        self.gaps: list[Feed] = []

    def on_hints(self, hints: Sequence[Hint]) -> None:
        self.batches.append([(hint.feed, hint.marks.position) for hint in hints])
        self.threads.add(threading.get_ident())

    def on_gap(self, feed: Feed) -> None:
        self.gaps.append(feed)

    @property
    def heard(self) -> list[tuple[Feed, int]]:
        return [one for batch in self.batches for one in batch]


@rule()
async def hints_reach_the_listener_in_order(signal: Signal) -> None:
    """From the return of `add` on, hints of the feed reach the listener, in the order of their passing."""
    ear = Ear()
    await signal.add(ONE, ear)
    for i in range(50):
        signal.notify([_hint(ONE, i)])
    await eventually(lambda: len(ear.heard) >= 50)
    assert ear.heard == [(ONE, i) for i in range(50)]
    assert ear.threads == {threading.get_ident()}


@rule()
async def a_batch_is_one_call(signal: Signal) -> None:
    """What is passed on together comes to each listener in one call, its own feeds alone, in order."""
    one, both = Ear(), Ear()
    await signal.add(ONE, one)
    await signal.add(ONE, both)
    await signal.add(TWO, both)
    signal.notify([_hint(TWO, 1), _hint(ONE, 2), _hint(TWO, 3), _hint(ONE, 4)])
    await eventually(lambda: one.heard and len(both.heard) >= 4)
    assert one.batches == [[(ONE, 2), (ONE, 4)]]
    assert both.batches == [[(TWO, 1), (ONE, 2), (TWO, 3), (ONE, 4)]]


@rule()
async def nothing_comes_after_removal(signal: Signal) -> None:
    """A removed listener hears nothing any more, the others go on; removing twice or an unknown one is no error."""
    ear, other = Ear(), Ear()
    await signal.add(ONE, ear)
    await signal.add(ONE, other)
    await signal.remove(ONE, ear)
    await signal.remove(ONE, ear)
    await signal.remove(TWO, other)
    signal.notify([_hint(ONE, 1)])
    await eventually(lambda: other.heard)
    assert ear.heard == []
    await signal.add(ONE, ear)
    signal.notify([_hint(ONE, 2)])
    await eventually(lambda: ear.heard)
    assert (ear.heard, other.heard) == ([(ONE, 2)], [(ONE, 1), (ONE, 2)])


@rule()
async def listening_twice_is_hearing_once(signal: Signal) -> None:
    """A listener that was added twice to a feed hears each hint once."""
    ear = Ear()
    await signal.add(ONE, ear)
    await signal.add(ONE, ear)
    signal.notify([_hint(ONE, 1)])
    signal.notify([_hint(ONE, 2)])
    await eventually(lambda: len(ear.heard) >= 2)
    assert ear.heard == [(ONE, 1), (ONE, 2)]


@rule()
async def ringing_has_the_listeners_look(signal: Signal) -> None:
    """Who listens to a feed that is rung is told to look, and nobody else; nobody need listen."""
    ear, other = Ear(), Ear()
    await signal.ring(ONE)
    await signal.add(ONE, ear)
    await signal.add(TWO, other)
    await signal.ring(ONE)
    await eventually(lambda: ear.gaps)
    assert (set(ear.gaps), ear.heard) == ({ONE}, [])
    await signal.ring(TWO)
    await eventually(lambda: other.gaps)
    assert set(other.gaps) == {TWO}


@rule()
async def nobody_need_listen(signal: Signal) -> None:
    """Hints without a listener go nowhere, and none at all is no error."""
    signal.notify([])
    signal.notify([_hint(ONE, 1)])
    ear = Ear()
    await signal.add(ONE, ear)
    signal.notify([_hint(TWO, 1), _hint(ONE, 2)])
    await eventually(lambda: ear.heard)
    assert ear.heard == [(ONE, 2)]


@rule()
async def hints_may_come_from_any_thread(signal: Signal) -> None:
    """Hints that a writer thread passes on are heard in the loop of the listener, in order."""
    ear = Ear()
    await signal.add(ONE, ear)

    def write() -> None:
        for i in range(200):
            signal.notify([_hint(ONE, i)])

    await asyncio.to_thread(write)
    await eventually(lambda: len(ear.heard) >= 200)
    assert ear.heard == [(ONE, i) for i in range(200)]
    assert ear.threads == {threading.get_ident()}
