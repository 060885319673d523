"""A server process as its machine treats it: signals, cut connections, other loops, blocked loops, clocks that step."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import playhead
from playhead.app import App
from playhead.cli.listen import address_of, listen
from playhead.cli.server import Server
from playhead.core.cursor import parse
from playhead.runtime.clock import SystemClock
from playhead.settings import Settings
from tests.crash.scene import Scene
from tests.support.agents import counting
from tests.support.nursery import Nursery
from tests.support.reducer import FINALS
from tests.support.stage import QUICK, Gates, Stage, stage
from tests.support.viewer import Viewer
from tests.support.wire import PATIENCE, Client, Frame, Stream

WINDOW, GRACE = 2.0, 2.5  # seconds of the drains below


def retries(stream: Stream) -> list[int]:
    return [said["retry_ms"] for said in stream.named("draining")]


async def closing(stream: Stream, began: float) -> float:
    """Read to the end; when it came."""
    await stream.end()
    return asyncio.get_running_loop().time() - began


def check_farewells(streams: Sequence[Stream], closed: Sequence[float]) -> None:
    """Each stream ended cleanly, with its own time to come back and no end of the run; not all in one moment."""
    for stream in streams:
        assert stream.frames[-1].event == "draining"
        assert stream.closed  # by the last chunk, not by a cut
        assert not stream.named("end")
        assert not FINALS.keys() & set(stream.types)
        assert stream.retry == retries(stream)[0]
    told = [retries(stream)[0] for stream in streams]
    assert max(told) - min(told) > 25  # of a base of 100 ms
    assert max(closed) - min(closed) > WINDOW / 2


@pytest.mark.anyio
@pytest.mark.row("F6", "BR-68", "M-graceful-shutdown")
async def test_a_terminated_server_says_good_bye_and_leaves_in_time(tmp_path: Path, nursery: Nursery) -> None:
    drain = ("--set", f"drain_window={WINDOW}", "--set", f"drain_grace={GRACE}")
    scene = Scene(nursery, tmp_path, drain)
    try:
        server = await (await scene.start()).ready()
        client = scene.client
        active = await client.start("endless")
        streams = [await client.open(active) for _ in range(20)]
        for stream in streams:
            await stream.type("work_begun")
        began = asyncio.get_running_loop().time()
        reading = [asyncio.create_task(closing(stream, began)) for stream in streams]
        server.signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            while (await client.get("/readyz")).status != 503:
                await asyncio.sleep(0.01)
        async with client.stream(active) as late:  # a native client gets no refusal that it would give up on
            await late.end()
        assert (late.status, [frame.event for frame in late.frames]) == (200, ["draining"])
        closed = await asyncio.gather(*reading)
        assert await server.ended() == 0
        assert asyncio.get_running_loop().time() - began < max(WINDOW, GRACE) + 2.0
        check_farewells(streams, closed)
        assert "Traceback" not in server.log
        assert "ERROR" not in server.log

        await (await scene.start()).ready()
        run = await client.run(active)
        assert (run["status"], run["error"]["code"]) == ("interrupted", "server_stopped")
        async with client.stream(active, streams[0].cursor) as back:
            await back.end()
        assert back.types == ["run_interrupted"]
        for stream in streams:
            await stream.close()
    finally:
        await scene.close()


@pytest.mark.anyio
@pytest.mark.row("BR-68")
async def test_a_server_in_a_thread_stops_when_its_code_says_so(tmp_path: Path) -> None:
    @playhead.agent
    async def endless(run: playhead.RunContext) -> None:
        await run.event("work_begun")
        await asyncio.Event().wait()

    quick = {**QUICK, "drain_window": WINDOW, "drain_grace": GRACE, "retry": 0.1}
    app = App([endless], settings=Settings.load(data=tmp_path, environ={}, **quick))
    taken = listen("127.0.0.1", 0, send_buffer=256 << 10, silence=30.0)
    ready = threading.Event()
    errors: list[BaseException] = []

    async def is_ready() -> None:
        ready.set()

    server = Server(app, is_ready)

    def serve() -> None:
        async def whole() -> None:
            try:
                await server.serve(sockets=[taken])
            finally:
                await app.close()

        try:
            asyncio.run(whole())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    assert await asyncio.to_thread(ready.wait, PATIENCE)
    client = Client("127.0.0.1", int(address_of(taken).rpartition(":")[2]))
    active = await client.start("endless")
    streams = [await client.open(active) for _ in range(20)]
    for stream in streams:
        await stream.type("work_begun")
    began = asyncio.get_running_loop().time()
    reading = [asyncio.create_task(closing(stream, began)) for stream in streams]
    server.stop()
    closed = await asyncio.gather(*reading)
    await asyncio.to_thread(thread.join, PATIENCE)
    assert not thread.is_alive()
    assert asyncio.get_running_loop().time() - began < max(WINDOW, GRACE) + 2.0
    assert errors == []
    check_farewells(streams, closed)
    for stream in streams:
        await stream.close()


@pytest.mark.anyio
@pytest.mark.row("BR-68")
async def test_a_stream_that_comes_in_as_the_server_leaves_is_sent_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage("sqlite", tmp_path, counting, settings={"drain_window": 0.05}) as s:
        run_id = await s.client.start("count", {"n": 1})
        await s.client.ended(run_id)
        await s.archived(run_id)  # the archiver reads no more
        await s.engine.projector.settle()  # nor does the reconciler
        reading = asyncio.Event()

        async def endless(*_: object, **__: object) -> None:
            reading.set()
            await asyncio.Event().wait()

        s.engine.ports.live.read = endless
        ours = {"accept": "text/event-stream; client=playhead"}
        native = asyncio.create_task(s.client.open(run_id))
        own = asyncio.create_task(s.client.call("GET", f"/runs/{run_id}/stream", headers=ours))
        await reading.wait()
        while s.engine.hub.streams < 2:
            await asyncio.sleep(0.01)
        await s.app.drain()
        stream = await native
        await stream.end()
        assert (stream.status, stream.frames[-1].event) == (200, "draining")
        await stream.close()
        answer = await own
        assert (answer.status, answer.json()["code"]) == (503, "not_ready")
        assert "retry-after" in answer.headers
        del s.engine.ports.live.read
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.anyio
@pytest.mark.row("BR-04", "A5", "T-7")
async def test_a_cursor_means_the_same_after_a_restart(tmp_path: Path, nursery: Nursery) -> None:
    scene = Scene(nursery, tmp_path)
    try:
        server = await (await scene.start()).ready()
        client = scene.client
        run_id = await client.start("resumable", {"steps": 1})
        stream = await client.open(run_id)
        await stream.type("approval_required")
        third = stream.cursor
        assert third is not None
        server.signal()
        await server.ended()
        await stream.close()
        scene.may_decide.set()
        viewer = Viewer(client, run_id)
        person = asyncio.create_task(scene._decide(viewer))
        await (await scene.start()).ready()
        await viewer.follow()
        await person

        async with client.stream(run_id, third) as again:
            await again.end()
        before, after = [event["id"] for event in stream.events], [event["id"] for event in again.events]
        assert "attempt_started" in again.types
        assert [*before, *after] == list(viewer.screen.events)
        places = [parse(frame.id) for frame in [*stream.frames, *again.frames] if frame.event == "message" and frame.id]
        assert len(places) == len(before) + len(after)
        assert [(place.epoch, place.position) for place in places if place] == [
            (places[0].epoch, position) for position in range(1, len(places) + 1) if places[0]
        ]

        epoch, _, rest = third.partition("-")
        position, _, tag = rest.partition(".")
        async with client.stream(run_id, f"{epoch}-{int(position) + 10_000_000}.{tag}") as ahead:
            await ahead.end()
        assert [said["reason"] for said in ahead.named("resync_required")] == ["ahead"]
        assert ahead.events == []
    finally:
        await scene.close()


@pytest.mark.anyio
@pytest.mark.row("BR-13", "M-suspended-tab")
async def test_a_connection_that_is_cut_again_and_again_stops_nothing(tmp_path: Path) -> None:
    async with stage("sqlite", tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 6, "stops": [1, 2, 3, 4, 5]})
        seen: list[str] = []
        cursor = None
        for i in range(1, 6):
            await s.gates.reached(f"at-{i}")
            stream = await s.client.open(run_id, cursor)
            newest = {f"{run_id}:1:{i - 1}"} if i > 1 else set()
            await stream.until(lambda one, newest=newest: newest <= {event["id"] for event in one.events})
            seen += [event["id"] for event in stream.events]
            cursor = stream.cursor or cursor
            stream.reset()
            while s.engine.hub.streams:
                await asyncio.sleep(0.01)
            assert (await s.client.run(run_id))["status"] == "running"
            s.gates.open(f"at-{i}")
        async with s.client.stream(run_id, cursor) as stream:
            await stream.end()
        seen += [event["id"] for event in stream.events]
        run = await s.client.run(run_id)
        assert (run["status"], run["result"], run["cancel_requested"]) == ("succeeded", {"counted": 6}, None)
        shown = await s.client.bootstrap(run_id)
        assert [event["id"] for event in shown["events"]] == seen
        assert {event["type"] for event in shown["events"]} == {
            "run_queued", "run_started", "attempt_started", "counted", "run_succeeded",
        }  # fmt: skip


@pytest.mark.anyio
@pytest.mark.row("F13", "BR-71")
async def test_five_hundred_cut_connections_leave_nothing_behind(tmp_path: Path) -> None:
    async with stage("sqlite", tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 1, "hold": True})
        await s.gates.reached("end")
        async with s.client.stream(run_id) as stream:
            await stream.type("counted")
        await settled(s)
        tasks, files = len(asyncio.all_tasks()), open_files(tmp_path)
        for n in range(500):
            if n % 3 == 0:  # before it has read a header
                _, writer = await asyncio.open_connection(s.client.host, s.client.port)
                writer.write(f"GET /runs/{run_id}/stream HTTP/1.1\r\nHost: {s.client.host}\r\n".encode())
                if n % 2:
                    writer.write(b"\r\n")
                writer.transport.abort()
                continue
            stream = await s.client.open(run_id)
            if n % 3 == 1:
                await stream.type("counted")
            stream.reset()
        async with asyncio.timeout(10):
            await settled(s)
            while len(asyncio.all_tasks()) > tasks or open_files(tmp_path) > files:
                await asyncio.sleep(0.05)
        assert (await s.client.run(run_id))["status"] == "running"


def open_files(folder: Path) -> int:
    """Those of this process, but for the store's own in the folder: its readers open theirs when they are needed."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            pass  # that of the listing itself
    return sum(not link.startswith(str(folder)) for link in links)


