"""The projection: the verdict on an attempt's write, and what an accepted one leads to."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from playhead.core import event
from playhead.core.cursor import Cursor
from playhead.core.ids import LIMIT, run_feed
from playhead.core.retention import Retention
from playhead.core.snapshot import State
from playhead.core.transition import (
    Already,
    Applied,
    Behind,
    Final,
    NeedsRebuild,
    Publish,
    Reply,
    Stale,
    StaleVersion,
    WrongEpoch,
)
from playhead.testing.check import LiveBench, Rules
from playhead.testing.ports.given import (
    HOSTILE,
    STRANGE,
    Scribe,
    applied,
    live,
    positions,
    project,
    publish,
    view,
)

rule: Rules[LiveBench] = Rules(retention=Retention(count=5_000), timeline_ttl=3_600.0, snapshot_ttl=86_400.0)


async def _refuses(b: LiveBench, write: Publish, reply: Reply) -> None:
    """The write gets this reply and changes nothing."""
    before = await b.store.read(write.feed, limit=10_000)
    assert await b.store.publish(write) == reply
    assert await b.store.read(write.feed, limit=10_000) == before


@rule()
async def events_and_state_become_visible_together(b: LiveBench) -> None:
    """An accepted write appends its events, sets the state and answers with the place behind them."""
    scribe = await live(b)
    await b.clock.advance(5)
    write = scribe.write(3, payload={"t": STRANGE}, state=State(title=STRANGE, progress=12.5))
    reply = applied(await b.store.publish(write))
    seen = await view(b, scribe.feed)
    assert [entry.event for entry in seen.entries[3:]] == list(write.events)
    assert [entry.tag for entry in seen.entries[3:]] == list(write.tags)
    assert positions(seen) == [1, 2, 3, 4, 5, 6]
    assert [entry.version for entry in seen.entries] == [2, 3, 4, 5, 6, 7]
    assert reply == Applied(Cursor(scribe.epoch, 6, write.tags[-1]), 7)
    assert (seen.marks.cursor, seen.marks.version) == (reply.cursor, reply.version)
    assert (seen.marks.n, seen.marks.state_version, seen.marks.rev, seen.marks.token) == (3, 1, 3, 1)
    assert (seen.snapshot.state, seen.snapshot.version, seen.snapshot.attempt) == (write.state, 7, 1)
    assert (seen.snapshot.heartbeat_at, seen.snapshot.updated_at) == (b.clock.wall_ms(), b.clock.wall_ms())


@rule()
async def events_alone_leave_the_state(b: LiveBench) -> None:
    """A write without a state keeps the one that is there; one without events moves no position."""
    scribe = await live(b)
    first = scribe.write(1, state=State(title="one"))
    applied(await b.store.publish(first))
    applied(await b.store.publish(scribe.write(2)))
    tip = (await view(b, scribe.feed)).marks
    second = scribe.write(0, state=State(title="two"))
    reply = applied(await b.store.publish(second))
    seen = await view(b, scribe.feed)
    assert (seen.snapshot.state, seen.marks.n, seen.marks.state_version) == (second.state, 3, 2)
    assert (reply.cursor, reply.version) == (tip.cursor, tip.version + 1)
    assert len(seen.entries) == 6


@rule()
async def a_missing_projection_is_rebuilt(b: LiveBench) -> None:
    """A write to no projection, or to one of an older epoch, needs a rebuild and makes nothing."""
    scribe = Scribe(b.clock)
    scribe.token = 1
    await _refuses(b, scribe.write(1, state=State()), NeedsRebuild(0))
    assert await b.store.read(scribe.feed) is None
    scribe = await live(b)
    newer = scribe.guard(epoch=scribe.epoch + 1)
    await _refuses(b, scribe.write(1, guard=newer), NeedsRebuild(scribe.epoch))


@rule()
async def the_first_reason_is_told(b: LiveBench) -> None:
    """Of several reasons the first counts: rebuild, epoch, went back, final, stale, behind, already, stale version."""
    scribe = await live(b)
    applied(await project(b, scribe, scribe.fact(event.ATTEMPT_STARTED)))
    old = scribe.write(1, state=State(title="old"))
    applied(await b.store.publish(old))
    epoch = scribe.epoch
    back = scribe.guard(acked_n=9, acked_state=9)
    await _refuses(b, replace(old, guard=replace(back, epoch=epoch - 1, token=1)), WrongEpoch(epoch))
    await _refuses(b, replace(old, guard=replace(back, epoch=epoch + 1, token=1)), NeedsRebuild(epoch))
    await _refuses(b, replace(old, guard=back), NeedsRebuild(epoch))
    await _refuses(b, replace(old, guard=replace(back, rev=99)), NeedsRebuild(epoch))
    await _refuses(b, replace(old, guard=scribe.guard(token=1, rev=99)), Stale(2))
    await _refuses(b, replace(old, guard=scribe.guard(token=1, rev=99, acked_n=9)), Stale(2))
    await _refuses(b, replace(old, guard=scribe.guard(token=3)), Behind(4))
    await _refuses(b, replace(old, guard=scribe.guard(token=3, acked_n=9)), Behind(4))
    await _refuses(b, replace(old, guard=scribe.guard(rev=5)), Behind(4))
    place = Cursor(epoch, 5, old.tags[0])
    await _refuses(b, scribe.again(old), Already(place))
    await _refuses(b, scribe.again(replace(old, state=None)), Already(place))
    await _refuses(b, replace(old, events=(), tags=()), StaleVersion(1))
    applied(await project(b, scribe, scribe.final()))
    await _refuses(b, replace(old, guard=replace(back, epoch=epoch - 1)), WrongEpoch(epoch))
    await _refuses(b, replace(old, guard=back), NeedsRebuild(epoch))
    for guard in (scribe.guard(token=1), scribe.guard(token=3), scribe.guard(rev=99), scribe.guard()):
        await _refuses(b, replace(old, guard=guard), Final())


@rule()
async def a_store_that_went_back_is_noticed(b: LiveBench) -> None:
    """A projection that lacks what was acknowledged to the attempt went back, whatever else is new in the write."""
    scribe = await live(b)
    applied(await b.store.publish(scribe.write(2, state=State(title="x"))))
    for fields in ({"acked_n": 3}, {"acked_state": 2}):
        write = scribe.write(1, state=State(title="y"), guard=scribe.guard(**fields))
        await _refuses(b, write, NeedsRebuild(scribe.epoch))
        scribe.n, scribe.state_version = 2, 1
    applied(await b.store.publish(scribe.write(1, guard=scribe.guard(acked_n=2, acked_state=1))))


@rule()
async def a_write_sent_again_is_stored_once(b: LiveBench) -> None:
    """A repeated write changes nothing and is told its place, while that is retained."""
    scribe = await live(b)
    writes = [scribe.write(2, state=State(progress=i)) for i in range(3)]
    places = [applied(await b.store.publish(write)).cursor for write in writes]
    for write, place in zip(writes, places, strict=True):
        for _ in range(2):
            await _refuses(b, scribe.again(write), Already(place))


@rule()
async def a_batch_known_in_part_is_completed(b: LiveBench) -> None:
    """Of a batch whose beginning arrived before, only the rest is added, in its place."""
    scribe = await live(b)
    whole = scribe.write(5)
    part = replace(whole, events=whole.events[:2], tags=whole.tags[:2])
    applied(await b.store.publish(part))
    again = scribe.again(whole)
    reply = applied(await b.store.publish(again))
    seen = await view(b, scribe.feed)
    assert [entry.event for entry in seen.entries[3:]] == list(whole.events)
    assert [entry.tag for entry in seen.entries[3:]] == [*part.tags, *again.tags[2:]]
    assert (reply.cursor, seen.marks.n) == (seen.marks.cursor, 5)


@rule()
async def a_known_batch_with_a_new_state_sets_the_state(b: LiveBench) -> None:
    """Events that are known do not keep a newer state from being set."""
    scribe = await live(b)
    write = scribe.write(2, state=State(title="one"))
    applied(await b.store.publish(write))
    newer = scribe.again(write, state=State(title="two").encode(), state_version=2)
    applied(await b.store.publish(newer))
    seen = await view(b, scribe.feed)
    assert (seen.snapshot.state, seen.marks.state_version, seen.marks.position) == (newer.state, 2, 5)


@rule()
async def an_old_state_is_refused_with_its_events(b: LiveBench) -> None:
    """A state that is not newer is refused whole: no event of that write is added either."""
    scribe = await live(b)
    applied(await b.store.publish(scribe.write(1, state=State(title="one"))))
    applied(await b.store.publish(scribe.write(1, state=State(title="two"))))
    for version in (0, 1, 2):
        await _refuses(b, replace(scribe.write(2, state=State(title="old")), state_version=version), StaleVersion(2))


@rule()
async def quick_writes_are_all_accepted(b: LiveBench) -> None:
    """A hundred writes within one instant are all newer than the one before: versions are numbers, not times."""
    scribe = await live(b)
    for i in range(100):
        applied(await b.store.publish(scribe.write(1, state=State(done=i))))
    b.clock.step_wall(-3600)
    last = scribe.write(1, state=State(done=100))
    applied(await b.store.publish(last))
    seen = await view(b, scribe.feed)
    assert (seen.marks.state_version, seen.marks.position, seen.snapshot.state) == (101, 104, last.state)
    await _refuses(b, replace(scribe.write(0, state=State(done=7)), state_version=100), StaleVersion(101))


@rule()
async def only_an_attempt_start_sets_the_token(b: LiveBench) -> None:
    """No publish brings a token in: a higher one waits for its `attempt_started`, after which the lower is stale."""
    scribe = await live(b)
    old = scribe.write(1)
    ahead = replace(scribe.write(1), guard=scribe.guard(token=2))
    for _ in range(3):
        await _refuses(b, ahead, Behind(3))
    applied(await b.store.publish(old))
    applied(await project(b, scribe, scribe.fact(event.ATTEMPT_STARTED)))
    seen = await view(b, scribe.feed)
    assert (seen.marks.token, seen.marks.n, seen.marks.state_version, seen.snapshot.attempt) == (2, 0, 0, 2)
    await _refuses(b, old, Stale(2))
    await _refuses(b, replace(scribe.write(1, state=State()), guard=scribe.guard(token=1)), Stale(2))
    scribe.n = scribe.state_version = 0
    applied(await b.store.publish(scribe.write(1, state=State())))
    assert (await view(b, scribe.feed)).marks.n == 1


@rule()
async def tokens_are_compared_exactly(b: LiveBench) -> None:
    """The largest numbers are told apart by one: no comparison goes through a float or a text."""
    for high in (9, 99, 999, LIMIT - 2):
        scribe = Scribe(b.clock)
        scribe.token, scribe.rev = high, 1
        applied(await b.store.open(scribe.opening()))
        write = scribe.write(1)
        await _refuses(b, replace(write, guard=scribe.guard(token=high + 1)), Behind(1))
        await _refuses(b, replace(write, guard=scribe.guard(token=high - 1)), Stale(high))
        applied(await b.store.publish(write))


@rule()
async def numbers_pass_every_digit_border(b: LiveBench) -> None:
    """Positions, n and versions go on over 9/10, 99/100 and 999/1000, and a reader at each border goes on there."""
    scribe = await live(b)
    for i in range(1, 1_020):
        applied(await b.store.publish(scribe.write(1, state=State(done=i))))
    whole = await view(b, scribe.feed)
    assert positions(whole) == list(range(1, 1_023))
    for border in (9, 10, 99, 100, 999, 1_000, 1_001):
        seen = await view(b, scribe.feed, after=border, limit=3)
        assert positions(seen) == [border + 1, border + 2, border + 3]
        seen = await view(b, scribe.feed, before=border, limit=3)
        assert positions(seen) == [border - 3, border - 2, border - 1]
        assert await b.store.find(scribe.feed, event.published(scribe.run_id, 1, border, "x", 0, 0).id) == border + 3


@rule()
async def an_n_may_be_left_out(b: LiveBench) -> None:
    """An attempt that had to drop writes goes on with a later n; positions stay contiguous."""
    scribe = await live(b)
    applied(await b.store.publish(scribe.write(1)))
    scribe.n += 5
    late = scribe.write(1)
    applied(await b.store.publish(late))
    seen = await view(b, scribe.feed)
    assert (seen.marks.n, positions(seen)) == (7, [1, 2, 3, 4, 5])


@rule()
async def publishers_at_once_leave_one_chain(b: LiveBench) -> None:
    """Concurrent writes to many feeds, each sent twice, leave every timeline whole and every event once."""
    scribes = [await live(b) for _ in range(5)]

    async def work(scribe: Scribe) -> None:
        for _ in range(10):
            write = scribe.write(2, state=State(title=scribe.run_id))
            replies = await asyncio.gather(b.store.publish(write), b.store.publish(scribe.again(write)))
            assert sorted(type(reply).__name__ for reply in replies) == ["Already", "Applied"]

    await asyncio.gather(*map(work, scribes))
    for scribe in scribes:
        seen = await view(b, scribe.feed)
        ids = [entry.event.id for entry in seen.entries[3:]]
        assert ids == [f"{scribe.run_id}:1:{n}" for n in range(1, 21)]


@rule()
async def feeds_are_apart(b: LiveBench) -> None:
    """What happens to one feed is not seen in another, and a feed that nobody made is not there."""
    one, two = await live(b), await live(b)
    await publish(b, one, 3)
    before = await view(b, two.feed)
    applied(await project(b, one, one.final()))
    await b.store.drop(one.feed)
    assert await view(b, two.feed) == before
    for text in HOSTILE:
        feed = run_feed(text)
        assert await b.store.read(feed) is None
        assert await b.store.find(feed, text) is None
        assert await b.store.find(two.feed, text) is None
        assert await b.text.read_text(feed) == []
        assert await b.store.stand([feed]) == {}
        await b.store.drop(feed)
        await b.store.trim(feed)
        await b.store.archived(feed, two.epoch, 9)
    assert await view(b, two.feed) == before


@rule()
async def a_rebuilt_attempt_goes_on(b: LiveBench) -> None:
    """After a rebuild the attempt's next write is accepted with its n as it stands, under the new epoch alone."""
    scribe = await live(b)
    await publish(b, scribe, 3, state=State(title="before"))
    old = scribe.write(1)
    seen = scribe.epoch
    scribe.epoch += 1_000
    applied(await b.store.open(scribe.opening(seen)))
    await _refuses(b, old, WrongEpoch(scribe.epoch))
    reply = applied(await b.store.publish(replace(old, guard=scribe.guard())))
    assert reply.cursor.position == 1
