"""The projection: opening it, and applying facts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from playhead.core import event
from playhead.core.cursor import Cursor
from playhead.core.event import Fact
from playhead.core.ids import LIMIT
from playhead.core.retention import Retention
from playhead.core.run import Status
from playhead.core.snapshot import State
from playhead.core.transition import Already, Applied, Final, Gap, NeedsRebuild, Reply, WrongEpoch
from playhead.testing.check import LiveBench, Rules, refused
from playhead.testing.ports.given import STRANGE, Scribe, applied, live, opened, positions, project, publish, view

rule: Rules[LiveBench] = Rules(retention=Retention(count=1_000), timeline_ttl=3_600.0, snapshot_ttl=86_400.0)


def _life(scribe: Scribe) -> list[Fact]:
    """All facts of a run with two attempts and a question."""
    return [
        scribe.fact(event.RUN_QUEUED, payload={"t": STRANGE}),
        scribe.fact(event.RUN_STARTED, Status.RUNNING),
        scribe.fact(event.ATTEMPT_STARTED),
        scribe.fact(event.APPROVAL_REQUIRED, Status.WAITING, state=State(title="asking").encode()),
        scribe.fact(event.APPROVAL_DECIDED, Status.RUNNING),
        scribe.fact(event.ATTEMPT_STARTED),
        scribe.fact(event.CANCEL_REQUESTED),
        scribe.final(Status.CANCELLED),
    ]


@rule()
async def an_opened_projection_is_what_the_record_says(b: LiveBench) -> None:
    """An opening makes an empty timeline at position 0 and the snapshot of the record, under the new epoch."""
    scribe = Scribe(b.clock)
    scribe.rev, scribe.token, scribe.status, scribe.started_at = 7, 3, Status.WAITING, b.clock.wall_ms() - 5
    state = State(title=STRANGE).encode()
    opening = scribe.opening(state=state)
    assert await b.store.open(opening) == Applied(Cursor(scribe.epoch, 0, opening.tag), 1)
    seen = await view(b, scribe.feed)
    assert seen.entries == ()
    marks = seen.marks
    assert (marks.epoch, marks.rev, marks.token, marks.final) == (scribe.epoch, 7, 3, False)
    assert (marks.position, marks.tag, marks.floor, marks.archived) == (0, opening.tag, 0, 0)
    assert (marks.n, marks.state_version, marks.version) == (0, 0, 1)
    snapshot = seen.snapshot
    assert (snapshot.status, snapshot.attempt, snapshot.version, snapshot.rev) == (Status.WAITING, 3, 1, 7)
    assert (snapshot.started_at, snapshot.updated_at, snapshot.state) == (scribe.started_at, opening.at, state)
    applied(await b.store.publish(scribe.write(1)))
    assert (await view(b, scribe.feed)).entries[0].prev == opening.tag


@rule()
async def an_opening_without_a_state_has_an_empty_one(b: LiveBench) -> None:
    """Where the record knows no state, the snapshot has every field of one, empty."""
    scribe = await opened(b)
    assert (await view(b, scribe.feed)).snapshot.state == State().encode()


@rule()
async def an_opening_needs_what_the_rebuilder_saw(b: LiveBench) -> None:
    """If the projection is not what the rebuilder saw, or its epoch is not newer, nothing is opened."""
    scribe = await live(b)
    await publish(b, scribe, 2, state=State(title="kept"))
    before = await view(b, scribe.feed)
    now = scribe.epoch
    for seen, epoch in ((0, now + 1), (now - 1, now + 1), (now + 1, now + 2), (now, now), (now, now - 1), (0, now)):
        assert await b.store.open(scribe.opening(seen, epoch=epoch)) == WrongEpoch(now)
        assert await view(b, scribe.feed) == before
    missing = Scribe(b.clock)
    assert await b.store.open(missing.opening(5)) == WrongEpoch(0)
    assert await b.store.read(missing.feed) is None


@rule()
async def an_opening_that_names_the_newest_entry_needs_it(b: LiveBench) -> None:
    """What was written after the rebuilder looked is not emptied unseen: text and state do not count."""
    scribe = await live(b)
    seen = (await view(b, scribe.feed)).marks
    await publish(b, scribe, 1)
    before = await view(b, scribe.feed)
    late = scribe.opening(scribe.epoch, epoch=scribe.epoch + 1, seen_tag=seen.tag)
    assert await b.store.open(late) == WrongEpoch(scribe.epoch)
    assert await view(b, scribe.feed) == before
    await b.store.publish(scribe.write(0, state=State(progress=1)))
    await b.text.append(scribe.text(0, b"x"))
    applied(await b.store.open(scribe.opening(scribe.epoch, epoch=scribe.epoch + 1, seen_tag=before.marks.tag)))


@rule()
async def a_rebuild_replaces_everything(b: LiveBench) -> None:
    """A rebuilt projection has nothing of the one before: no entry, no n, no text, no mark of the archive."""
    scribe = await live(b)
    await publish(b, scribe, 3, state=State(title="old"))
    await b.text.append(scribe.text(0, b"old text"))
    await b.store.archived(scribe.feed, scribe.epoch, 4)
    old, scribe.epoch = scribe.epoch, scribe.epoch + 10
    opening = scribe.opening(old, state=State(title="new").encode())
    applied(await b.store.open(opening))
    seen = await view(b, scribe.feed)
    assert seen.entries == ()
    assert (seen.marks.position, seen.marks.floor, seen.marks.archived, seen.marks.n) == (0, 0, 0, 0)
    assert (seen.snapshot.state, seen.snapshot.version) == (State(title="new").encode(), 1)
    assert await b.text.read_text(scribe.feed) == []
    assert await b.store.find(scribe.feed, f"{scribe.run_id}:1:1") is None


@rule()
async def one_of_many_rebuilders_opens(b: LiveBench) -> None:
    """Of concurrent openings that saw the same, one takes place; the same one sent again finds itself."""
    scribe = await live(b)
    seen = scribe.epoch
    openings = [scribe.opening(seen, epoch=seen + 1 + i) for i in range(10)]
    got = await asyncio.gather(*map(b.store.open, openings))
    assert len([reply for reply in got if isinstance(reply, Applied)]) == 1
    won = openings[[isinstance(reply, Applied) for reply in got].index(True)]
    assert {reply for reply in got if not isinstance(reply, Applied)} == {WrongEpoch(won.epoch)}
    assert (await view(b, scribe.feed)).marks.tag == won.tag
    assert await b.store.open(won) == WrongEpoch(won.epoch)


@rule()
async def a_fact_moves_what_is_the_records(b: LiveBench) -> None:
    """A fact sets status, attempt, rev, start and, if it brings one, the state, and stands on the timeline."""
    scribe = await opened(b)
    for fact in _life(scribe):
        await b.clock.advance(1)
        tag = scribe.tag()
        reply = applied(await b.store.fact(scribe.epoch, fact, tag))
        seen = await view(b, scribe.feed)
        assert reply == Applied(Cursor(scribe.epoch, fact.rev, tag), fact.rev + 1)
        assert (seen.marks.cursor, seen.marks.version) == (reply.cursor, reply.version)
        assert (seen.entries[-1].event, seen.entries[-1].position) == (fact.event, fact.rev)
        assert (seen.snapshot.status, seen.snapshot.rev) == (fact.status, fact.rev)
        assert seen.snapshot.attempt == seen.marks.token == fact.token
        assert (seen.snapshot.started_at, seen.snapshot.updated_at) == (fact.started_at, b.clock.wall_ms())
        assert seen.snapshot.state == (State(title="asking") if fact.rev >= 4 else State()).encode()
    assert seen.marks.final


@rule()
async def facts_come_in_any_order(b: LiveBench) -> None:
    """Whoever brings facts in whatever order and however often: each is applied once, in the order of its rev."""
    for turn in range(15):
        scribe = await opened(b)
        life = _life(scribe)
        known = 0
        deliveries = sorted(life * 4, key=lambda _: b.clock.random(4)) + life
        for fact in deliveries:
            reply = await project(b, scribe, fact)
            if fact.rev <= known:
                assert isinstance(reply, Already)
            elif fact.rev > known + 1:
                assert reply == Gap(known)
            else:
                applied(reply)
                known += 1
        seen = await view(b, scribe.feed)
        assert [entry.event for entry in seen.entries] == [fact.event for fact in life], turn
        assert (seen.snapshot.status, seen.marks.rev, seen.marks.token) == (Status.CANCELLED, 8, 2)


@rule()
async def projectors_at_once_apply_each_fact_once(b: LiveBench) -> None:
    """Concurrent projectors that each bring every fact in turn leave one entry for each."""
    scribe = await opened(b)
    life = _life(scribe)

    async def bring() -> None:
        for fact in life:
            assert isinstance(await project(b, scribe, fact), Applied | Already)

    await asyncio.gather(*(bring() for _ in range(5)))
    assert [entry.event for entry in (await view(b, scribe.feed)).entries] == [fact.event for fact in life]


@rule()
async def a_known_fact_is_told_its_place(b: LiveBench) -> None:
    """A fact that was applied is `already`, with the place of its event, while that is retained."""
    scribe = await opened(b)
    life = _life(scribe)
    places = [applied(await project(b, scribe, fact)).cursor for fact in life]
    before = await view(b, scribe.feed)
    for fact, place in zip(life, places, strict=True):
        assert await project(b, scribe, fact) == Already(place)
    assert await view(b, scribe.feed) == before
    rebuilt = scribe.opening(scribe.epoch, epoch=scribe.epoch + 1, status=Status.RUNNING)
    applied(await b.store.open(rebuilt))
    assert await b.store.fact(rebuilt.epoch, life[0], scribe.tag()) == Already(None)


@rule()
async def a_fact_is_refused_as_a_whole(b: LiveBench) -> None:
    """A fact for no projection, for another epoch, or before its turn changes nothing."""
    scribe = Scribe(b.clock)
    fact = scribe.fact(event.RUN_QUEUED)
    assert await project(b, scribe, fact) == NeedsRebuild(0)
    assert await b.store.read(scribe.feed) is None
    scribe = await live(b)
    before = await view(b, scribe.feed)
    fact = scribe.fact(event.CANCEL_REQUESTED)
    replies: list[tuple[int, Fact, Reply]] = [
        (scribe.epoch + 1, fact, NeedsRebuild(scribe.epoch)),
        (scribe.epoch - 1, fact, WrongEpoch(scribe.epoch)),
        (scribe.epoch, replace(fact, rev=5), Gap(3)),
        (scribe.epoch, replace(fact, rev=999), Gap(3)),
    ]
    for epoch, one, reply in replies:
        assert await b.store.fact(epoch, one, scribe.tag()) == reply
        assert await view(b, scribe.feed) == before


@rule()
async def every_argument_is_checked_before_anything_is_written(b: LiveBench) -> None:
    """A number that is none, or that a double cannot hold, is refused beside any act, and so is a tag that is none."""
    scribe = await live(b)
    await publish(b, scribe, 2, state=State(progress=1))
    before = await view(b, scribe.feed)
    fact = scribe.fact(event.CANCEL_REQUESTED)
    bad: tuple[Any, ...] = (LIMIT, -1, 1.5, float(scribe.epoch), float("nan"), str(scribe.epoch), None, True)
    acts: list[Callable[[Any], Awaitable[object]]] = [
        lambda number: b.store.fact(number, fact, scribe.tag()),
        lambda number: b.store.fact(scribe.epoch, replace(fact, rev=number), scribe.tag()),
        lambda number: b.store.fact(scribe.epoch, replace(fact, token=number), scribe.tag()),
        lambda number: b.store.publish(scribe.again(scribe.write(1), guard=scribe.guard(token=number))),
        lambda number: b.store.publish(scribe.again(scribe.write(1), first_n=number)),
        lambda number: b.store.open(scribe.opening(scribe.epoch, epoch=number)),
        lambda number: b.store.archived(scribe.feed, scribe.epoch, number),
        lambda number: b.text.append(scribe.text(number, b"x")),
        lambda number: b.store.fact(scribe.epoch, fact, str(number)),
        lambda number: b.store.publish(replace(scribe.write(1), tags=(str(number),))),
        lambda number: b.store.publish(replace(scribe.write(1), tags=())),
    ]
    for act in acts:
        for number in bad:
            with refused(ValueError):
                await act(number)
            assert await view(b, scribe.feed) == before
    assert await b.text.read_text(scribe.feed) == []
    applied(await b.store.fact(scribe.epoch, fact, scribe.tag()))
    applied(await b.store.publish(replace(scribe.write(1), guard=scribe.guard())))


@rule()
async def every_append_moves_the_tip(b: LiveBench) -> None:
    """Whatever appends entries moves position and tag to the last of them; nothing else does."""
    scribe = await live(b)
    for _ in range(3):
        tip = (await view(b, scribe.feed)).marks
        write = scribe.write(2, state=State(progress=1))
        assert applied(await b.store.publish(write)).cursor == Cursor(tip.epoch, tip.position + 2, write.tags[-1])
        tag = scribe.tag()
        reply = applied(await b.store.fact(scribe.epoch, scribe.fact(event.CANCEL_REQUESTED), tag))
        assert reply.cursor == Cursor(tip.epoch, tip.position + 3, tag)
        assert applied(await b.store.publish(scribe.write(0, state=State(progress=2)))).cursor == reply.cursor
        await b.text.append(scribe.text(0, b"x", part=f"part{tip.position}"))
        seen = await view(b, scribe.feed)
        assert seen.marks.cursor == reply.cursor
        assert positions(seen)[-1] == tip.position + 3


@rule()
async def final_is_a_latch(b: LiveBench) -> None:
    """After the final fact nothing changes the projection: no publish, no text, no later fact."""
    for status in event.FINAL_TYPES:
        scribe = await live(b)
        last = scribe.write(1, state=State(progress=99))
        applied(await b.store.publish(last))
        applied(await project(b, scribe, scribe.final(status)))
        before = await view(b, scribe.feed)
        assert (before.marks.final, before.snapshot.status) == (True, status)
        assert await b.store.publish(scribe.again(last)) == Final()
        assert await b.store.publish(scribe.write(1, state=State(progress=10))) == Final()
        assert await b.store.publish(scribe.write(0, state=State(progress=10))) == Final()
        assert await b.text.append(scribe.text(0, b"late")) == Final()
        assert await project(b, scribe, scribe.fact(event.RUN_STARTED, Status.RUNNING)) == Final()
        assert await view(b, scribe.feed) == before
        assert await b.text.read_text(scribe.feed) == []


@rule()
async def a_fact_waits_for_nobodys_publish(b: LiveBench) -> None:
    """Facts and publishes share one chain: their entries stand in the order in which they were applied."""
    scribe = await live(b)
    await publish(b, scribe, 2)
    applied(await project(b, scribe, scribe.fact(event.APPROVAL_REQUIRED, Status.WAITING)))
    await publish(b, scribe, 1)
    seen = await view(b, scribe.feed)
    assert positions(seen) == [1, 2, 3, 4, 5, 6, 7]
    assert [entry.event.type for entry in seen.entries[3:]] == [
        "step_done",
        "step_done",
        event.APPROVAL_REQUIRED,
        "step_done",
    ]
    assert seen.snapshot.status is Status.WAITING
