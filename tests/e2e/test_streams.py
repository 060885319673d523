"""Streams through a whole server on either store: cursors, joining, ends, headers, and what keeps a quiet one alive."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.middleware.gzip import GZipMiddleware

import playhead
from playhead.core.cursor import parse
from playhead.core.ids import run_feed
from playhead.core.run import Outcome, Status
from playhead.errors import StoreUnavailable
from playhead.gateway.openapi import describe
from playhead.runtime.clock import SystemClock
from tests.support import behind
from tests.support.agents import counting
from tests.support.stage import STORES, Gates, Stage, stage
from tests.support.wire import Stream

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", STORES)]


class Frozen(SystemClock):
    """The time of day stands still; timers go on."""

    def wall_ms(self) -> int:
        return 1_767_225_600_000


def ids(stream: Stream) -> dict[int, str]:
    """The id of each counted event, by its number."""
    return {
        frame.data["payload"]["i"]: str(frame.id)
        for frame in stream.frames
        if frame.event == "message" and frame.data["type"] == "counted"
    }


def numbers(stream: Stream) -> list[int]:
    return [event["payload"]["i"] for event in stream.events if event["type"] == "counted"]


async def counted(stream: Stream, number: int) -> Stream:
    """Read on to the counted event of this number."""
    return await stream.until(lambda one: bool(numbers(one)) and numbers(one)[-1] >= number)


async def all_ids(s: Stage, run_id: str, number: int) -> dict[int, str]:
    async with s.client.stream(run_id) as stream:
        await counted(stream, number)
        return ids(stream)


async def forget(s: Stage) -> None:
    """Empty what the process holds in memory, which is true and would be served: the store has to answer."""
    await s.engine.hub.close()


def blocks(stream: Stream) -> dict[str, bytes]:
    """The bytes of each timeline frame, by its id."""
    found = [
        block for block in bytes(stream.raw).split(b"\n\n") if block.startswith(b"id: ") and b"event:" not in block
    ]
    return {block.split(b"\n")[0].removeprefix(b"id: ").decode(): block for block in found}


# Where a reader goes on.


@pytest.mark.store
@pytest.mark.row("BR-01", "A28")
async def test_a_reconnect_gets_what_it_lacks_and_then_what_comes(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 7, "stops": [7], "hold": True})
        await s.gates.reached("at-7")
        async with s.client.stream(run_id) as first:
            await counted(first, 3)
            first.reset()
        known = await all_ids(s, run_id, 6)
        async with s.client.stream(run_id, known[3]) as again, s.client.stream(run_id, known[6]) as tip:
            await counted(again, 6)
            assert numbers(again) == [4, 5, 6]
            await tip.until(lambda one: one.named("state"))
            await tip.quiet(0.2)
            assert tip.events == []
            s.gates.open("at-7")
            await counted(again, 7)
            await counted(tip, 7)
            assert (numbers(again), numbers(tip)) == ([4, 5, 6, 7], [7])
            # Each type reaches a client that knows none of them.
            assert b"event: counted" not in again.raw


@pytest.mark.store
@pytest.mark.row("BR-02", "A1", "A3", "A17", "A20")
async def test_a_trimmed_cursor_is_told_so_and_the_borders_are_exact(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting, settings={"keep_events": 10}) as s:
        run_id = await s.client.start("count", {"n": 25, "hold": True})
        known = await all_ids(s, run_id, 25)
        await s.archived(run_id)
        await forget(s)
        async with s.client.stream(run_id, known[5]) as gone:
            await gone.end(1.0)
        assert [(frame.event, frame.id) for frame in gone.frames] == [("resync_required", "stop")]
        assert gone.named("resync_required") == [
            {"reason": "expired", "requested": known[5], "oldest": known[16], "newest": known[25]}
        ]
        shown = await s.client.bootstrap(run_id)
        assert shown["cursor"] == known[25]
        # All of it is there, older than the timeline too, and it says so.
        assert [event["payload"]["i"] for event in shown["events"] if event["type"] == "counted"] == [*range(1, 26)]
        assert (shown["timeline"]["complete"], shown["timeline"]["has_older"]) == (True, False)
        few = await s.client.bootstrap(run_id, limit=4)
        assert (few["timeline"]["complete"], few["timeline"]["has_older"]) == (True, True)
        for at, following in ((16, range(17, 26)), (15, range(16, 26)), (25, range(0))):
            await forget(s)
            async with s.client.stream(run_id, known[at]) as stream:
                await stream.until(lambda one: one.named("state"))
                if following:
                    await counted(stream, 25)
                await stream.quiet(0.1)
                assert numbers(stream) == list(following)
                assert stream.named("resync_required") == []
        s.gates.open("end")
        async with s.client.stream(run_id, shown["cursor"]) as stream:
            await stream.end()
        assert stream.types == ["run_succeeded"]


@pytest.mark.store
@pytest.mark.row("A19", "A20")
async def test_a_hole_in_the_history_is_admitted(backend: str, tmp_path: Path) -> None:
    few = {"keep_events": 10, "keep_bytes": 6_000, "archive": "off"}
    async with stage(backend, tmp_path, counting, settings=few) as s:
        run_id = await s.client.start("count", {"n": 40, "size": 300, "hold": True})
        await s.gates.reached("end")
        shown = await s.client.bootstrap(run_id)
        kept = [event["payload"]["i"] for event in shown["events"] if event["type"] == "counted"]
        assert 0 < len(kept) < 40
        assert kept[-1] == 40
        assert shown["timeline"]["complete"] is False
        whole = await s.client.start("count", {"n": 3})
        await s.client.ended(whole)
        assert (await s.client.bootstrap(whole))["timeline"]["complete"] is True


MALFORMED = ["does-not-exist", "-1", "abc-def", "1-2-3", "\uff11", "\uff11-0", "x" * 5_000, "$", "+", "123", "0-0"]


@pytest.mark.row("BR-03", "A7", "A31")
async def test_a_malformed_cursor_is_answered_and_not_fatal(
    backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 5, "hold": True})
        known = await all_ids(s, run_id, 5)
        caplog.clear()
        for cursor in MALFORMED:
            queries = {"query": f"?cursor={quote(cursor)}"} if len(cursor) < 4_000 else {"cursor": cursor}
            for how in ({"cursor": cursor}, queries):
                async with s.client.stream(run_id, **how) as stream:
                    assert stream.status == 200
                    await stream.end(1.0)
                assert [frame.event for frame in stream.frames] == ["resync_required"], cursor
                [told] = stream.named("resync_required")
                assert (told["reason"], told["requested"], told["newest"]) == ("malformed", None, known[5])
                # The id that a browser sends next makes it stop.
                async with s.client.stream(run_id, stream.frames[0].id) as stopped:
                    assert stopped.status == 204
        assert [record for record in caplog.records if record.levelno > logging.WARNING] == []
        async with s.client.stream(run_id, "") as stream:
            await counted(stream, 5)
            assert numbers(stream) == [1, 2, 3, 4, 5]
        for number, cursor in known.items():
            async with s.client.stream(run_id, cursor) as stream:
                if number < 5:
                    await counted(stream, 5)
                assert numbers(stream) == list(range(number + 1, 6))


@pytest.mark.row("BR-11")
async def test_the_cursor_in_the_header_beats_the_one_in_the_address(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 6, "hold": True})
        known = await all_ids(s, run_id, 6)
        two, five = f"cursor={known[2]}", f"cursor={known[5]}"
        for cursor, query, following in (
            (known[5], f"?{two}", [6]),
            (None, f"?{two}", [3, 4, 5, 6]),
            (None, f"?{two}&{five}", [6]),
            ("", f"?{five}", [6]),
        ):
            async with s.client.stream(run_id, cursor, query=query) as stream:
                assert stream.status == 200
                await counted(stream, 6)
                assert numbers(stream) == following


@pytest.mark.row("BR-06", "BR-07")
async def test_a_thousand_events_of_one_instant_have_growing_ids(backend: str, tmp_path: Path) -> None:
    more = {"keep_events": 2_000, "ring_bytes": 20_000}
    async with stage(backend, tmp_path, counting, settings=more, clock=Frozen()) as s:
        run_id = await s.client.start("count", {"n": 1_000, "hold": True})
        await s.gates.reached("end")
        async with s.client.stream(run_id) as whole:
            await counted(whole, 1_000)
        order = [str(frame.id) for frame in whole.frames if frame.event == "message"]
        places = [(at.epoch, at.position) for one in order if (at := parse(one)) is not None]
        assert len(set(order)) == len(order) == len(places) == 1_003
        assert places == sorted(set(places))
        assert [position for _, position in places] == list(range(1, 1_004))
        borders = {9, 10, 99, 100, 999, 1_000}
        for place in sorted(borders | set(random.Random(6).sample(range(1, 1_003), 20))):
            async with s.client.stream(run_id, order[place - 1]) as stream:
                await counted(stream, 1_000)
                assert [str(frame.id) for frame in stream.frames if frame.event == "message"] == order[place:]
                assert stream.named("resync_required") == []


@pytest.mark.row("BR-40")
async def test_quick_writes_of_one_instant_are_all_accepted(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting, clock=Frozen()) as s:
        run_id = await s.client.start("count", {"n": 100, "hold": True})
        await s.gates.reached("end")
        shown = await s.client.bootstrap(run_id, limit=200)
        versions = [event["version"] for event in shown["events"]]
        assert [event["payload"]["i"] for event in shown["events"] if event["type"] == "counted"] == [*range(1, 101)]
        assert all(type(version) is int for version in versions)
        assert versions == sorted(set(versions))
        assert (shown["snapshot"]["version"], shown["snapshot"]["done"]) == (versions[-1], 100)


# Nothing falls between.


@pytest.mark.store
@pytest.mark.row("BR-05", "A21")
async def test_an_event_between_the_screen_and_the_stream_is_not_lost(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 5, "stops": [4, 5], "hold": True})
        await s.gates.reached("at-4")
        live = s.engine.ports.live
        read, taken, go_on = live.read, asyncio.Event(), asyncio.Event()

        async def held(*args: Any, **window: Any) -> Any:
            view = await read(*args, **window)
            taken.set()
            await go_on.wait()
            return view

        live.read = held
        asking = asyncio.create_task(s.client.bootstrap(run_id))
        await taken.wait()
        s.gates.open("at-4")
        await s.gates.reached("at-5")
        go_on.set()
        shown = await asking
        assert [event["payload"]["i"] for event in shown["events"] if event["type"] == "counted"] == [1, 2, 3]
        async with s.client.stream(run_id, shown["cursor"]) as stream:
            await counted(stream, 4)
            assert stream.events[0]["payload"]["i"] == 4
        # Likewise for a stream that is held up between its replay and what is new.
        await forget(s)
        taken.clear()
        go_on.clear()
        joining = asyncio.create_task(s.client.open(run_id))
        await taken.wait()
        s.gates.open("at-5")
        await s.gates.reached("end")
        go_on.set()
        late = await joining
        await counted(late, 5)
        await late.quiet(0.1)
        assert numbers(late) == [1, 2, 3, 4, 5]
        await late.close()
        live.read = read


@pytest.mark.store
@pytest.mark.row("BR-05", "A6")
async def test_whoever_joins_at_any_moment_misses_nothing(backend: str, tmp_path: Path) -> None:
    """Two hundred readers, from any place, with the store's answers held up at random, while events come."""
    chance = random.Random(5)
    joined = 0

    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def steady(run: playhead.RunContext) -> int:
            i = 0
            while joined < 200:
                i += 1
                await run.event("counted", {"i": i})
                await asyncio.sleep(0.004)
            return i

        return [steady]

    more = {"keep_events": 50_000, "ring_bytes": 4_000, "page": 20}
    async with stage(backend, tmp_path, agents, settings=more) as s:
        live = s.engine.ports.live
        read = live.read

        async def slow(*args: Any, **window: Any) -> Any:
            await asyncio.sleep(chance.choice((0, 0, 0.002, 0.01)))
            view = await read(*args, **window)
            await asyncio.sleep(chance.choice((0, 0, 0.002, 0.01)))
            return view

        live.read = slow
        run_id = await s.client.start("steady")
        whole = await s.client.open(run_id)
        await counted(whole, 5)
        reading = asyncio.create_task(whole.end(60))
        for _ in range(20):
            await asyncio.sleep(0.01)
            order = [str(frame.id) for frame in whole.frames if frame.event == "message"]

            async def join(place: int, order: list[str]) -> None:
                async with s.client.stream(run_id, order[place]) as stream:
                    await stream.until(lambda one: len(one.events) >= len(order) - place + 3)
                got = [str(frame.id) for frame in stream.frames if frame.event == "message"]
                assert got[: len(order) - place - 1] == order[place + 1 :]
                positions = [at.position for one in got if (at := parse(one)) is not None]
                assert positions == list(range(place + 2, place + 2 + len(got)))
                assert stream.named("resync_required") == []

            first = max(0, len(order) - 150)
            await asyncio.gather(*(join(chance.randrange(first, len(order)), order) for _ in range(10)))
            joined += 10
        await reading
        last = (await s.client.run(run_id))["result"]
        assert numbers(whole) == list(range(1, last + 1))
        await whole.close()


