"""The record: facts and their outbox, epochs, the audit trail, and erasing."""

from __future__ import annotations

import asyncio

from playhead.core import event
from playhead.core.ids import EVERY_TENANT, Feed, run_feed
from playhead.core.repair import MINT_GUARD_MS
from playhead.core.run import Run
from playhead.errors import RunNotFree
from playhead.testing.check import RecordBench, Rules, refused
from playhead.testing.ports.given import (
    AGENT,
    DONE,
    TENANT,
    TTL_MS,
    YES,
    asked,
    facts,
    get,
    new_id,
    new_run,
    queued,
    running,
    taken_over,
)

rule: Rules[RecordBench] = Rules()


@rule()
async def facts_are_numbered_without_a_gap(b: RecordBench) -> None:
    """A feed's facts are contiguous from 1, each as it was written, and a page of them comes with the run."""
    run = await running(b)
    one = await asked(b, run)
    await b.store.decide(TENANT, run.id, one.id, YES, "ann")
    await b.store.finish(run.id, 1, DONE)
    told = await facts(b, run)
    assert [fact.event.type for fact in told] == [
        event.RUN_QUEUED,
        event.RUN_STARTED,
        event.ATTEMPT_STARTED,
        event.APPROVAL_REQUIRED,
        event.APPROVAL_DECIDED,
        event.RUN_SUCCEEDED,
    ]
    assert [fact.feed for fact in told] == [run_feed(run.id)] * 6
    page = await b.store.facts(run_feed(run.id), 2, limit=2)
    assert page is not None
    assert (page.facts, page.oldest_rev, page.run) == (tuple(told[2:4]), 1, await get(b, run))
    page = await b.store.facts(run_feed(run.id), 6)
    assert page is not None
    assert (page.facts, page.run.rev) == ((), 6)
    assert await b.store.facts(run_feed(new_id(b.clock)), 0) is None


@rule()
async def facts_stay_contiguous_under_load(b: RecordBench) -> None:
    """Concurrent changes of one run number their facts one after the other."""
    run = await running(b)
    await asyncio.gather(*(asked(b, run, f"q{i}") for i in range(20)))
    assert len(await facts(b, run)) == 23
    assert len(await b.store.interrupts(TENANT, run.id)) == 20


@rule()
async def the_outbox_holds_what_is_not_projected(b: RecordBench) -> None:
    """A feed is in the outbox until all its facts are settled under the current epoch, the longest waiting first."""
    runs = [await queued(b) for _ in range(3)]
    feeds = [run_feed(run.id) for run in runs]
    assert await b.store.outbox(10) == feeds
    assert await b.store.outbox(2) == feeds[:2]
    await b.store.settle(feeds[0], runs[0].epoch, 1)
    assert await b.store.outbox(10) == feeds[1:]
    await b.store.beat("p1", TTL_MS, ())
    await b.store.claim(TENANT, runs[0].id, "p1")
    assert await b.store.outbox(10) == [*feeds[1:], feeds[0]]
    await b.store.settle(feeds[0], runs[0].epoch, 2)
    assert feeds[0] in await b.store.outbox(10)
    await b.store.settle(feeds[0], runs[0].epoch, 3)
    await b.store.settle(feeds[0], runs[0].epoch, 1)
    assert await b.store.outbox(10) == feeds[1:]


@rule()
async def settling_counts_under_the_current_epoch_only(b: RecordBench) -> None:
    """What was projected under an epoch that is over is not settled, and a new epoch unsettles what was."""
    run = await queued(b)
    feed = run_feed(run.id)
    for epoch in (0, run.epoch - 1, run.epoch + 1):
        await b.store.settle(feed, epoch, 1)
        assert await b.store.outbox(10) == [feed]
    await b.store.settle(feed, run.epoch, 1)
    assert await b.store.outbox(10) == []
    minted = await b.store.mint_epoch(feed, run.epoch)
    assert minted is not None
    assert await b.store.outbox(10) == [feed]
    await b.store.settle(feed, run.epoch, 1)
    assert await b.store.outbox(10) == [feed]
    await b.store.settle(feed, minted.epoch, 1)
    assert await b.store.outbox(10) == []
    await b.store.settle(feed, run.epoch, 1)
    assert await b.store.outbox(10) == []
    await b.store.settle(run_feed(new_id(b.clock)), run.epoch, 1)


