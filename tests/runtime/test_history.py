"""A run's older events, and what is said of a hole in them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from playhead.core.ids import run_feed
from playhead.core.retention import Retention
from playhead.core.run import Policy, Run, Status
from playhead.errors import StoreUnavailable
from playhead.runtime.archiver import Archiver
from playhead.runtime.history import unbroken, unshown
from tests.runtime.bench import Bench, bench
from tests.runtime.whole import Faulty

pytestmark = pytest.mark.anyio

RESUMABLE = Policy(resumable=True)


@asynccontextmanager
async def archiving(**how: Any) -> AsyncIterator[Bench]:
    """A bench whose archive takes what there is before a timeline is emptied."""
    async with bench(**how) as b:
        b.projector.before_empty = Archiver(b.record, b.record, b.live, b.clock).save
        yield b


async def archive(b: Bench, run: Run) -> None:
    await Archiver(b.record, b.record, b.live, b.clock).run(run.id)


async def pages(b: Bench, run: Run, limit: int) -> list[dict[str, Any]]:
    """The bootstrap and then every older page, newest first, each with its events and what it says of them."""
    found = await b.get(run)
    shown = [json.loads((await b.screens.bootstrap(found, limit)).body)]
    while shown[-1]["timeline"]["has_older"]:
        shown.append(json.loads(await b.screens.earlier(found, shown[-1]["timeline"]["oldest"], limit)))
    return shown


def complete(shown: list[dict[str, Any]]) -> list[bool]:
    return [one["timeline"]["complete"] for one in shown]


async def test_the_newest_events_of_a_run_that_were_lost_after_its_end_are_known_to_lack() -> None:
    """The live store is lost before the archiver comes by again; nothing that is left follows what is gone."""
    async with archiving() as b:
        attempt = await b.attempt()
        await attempt.publish(2)
        await archive(b, attempt.run)
        await attempt.publish(3)
        run = await attempt.finish()
        assert complete(await pages(b, run, 50)) == [True]
        b.live.lose()
        [shown] = await pages(b, run, 50)
        assert [event["id"] for event in shown["events"]][-3:] == [f"{run.id}:1:1", f"{run.id}:1:2", f"run:{run.id}:4"]
        assert shown["timeline"]["complete"] is False
        newest = json.loads(await b.screens.earlier(await b.get(run), None, 50))
        assert (newest["events"], newest["timeline"]) == (shown["events"], shown["timeline"])
        await archive(b, run)
        for limit in range(1, 8):
            # Also the page that has no other event of this attempt says so: the next one ends where all is well.
            assert complete(await pages(b, run, limit))[0] is False


async def test_the_newest_events_of_a_run_that_were_lost_before_its_end_are_known_to_lack() -> None:
    async with archiving() as b:
        attempt = await b.attempt()
        await attempt.publish(3)
        await b.clock.advance(3)
        b.live.lose()
        await b.bring(attempt.run)
        run = await attempt.finish()
        for lost in (False, True):
            if lost:
                b.live.lose()
            for limit in (1, 2, 50):
                assert complete(await pages(b, run, limit))[0] is False
            await archive(b, run)


@pytest.mark.parametrize("told", ["released", "asked"])
async def test_the_newest_events_of_an_earlier_attempt_that_were_lost_are_known_to_lack(told: str) -> None:
    """An attempt that gave the run back said how many there were; one that was lost had said so with its question."""
    async with archiving() as b:
        first = await b.attempt(policy=RESUMABLE)
        await first.publish(2)
        await archive(b, first.run)
        await first.publish(4)
        if told == "released":
            await first.finish(Status.INTERRUPTED, released=True)
        else:
            await first.ask()
            await b.record.leave("p")
            await b.record.lose(first.run.id, 1, None)
            await b.clock.advance(60)
            await b.record.beat("p", 10_000_000, ())
        await b.clock.advance(3)
        b.live.lose()
        second = await b.again(first.run)
        await second.publish(5)
        await archive(b, second.run)
        assert complete(await pages(b, second.run, 50)) == [False]
        run = await second.finish()
        await archive(b, run)
        for limit in range(1, 12):
            shown = await pages(b, run, limit)
            hole = [f"{run.id}:1:{n}" in {event["id"] for one in shown for event in one["events"]} for n in range(1, 7)]
            assert hole == [True, True, False, False, False, False]
            assert False in complete(shown)
            # Of the newest alone, up to the start of the second attempt, nothing is lacking.
            assert complete(shown)[0] is (limit <= 5 + run.rev - second.run.rev)


async def test_a_whole_history_is_whole_page_by_page_wherever_it_is_kept() -> None:
    """On the timeline, in the archive, or partly in both; in pages that show no event of an attempt, only its end."""
    for keep, archived in ((Retention(archive=False), False), (Retention(), True), (Retention(count=4), True)):
        async with archiving(retention=keep) as b:
            first = await b.attempt(policy=RESUMABLE)
            await first.publish(3)
            for number in range(3):
                await first.ask(f"q{number}")
            await first.finish(Status.INTERRUPTED, released=True)
            second = await b.again(first.run)
            if archived:
                await archive(b, second.run)
            await second.publish(2)
            await second.ask("last")
            run = await second.finish()
            for lost in (False, True) if archived else (False,):
                if lost:
                    await archive(b, run)
                    b.live.lose()
                for limit in range(1, 20):
                    shown = await pages(b, run, limit)
                    told = [event["id"] for one in reversed(shown) for event in one["events"]]
                    assert len(told) == len(set(told)) == run.rev + 5
                    assert all(complete(shown)), (limit, complete(shown))


async def test_what_cannot_be_looked_for_now_is_not_said_to_be_there() -> None:
    async with bench(retention=Retention(archive=False)) as b:
        attempt = await b.attempt()
        await attempt.publish(2)
        run = await attempt.finish()
        assert complete([(await pages(b, run, 1))[0]]) == [True]
        Faulty(b.live, "find", StoreUnavailable())
        assert json.loads((await b.screens.bootstrap(run, 1)).body)["timeline"]["complete"] is False


async def test_a_hole_where_two_pages_meet_is_seen_by_the_older_one() -> None:
    async with archiving() as b:
        attempt = await b.attempt()
        await attempt.publish(2)
        await archive(b, attempt.run)
        await attempt.publish()
        await b.clock.advance(3)
        b.live.lose()
        await b.bring(attempt.run)
        await attempt.publish(2)
        assert complete(await pages(b, attempt.run, 2)) == [True, False, True, True]


async def test_where_the_end_pushes_the_first_event_out_there_are_older_ones() -> None:
    """The archive has as many events as are asked for, and the record alone knows of the end."""
    async with archiving() as b:
        attempt = await b.attempt()
        await archive(b, attempt.run)
        run = await attempt.finish()
        b.live.lose()
        [shown, older] = await pages(b, run, 3)
        assert [event["id"] for event in shown["events"]] == [f"run:{run.id}:{rev}" for rev in (2, 3, 4)]
        assert [event["id"] for event in older["events"]] == [f"run:{run.id}:1"]
        assert complete([shown, older]) == [True, True]


FEED = run_feed("x")


def names(short: list[str]) -> list[str]:
    return [f"run:x:{one[1:]}" if one.startswith("r") else f"x:{one}" for one in short]


@pytest.mark.parametrize(
    ("numbers", "from_start", "rev", "whole"),
    [
        (["r1", "r2", "1:1", "r3", "1:2"], True, 3, True),
        (["r1", "r3"], True, 3, False),
        (["r1", "r2", "1:1", "1:3"], True, 2, False),
        (["r1", "r2", "1:2"], True, 2, False),
        (["1:7", "r4", "1:8"], False, 4, True),
        (["1:7", "r4", "1:8"], False, 5, False),
        (["1:7", "1:8"], False, 4, True),
        (["r1", "1:1", "2:1", "r2", "2:2"], True, 2, True),
        ([], True, 0, True),
        ([], True, 3, False),
        (["r2", "r3"], True, 3, False),
    ],
)
def test_a_hole_shows_in_the_numbers(numbers: list[str], from_start: bool, rev: int, whole: bool):
    assert unbroken(FEED, names(numbers), from_start=from_start, rev=rev) is whole


@pytest.mark.parametrize(
    ("numbers", "from_start", "told", "whole"),
    [
        (["r1", "1:1", "1:2", "r2"], True, {1: 2}, True),
        (["r1", "1:1", "1:2", "r2"], True, {1: 3}, False),
        (["r1", "r2"], True, {1: 1}, False),
        (["1:7", "r4"], False, {1: 7}, True),
        (["1:7", "r4"], False, {1: 8}, False),
        (["r4", "r5"], False, {1: 8}, True),  # they may all be older
        (["1:7", "r4", "2:1", "r5"], False, {1: 7, 2: 2}, False),
        (["1:9", "r4"], False, {1: 7}, True),  # it was heard of seven, and had more to say
    ],
)
def test_what_an_attempt_published_last_has_to_be_there(
    numbers: list[str], from_start: bool, told: dict[int, int], whole: bool
) -> None:
    assert unbroken(FEED, names(numbers), from_start=from_start, told=told) is whole


def test_only_attempts_that_end_here_and_show_nothing_are_looked_for() -> None:
    assert unshown(FEED, names(["r4", "2:1", "r5"]), {1: 8, 2: 1}) == ["x:1:8"]


@pytest.mark.parametrize(
    ("numbers", "before", "whole"),
    [
        (["r1", "1:1"], "1:2", True), (["r1", "1:1"], "1:3", False), (["r1", "1:1"], "r2", True),
        (["r1", "1:1"], "r3", False), (["1:1"], "2:1", True), ([], "1:9", True),
    ],
)  # fmt: skip
def test_a_page_joins_what_comes_behind_it(numbers: list[str], before: str, whole: bool) -> None:
    [name] = names([before])
    assert unbroken(FEED, names(numbers), from_start=False, before=name) is whole
