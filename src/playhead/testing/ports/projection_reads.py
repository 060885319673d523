"""The projection: what a reader gets in one act."""

from __future__ import annotations

import asyncio

from playhead.core import event, replay
from playhead.core.cursor import Cursor
from playhead.core.replay import Reason
from playhead.core.retention import Retention
from playhead.core.snapshot import State
from playhead.testing.check import LiveBench, Rules
from playhead.testing.ports.given import Scribe, applied, live, new_id, opened, positions, project, publish, view

rule: Rules[LiveBench] = Rules(retention=Retention(count=1_000), timeline_ttl=3_600.0, snapshot_ttl=86_400.0)


@rule()
async def a_window_after_a_place(b: LiveBench) -> None:
    """`after` gives the first entries behind a position, in order, at most `limit`."""
    scribe = await live(b)
    await publish(b, scribe, 17)
    for after, limit, wanted in (
        (0, 5, [1, 2, 3, 4, 5]),
        (0, 100, list(range(1, 21))),
        (9, 3, [10, 11, 12]),
        (18, 5, [19, 20]),
        (20, 5, []),
        (99, 5, []),
        (5, 0, []),
    ):
        seen = await view(b, scribe.feed, after=after, limit=limit)
        assert (positions(seen), seen.marks.position) == (wanted, 20)


@rule()
async def a_window_before_a_place(b: LiveBench) -> None:
    """Without a place the newest entries come, with `before` the newest before it; in order, at most `limit`."""
    scribe = await live(b)
    await publish(b, scribe, 17)
    assert positions(await view(b, scribe.feed, limit=3)) == [18, 19, 20]
    assert positions(await view(b, scribe.feed, limit=0)) == []
    for before, limit, wanted in (
        (21, 2, [19, 20]),
        (20, 2, [18, 19]),
        (3, 5, [1, 2]),
        (1, 5, []),
        (0, 5, []),
        (99, 2, [19, 20]),
        (10, 0, []),
    ):
        assert positions(await view(b, scribe.feed, before=before, limit=limit)) == wanted


@rule()
async def an_entry_is_found_by_its_id(b: LiveBench) -> None:
    """`find` gives the position of a retained event of this feed, whoever wrote it."""
    scribe, other = await live(b), await live(b)
    await publish(b, scribe, 2)
    seen = await view(b, scribe.feed)
    for entry in seen.entries:
        assert await b.store.find(scribe.feed, entry.event.id) == entry.position
        assert await b.store.find(other.feed, entry.event.id) is None
    assert await b.store.find(scribe.feed, f"{scribe.run_id}:1:3") is None


@rule()
async def standings_are_the_marks(b: LiveBench) -> None:
    """`stand` gives the marks of many feeds at once, exactly as a read shows them, without the missing ones."""
    scribes = [await live(b) for _ in range(5)]
    await publish(b, scribes[0], 3, state=State(title="x"))
    applied(await project(b, scribes[1], scribes[1].final()))
    absent = Scribe(b.clock)
    feeds = [scribe.feed for scribe in scribes]
    wanted = {feed: (await view(b, feed)).marks for feed in feeds}
    assert await b.store.stand([*feeds, absent.feed, feeds[0]]) == wanted
    assert await b.store.stand([]) == {}


@rule()
async def a_reader_sees_whole_writes(b: LiveBench) -> None:
    """Readers beside a writer see events, state, marks and tip of whole writes only."""
    scribe = await live(b)

    async def write() -> None:
        for i in range(1, 41):
            applied(await b.store.publish(scribe.write(3, state=State(done=i))))

    async def read() -> None:
        for _ in range(60):
            seen = await view(b, scribe.feed, limit=4)
            assert (seen.marks.position - 3) % 3 == 0
            assert seen.entries[-1].position == seen.marks.position
            assert seen.marks.n == seen.marks.state_version * 3
            if seen.marks.state_version:
                assert seen.snapshot.state == State(done=seen.marks.state_version).encode()
            await asyncio.sleep(0)

    await asyncio.gather(write(), read(), read())


async def _verdict(b: LiveBench, reader: Cursor, scribe: Scribe) -> Reason | None:
    seen = await view(b, scribe.feed, after=reader.position)
    return replay.refusal(reader, seen.marks, seen.entries)


@rule()
async def readers_go_on_where_nothing_is_missing(b: LiveBench) -> None:
    """A reader goes on from every place of an untrimmed timeline, from its start, and from its tip."""
    scribe = await opened(b)
    start = (await view(b, scribe.feed)).marks.cursor
    assert await _verdict(b, start, scribe) is None
    applied(await project(b, scribe, scribe.fact(event.RUN_QUEUED)))
    seen = await view(b, scribe.feed)
    for reader in (start, replay.after(seen.entries[0])):
        assert await _verdict(b, reader, scribe) is None


@rule(retention=Retention(count=10, archive=True))
async def readers_are_told_what_is_missing(b: LiveBench) -> None:
    """A reader goes on from the newest removed entry and is told at any earlier one, beyond the tip, or elsewhere."""
    scribe = await live(b)
    await publish(b, scribe, 27)
    places = {entry.position: replay.after(entry) for entry in (await view(b, scribe.feed)).entries}
    await b.store.archived(scribe.feed, scribe.epoch, 30)
    seen = await view(b, scribe.feed)
    assert (seen.marks.floor, seen.marks.position, len(seen.entries)) == (20, 30, 10)
    for position, place in places.items():
        wanted = Reason.EXPIRED if position < 20 else None
        assert await _verdict(b, place, scribe) is wanted
    tip = seen.marks.cursor
    assert await _verdict(b, Cursor(tip.epoch, 31, tip.tag), scribe) is Reason.AHEAD
    assert await _verdict(b, Cursor(tip.epoch - 1, 30, tip.tag), scribe) is Reason.EPOCH
    assert await _verdict(b, Cursor(tip.epoch, 30, "0" * 12), scribe) is Reason.FOREIGN
    assert await _verdict(b, Cursor(tip.epoch, 20, "0" * 12), scribe) is Reason.FOREIGN
    assert await _verdict(b, Cursor(tip.epoch, 25, "0" * 12), scribe) is Reason.FOREIGN


@rule()
async def what_is_not_there_is_none(b: LiveBench) -> None:
    """A feed without a projection is None, which is not the same as an empty timeline."""
    scribe = await opened(b)
    assert (await view(b, scribe.feed)).entries == ()
    await b.store.drop(scribe.feed)
    assert await b.store.read(scribe.feed) is None
    assert await b.store.read(scribe.feed, after=0) is None
    assert await b.store.find(scribe.feed, new_id(b.clock)) is None


@rule()
async def closing_twice_is_no_error(b: LiveBench) -> None:
    """A store that is closed can be closed again."""
    await b.store.close()
    await b.store.close()
