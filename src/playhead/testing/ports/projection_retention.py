"""The projection: what is kept of a timeline, and what outlives its run."""

from __future__ import annotations

from playhead.core.ids import Feed
from playhead.core.retention import Retention
from playhead.core.run import Status
from playhead.core.transition import Already, Marks, NeedsRebuild
from playhead.testing.check import LiveBench, Rules
from playhead.testing.ports.given import Scribe, applied, live, new_id, opened, positions, project, publish, view

rule: Rules[LiveBench] = Rules(retention=Retention(count=1_000), timeline_ttl=3_600.0, snapshot_ttl=86_400.0)

KIB = "x" * 1024


async def _marks(b: LiveBench, feed: Feed) -> Marks:
    seen = await view(b, feed)
    assert positions(seen) == list(range(seen.marks.floor + 1, seen.marks.position + 1))
    return seen.marks


@rule(retention=Retention(count=10))
async def the_retention_is_the_one_given(b: LiveBench) -> None:
    """A store says which retention it keeps."""
    assert b.store.retention == Retention(count=10)


@rule(retention=Retention(count=10))
async def what_is_not_archived_stays(b: LiveBench) -> None:
    """With an archive, entries beyond the count go once they are archived, and not before."""
    scribe = await live(b)
    await publish(b, scribe, 27)
    assert (await _marks(b, scribe.feed)).floor == 0
    await b.store.archived(scribe.feed, scribe.epoch, 8)
    assert (await _marks(b, scribe.feed)).floor == 8
    await publish(b, scribe, 2)
    assert (await _marks(b, scribe.feed)).floor == 8
    await b.store.archived(scribe.feed, scribe.epoch, 32)
    assert (await _marks(b, scribe.feed)).floor == 22
    await publish(b, scribe, 1)
    marks = await _marks(b, scribe.feed)
    assert (marks.floor, marks.archived, marks.position) == (23, 32, 33)


@rule(retention=Retention(count=10))
async def a_lagging_archive_leaves_a_hole(b: LiveBench) -> None:
    """At four times the count entries go although they are not archived, and the marks show the hole."""
    scribe = await live(b)
    await publish(b, scribe, 37)
    assert (await _marks(b, scribe.feed)).floor == 0
    await publish(b, scribe, 5)
    marks = await _marks(b, scribe.feed)
    assert (marks.position, marks.floor, marks.archived) == (45, 5, 0)
    assert marks.floor > marks.archived


@rule(retention=Retention(count=10, archive=False))
async def without_an_archive_a_live_run_is_whole(b: LiveBench) -> None:
    """Without an archive count and age remove nothing while the run goes on, and do at its end."""
    scribe = await live(b)
    await publish(b, scribe, 60)
    assert (await _marks(b, scribe.feed)).floor == 0
    applied(await project(b, scribe, scribe.final()))
    marks = await _marks(b, scribe.feed)
    assert (marks.position, marks.floor) == (64, 54)


@rule(retention=Retention(count=10, archive=False))
async def a_batch_is_trimmed_as_a_whole(b: LiveBench) -> None:
    """A trim happens in the act that makes it due, and leaves the newest entries with an honest floor."""
    scribe = await live(b)
    applied(await b.store.publish(scribe.write(30)))
    applied(await project(b, scribe, scribe.final(Status.FAILED)))
    seen = await view(b, scribe.feed)
    assert positions(seen) == list(range(25, 35))


@rule(retention=Retention(count=1_000, max_bytes=20 * 1024, archive=False))
async def bytes_are_bounded_always(b: LiveBench) -> None:
    """The byte bound holds on a live run without an archive too: the oldest go, with a hole."""
    scribe = await live(b)
    await publish(b, scribe, 100, payload={"t": KIB})
    marks = await _marks(b, scribe.feed)
    seen = await view(b, scribe.feed)
    assert marks.position == 103
    size = sum(len(entry.event.body) for entry in seen.entries)
    assert 12 * 1024 <= size <= 20 * 1024
    assert marks.floor == marks.position - len(seen.entries)


@rule(retention=Retention(count=1_000, max_bytes=20 * 1024, archive=True))
async def bytes_are_bounded_before_the_archive(b: LiveBench) -> None:
    """The byte bound does not wait for the archive either."""
    scribe = await live(b)
    applied(await b.store.publish(scribe.write(60, payload={"t": KIB})))
    marks = await _marks(b, scribe.feed)
    assert marks.floor >= 40
    assert marks.archived == 0


@rule(retention=Retention(count=10, max_bytes=20 * 1024, archive=True))
async def bytes_that_the_count_removed_count_no_more(b: LiveBench) -> None:
    """What is not archived and fits the byte bound stays, however much was removed before."""
    scribe = await live(b)
    marks = await _marks(b, scribe.feed)
    for _ in range(40):
        applied(await b.store.publish(scribe.write(1, payload={"t": KIB})))
        floor, marks = marks.floor, await _marks(b, scribe.feed)
        assert marks.floor == floor
        await b.store.archived(scribe.feed, scribe.epoch, max(0, marks.position - 10))
        marks = await _marks(b, scribe.feed)
        assert marks.floor == max(0, marks.position - 10)


