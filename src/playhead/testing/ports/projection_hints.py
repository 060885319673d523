"""The projection: the hints that follow its writes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from playhead.core import event
from playhead.core.ids import Feed
from playhead.core.retention import Retention
from playhead.core.run import Status
from playhead.core.snapshot import State
from playhead.interfaces import Hint
from playhead.testing.check import LiveBench, Rules, eventually
from playhead.testing.ports.given import Scribe, applied, live, opened, project, publish, view

rule: Rules[LiveBench] = Rules(retention=Retention(count=1_000), timeline_ttl=3_600.0, snapshot_ttl=86_400.0)


class Ear:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.hints: list[Hint] = []
        self.gaps: list[Feed] = []

    def on_hints(self, hints: Sequence[Hint]) -> None:
        self.hints += hints

    def on_gap(self, feed: Feed) -> None:
        self.gaps.append(feed)


async def listening(b: LiveBench, scribe: Scribe) -> Ear:
    ear = Ear()
    await b.signal.add(scribe.feed, ear)
    return ear


@rule()
async def hints_carry_what_was_written(b: LiveBench) -> None:
    """Every accepted write is hinted, in order, with its entries, and with the marks and snapshot it led to."""
    scribe = await live(b)
    ear = await listening(b, scribe)
    for i in range(20):
        applied(await b.store.publish(scribe.write(2, state=State(done=i))))
        if i == 9:
            applied(await project(b, scribe, scribe.fact(event.CANCEL_REQUESTED)))
    await eventually(lambda: sum(len(hint.entries) for hint in ear.hints) >= 41)
    seen = await view(b, scribe.feed)
    entries = [entry for hint in ear.hints for entry in hint.entries]
    assert entries == list(seen.entries[3:])
    for hint in ear.hints:
        assert hint.feed == scribe.feed
        assert hint.entries[-1].tag == hint.marks.tag
        assert hint.entries[-1].position == hint.marks.position
        if hint.snapshot is not None:
            assert hint.snapshot.version == hint.marks.version
    assert (ear.hints[-1].marks, ear.hints[-1].snapshot) == (seen.marks, seen.snapshot)


@rule()
async def a_change_of_state_alone_is_hinted(b: LiveBench) -> None:
    """A state without an event wakes readers up too, with the snapshot it made."""
    scribe = await live(b)
    ear = await listening(b, scribe)
    applied(await b.store.publish(scribe.write(0, state=State(progress=50))))
    await eventually(lambda: ear.hints)
    (hint,) = ear.hints
    seen = await view(b, scribe.feed)
    assert (hint.marks, hint.snapshot, hint.entries) == (seen.marks, seen.snapshot, ())


@rule()
async def a_hint_comes_after_its_commit(b: LiveBench) -> None:
    """Whoever reads because of a hint finds what it told, or more."""
    scribe = await live(b)
    told: list[int] = []
    found: list[int] = []
    readers: set[asyncio.Task[None]] = set()

    async def read(position: int) -> None:
        seen = await view(b, scribe.feed)
        told.append(position)
        found.append(seen.marks.position)

    class Reader(Ear):
        def on_hints(self, hints: Sequence[Hint]) -> None:
            for hint in hints:
                task = asyncio.get_running_loop().create_task(read(hint.marks.position))
                readers.add(task)

    await b.signal.add(scribe.feed, Reader())
    await publish(b, scribe, 20)
    await eventually(lambda: len(told) >= 20)
    assert all(position <= seen for position, seen in zip(told, found, strict=True))
    assert max(told) == 23


@rule()
async def a_refused_write_is_not_hinted(b: LiveBench) -> None:
    """What was not written wakes nobody up."""
    scribe = await live(b)
    known = scribe.write(1, state=State(title="x"))
    applied(await b.store.publish(known))
    ear = await listening(b, scribe)
    early = scribe.fact(event.CANCEL_REQUESTED)
    wrong = replace(early, rev=9)
    for guard in (
        scribe.guard(rev=3, epoch=scribe.epoch + 1),
        scribe.guard(rev=3, epoch=scribe.epoch - 1),
        scribe.guard(rev=3, token=0),
        scribe.guard(rev=3, token=2),
        scribe.guard(rev=3, acked_n=9),
        scribe.guard(rev=9),
    ):
        await b.store.publish(replace(scribe.again(known), guard=guard))
        await b.text.append(replace(scribe.text(0, b"x"), guard=guard))
    await b.store.publish(scribe.again(known, guard=scribe.guard(rev=3)))
    await b.store.fact(scribe.epoch, wrong, scribe.tag())
    await b.store.open(scribe.opening(0, epoch=scribe.epoch + 9))
    assert ear.hints == []
    applied(await project(b, scribe, early))
    await eventually(lambda: ear.hints)
    assert [hint.marks.rev for hint in ear.hints] == [4]


@rule()
async def an_opening_is_hinted(b: LiveBench) -> None:
    """A rebuilt projection says so, so that readers of the old one learn of the new epoch."""
    scribe = await live(b)
    ear = await listening(b, scribe)
    old, scribe.epoch = scribe.epoch, scribe.epoch + 5
    applied(await b.store.open(scribe.opening(old)))
    await eventually(lambda: ear.hints)
    seen = await view(b, scribe.feed)
    (hint,) = ear.hints
    assert (hint.marks, hint.snapshot, hint.entries) == (seen.marks, seen.snapshot, ())


@rule()
async def a_new_attempt_voids_text(b: LiveBench) -> None:
    """The hint of an `attempt_started` names the attempts whose text is void; no other hint does."""
    scribe = await opened(b)
    ear = await listening(b, scribe)
    for name, status in (
        (event.RUN_QUEUED, Status.QUEUED),
        (event.RUN_STARTED, Status.RUNNING),
        (event.ATTEMPT_STARTED, Status.RUNNING),
        (event.ATTEMPT_STARTED, Status.RUNNING),
        (event.CANCEL_REQUESTED, Status.RUNNING),
    ):
        applied(await project(b, scribe, scribe.fact(name, status)))
    await publish(b, scribe, 1)
    await eventually(lambda: len(ear.hints) >= 6)
    assert [hint.voids_before for hint in ear.hints] == [0, 0, 1, 2, 0, 0]


@rule()
async def text_is_hinted_piece_by_piece(b: LiveBench) -> None:
    """Every piece of text is hinted as it was appended, in order; a repeated one is not."""
    scribe = await live(b)
    ear = await listening(b, scribe)
    pieces = [b"one ", "zw\u00f6lf \U0001f600".encode(), b"\x00end"]
    offset = 0
    for data in pieces:
        write = scribe.text(offset, data, final=data == pieces[-1])
        await b.text.append(write)
        await b.text.append(write)
        offset += len(data)
    await eventually(lambda: len(ear.hints) >= 3)
    heard = [piece for hint in ear.hints for piece in hint.text]
    assert [(piece.part, piece.token, piece.data) for piece in heard] == [("answer", 1, data) for data in pieces]
    assert [piece.offset for piece in heard] == [0, len(pieces[0]), len(pieces[0] + pieces[1])]
    assert [piece.final for piece in heard] == [False, False, True]
    marks = (await view(b, scribe.feed)).marks
    assert all(hint.marks == marks and hint.entries == () for hint in ear.hints)


@rule()
async def hints_reach_only_their_listeners(b: LiveBench) -> None:
    """A listener hears of its feeds alone, and of nothing once it was removed."""
    one, two = await live(b), await live(b)
    ear, other = await listening(b, one), await listening(b, two)
    await publish(b, one, 3)
    await eventually(lambda: len(ear.hints) >= 3)
    await b.signal.remove(one.feed, ear)
    await publish(b, one, 3)
    await publish(b, two, 1)
    await eventually(lambda: other.hints)
    assert [hint.feed for hint in ear.hints] == [one.feed] * 3
    assert [hint.feed for hint in other.hints] == [two.feed]
