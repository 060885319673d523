"""The archiver: its order, its bounds, and what it does about feeds that cannot be read."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from playhead.core import event
from playhead.core.ids import run_feed
from playhead.core.interrupt import Question
from playhead.core.retention import Retention
from playhead.core.run import Outcome, Status
from playhead.runtime.archiver import Archiver
from tests.runtime.bench import bench
from tests.runtime.whole import Held, plant

pytestmark = pytest.mark.anyio


async def test_a_feed_that_cannot_be_read_keeps_no_other_waiting(caplog: pytest.LogCaptureFixture) -> None:
    async with bench() as b:
        bad, good = await b.attempt(), await b.attempt()
        archiver = Archiver(b.record, b.record, b.live, b.clock)
        read = b.live.read

        async def broken(feed: Any, **window: Any) -> Any:
            if feed == bad.feed:
                raise RuntimeError("?")
            return await read(feed, **window)

        plant(b.live, "read", broken)
        assert await archiver.round() is False  # and it does not begin again at once
        assert len(await b.record.read(good.feed, None, 10)) == 3
        assert await b.record.read(bad.feed, None, 10) == []
        assert "cannot be archived" in caplog.text


async def test_all_facts_are_saved_however_many() -> None:
    async with bench() as b:
        attempt = await b.attempt()
        for number in range(600):
            question = Question(f"q{number}", "approval", b'{"title":"?"}', None)
            await b.record.ask(attempt.run.id, attempt.run.token, question, f"i{number}", None)
        run = await b.get(attempt.run)
        await Archiver(b.record, b.record, b.live, b.clock).save(run)
        found = [event.id for event, _ in await b.record.read(attempt.feed, None, 1_000)]
        assert found == [f"run:{run.id}:{rev}" for rev in range(1, run.rev + 1)]


async def test_facts_that_are_newer_than_the_run_as_it_was_read_are_left_to_others() -> None:
    async with bench() as b:
        attempt = await b.attempt()
        before = await b.get(attempt.run)
        await attempt.ask()
        b.live.lose()
        await Archiver(b.record, b.record, b.live, b.clock).save(before)
        assert len(await b.record.read(attempt.feed, None, 10)) == before.rev


async def test_a_timeline_does_not_tell_the_archive_what_the_record_said() -> None:
    """The record was restored from a backup: the timeline knows facts that it does not have, and others that it has
    written since."""
    async with bench() as b:
        attempt = await b.attempt()
        await attempt.publish()
        await attempt.ask()
        await attempt.ask("again")
        file = b.record._files[attempt.run.id]
        for rev in (4, 5):
            del file.facts[rev]
        file.run = replace(file.run, rev=3, status=Status.RUNNING)
        file.interrupts.clear()
        await b.record.request_cancel("acme", attempt.run.id, "ann", None)
        await Archiver(b.record, b.record, b.live, b.clock).run(attempt.run.id)
        found = await b.record.read(attempt.feed, None, 10)
        assert [event.type for event, _ in found][3:] == ["step_done", "cancel_requested"]


async def test_nothing_is_archived_of_a_run_that_the_record_does_not_have() -> None:
    async with bench() as b:
        attempt = await b.attempt()
        del b.record._files[attempt.run.id]
        await Archiver(b.record, b.record, b.live, b.clock).run(attempt.run.id)
        assert await b.record.read(attempt.feed, None, 10) == []
        assert await b.live.unarchived(10) == []


async def test_a_run_that_is_erased_through_another_process_meanwhile_stays_erased() -> None:
    """Also if none of what waited is a fact, which the archiver would look up in the record."""
    async with bench() as b:
        attempt = await b.attempt()
        archiver = Archiver(b.record, b.record, b.live, b.clock)
        await archiver.run(attempt.run.id)
        await attempt.publish(3)
        read, erased = b.live.read, asyncio.Event()

        async def late(feed: Any, **window: Any) -> Any:
            view = await read(feed, **window)
            if not erased.is_set():
                erased.set()
                await b.record.finish(attempt.run.id, attempt.run.token, Outcome(Status.SUCCEEDED))
                assert await b.record.delete("acme", attempt.run.id)
            return view

        plant(b.live, "read", late)
        await archiver.run(attempt.run.id)
        assert erased.is_set()
        assert await b.record.read(attempt.feed, None, 10) == []
        assert await b.live.unarchived(10) == []


async def test_one_feed_is_archived_by_one_at_a_time() -> None:
    """Also when the one that waited comes in just as another one asks."""
    async with bench() as b:
        attempt = await b.attempt()
        archiver = Archiver(b.record, b.record, b.live, b.clock)
        inside = 0
        append = b.record.append

        async def one_by_one(*args: Any) -> str | None:
            nonlocal inside
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            newest = await append(*args)
            inside -= 1
            return newest

        plant(b.record, "append", one_by_one)

        async def follow() -> None:
            for _ in range(10):
                await attempt.publish()
                await archiver.run(attempt.run.id)

        await asyncio.gather(*(archiver.run(attempt.run.id) for _ in range(3)), follow(), follow())
        held = await b.live.read(run_feed(attempt.run.id), limit=100)
        assert held is not None
        archived = [event.id for event, _ in await b.record.read(attempt.feed, None, 100)]
        assert archived == [entry.event.id for entry in held.entries]
        assert not archiver._turns._locks


async def test_who_holds_a_feed_alone_waits_for_the_archiver_and_holds_it_up() -> None:
    async with bench() as b:
        attempt = await b.attempt()
        archiver = Archiver(b.record, b.record, b.live, b.clock)
        read = Held(b.live, "read")
        archiving = asyncio.create_task(archiver.run(attempt.run.id))
        await read.done.wait()
        entered = asyncio.Event()

        async def alone() -> None:
            async with archiver.alone(attempt.feed):
                entered.set()

        waiting = asyncio.create_task(alone())
        await asyncio.sleep(0.02)
        assert not entered.is_set()
        read.go.set()
        await asyncio.gather(archiving, waiting)


async def test_what_was_trimmed_before_it_was_archived_does_not_come_behind_what_followed() -> None:
    """The record gives the facts of the hole whenever it is asked to; the archive keeps the order of their coming."""
    async with bench(retention=Retention(count=1, archive=True)) as b:
        attempt = await b.attempt()
        await attempt.ask()
        await attempt.publish(6)  # four times what is kept: the facts are trimmed, and were not archived
        archiver = Archiver(b.record, b.record, b.live, b.clock)
        await archiver.feed(attempt.feed)
        run = await attempt.finish()
        await archiver.save(await b.get(run))
        found = [event.id for event, _ in await b.record.read(attempt.feed, None, 100)]
        facts = [f"run:{run.id}:{rev}" for rev in range(1, run.rev + 1)]
        assert [one for one in found if one in facts] == facts
        published = [one for one in found if one not in facts]
        assert published
        assert found.index(facts[3]) < found.index(published[0]) < found.index(facts[4])


async def test_a_live_store_that_went_back_to_before_the_end_puts_nothing_behind_it() -> None:
    async with bench() as b:
        attempt = await b.attempt()
        archiver = Archiver(b.record, b.record, b.live, b.clock)
        await attempt.publish(2)
        before = b.live.copy()
        b.live.lose()
        run = await attempt.finish()
        await archiver.save(await b.get(run))
        b.live.restore(before)
        await archiver.feed(attempt.feed)
        found = [event.type for event, _ in await b.record.read(attempt.feed, None, 100)]
        assert found[-1] == "run_succeeded"
        assert found.count("run_succeeded") == 1
        assert await b.live.unarchived(10) == []  # nothing waits for what will not come


async def test_what_a_fact_took_along_is_archived_before_it_when_the_timeline_lacks_it() -> None:
    """The live store went back between the two, or the fact came to it out of its turn."""
    async with bench() as b:
        attempt = await b.attempt()
        run = attempt.run
        last = tuple(event.published(run.id, run.token, n, "step_done", {}, 0) for n in (1, 2))
        await b.record.finish(run.id, run.token, Outcome(Status.SUCCEEDED, lacking=last, published=2))
        page = await b.record.facts(attempt.feed, 0, 100)
        assert page is not None
        await b.live.fact(page.run.epoch, page.facts[-1], b.projector.tag())
        await Archiver(b.record, b.record, b.live, b.clock).feed(attempt.feed)
        found = [one.id for one, _ in await b.record.read(attempt.feed, None, 100)]
        facts = [f"run:{run.id}:{rev}" for rev in range(1, 5)]
        assert found == [*facts[:3], *(one.id for one in last), facts[3]]


async def test_an_archiver_of_another_process_that_is_late_puts_nothing_out_of_order() -> None:
    """It has read the timeline. That is lost, and who rebuilds it archives what the record has, before the first one
    goes on with what it read."""
    async with bench() as b:
        attempt = await b.attempt()
        here, there = (Archiver(b.record, b.record, b.live, b.clock) for _ in range(2))
        await here.run(attempt.run.id)
        await attempt.publish(2)
        await attempt.ask()
        read = Held(b.live, "read")
        late = asyncio.create_task(here.run(attempt.run.id))
        await read.done.wait()
        await b.clock.advance(3)
        b.live.lose()
        b.projector.before_empty = there.save
        await b.bring(attempt.run)
        read.go.set()
        await late
        await attempt.publish()
        await asyncio.gather(here.run(attempt.run.id), there.run(attempt.run.id))
        found = [event.id for event, _ in await b.record.read(attempt.feed, None, 100)]
        facts = [f"run:{attempt.run.id}:{rev}" for rev in range(1, 5)]
        assert found == [*facts, f"{attempt.run.id}:1:3"]


async def test_archivers_of_several_processes_keep_one_order() -> None:
    async with bench() as b:
        attempt = await b.attempt()
        archivers = [Archiver(b.record, b.record, b.live, b.clock) for _ in range(3)]
        append, refused = b.record.append, 0

        async def slowly(*args: Any) -> str | None:
            nonlocal refused
            await asyncio.sleep(0)
            newest = await append(*args)
            refused += newest is None
            return newest

        plant(b.record, "append", slowly)
        for _ in range(10):
            await attempt.publish(2)
            await attempt.ask(f"q{attempt.n}")
            await asyncio.gather(*(one.run(attempt.run.id) for one in archivers))
        assert refused
        held = await b.live.read(attempt.feed, limit=100)
        assert held is not None
        archived = [event.id for event, _ in await b.record.read(attempt.feed, None, 100)]
        assert archived == [entry.event.id for entry in held.entries]