@rule()
async def epochs_only_grow(b: RecordBench) -> None:
    """Each epoch is higher than the last, also when the clock went back; the run comes as of that moment."""
    run = await queued(b)
    feed = run_feed(run.id)
    seen = run.epoch
    for step in (0, 1, -86_400, 0, 86_400):
        b.clock.step_wall(step)
        minted = await b.store.mint_epoch(feed, seen)
        assert minted is not None
        assert minted.epoch > seen
        assert minted == await get(b, run)
        seen = minted.epoch
    assert (await get(b, run)).rev == 1


@rule()
async def an_epoch_not_opened_blocks_the_next(b: RecordBench) -> None:
    """While an epoch is young and the rebuilder does not see it opened, no other is minted; later, one is."""
    run = await queued(b)
    feed = run_feed(run.id)
    first = await b.store.mint_epoch(feed, run.epoch)
    assert first is not None
    for seen in (0, run.epoch):
        assert await b.store.mint_epoch(feed, seen) is None
    await b.clock.advance(MINT_GUARD_MS / 1000 - 0.001)
    assert await b.store.mint_epoch(feed, run.epoch) is None
    assert (await get(b, run)).epoch == first.epoch
    await b.clock.advance(0.001)
    second = await b.store.mint_epoch(feed, run.epoch)
    assert second is not None
    third = await b.store.mint_epoch(feed, second.epoch)
    assert third is not None
    b.clock.step_wall(-3600)
    assert await b.store.mint_epoch(feed, 0) is not None


@rule()
async def one_of_many_rebuilders_gets_the_epoch(b: RecordBench) -> None:
    """Concurrent rebuilders that see the same get one epoch between them."""
    run = await queued(b)
    got = await asyncio.gather(*(b.store.mint_epoch(run_feed(run.id), run.epoch) for _ in range(10)))
    assert len([one for one in got if one is not None]) == 1


@rule()
async def a_new_epoch_passes_what_was_seen(b: RecordBench) -> None:
    """A projection that is ahead of the record, because the record was restored, can be replaced all the same."""
    run = await queued(b)
    await b.clock.advance(5)
    ahead = b.clock.wall_ms() + 1_000_000
    minted = await b.store.mint_epoch(run_feed(run.id), ahead)
    assert minted is not None
    assert minted.epoch > ahead


@rule()
async def there_is_no_epoch_for_what_is_over(b: RecordBench) -> None:
    """No epoch is minted for a final run, for no run, or for a feed that is no run."""
    run = await running(b)
    await b.store.finish(run.id, 1, DONE)
    await b.clock.advance(60)
    for feed in (run_feed(run.id), run_feed(new_id(b.clock)), Feed("topic", "acme/inbox"), Feed("thread", run.id)):
        assert await b.store.mint_epoch(feed, run.epoch) is None
    assert (await get(b, run)).epoch == run.epoch


@rule()
async def listeners_hear_every_fact(b: RecordBench) -> None:
    """Facts of the wanted types come in the order of their writing until they are noted as heard."""
    runs = [await running(b) for _ in range(2)]
    await b.store.finish(runs[1].id, 1, DONE)
    await b.store.finish(runs[0].id, 1, DONE)
    wanted = [event.RUN_SUCCEEDED, event.RUN_STARTED]
    told = await b.store.unheard(wanted, 10)
    assert [(fact.feed.id, fact.event.type) for fact in told] == [
        (runs[0].id, event.RUN_STARTED),
        (runs[1].id, event.RUN_STARTED),
        (runs[1].id, event.RUN_SUCCEEDED),
        (runs[0].id, event.RUN_SUCCEEDED),
    ]
    stored = [*await facts(b, runs[0]), *await facts(b, runs[1])]
    assert all(fact in stored for fact in told)
    assert await b.store.unheard(wanted, 2) == told[:2]
    assert await b.store.unheard([event.RUN_FAILED], 10) == []
    assert await b.store.unheard([], 10) == []
    for _ in range(2):
        await b.store.heard([(told[0].feed, told[0].rev), (told[2].feed, told[2].rev)])
        assert await b.store.unheard(wanted, 10) == [told[1], told[3]]
    await b.store.heard([])
    await b.store.heard([(run_feed(new_id(b.clock)), 1)])