@rule(retention=Retention(count=1_000, age=60.0))
async def old_entries_go_when_archived(b: LiveBench) -> None:
    """Entries older than the age are listed, and go once archived, at the next write or on request."""
    scribe, young = await live(b), await live(b)
    await publish(b, scribe, 7)
    await b.clock.advance(30)
    await publish(b, scribe, 5)
    assert await b.store.aged(10) == []
    await b.clock.advance(31)
    assert set(await b.store.aged(10)) == {scribe.feed, young.feed}
    assert len(await b.store.aged(1)) == 1
    await b.store.trim(scribe.feed)
    assert (await _marks(b, scribe.feed)).floor == 0
    await b.store.archived(scribe.feed, scribe.epoch, 15)
    assert (await _marks(b, scribe.feed)).floor == 10
    assert await b.store.aged(10) == [young.feed]
    await b.store.archived(young.feed, young.epoch, 3)
    assert (await _marks(b, young.feed)).floor == 3
    await b.clock.advance(31)
    assert await b.store.aged(10) == [scribe.feed]
    await b.store.trim(scribe.feed)
    marks = await _marks(b, scribe.feed)
    assert (marks.floor, marks.position) == (15, 15)
    assert await b.store.aged(10) == []
    await publish(b, scribe, 1)
    assert (await _marks(b, scribe.feed)).floor == 15
    await b.store.trim(Scribe(b.clock).feed)


@rule()
async def without_an_age_nothing_is_old(b: LiveBench) -> None:
    """Where no age is set, none is exceeded."""
    scribe = await live(b)
    await b.clock.advance(1_000_000)
    assert await b.store.aged(10) == []
    await b.store.archived(scribe.feed, scribe.epoch, 3)
    await b.store.trim(scribe.feed)
    assert (await _marks(b, scribe.feed)).floor == 0


@rule()
async def the_archive_mark_only_rises(b: LiveBench) -> None:
    """`archived` never lowers its mark, never passes the tip, and counts under the current epoch alone."""
    scribe = await live(b)
    await publish(b, scribe, 7)
    before = await view(b, scribe.feed)
    for epoch, position, wanted in (
        (scribe.epoch, 6, 6),
        (scribe.epoch, 4, 6),
        (scribe.epoch, 0, 6),
        (scribe.epoch - 1, 9, 6),
        (scribe.epoch + 1, 9, 6),
        (scribe.epoch, 99, 10),
    ):
        await b.store.archived(scribe.feed, epoch, position)
        assert (await _marks(b, scribe.feed)).archived == wanted
    after = await view(b, scribe.feed)
    assert (after.entries, after.snapshot) == (before.entries, before.snapshot)
    await publish(b, scribe, 1)
    assert (await _marks(b, scribe.feed)).archived == 10


@rule(retention=Retention(count=5))
async def what_is_not_archived_is_listed(b: LiveBench) -> None:
    """Feeds with entries that wait for the archive are listed, up to a limit; empty or archived ones are not."""
    scribes = [await live(b) for _ in range(3)]
    await opened(b)
    feeds = {scribe.feed for scribe in scribes}
    assert set(await b.store.unarchived(10)) == feeds
    assert len(await b.store.unarchived(2)) == 2
    await b.store.archived(scribes[0].feed, scribes[0].epoch, 2)
    assert set(await b.store.unarchived(10)) == feeds
    await b.store.archived(scribes[0].feed, scribes[0].epoch, 3)
    assert set(await b.store.unarchived(10)) == feeds - {scribes[0].feed}
    await publish(b, scribes[0], 1)
    assert set(await b.store.unarchived(10)) == feeds


@rule(retention=Retention(count=10))
async def a_removed_event_is_not_found(b: LiveBench) -> None:
    """What was removed has no place any more: `already` comes without one, `find` finds nothing."""
    scribe = await live(b)
    first = scribe.write(1)
    applied(await b.store.publish(first))
    await publish(b, scribe, 20)
    await b.store.archived(scribe.feed, scribe.epoch, 24)
    assert await b.store.find(scribe.feed, first.events[0].id) is None
    assert await b.store.publish(scribe.again(first)) == Already(None)
    assert await b.store.find(scribe.feed, f"{scribe.run_id}:1:21") == 24


@rule(timeline_ttl=60.0, snapshot_ttl=600.0)
async def a_final_run_expires_in_two_steps(b: LiveBench) -> None:
    """After the final fact the timeline goes first, leaving an honest floor, and the snapshot later."""
    scribe = await live(b)
    await publish(b, scribe, 7)
    applied(await project(b, scribe, scribe.final()))
    before = await view(b, scribe.feed)
    await b.clock.advance(59)
    assert await b.store.expire() == 0
    assert await view(b, scribe.feed) == before
    await b.clock.advance(2)
    assert await b.store.expire() == 1
    assert await b.store.expire() == 0
    seen = await view(b, scribe.feed)
    assert seen.entries == ()
    assert (seen.marks.floor, seen.marks.cursor) == (11, before.marks.cursor)
    assert seen.snapshot == before.snapshot
    assert await b.store.find(scribe.feed, f"{scribe.run_id}:1:1") is None
    assert await b.store.unarchived(10) == []
    await b.clock.advance(538)
    assert await b.store.expire() == 0
    await b.clock.advance(2)
    assert await b.store.expire() == 1
    assert await b.store.read(scribe.feed) is None
    assert await b.text.read_text(scribe.feed) == []
    assert await b.store.expire() == 0


