"""How a stream behaves on its socket: its beginning, its headers, its silence, its crowd, its refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from playhead.core.run import Run
from playhead.gateway import Principal
from tests.support import behind
from tests.support.agents import counting
from tests.support.stage import BACKENDS, stage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", BACKENDS)]

OURS = {"accept": "text/event-stream; client=playhead"}
STILL = {"sweep": 60.0}  # no sign of life in between


@pytest.mark.row("R36")
async def test_every_connection_begins_with_the_current_state_once(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting, settings=STILL) as s:
        run_id = await s.client.start("count", {"n": 6, "hold": True})
        await s.gates.reached("end")
        async with s.client.stream(run_id) as fresh:
            await fresh.type("counted", 6)
        async with s.client.stream(run_id, fresh.cursor) as again:
            await again.until(lambda one: one.frames)
            await again.quiet()
        for stream in (fresh, again):
            assert stream.frames[0].event == "state"
            assert len(stream.named("state")) == 1
            assert (stream.snapshot["done"], stream.snapshot["status"]) == (6, "running")
        assert again.events == []


@pytest.mark.row("R40")
async def test_headers_keep_caches_and_proxies_out_of_the_way(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting, settings={"retry": 2.0}) as s:
        run_id = await s.client.start("count")
        await s.client.ended(run_id)
        async with s.client.stream(run_id) as stream:
            await stream.end()
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-store, no-transform"
        assert stream.headers["x-accel-buffering"] == "no"
        assert "content-length" not in stream.headers
        assert "content-encoding" not in stream.headers
        assert bytes(stream.raw).startswith(b"retry: ")
        assert 1_000 <= (stream.retry or 0) <= 3_000


@pytest.mark.row("R41")
async def test_a_quiet_stream_is_kept_alive_and_goes_nowhere(backend: str, tmp_path: Path) -> None:
    """Queued, running or waiting: comments come, and none of them has an id or moves a cursor."""
    settings = {**STILL, "keepalive": 0.1, "concurrency": 1}
    async with stage(backend, tmp_path, counting, settings=settings) as s:
        running = await s.client.start("count", {"n": 1, "hold": True})
        await s.gates.reached("end")
        queued = await s.client.start("count")
        for run_id, last in ((running, "counted"), (queued, "run_queued")):
            async with s.client.stream(run_id) as stream:
                await stream.type(last)
                before = (len(stream.frames), stream.cursor, len(stream.raw))
                await stream.until(lambda one: one.raw.count(b"\n:\n\n") >= 3)
                rest = bytes(stream.raw[before[2] :])
                assert rest.replace(b":\n\n", b"") == b""
                assert (len(stream.frames), stream.cursor) == before[:2]


@pytest.mark.row("R42", "M-split-viewers", "S1-13")
async def test_viewers_take_nothing_from_each_other(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 40, "stops": [1, 11, 21, 31]})
        streams, gone = [], []
        for stop in (1, 11, 21, 31):
            await s.gates.reached(f"at-{stop}")
            streams += [await s.client.open(run_id) for _ in range(3)]
            lost = await s.client.open(run_id)
            await lost.type("run_started")
            gone.append(lost)
            if stop > 1:
                gone[-2].reset()  # in the middle of the run
            s.gates.open(f"at-{stop}")
        for stream in streams:
            await stream.end()
            await stream.close()
        gone[-1].reset()
        whole = [event["id"] for event in (await s.client.bootstrap(run_id, limit=200))["events"]]
        assert len(whole) == 44
        for stream in streams:
            assert [event["id"] for event in stream.events] == whole


@pytest.mark.row("M-suspended-tab")
async def test_a_tab_that_slept_goes_on_by_its_cursor(backend: str, tmp_path: Path) -> None:
    """Its connection is cut without a word; the run goes on unwatched, and the tab finds all that it missed."""
    async with stage(backend, tmp_path, counting, settings={"sweep": 0.1, "keepalive": 0.1}) as s:
        run_id = await s.client.start("count", {"n": 30, "stops": [11, 21]})
        tab = await s.client.open(run_id)
        await tab.type("counted", 10)
        tab.reset()
        async with asyncio.timeout(20):
            while s.engine.hub.viewers:
                await asyncio.sleep(0.01)
        s.gates.open("at-11")
        await s.gates.reached("at-21")
        assert (await s.client.run(run_id))["status"] == "running"
        async with s.client.stream(run_id, tab.cursor) as awake:
            await awake.type("counted", 10)
            s.gates.open("at-21")
            await awake.end()
        counted = [event["payload"]["i"] for event in awake.events if event["type"] == "counted"]
        assert counted == list(range(11, 31))
        assert awake.types[-1] == "run_succeeded"


@pytest.mark.row("R42", "M-hint-lost")
async def test_lost_wake_ups_delay_and_lose_nothing(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting, settings={"sweep": 0.2}) as s:
        run_id = await s.client.start("count", {"n": 30, "stops": [5], "hold": True})
        async with s.client.stream(run_id) as stream:
            await stream.type("counted", 4)
            with behind.lost_hints(s.app) as lost:
                s.gates.open("at-5")
                await stream.type("counted", 30)  # the whole rest comes by the sweep, while the run goes on
                s.gates.open("end")
                await stream.end()
        assert lost
        assert stream.types[-1] == "run_succeeded"
        assert [event["payload"]["i"] for event in stream.events if event["type"] == "counted"] == list(range(1, 31))
        assert stream.named("resync_required") == []


@pytest.mark.row("R44")
async def test_above_the_cap_clients_are_told_when_to_come_back(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting, settings={"max_streams": 2}) as s:
        run_id = await s.client.start("count", {"hold": True})
        await s.gates.reached("end")
        first, second = await s.client.open(run_id), await s.client.open(run_id)
        for stream in (first, second):
            await stream.type("counted", 3)
        refused = await s.client.get(f"/runs/{run_id}/stream", headers=OURS)
        assert (refused.status, refused.json()["code"]) == (429, "too_many_streams")
        assert int(refused.headers["retry-after"]) >= 1
        async with s.client.stream(run_id) as native:
            await native.end()
        assert [frame.event for frame in native.frames] == ["draining"]
        assert 15_000 <= (native.retry or 0) <= 45_000
        first.reset()
        async with asyncio.timeout(20):
            while (again := await s.client.open(run_id, headers=OURS)).status == 429:
                await again.close()
                await asyncio.sleep(0.05)
        await again.type("counted", 3)
        for stream in (first, second, again):
            await stream.close()


@pytest.mark.row("R44")
async def test_old_connections_are_checked_again(backend: str, tmp_path: Path) -> None:
    may = True

    def authorize(principal: Principal, action: str, run: Run | None) -> bool:
        return may or action != "run.stream"

    settings = {**STILL, "keepalive": 0.05, "recheck": 0.1}
    async with stage(backend, tmp_path, counting, settings=settings, authorize=authorize) as s:
        run_id = await s.client.start("count", {"n": 2, "stops": [2]})
        async with s.client.stream(run_id) as stream:
            await stream.type("counted")
            await stream.quiet(0.5)
            assert not stream.closed  # looked at, and let be
            may = False
            await stream.end()
        assert not stream.named("end")
        s.gates.open("at-2")
        await s.client.ended(run_id)
        assert stream.types.count("counted") == 1
        async with s.client.stream(run_id, stream.cursor) as again:
            assert again.status == 403


@pytest.mark.row("M-slow-client")
async def test_a_slow_viewer_is_cut_off_alone_and_comes_back_for_the_rest(backend: str, tmp_path: Path) -> None:
    # From servers several events come in one piece, of 40 kB each: whoever keeps up may still be that far behind.
    most = (512 if backend == "servers" else 64) << 10
    settings = {"viewer_bytes": most, "ring_bytes": most}
    async with stage(backend, tmp_path, counting, settings=settings) as s:
        # More than any socket buffer on the way takes.
        run_id = await s.client.start("count", {"n": 200, "size": 40_000, "stops": [1]})
        slow = await s.client.open(run_id, buffer=4_096)
        slow.reader._transport.pause_reading()  # type: ignore[attr-defined]
        async with s.client.stream(run_id) as quick:
            s.gates.open("at-1")
            await quick.end(60.0)
        assert len(quick.events) == 204
        assert s.engine.hub.statistics.get("lagging") == 1
        slow.reader._transport.resume_reading()  # type: ignore[attr-defined]
        try:
            await slow.end()
        except ConnectionError:
            pass
        await slow.close()
        assert not slow.named("end")
        assert len(slow.events) < 204
        cursor = slow.cursor
        async with s.client.stream(run_id, cursor) as rest:
            await rest.end(60.0)
        seen = [event["id"] for event in slow.events + rest.events]
        assert seen == [event["id"] for event in quick.events]