@rule()
async def one_process_tells_a_fact(b: RecordBench) -> None:
    """A fact that is held for one holder is given to no other until that is over, or it is heard."""
    for _ in range(3):
        await running(b)
    wanted = [event.RUN_STARTED]
    all_of_them = await b.store.unheard(wanted, 10)
    assert await b.store.unheard(wanted, 1, "one", 10_000) == all_of_them[:1]
    assert await b.store.unheard(wanted, 10, "other") == all_of_them[1:]
    assert await b.store.unheard(wanted, 10, "one") == all_of_them
    assert await b.store.unheard(wanted, 10, "other", 10_000) == all_of_them[1:]
    assert await b.store.unheard(wanted, 10, "one", 10_000) == all_of_them[:1]
    await b.clock.advance(6)
    assert await b.store.unheard(wanted, 1, "one", 10_000) == all_of_them[:1]
    await b.clock.advance(6)
    assert await b.store.unheard(wanted, 10, "third") == all_of_them[1:]
    assert await b.store.unheard(wanted, 10, "one") == all_of_them
    await b.store.heard([(all_of_them[0].feed, all_of_them[0].rev)])
    assert await b.store.unheard(wanted, 10, "one") == all_of_them[1:]
    taken = [await b.store.unheard(wanted, 10, name, 10_000) for name in ("third", "fourth")]
    assert taken == [all_of_them[1:], []]


@rule()
async def settled_facts_are_pruned(b: RecordBench) -> None:
    """Facts that are settled and older than the bound go; the others stay, and numbering goes on."""
    run, other = await queued(b), await queued(b)
    feed = run_feed(run.id)
    await b.store.settle(feed, run.epoch, 1)
    await b.clock.advance(10)
    await b.store.beat("p1", TTL_MS, ())
    await b.store.claim(TENANT, run.id, "p1")
    await b.store.settle(feed, run.epoch, 2)
    assert await b.store.prune(b.clock.wall_ms() - 60_000) == 0
    assert await b.store.prune(b.clock.wall_ms() - 5_000) == 1
    page = await b.store.facts(feed, 0)
    assert page is not None
    assert ([fact.rev for fact in page.facts], page.oldest_rev) == ([2, 3], 2)
    await b.clock.advance(100)
    assert await b.store.prune(b.clock.wall_ms()) == 1
    await b.store.settle(feed, run.epoch, 3)
    assert await b.store.prune(b.clock.wall_ms()) == 1
    page = await b.store.facts(feed, 0)
    assert page is not None
    assert (page.facts, page.oldest_rev, page.run.rev) == ((), None, 3)
    assert len(await facts(b, other)) == 1
    await b.store.beat("p1", TTL_MS, [(run.id, 1)])
    assert (await b.store.finish(run.id, 1, DONE)).rev == 4
    page = await b.store.facts(feed, 3)
    assert page is not None
    assert ([fact.rev for fact in page.facts], page.oldest_rev) == ([4], 4)


@rule()
async def the_audit_trail_keeps_what_was_noted(b: RecordBench) -> None:
    """Notes are kept in order, of this run and tenant only; a token must be the latest."""
    run = await taken_over(b)
    other = await running(b)
    for i in range(3):
        await b.clock.advance(1)
        await b.store.note(TENANT, run.id, 2 if i % 2 else None, "tool_called", f"u{i}", b'{"i":%d}' % i)
    await b.store.note(TENANT, other.id, 1, "tool_called", "x", b"{}")
    noted = [one for one in await b.store.audit(TENANT, run.id) if one.kind == "tool_called"]
    assert [(one.run_id, one.actor, one.data) for one in noted] == [
        (run.id, f"u{i}", b'{"i":%d}' % i) for i in range(3)
    ]
    assert noted[-1].at == b.clock.wall_ms()
    assert noted[0].at < noted[1].at < noted[2].at
    assert len(await b.store.audit(TENANT, run.id, limit=2)) == 2