@pytest.mark.store
@pytest.mark.row("A4", "A16")
async def test_an_event_deleted_from_the_middle_is_not_passed_over(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 6, "hold": True})
        known = await all_ids(s, run_id, 6)
        await s.archived(run_id)
        behind.forget(s.app, run_feed(run_id), 7)
        await forget(s)
        async with s.client.stream(run_id, known[2]) as stream:
            await stream.end()
        assert numbers(stream) in ([], [3])
        assert next(told["reason"] for told in stream.named("resync_required")) in ("expired", "epoch")
        if backend == "sqlite":  # half of a projection counts as none: it was made anew, in a new epoch
            shown = await s.client.bootstrap(run_id)
            assert parse(shown["cursor"]).epoch > parse(known[2]).epoch  # type: ignore[union-attr]
            assert [one["payload"]["i"] for one in shown["events"] if one["type"] == "counted"] == [*range(1, 7)]
            assert shown["timeline"]["complete"] is True


# Many viewers.


@pytest.mark.row("BR-09", "A25")
async def test_each_viewer_has_its_own_full_copy(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 50, "stops": [3, 26], "hold": True, "size": 2_000})
        await s.gates.reached("at-3")
        a = await s.client.open(run_id)
        await counted(a, 2)
        b = await s.client.open(run_id, ids(a)[2])
        stuck = await s.client.open(run_id, buffer=4_096)
        s.gates.open("at-3")
        await s.gates.reached("at-26")
        await counted(a, 25)
        await counted(b, 25)
        assert numbers(a) == list(range(1, 26))
        a.reset()
        c = await s.client.open(run_id)
        s.gates.open("at-26")
        await counted(b, 50)
        await counted(c, 50)
        assert (numbers(b), numbers(c)) == (list(range(3, 51)), list(range(1, 51)))
        same = blocks(c)
        assert len(same) == 53
        for viewer in (a, b):
            mine = blocks(viewer)
            assert mine
            assert mine.items() <= same.items()
        for viewer in (b, c, stuck):
            await viewer.close()


