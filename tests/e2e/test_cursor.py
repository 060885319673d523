"""Where a cursor can stand, and what follows from it: the rest without a gap, or a reason and a way on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from playhead.core.ids import run_feed
from playhead.runtime.clock import SystemClock
from tests.support import behind
from tests.support.agents import counting
from tests.support.reducer import Screen
from tests.support.stage import STORES, Stage, stage
from tests.support.viewer import Viewer
from tests.support.wire import Stream

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", STORES)]

KEPT = 10  # events of the window
TRIMMED = {"keep_events": KEPT, "sweep": 0.2}
FACTS = 3  # run_queued, run_started, attempt_started

# Of other systems, of later and earlier forms of our own, and of nobody.
OLD_FORMS = ["0-0", "1769851800250-0", "48", "v1:48", "1-1", "$", "1-2.0123456789AB", "01-2.0123456789ab", "x" * 5_000]


async def counted(s: Stage, n: int = 30) -> tuple[str, Stream]:
    """A run that has counted to n and goes on, and a stream that saw it from the start."""
    run_id = await s.client.start("count", {"n": n, "hold": True, "stops": [1]})
    stream = await s.client.open(run_id)
    s.gates.open("at-1")
    await stream.type("counted", n)
    await s.gates.reached("end")
    return run_id, stream


def ids(stream: Stream) -> list[str]:
    """The cursors of the timeline frames, in their order."""
    return [str(frame.id) for frame in stream.frames if frame.event == "message"]


async def window(s: Stage, run_id: str) -> tuple[int, int]:
    """Archive everything; then the place before the oldest entry that is kept, and the newest."""
    await s.archived(run_id)
    marks = (await s.engine.ports.live.stand([run_feed(run_id)]))[run_feed(run_id)]
    return marks.floor, marks.position


async def follow(s: Stage, run_id: str, cursor: str | None) -> Stream:
    """A stream from this cursor, read until the run is over: the gate is open, or the stream ends in a resync."""
    async with s.client.stream(run_id, cursor) as stream:
        await stream.end()
    return stream


@pytest.mark.store
@pytest.mark.row("T-1", "R32")
async def test_the_start_of_a_timeline_is_a_good_cursor(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 5, "stops": [1]})
        await s.gates.reached("at-1")
        await s.flush()
        shown = await s.client.bootstrap(run_id)  # rebuilt: its timeline has begun anew, and nothing is on it
        async with s.client.stream(run_id, shown["cursor"]) as before:
            s.gates.open("at-1")
            await before.end()
        after = await follow(s, run_id, shown["cursor"])
        for stream in (before, after):
            assert stream.named("resync_required") == []
            assert [e["payload"]["i"] for e in stream.events if e["type"] == "counted"] == [1, 2, 3, 4, 5]


@pytest.mark.store
@pytest.mark.row("T-2", "T-3", "T-4", "R31", "R32", "R33", "S1-7", "S1-9")
async def test_every_cursor_continues_exactly_or_is_refused(backend: str, tmp_path: Path) -> None:
    """From the newest removed event on every cursor gives all that follows it; every earlier one is `expired`."""
    async with stage(backend, tmp_path, counting, settings=TRIMMED) as s:
        run_id, stream = await counted(s)
        floor, tip = await window(s, run_id)
        assert (tip, tip - floor) == (30 + FACTS, KEPT)
        cursors = ids(stream)
        s.gates.open("end")
        await stream.end()
        await stream.close()
        floor += 1  # the final event has pushed one out
        await window(s, run_id)
        await s.engine.hub.close()  # what it holds would be served, and reaches further back
        assert len(ids(stream)) == tip + 1
        whole = [event["id"] for event in stream.events]
        for position, cursor in enumerate(cursors, start=1):
            got = await follow(s, run_id, cursor)
            if position < floor:
                assert got.events == []
                assert got.named("resync_required") == [
                    {
                        "reason": "expired",
                        "requested": cursor,
                        "oldest": ids(stream)[floor],
                        "newest": ids(stream)[-1],
                    }
                ]
                assert got.frames[-1].id == "stop"
            else:
                assert got.named("resync_required") == []
                assert [event["id"] for event in got.events] == whole[position:]
                assert ids(got) == ids(stream)[position:]


@pytest.mark.store
@pytest.mark.row("T-5", "R32")
@pytest.mark.parametrize("how", ["gone", "emptied"])
async def test_a_timeline_that_lost_what_follows_is_not_taken_for_a_quiet_one(
    backend: str, tmp_path: Path, how: str
) -> None:
    async with stage(backend, tmp_path, counting, settings={"sweep": 60.0}) as s:
        run_id, stream = await counted(s, 10)
        await stream.close()
        await s.engine.hub.close()  # what it holds would be served
        if how == "gone":
            await s.flush()
        else:
            behind.forget(s.app, run_feed(run_id))
        got = await follow(s, run_id, ids(stream)[5])
        assert got.events == []
        assert got.named("resync_required")[0]["reason"] in ("epoch", "expired")


@pytest.mark.store
@pytest.mark.row("T-6", "R32")
async def test_a_hole_in_the_middle_is_never_passed_in_silence(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting, settings={"sweep": 60.0}) as s:
        run_id, stream = await counted(s, 10)
        await stream.close()
        cursors, whole = ids(stream), [event["id"] for event in stream.events]
        behind.forget(s.app, run_feed(run_id), 9)
        await s.engine.hub.close()
        got = await follow(s, run_id, cursors[3])
        assert got.named("resync_required")
        assert [event["id"] for event in got.events] == whole[4 : 4 + len(got.events)]
        assert len(got.events) <= 4  # positions 5 to 8, and not one from behind the hole


@pytest.mark.store
@pytest.mark.row("T-7", "R33", "R34", "M-bad-cursor", "M-foreign-cursor")
async def test_each_bad_cursor_is_told_its_reason(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting, settings={"sweep": 60.0}) as s:
        run_id, stream = await counted(s, 4)
        _, second = await counted(s, 4)
        tip = ids(stream)[-1]
        place, _, tag = tip.partition(".")
        epoch, _, position = place.partition("-")
        bad = [
            (f"{epoch}-{int(position) + 1}.{tag}", "ahead"),
            (f"{epoch}-9007199254740991.{tag}", "ahead"),
            (f"{int(epoch) - 1}-{position}.{tag}", "epoch"),
            (f"{int(epoch) + 1}-{position}.{tag}", "epoch"),
            (f"{epoch}-{position}.000000000000", "foreign"),
            (f"{epoch}-3.{tag}", "foreign"),
            *((text, "malformed") for text in OLD_FORMS),
        ]
        for cursor, reason in bad:
            got = await follow(s, run_id, cursor)
            assert got.status == 200
            assert [frame.event for frame in got.frames] == ["resync_required"]
            [said] = got.named("resync_required")
            assert said == {
                "reason": reason,
                "requested": None if reason == "malformed" else cursor,
                "oldest": ids(stream)[0],
                "newest": tip,
            }, cursor
        got = await follow(s, run_id, ids(second)[-1])  # of another run
        assert got.named("resync_required")[0]["reason"] in ("epoch", "foreign")
        for one in (stream, second):
            await one.close()


@pytest.mark.store
@pytest.mark.row("T-8", "F34", "R30", "R32")
async def test_a_connected_reader_that_is_overtaken_is_told_so(backend: str, tmp_path: Path) -> None:
    """While its wake-ups are lost, what it lacks is trimmed away: it gets a reason, and not what comes after."""
    settings = {"archive": "off", "keep_bytes": 6_000, "sweep": 0.2}
    async with stage(backend, tmp_path, counting, settings=settings) as s:
        run_id = await s.client.start("count", {"n": 60, "size": 200, "hold": True, "stops": [2]})
        async with s.client.stream(run_id) as stream:
            await stream.type("counted")
            with behind.lost_hints(s.app):
                s.gates.open("at-2")
                await s.gates.reached("end")
                marks = (await s.engine.ports.live.stand([run_feed(run_id)]))[run_feed(run_id)]
                assert marks.floor > FACTS + 1
            await stream.end()
        assert [one["reason"] for one in stream.named("resync_required")] == ["expired"]
        assert stream.types == ["run_queued", "run_started", "attempt_started", "counted"]
        assert (await s.client.bootstrap(run_id))["timeline"]["complete"] is False
        told = (await s.client.get("/metrics")).body.decode()
        assert 'playhead_hub_total{kind="expired"} 1.0' in told


@pytest.mark.row("M-cursor-expired", "M-bad-cursor", "M-foreign-cursor", "R29", "S1-9")
@pytest.mark.parametrize("which", ["expired", "malformed", "foreign", "ahead", "epoch"])
@pytest.mark.parametrize("inline", [False, True])
async def test_every_resync_leads_back_to_a_true_screen(backend: str, tmp_path: Path, which: str, inline: bool) -> None:
    async with stage(backend, tmp_path, counting, settings=TRIMMED) as s:
        run_id, stream = await counted(s)
        await stream.close()
        await window(s, run_id)
        await s.engine.hub.close()  # what it holds would be served, and reaches further back
        tip = ids(stream)[-1]
        place, _, tag = tip.partition(".")
        epoch, _, position = place.partition("-")
        cursor = {
            "expired": ids(stream)[4],
            "malformed": "48",
            "foreign": f"{place}.000000000000",
            "ahead": f"{epoch}-{int(position) + 5}.{tag}",
            "epoch": f"{int(epoch) - 1}-{position}.{tag}",
        }[which]
        if inline:
            screen = Screen()
            async with s.client.stream(run_id, cursor, query="?resync=inline") as followed:
                await followed.until(lambda one: one.named("resync_required"))
                s.gates.open("end")
                await followed.end()
            [resync] = [frame for frame in followed.frames if frame.event == "resync_required"]
            assert resync.data["reason"] == which
            assert resync.id == resync.data["bootstrap"]["cursor"]
            for frame in followed.frames:
                screen.frame(frame)
                if frame is resync:
                    screen.bootstrap(frame.data["bootstrap"])
            screen.bootstrap(await s.client.bootstrap(run_id, limit=200))
        else:
            viewer = Viewer(s.client, run_id)
            viewer.screen.cursor = cursor
            following = asyncio.create_task(viewer.follow())
            async with asyncio.timeout(20):
                while not viewer.resyncs:
                    await asyncio.sleep(0.01)
            s.gates.open("end")
            screen = await asyncio.wait_for(following, 20)
            assert viewer.resyncs == [which]
        assert screen.faults == []
        assert [event["type"] for event in screen.events.values()] == [*stream.types, "run_succeeded"]
        assert list(screen.events)[:-1] == [event["id"] for event in stream.events]
        assert (screen.status, screen.snapshot["progress"], screen.complete) == ("succeeded", 100, True)


async def test_no_state_goes_back_after_a_resync_within_the_stream(backend: str, tmp_path: Path) -> None:
    """Between two ticks the viewers' last state is old; whoever was shown the whole screen has a newer one."""
    async with stage(backend, tmp_path, counting, settings={"tick": 60.0, "sweep": 60.0}) as s:
        run_id, stream = await counted(s)
        async with s.client.stream(run_id, "48", query="?resync=inline") as followed:
            await followed.until(lambda one: one.named("resync_required"))
            shown = followed.named("resync_required")[0]["bootstrap"]["snapshot"]
            s.gates.open("end")
            await followed.end()
        versions = [shown["version"], *(one["snapshot"]["version"] for one in followed.named("state"))]
        assert versions == sorted(versions)
        assert followed.snapshot["status"] == "succeeded"
        await stream.close()


