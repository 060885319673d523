"""The whole screen in one answer: what it shows, what its cursor promises, and what it says when something is gone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from playhead.core.cursor import parse
from playhead.core.retention import Retention
from playhead.core.run import Run, Status
from playhead.core.snapshot import State
from playhead.errors import NotFound
from playhead.runtime.archiver import Archiver
from playhead.runtime.bootstrap import Screen
from tests.runtime.bench import Attempt, Bench, bench

pytestmark = pytest.mark.anyio


async def screen(b: Bench, run: Run, limit: int = 50) -> dict[str, Any]:
    return read(await b.screens.bootstrap(await b.get(run), limit))


def read(shown: Screen) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(shown.body)
    assert said["cursor"] == (str(shown.cursor) if shown.cursor else None)
    assert b"\n" not in shown.body
    return said


def ids(said: dict[str, Any]) -> list[str]:
    return [each["id"].split(":", 1)[1][-4:].split(":", 1)[1] for each in said["events"]]


async def archive(b: Bench, attempt: Attempt) -> None:
    await Archiver(b.record, b.record, b.live, b.clock).run(attempt.run.id)


@pytest.mark.row("R28", "R29", "BR-12", "M-reload", "A19")
async def test_a_screen_shows_everything_and_can_be_followed():
    async with bench() as b:
        attempt = await b.attempt(labels={"team": "a"}, key="k1")
        await attempt.publish(2, state=State(progress=40, current_step="reading"))
        await attempt.text("so far")
        asked = await attempt.ask()
        said = await screen(b, attempt.run)
        assert said["run"]["id"] == attempt.run.id
        assert said["run"]["status"] == said["snapshot"]["status"] == "waiting"
        assert said["run"]["input"] == {"q": 1}
        assert (said["run"]["labels"], said["run"]["key"]) == ({"team": "a"}, "k1")
        assert (said["snapshot"]["progress"], said["snapshot"]["current_step"]) == (40, "reading")
        assert [each["type"] for each in said["events"]] == [
            "run_queued",
            "run_started",
            "attempt_started",
            "step_done",
            "step_done",
            "approval_required",
        ]
        assert said["cursor"] == str(await b.cursor(attempt.run))
        first = said["events"][0]["id"]
        assert said["timeline"] == {"complete": True, "has_older": False, "oldest": first}
        assert said["text"] == [
            {"part": "answer", "attempt": 1, "offset": 0, "end": 6, "text": "so far", "final": False}
        ]
        assert [each["id"] for each in said["interrupts"]] == [asked]
        assert said["interrupts"][0]["payload"] == {"title": "Ship?"}
        assert said["degraded"] is None
        assert said["snapshot"]["rev"] == said["run"]["rev"]


async def test_the_events_are_the_newest_ones_up_to_the_limit():
    async with bench() as b:
        attempt = await b.attempt()
        await attempt.publish(5)
        some = await screen(b, attempt.run, 3)
        assert ids(some) == ["3", "4", "5"]
        assert some["timeline"]["has_older"] is True
        assert some["timeline"]["complete"] is True
        none = await screen(b, attempt.run, 0)
        assert none["events"] == []
        assert none["timeline"] == {"complete": True, "has_older": True, "oldest": None}
        assert none["cursor"] == some["cursor"]


@pytest.mark.row("A19", "A20")
async def test_what_was_trimmed_is_filled_up_from_the_archive_without_a_double():
    async with bench(retention=Retention(count=4)) as b:
        attempt = await b.attempt()
        await attempt.publish(10)
        await archive(b, attempt)
        view = await b.live.read(attempt.feed)
        assert view is not None
        assert len(view.entries) == 4
        said = await screen(b, attempt.run)
        assert ids(said) == ["1", "2", "3", *map(str, range(1, 11))]
        assert said["timeline"]["complete"] is True
        assert said["timeline"]["has_older"] is False
        eight = await screen(b, attempt.run, 8)
        assert ids(eight) == [str(n) for n in range(3, 11)]
        assert eight["timeline"]["has_older"] is True


async def test_an_archive_that_lags_makes_no_double_and_no_hole():
    async with bench(retention=Retention(count=4)) as b:
        attempt = await b.attempt()
        await attempt.publish(3)
        await archive(b, attempt)
        await attempt.publish(4)  # not archived yet, and so all retained
        said = await screen(b, attempt.run)
        assert ids(said) == ["1", "2", "3", *map(str, range(1, 8))]
        assert said["timeline"]["complete"] is True


@pytest.mark.row("A19", "A20", "R38")
async def test_a_timeline_with_a_hole_says_so():
    async with bench(retention=Retention(count=2, archive=False, max_bytes=1_500)) as b:
        attempt = await b.attempt()
        await attempt.publish(20)
        said = await screen(b, attempt.run)
        assert len(said["events"]) < 20
        assert said["timeline"]["complete"] is False


async def test_a_rebuilt_projection_shows_the_archive_and_admits_what_was_lost():
    async with bench() as b:
        attempt = await b.attempt()
        await attempt.publish(2)
        await archive(b, attempt)
        await b.clock.advance(3)
        b.live.lose()
        whole = await screen(b, attempt.run)
        assert ids(whole) == ["1", "2", "3", "1", "2"]
        assert whole["cursor"] is not None
        assert whole["timeline"]["complete"] is True
        await attempt.publish()
        assert ids(await screen(b, attempt.run)) == ["1", "2", "3", "1", "2", "3"]
        await b.clock.advance(3)
        b.live.lose()  # with an event that was not archived
        await screen(b, attempt.run)
        await attempt.publish()
        lossy = await screen(b, attempt.run)
        assert ids(lossy) == ["1", "2", "3", "1", "2", "4"]
        assert lossy["timeline"]["complete"] is False


@pytest.mark.row("R38", "A36", "M-projection-expired")
async def test_a_live_run_without_a_projection_is_rebuilt():
    async with bench() as b:
        attempt = await b.attempt()
        await b.clock.advance(3)
        b.live.lose()
        said = await screen(b, attempt.run)
        assert said["snapshot"]["status"] == "running"
        assert parse(said["cursor"]) is not None
        assert said["degraded"] is None


@pytest.mark.row("R38", "BR-08", "M-projection-expired", "S1-11")
async def test_a_finished_run_without_a_projection_is_answered_from_record_and_archive():
    async with bench() as b:
        attempt = await b.attempt()
        await attempt.publish(2)
        await archive(b, attempt)
        await attempt.finish()
        b.live.lose()
        said = await screen(b, attempt.run)
        assert said["run"]["status"] == said["snapshot"]["status"] == "succeeded"
        assert said["run"]["result"] == {"answer": 42}
        assert said["cursor"] is None
        assert ids(said) == ["1", "2", "3", "1", "2", "4"]  # the end is known even where it was not archived
        assert said["events"][-1]["type"] == "run_succeeded"
        assert said["timeline"]["complete"] is True
        assert (said["text"], said["interrupts"], said["degraded"]) == ([], [], None)


async def test_the_final_event_made_from_the_record_is_the_one_that_was_written():
    async with bench() as b:
        for status in (Status.SUCCEEDED, Status.FAILED):
            attempt = await b.attempt()
            await b.clock.advance(1)
            await attempt.finish(status)
            shown = (await screen(b, attempt.run))["events"][-1]
            await b.clock.advance(5)
            b.live.lose()
            made = (await screen(b, attempt.run))["events"][-1]
            assert made | {"version": 0} == shown | {"version": 0}


@pytest.mark.row("R38")
async def test_with_the_live_store_down_the_record_answers_and_says_so():
    async with bench() as b:
        attempt = await b.attempt()
        await archive(b, attempt)
        b.live.down = True
        said = await screen(b, attempt.run)
        assert said["degraded"] == "store_unavailable"
        assert said["run"]["status"] == said["snapshot"]["status"] == "running"
        assert said["cursor"] is None
        assert ids(said) == ["1", "2", "3"]


async def test_a_live_store_that_hangs_is_not_waited_for_for_ever():
    async with bench() as b:
        attempt = await b.attempt()
        b.screens._patience = 0.05
        b.live.held = asyncio.Event()
        said = await screen(b, attempt.run)
        assert said["degraded"] == "store_unavailable"


@pytest.mark.row("A35")
async def test_a_fact_that_is_not_projected_yet_is_projected_first():
    async with bench() as b:
        attempt = await b.attempt()
        await attempt.finish(project=False)
        said = await screen(b, attempt.run)
        assert said["run"]["status"] == said["snapshot"]["status"] == "succeeded"
        assert said["events"][-1]["type"] == "run_succeeded"


@pytest.mark.row("A21", "A35", "BR-05")
async def test_a_screen_is_never_older_than_its_cursor():
    async with bench() as b:
        attempt = await b.attempt()
        run = await b.get(attempt.run)  # read, and then held up
        asked = await attempt.ask()
        said = read(await b.screens.bootstrap(run))
        assert said["run"]["status"] == "waiting"
        assert [each["id"] for each in said["interrupts"]] == [asked]
        b.live.held = asyncio.Event()  # the view is taken, and then held up
        shown = asyncio.create_task(b.screens.bootstrap(await b.get(attempt.run)))
        await b.settle(3)
        await attempt.publish()
        b.live.held.set()
        b.live.held = None
        late = read(await shown)
        assert late["cursor"] == said["cursor"]
        at = parse(late["cursor"])
        assert at is not None
        view = await b.live.read(attempt.feed, after=at.position)
        assert view is not None
        assert len(view.entries) == 1


async def test_a_run_that_was_erased_meanwhile_is_not_found():
    async with bench() as b:
        attempt = await b.attempt()
        run = await b.get(attempt.run)
        b.live.lose()
        b.record._files.pop(run.id)
        with pytest.raises(NotFound):
            await b.screens.bootstrap(run)


@pytest.mark.row("A40", "M-stale-interrupt")
async def test_an_open_question_is_found_however_noisy_the_timeline_was():
    async with bench(retention=Retention(count=5)) as b:
        attempt = await b.attempt()
        asked = await attempt.ask()
        await attempt.publish(60)
        await archive(b, attempt)
        said = await screen(b, attempt.run, 10)
        assert [each["id"] for each in said["interrupts"]] == [asked]
        assert "approval_required" not in [each["type"] for each in said["events"]]
        await b.record.decide("acme", attempt.run.id, asked, b'{"approved":true,"note":null}', "ann")
        await b.bring(attempt.run)
        assert (await screen(b, attempt.run))["interrupts"] == []


# Older events.


async def test_older_events_come_page_by_page_without_a_seam():
    async with bench(retention=Retention(count=7)) as b:
        attempt = await b.attempt()
        for _ in range(4):
            await attempt.publish(10)
            await archive(b, attempt)
        run = await b.get(attempt.run)
        shown = (await screen(b, run, 4))["events"]
        while True:
            page = json.loads(await b.screens.earlier(run, shown[0]["id"], 6))
            shown = page["events"] + shown
            assert page["timeline"]["complete"] is True
            if not page["timeline"]["has_older"]:
                break
        assert [each["id"] for each in shown] == [
            *(f"run:{run.id}:{rev}" for rev in (1, 2, 3)),
            *(f"{run.id}:1:{n}" for n in range(1, 41)),
        ]


async def test_without_a_place_the_newest_are_given_and_from_a_run_that_is_over_too():
    async with bench() as b:
        attempt = await b.attempt()
        await attempt.publish(3)
        await attempt.finish()
        await archive(b, attempt)
        run = await b.get(attempt.run)
        assert ids(json.loads(await b.screens.earlier(run, None, 2))) == ["3", "4"]
        b.live.lose()
        assert ids(json.loads(await b.screens.earlier(run, None, 2))) == ["3", "4"]
        assert ids(json.loads(await b.screens.earlier(run, f"{run.id}:1:2", 9))) == ["1", "2", "3", "1"]
        b.live.down = True
        assert ids(json.loads(await b.screens.earlier(run, f"{run.id}:1:2", 2))) == ["3", "1"]
        assert json.loads(await b.screens.earlier(run, f"{run.id}:1:99", 2))["events"] == []