@rule(timeline_ttl=60.0, snapshot_ttl=600.0)
async def a_run_that_goes_on_never_expires(b: LiveBench) -> None:
    """Nothing of a run expires before its final fact, however long it is quiet; the time runs from that fact."""
    scribe = await live(b)
    await publish(b, scribe, 2)
    await b.text.append(scribe.text(0, b"so far"))
    before = await view(b, scribe.feed)
    await b.clock.advance(1_000_000)
    assert await b.store.expire() == 0
    assert await view(b, scribe.feed) == before
    assert [part.data for part in await b.text.read_text(scribe.feed)] == [b"so far"]
    applied(await project(b, scribe, scribe.final()))
    await b.clock.advance(59)
    assert await b.store.expire() == 0
    await b.clock.advance(600)
    assert await b.store.expire() >= 1
    assert await b.store.read(scribe.feed) is None


@rule(timeline_ttl=60.0, snapshot_ttl=600.0)
async def a_rebuilt_projection_has_its_own_time(b: LiveBench) -> None:
    """What is opened anew does not expire by the clock of what stood there before."""
    scribe = await live(b)
    last = scribe.final()
    applied(await project(b, scribe, last))
    await b.store.drop(scribe.feed)
    again = Scribe(b.clock, scribe.run_id)
    again.epoch = scribe.epoch + 1
    applied(await b.store.open(again.opening()))
    await b.clock.advance(10_000)
    assert await b.store.expire() == 0
    assert await b.store.read(again.feed) is not None


@rule(timeline_ttl=60.0, snapshot_ttl=600.0, idle_ttl=1_000.0)
async def a_thread_or_topic_expires_when_left_alone(b: LiveBench) -> None:
    """What has no final fact goes, whole, its time after the last fact or the last viewer."""
    for feed in (Feed("thread", new_id(b.clock)), Feed("topic", "acme/inbox")):
        scribe = Scribe(b.clock)
        scribe.feed = feed
        applied(await b.store.open(scribe.opening()))
        await b.clock.advance(999)
        assert await b.store.expire() == 0
        applied(await project(b, scribe, scribe.fact("message_received")))
        for _ in range(2):
            await b.clock.advance(999)
            assert await b.store.expire() == 0
            await b.store.watched([feed])
        before = await view(b, feed)
        assert positions(before) == [1]
        await b.clock.advance(999)
        assert await b.store.expire() == 0
        assert await view(b, feed) == before
        await b.clock.advance(2)
        assert await b.store.expire() == 1
        assert await b.store.read(feed) is None
        assert await b.store.expire() == 0


@rule(timeline_ttl=60.0, snapshot_ttl=600.0, idle_ttl=1_000.0)
async def viewers_prolong_nothing_of_a_run(b: LiveBench) -> None:
    """A run's projection goes by its final fact alone, and what is not there stays so whoever watches."""
    scribe, nobody = await live(b), Feed("thread", new_id(b.clock))
    await b.clock.advance(10_000)
    assert await b.store.expire() == 0
    applied(await project(b, scribe, scribe.final()))
    await b.clock.advance(599)
    await b.store.watched([scribe.feed, nobody])
    assert await b.store.read(nobody) is None
    await b.clock.advance(2)
    assert await b.store.expire() >= 1
    assert await b.store.read(scribe.feed) is None


@rule()
async def a_dropped_projection_is_missing(b: LiveBench) -> None:
    """`drop` removes snapshot, timeline and text; with an epoch, only those of that epoch; twice is no error."""
    scribe = await live(b)
    await b.text.append(scribe.text(0, b"text"))
    before = await view(b, scribe.feed)
    for epoch in (scribe.epoch - 1, scribe.epoch + 1, 0):
        await b.store.drop(scribe.feed, epoch)
        assert await view(b, scribe.feed) == before
        assert len(await b.text.read_text(scribe.feed)) == 1
    for epochs in ((scribe.epoch,), (None,), (scribe.epoch,)):
        await b.store.drop(scribe.feed, *epochs)
        assert await b.store.read(scribe.feed) is None
        assert await b.text.read_text(scribe.feed) == []
        assert await b.store.stand([scribe.feed]) == {}
    assert await b.store.publish(scribe.write(1)) == NeedsRebuild(0)
    await b.store.drop(Feed("run", new_id(b.clock)))
    applied(await b.store.open(scribe.opening(0, epoch=scribe.epoch + 1)))