@rule()
async def erasing_leaves_nothing(b: RecordBench) -> None:
    """A final run is erased with its facts, questions, notes, key and archive; others stay; a live one is refused."""
    run = await running(b, scope="ann", dedupe="k1")
    other = await running(b)
    feed = run_feed(run.id)
    one = await asked(b, run)
    await b.store.decide(TENANT, run.id, one.id, YES, "ann")
    await b.store.note(TENANT, run.id, None, "viewed", "ann", b"{}")
    with refused(RunNotFree):
        await b.store.delete(TENANT, run.id)
    await b.store.finish(run.id, 1, DONE)
    for kept in (run, other):
        entry = event.published(kept.id, 1, 1, "step_done", {}, 0)
        await b.archive.append(run_feed(kept.id), [(entry, 4)], None)
    assert await b.store.delete("other", run.id) is False
    assert await b.store.delete(TENANT, run.id) is True
    assert await b.store.delete(TENANT, run.id) is False
    assert await b.store.get(EVERY_TENANT, run.id) is None
    assert [one.id for one in await b.store.list_runs(EVERY_TENANT)] == [other.id]
    assert await b.store.facts(feed, 0) is None
    assert feed not in await b.store.outbox(10)
    assert {fact.feed for fact in await b.store.unheard([event.RUN_QUEUED, event.RUN_SUCCEEDED], 10)} == {
        run_feed(other.id)
    }
    assert await b.store.interrupts(TENANT, open_only=False) == []
    assert await b.store.audit(EVERY_TENANT, run.id) == []
    assert await b.archive.read(feed, None, 10) == []
    assert len(await b.archive.read(run_feed(other.id), None, 10)) == 1
    again, is_new = await b.store.create(new_run(b.clock, scope="ann", dedupe="k1", digest="other"))
    assert is_new
    assert again.id != run.id


@rule()
async def what_was_erased_is_not_archived_any_more(b: RecordBench) -> None:
    """Who looked at the archive before the run was erased adds nothing to it; nor does who adds in that moment."""
    for _ in range(15):
        run = await running(b)
        feed = run_feed(run.id)
        entry = event.published(run.id, 1, 1, "step_done", {}, 0)
        await b.store.finish(run.id, 1, DONE)
        _, erased = await asyncio.gather(b.archive.append(feed, [(entry, 4)], None), b.store.delete(TENANT, run.id))
        assert erased
        assert await b.archive.append(feed, [(entry, 4)], None) is None
        assert await b.archive.read(feed, None, 10) == []


@rule()
async def a_whole_life_of_many_runs_at_once(b: RecordBench) -> None:
    """Many runs going through their lives side by side do not disturb each other."""
    runs = [await queued(b) for _ in range(10)]

    async def live(process: str) -> list[Run]:
        ended: list[Run] = []
        await b.store.beat(process, TTL_MS, ())
        while got := await b.store.acquire(process, [AGENT], 1):
            run = got[0]
            one = await asked(b, run)
            await b.store.decide(TENANT, run.id, one.id, YES, "ann")
            ended.append(await b.store.finish(run.id, run.token, DONE))
        return ended

    ended = [run for some in await asyncio.gather(*(live(f"p{i}") for i in range(4))) for run in some]
    assert sorted(run.id for run in ended) == sorted(run.id for run in runs)
    for run in ended:
        assert len(await facts(b, run)) == 6


@rule()
async def closing_twice_is_no_error(b: RecordBench) -> None:
    """A store that is closed can be closed again."""
    await b.store.close()
    await b.store.close()