@pytest.mark.store
@pytest.mark.row("R30")
async def test_a_replay_that_is_cut_anywhere_goes_on_where_it_was(backend: str, tmp_path: Path) -> None:
    """A reader with a small buffer is cut off again and again; by its last whole frame it gets all, once, in order."""
    async with stage(backend, tmp_path, counting, settings={"page": 7}) as s:
        run_id = await s.client.start("count", {"n": 120, "size": 3_000})
        await s.client.ended(run_id)
        whole = await follow(s, run_id, None)
        assert len(whole.events) == 120 + FACTS + 1
        got: list[str] = []
        cursor: str | None = None
        cuts = 0
        while not got or got[-1] != whole.events[-1]["id"]:
            stream = await s.client.open(run_id, cursor, buffer=8_192)
            await stream.until(lambda one: len(one.events) >= 9 or bool(one.named("end")))
            got += [event["id"] for event in stream.events]
            cursor = stream.cursor or cursor
            stream.reset()
            cuts += 1
            assert cuts < 200
        assert cuts > 5
        assert got == [event["id"] for event in whole.events]


@pytest.mark.row("R14")
async def test_order_is_that_of_writing_whatever_the_clock_says(backend: str, tmp_path: Path) -> None:
    class Backwards(SystemClock):
        """Each look at it is a second earlier than the one before."""

        looks = 0

        def wall_ms(self) -> int:
            self.looks += 1
            return 1_800_000_000_000 - 1_000 * self.looks

    async with stage(backend, tmp_path, counting, clock=Backwards(), settings={"keep_events": KEPT}) as s:
        run_id, stream = await counted(s)
        times = [event["occurred_at"] for event in stream.events if event["type"] == "counted"]
        assert times == sorted(times, reverse=True)
        assert len(set(times)) == len(times)
        assert [e["payload"]["i"] for e in stream.events if e["type"] == "counted"] == list(range(1, 31))
        await window(s, run_id)
        s.gates.open("end")
        await stream.end()
        await stream.close()
        shown = await s.client.bootstrap(run_id, limit=200)
        assert [event["id"] for event in shown["events"]] == [event["id"] for event in stream.events]
        late = await follow(s, run_id, ids(stream)[-5])
        assert [event["id"] for event in late.events] == [event["id"] for event in stream.events[-4:]]