@pytest.mark.row("A25")
async def test_viewers_cost_the_store_nothing(backend: str, tmp_path: Path) -> None:
    # Nobody else reads: no sweep and no archive.
    async with stage(backend, tmp_path, counting, settings={"sweep": 60.0, "archive": "off"}) as s:
        run_id = await s.client.start("count", {"n": 30, "stops": [11], "hold": True})
        await s.gates.reached("at-11")
        live = s.engine.ports.live
        reads = 0
        read = live.read

        async def noted(*args: Any, **window: Any) -> Any:
            nonlocal reads
            reads += 1
            return await read(*args, **window)

        live.read = noted
        first = await s.client.open(run_id)
        await counted(first, 10)
        alone = reads
        viewers = [first, *[await s.client.open(run_id) for _ in range(49)]]
        s.gates.open("at-11")
        for viewer in viewers:
            await counted(viewer, 30)
            assert numbers(viewer) == list(range(1, 31))
        assert alone > 0
        assert reads == alone
        assert behind.listeners(s.app).count(s.engine.hub) == 1
        for viewer in viewers:
            await viewer.close()


@pytest.mark.row("BR-20")
async def test_attaching_starts_nothing(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        body = {"agent": "count", "input": {"n": 2, "hold": True}}
        key = {"idempotency-key": "once"}
        made = await s.client.post("/runs", body, headers=key)
        run_id = made.json()["id"]
        await s.gates.reached("end")
        for _ in range(10):
            async with s.client.stream(run_id) as stream:
                await counted(stream, 2)
        before = await s.client.bootstrap(run_id)
        again = await s.client.post("/runs", body, headers=key)
        assert (made.status, again.status) == (201, 200)
        assert (again.json()["id"], again.json()["status"]) == (run_id, "running")
        after = await s.client.bootstrap(run_id)
        assert (after["events"], after["cursor"]) == (before["events"], before["cursor"])
        assert s.gates.calls == 1
        assert len((await s.client.get("/runs")).json()["runs"]) == 1
        # There is no other way to attach.
        refused = await s.client.post(f"/runs/{run_id}/stream")
        assert (refused.status, refused.json()["code"]) == (405, "method_not_allowed")


# How a stream ends.


@pytest.mark.row("BR-08", "A32")
async def test_the_stream_of_a_run_that_is_over_ends_at_once(backend: str, tmp_path: Path) -> None:
    short = {"timeline_ttl": 0.2, "keepalive": 0.1}
    async with stage(backend, tmp_path, counting, settings=short) as s:
        run_id = await s.client.start("count", {"n": 2})
        async with s.client.stream(run_id) as stream:
            await stream.end()
        last = stream.cursor
        assert stream.types[-1] == "run_succeeded"

        async def requests(cursor: str | None) -> int:
            """How often a browser asks, which comes back with the last id after every close and stops at 204."""
            for number in range(1, 10):
                async with s.client.stream(run_id, cursor) as one:
                    if one.status == 204:
                        return number
                    await one.end(1.0)
                    cursor = next((frame.id for frame in reversed(one.frames) if frame.id), cursor)
            return 10

        assert await requests(stream.frames[-1].id) == 1
        assert await requests(last) == 1
        assert await requests(None) == 2
        await s.client.ended(run_id)
        await asyncio.sleep(0.25)
        by_itself = backend == "servers"  # there the keys' own time to live ends them
        assert await s.engine.ports.live.expire() == (0 if by_itself else 1)
        await forget(s)
        async with s.client.stream(run_id) as bare:
            await bare.end(1.0)
        assert bare.types == ["run_succeeded"]
        assert bare.snapshot["status"] == "succeeded"
        assert [(frame.event, frame.id) for frame in bare.frames][-1] == ("end", "end")
        assert not any(line.startswith(b":") for line in bytes(bare.raw).split(b"\n"))
        async with s.client.stream(run_id, last) as again:
            assert again.status == 204
        assert await requests(None) == 2


@pytest.mark.row("A32", "A35")
async def test_an_end_that_is_recorded_and_not_told_yet_counts(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        await s.take_none()
        run_id = await s.client.start("count")
        record = s.engine.ports.record
        run = await record.claim("local", run_id, s.engine.process)
        live = s.engine.ports.live
        told = live.fact
        down = True

        async def late(*args: Any) -> Any:
            if down:
                raise StoreUnavailable
            return await told(*args)

        async with s.client.stream(run_id) as stream:
            await stream.type("attempt_started")
            live.fact = late
            await record.finish(run_id, run.token, Outcome(Status.FAILED))
            answer = await s.client.run(run_id)
            assert answer["status"] == "failed"
            assert (await s.client.post(f"/runs/{run_id}/cancel")).json()["status"] == "failed"
            assert "run_failed" not in stream.types
            down = False
            shown = await s.client.bootstrap(run_id)
            assert (shown["run"]["status"], shown["snapshot"]["status"]) == ("failed", "failed")
            await stream.end()
        assert stream.types[-1] == "run_failed"


# What keeps a stream open, and gets it through.


def streaming(path: str) -> bool:
    answers = describe()["paths"][path].get("get", {}).get("responses", {})
    return "text/event-stream" in answers.get("200", {}).get("content", {})


@pytest.mark.row("BR-65")
async def test_every_streaming_route_gets_through_proxies_at_once(backend: str, tmp_path: Path) -> None:
    # Another one has to be added here.
    assert [path for path in describe()["paths"] if streaming(path)] == ["/runs/{run_id}/stream", "/stream"]

    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        return [playhead.external_agent("outside"), *counting(gates)]

    async with stage(backend, tmp_path, agents) as s:
        queued = await s.client.start("outside")
        silent = await s.client.start("count", {"n": 0, "hold": True})
        await s.gates.reached("end")
        over = await s.client.start("count", {"n": 1})
        await s.client.ended(over)
        single = [f"/runs/{run_id}/stream" for run_id in (queued, silent, over)]
        several = [f"/stream?run={queued}&run={silent}", f"/stream?run={over}", f"/stream?run={silent}@nonsense"]
        for path in (*single, f"/runs/{silent}/stream?cursor=nonsense", *several):
            began = time.monotonic()
            stream = await s.client.open_path(path)
            try:
                await stream.more(1.0)
                assert time.monotonic() - began < 1.0
                assert stream.raw
                assert stream.status == 200
                assert stream.headers["content-type"].startswith("text/event-stream")
                assert {"no-store", "no-transform"} <= set(stream.headers["cache-control"].split(", "))
                assert stream.headers["x-accel-buffering"] == "no"
                assert "content-length" not in stream.headers
                assert "content-encoding" not in stream.headers
            finally:
                await stream.close()


@pytest.mark.row("BR-66", "A24")
async def test_a_quiet_stream_is_kept_alive_by_a_timer(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def asker(run: playhead.RunContext) -> None:
            await run.ask({"title": "Well?"})

        return [playhead.external_agent("outside"), asker, *counting(gates)]

    # Touches and sweeps of a live attempt show as state; here nothing but the timer speaks.
    calm = {"keepalive": 1.0, "sweep": 60.0}
    async with stage(backend, tmp_path, agents, settings=calm) as s:
        queued = await s.client.start("outside")
        silent = await s.client.start("count", {"n": 1, "hold": True})
        open_question = await s.client.start("asker")
        runs = [queued, silent, open_question]
        streams = [await s.client.open(run_id) for run_id in runs]
        for stream, last in zip(streams, ("run_queued", "counted", "approval_required"), strict=True):
            await stream.type(last)
            await stream.quiet(0.3)
        before = [await s.client.bootstrap(run_id) for run_id in runs]
        cursors = [stream.cursor for stream in streams]
        frames = [len(stream.frames) for stream in streams]
        starts = [len(stream.raw) for stream in streams]
        live = s.engine.ports.live
        read = live.read
        live.read = lambda *args, **window: asyncio.Event().wait()  # a store that does not answer changes nothing
        await asyncio.gather(*(stream.quiet(3.5) for stream in streams))
        live.read = read
        for stream, start, had in zip(streams, starts, frames, strict=True):
            new = bytes(stream.raw[start:]).split(b"\n")
            assert sum(line.startswith(b":") for line in new) >= 3
            assert not any(line.startswith((b"id", b"data", b"event")) for line in new)
            assert len(stream.frames) == had
        after = [await s.client.bootstrap(run_id) for run_id in runs]
        assert [one["cursor"] for one in after] == [one["cursor"] for one in before] == cursors
        assert [one["events"] for one in after] == [one["events"] for one in before]
        for stream in streams:
            await stream.close()


@pytest.mark.row("BR-67")
async def test_behind_a_compressing_middleware_events_come_one_by_one(backend: str, tmp_path: Path) -> None:
    def front(app: Any) -> Any:
        return GZipMiddleware(app, minimum_size=100)

    taking = {"accept-encoding": "gzip"}
    stops = [1, 2, 3, 4, 5]
    async with stage(backend, tmp_path, counting, front=front, settings={"keepalive": 30.0}) as s:
        run_id = await s.client.start("count", {"n": 5, "stops": stops, "hold": True})
        compressed = await s.client.get("/agents", headers=taking)
        assert compressed.headers["content-encoding"] == "gzip"
        began = time.monotonic()
        async with s.client.stream(run_id, headers=taking) as stream:
            assert time.monotonic() - began < 1.0
            assert "content-encoding" not in stream.headers
            await stream.type("attempt_started")
            for number in stops:
                await s.gates.reached(f"at-{number}")
                await stream.quiet(0.05)
                assert len(numbers(stream)) == number - 1
                s.gates.open(f"at-{number}")
                await stream.until(lambda one, number=number: numbers(one)[-1:] == [number], wait=1.0)
            s.gates.open("end")
            await stream.end()
            assert stream.types[-1] == "run_succeeded"


# What a stream shows.


@pytest.mark.store
@pytest.mark.row("A34", "A41")
async def test_a_change_of_state_alone_reaches_viewers_and_is_dated_by_the_server(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def mover(run: playhead.RunContext) -> None:
            await gates.wait("move")
            await run.update(progress=42, as_of="1999-01-01T00:00:00Z", detail="as of long ago")
            await run.flush()
            await gates.wait("event")
            await run.event("moved", {"at": "1999-01-01T00:00:00Z"}, progress=43)
            await gates.wait("end")

        return [mover]

    async with stage(backend, tmp_path, agents, clock=Frozen()) as s:
        run_id = await s.client.start("mover")
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("move")
            before = len(stream.events)
            s.gates.open("move")
            await stream.until(lambda one: one.snapshot["progress"] == 42 if one.named("state") else False)
            assert "moved" not in stream.types[before:]
            assert stream.snapshot["as_of"] == "1999-01-01T00:00:00Z"
            now = "2026-01-01T00:00:00.000Z"
            assert (stream.snapshot["updated_at"], stream.snapshot["heartbeat_at"]) == (now, now)
            s.gates.open("event")
            await stream.until(lambda one: one.snapshot["progress"] == 43)
            await stream.type("moved")
            moved = stream.events[-1]
            assert moved["occurred_at"] == now
            # The event names the state that it led to.
            assert moved["version"] == stream.snapshot["version"]


@pytest.mark.row("A40")
async def test_an_open_question_is_found_however_noisy_it_was_afterwards(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def noisy(run: playhead.RunContext) -> bool:
            async def noise() -> None:
                await gates.wait("asked")
                for i in range(60):
                    await run.event("counted", {"i": i})
                await gates.wait("noise")

            answer, _ = await asyncio.gather(run.ask({"title": "Still?"}), noise())
            return answer.approved

        return [noisy]

    async with stage(backend, tmp_path, agents, settings={"keep_events": 5}) as s:
        run_id = await s.client.start("noisy")
        async with s.client.stream(run_id) as stream:
            await stream.type("approval_required")
            s.gates.open("asked")
            await s.gates.reached("noise")
        await s.archived(run_id)
        shown = await s.client.bootstrap(run_id, limit=10)
        assert "approval_required" not in [event["type"] for event in shown["events"]]
        [question] = shown["interrupts"]
        assert question["payload"] == {"title": "Still?"}
        path = f"/runs/{run_id}/interrupts/{question['id']}/decision"
        assert (await s.client.post(path, {"approved": True})).status == 200
        s.gates.open("noise")
        assert (await s.client.ended(run_id))["result"] is True


@pytest.mark.row("A18", "A2", "A36")
async def test_a_run_can_be_followed_from_its_first_moment(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        return [playhead.external_agent("outside")]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("outside")
        view = await s.engine.ports.live.read(run_feed(run_id), after=0)
        start = f"{view.marks.epoch}-0.{view.entries[0].prev}"
        shown = await s.client.bootstrap(run_id)
        at = parse(shown["cursor"])
        assert at is not None
        assert (at.epoch > 0, at.position) == (True, 1)
        async with s.client.stream(run_id, start) as first, s.client.stream(run_id, shown["cursor"]) as tip:
            await first.type("run_queued")
            async with playhead.attempt(run_id) as run:
                await run.event("taken")
            await first.end()
            await tip.end()
        whole = ["run_queued", "run_started", "attempt_started", "taken", "run_succeeded"]
        assert (first.types, tip.types) == (whole, whole[1:])
        assert first.named("resync_required") == tip.named("resync_required") == []


@pytest.mark.row("A42")
async def test_access_is_checked_at_every_connect_and_while_a_stream_is_open(backend: str, tmp_path: Path) -> None:
    allowed = True
    asked: list[str] = []

    def authorize(principal: Any, action: str, run: Any) -> bool:
        asked.append(action)
        return allowed

    quick = {"keepalive": 0.2, "recheck": 0.2}
    async with stage(backend, tmp_path, counting, settings=quick, authorize=authorize) as s:
        run_id = await s.client.start("count", {"n": 2, "stops": [2], "hold": True})
        await s.gates.reached("at-2")
        async with s.client.stream(run_id) as stream:
            await counted(stream, 1)
            asked.clear()
            await stream.until(lambda one: bytes(one.raw).count(b"\n:") >= 4)
            assert asked.count("run.stream") >= 2
            allowed = False
            await stream.end(2.0)
        assert "end" not in [frame.event for frame in stream.frames]
        s.gates.open("at-2")
        assert numbers(stream) == [1]
        async with s.client.stream(run_id, stream.cursor) as refused:
            assert refused.status == 404
        allowed = True
        async with s.client.stream(run_id, stream.cursor) as back:
            await counted(back, 2)
            assert numbers(back) == [2]


@pytest.mark.row("A27")
async def test_every_line_of_data_is_strict_json(backend: str, tmp_path: Path) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def odd(run: playhead.RunContext) -> None:
            await run.event("measured", {"nan": float("nan"), "text": "\ud800\0\u2028\r\n\r\nevent: end\n"})
            await run.text("x\r\n\r\nevent: run_succeeded\r\ndata: {}\n\n")

        return [odd]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("odd")
        async with s.client.stream(run_id) as stream:
            await stream.end()
        lines = [line for line in bytes(stream.raw).split(b"\n") if line.startswith(b"data:")]
        assert len(lines) == len(stream.frames)
        for line in lines:
            assert isinstance(json.loads(line[5:].decode(), parse_constant=refuse), dict)