async def settled(s: Stage) -> None:
    while s.engine.hub.streams or s.engine.hub.viewers or s.server.server_state.tasks:
        await asyncio.sleep(0.02)


async def one_run(folder: Path) -> list[str]:
    """An app of its own, a run, and a stream to its end; the types seen."""
    async with stage("sqlite", folder, counting) as s:
        run_id = await s.client.start("count", {"n": 3})
        async with s.client.stream(run_id) as stream:
            await stream.end()
        assert (await s.client.run(run_id))["status"] == "succeeded"
        return stream.types


ONE_RUN = ["run_queued", "run_started", "attempt_started", "counted", "counted", "counted", "run_succeeded"]


@pytest.mark.row("BR-69")
def test_loops_one_after_the_other_and_side_by_side(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert [asyncio.run(one_run(tmp_path / "again")) for _ in range(2)] == [ONE_RUN] * 2
        found: dict[int, object] = {}

        def run(number: int) -> None:
            try:
                found[number] = asyncio.run(one_run(tmp_path / str(number)))
            except BaseException as error:
                found[number] = error

        threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert found == {0: ONE_RUN, 1: ONE_RUN}
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.anyio
@pytest.mark.row("F14", "H-block-60s")
async def test_a_blocked_loop_is_noticed_and_costs_no_lease_and_no_viewer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def blocker(run: playhead.RunContext) -> None:
            await gates.wait("block")
            time.sleep(2.0)

        return [*counting(gates), blocker]

    async with stage("sqlite", tmp_path, agents, settings={"lease": 0.5, "beat": 0.1}) as s:
        other = await s.client.start("count", {"n": 4, "stops": [2, 4]})
        blocker = await s.client.start("blocker")
        await s.gates.reached("block")
        await s.gates.reached("at-2")
        async with s.client.stream(other) as stream:
            await stream.type("counted")
            s.gates.open("block")
            assert (await s.client.ended(blocker))["status"] == "succeeded"
            s.gates.open("at-2", "at-4")
            await stream.end()
        assert stream.types.count("counted") == 4
        for run_id in (blocker, other):
            run = await s.client.run(run_id)
            assert (run["status"], run["attempt"]) == ("succeeded", 1)
        assert s.engine.reconciler.statistics["reaped"] == 0
        metrics = (await s.client.get("/metrics")).body.decode()
        assert re.search(r"^playhead_loop_blocked_total [1-9]", metrics, re.MULTILINE)
        assert "the event loop stood still" in caplog.text


class SteppingClock(SystemClock):
    """The time of day can be set back, as by hand; nothing else of it is special."""

    def __init__(self) -> None:
        self.back_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() - self.back_ms


@pytest.mark.anyio
@pytest.mark.row("BR-90")
async def test_an_hour_that_comes_twice_changes_nothing(tmp_path: Path) -> None:
    clock = SteppingClock()
    lease = 1.0
    async with stage("sqlite", tmp_path, counting, settings={"lease": lease, "beat": 0.2}, clock=clock) as s:
        record = s.engine.ports.record
        run_id = await s.client.start("count", {"n": 6, "stops": [3, 5]})
        # Another process took a run just before, and is not heard of again.
        await s.take_none()
        lost_id = await s.client.start("count", {"n": 1})
        await record.beat("other", round(lease * 1000), [])
        await record.claim("local", lost_id, "other")
        s.engine.worker._accepting = True
        await s.gates.reached("at-3")
        viewer = Viewer(s.client, run_id)
        following = asyncio.create_task(viewer.follow())
        clock.back_ms = 3_600_000
        stepped = asyncio.get_running_loop().time()
        assert (await s.client.ended(lost_id, lease + 5.0))["status"] == "interrupted"  # not in an hour
        await asyncio.sleep(max(0.0, stepped + 2 * lease - asyncio.get_running_loop().time()))
        assert (await s.client.run(run_id))["status"] == "running"  # and its own is as good as before
        later = await s.client.start("count", {"n": 1})
        assert (await s.client.ended(later))["status"] == "succeeded"
        s.gates.open("at-3")
        await s.gates.reached("at-5")
        await s.archived(run_id)
        await s.flush()  # a new epoch, minted in the hour that comes twice, is a later one all the same
        s.gates.open("at-5")
        await following
        screen = viewer.screen
        assert viewer.resyncs in ([], ["epoch"], ["expired"])
        assert screen.faults == []
        types = [event["type"] for event in screen.events.values()]
        assert types == ["run_queued", "run_started", "attempt_started", *["counted"] * 6, "run_succeeded"]
        assert [event["id"] for event in await pages(s.client, run_id)] == list(screen.events)
        assert (await s.client.run(run_id))["attempt"] == 1
        newest = (await s.client.get("/runs")).json()["runs"]
        assert [run["id"] for run in newest] == [later, lost_id, run_id]


async def pages(client: Client, run_id: str) -> list[dict[str, Any]]:
    return list((await client.get(f"/runs/{run_id}/events?limit=200")).json()["events"])


@pytest.mark.anyio
@pytest.mark.row("BR-76", "BR-77")
async def test_a_viewer_that_never_reads_is_let_go_and_comes_back_to_all_of_it(tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def talker(run: playhead.RunContext) -> None:
            for i in range(200):
                await run.event("step_taken", {"i": i, "pad": "x" * 8_000}, progress=i / 2)
                for _ in range(250):
                    await run.text("token ")

        return [talker]

    bound = 64 << 10
    async with stage("sqlite", tmp_path, agents, settings={"viewer_bytes": bound}) as s:

        async def timed() -> tuple[str, float]:
            run_id = await s.client.start("talker")
            began = asyncio.get_running_loop().time()
            async with s.client.stream(run_id) as reader:
                await reader.end()
            assert reader.types.count("step_taken") == 200
            return run_id, asyncio.get_running_loop().time() - began

        _, alone = await timed()
        await s.take_none()
        run_id = await s.client.start("talker")
        stuck = await s.client.open(run_id, buffer=4_096)
        while len(s.server.server_state.connections) > 1:
            await asyncio.sleep(0.01)
        [protocol] = s.server.server_state.connections
        transport: Any = protocol.transport
        held = [0]

        async def watch() -> None:
            while not transport.is_closing():
                held.append(transport.get_write_buffer_size())
                await asyncio.sleep(0.005)

        watching = asyncio.create_task(watch())
        began = asyncio.get_running_loop().time()
        s.engine.worker._accepting = True
        s.engine.worker.wake()
        assert (await s.client.ended(run_id))["status"] == "succeeded"
        watched = asyncio.get_running_loop().time() - began
        await watching
        assert max(held) < 4 * bound
        assert watched < 1.5 * alone + 1.0
        assert s.engine.hub.statistics.get("lagging") == 1

        # What was on its way is there, then the connection is gone: never open after the end.
        try:
            await stuck.end()
        except ConnectionError:
            pass
        await stuck.close()
        seen = [event["id"] for event in stuck.events]
        assert len(seen) < 204
        async with s.client.stream(run_id, stuck.cursor) as back:
            await back.end()
        assert [*seen, *(event["id"] for event in back.events)] == [e["id"] for e in await all_pages(s.client, run_id)]
        assert back.types[-1] == "run_succeeded"


async def all_pages(client: Client, run_id: str) -> list[dict[str, Any]]:
    newest = (await client.get(f"/runs/{run_id}/events?limit=200")).json()
    older = (await client.get(f"/runs/{run_id}/events?limit=200&before={newest['timeline']['oldest']}")).json()
    return [*older["events"], *newest["events"]]


ZONED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
LOOKS_LIKE_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


def times(value: object, at: str = "") -> dict[str, str]:
    """Every text that looks like a time, with where it is."""
    if isinstance(value, dict):
        return {k: v for name, inner in value.items() for k, v in times(inner, f"{at}.{name}").items()}
    if isinstance(value, list):
        return {k: v for i, inner in enumerate(value) for k, v in times(inner, f"{at}[{i}]").items()}
    return {at: value} if isinstance(value, str) and LOOKS_LIKE_TIME.match(value) else {}


@pytest.mark.anyio
@pytest.mark.row("BR-89")
async def test_every_time_names_its_zone_wherever_the_server_stands(tmp_path: Path, nursery: Nursery) -> None:
    scene = Scene(nursery, tmp_path, ("--tz", "Asia/Seoul"))
    try:
        began = datetime.now(UTC)
        server = await (await scene.start()).ready()
        run_id = await scene.client.start("resumable", {"steps": 1})
        async with scene.client.stream(run_id) as stream:
            await stream.type("approval_required")
            here = [await scene.client.run(run_id), await scene.client.bootstrap(run_id)]
        here.append((await scene.client.get("/interrupts")).json())
        server.signal()
        await server.ended()
        scene.arguments = ("--tz", "America/New_York")
        await (await scene.start()).ready()
        said: list[object] = [*here, *stream.frames]
        there = await scene.client.run(run_id)
        assert there["created_at"] == here[0]["created_at"]
        said += [there, await scene.client.bootstrap(run_id), (await scene.client.get("/runs")).json()]
        async with scene.client.stream(run_id) as stream:
            await stream.type("approval_required", 2)
            said += stream.frames
        found = times([one.data if isinstance(one, Frame) else one for one in said])
        assert {at.rpartition(".")[2] for at in found} >= {"created_at", "updated_at", "started_at", "occurred_at"}
        for at, text in found.items():
            assert ZONED.fullmatch(text), (at, text)
            instant = datetime.fromisoformat(text)
            assert abs((instant - began).total_seconds()) < 2.0 or began <= instant <= datetime.now(UTC), (at, text)
    finally:
        await scene.close()
