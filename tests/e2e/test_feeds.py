"""Several runs on one connection through a whole server: nothing is lost, doubled or held up, whatever befalls one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

import playhead
from playhead.core.composite import MAX_COMPOSITE, MAX_FEEDS
from playhead.core.cursor import END
from playhead.core.ids import run_feed
from playhead.core.run import Run
from playhead.gateway.auth import Principal
from tests.support.feeds import Taken, follow, query, taken
from tests.support.reducer import Screen
from tests.support.stage import STORES, Gates, Stage, stage
from tests.support.wire import Client, Stream

pytestmark = pytest.mark.anyio
each_backend = pytest.mark.parametrize("backend", STORES)

OURS = {"accept": "text/event-stream; client=playhead"}
NEVER = "01890abc-0000-7000-8000-00000000000f"


class Desk:
    """Runs that do what they are told, each for itself: `note` an event, `say` a word, or `end`."""

    def __init__(self) -> None:
        self._orders: dict[str, asyncio.Queue[tuple[str, int]]] = {}
        self.noted: dict[str, int] = {}

    def agents(self, gates: Gates) -> Sequence[playhead.Agent]:
        async def work(run: playhead.RunContext) -> int:
            orders = self._orders.setdefault(run.id, asyncio.Queue())
            while True:
                what, size = await orders.get()
                if what == "end":
                    orders.task_done()
                    return self.noted.get(run.id, 0)
                if what == "say":
                    await run.text("word " * size, "answer")
                else:
                    number = self.noted[run.id] = self.noted.get(run.id, 0) + 1
                    await run.event("noted", {"n": number, "pad": "x" * size}, done=number)
                orders.task_done()

        return [
            playhead.agent(name="worker", resumable=True)(work),
            playhead.agent(name="shy", on_disconnect="cancel")(work),
        ]

    async def tell(self, run_id: str, what: str = "note", size: int = 0, times: int = 1) -> None:
        """Returns once the run has done it."""
        orders = self._orders.setdefault(run_id, asyncio.Queue())
        for _ in range(times):
            orders.put_nowait((what, size))
        await orders.join()

    async def start(self, client: Client, count: int = 2) -> list[str]:
        """So many runs, each of which has noted three things."""
        runs = [await client.start("worker") for _ in range(count)]
        for run_id in runs:
            await self.tell(run_id, times=3)
        return runs


@asynccontextmanager
async def office(backend: str, folder: Path, desk: Desk | None = None, **how: Any) -> AsyncIterator[tuple[Stage, Desk]]:
    desk = desk or Desk()
    settings = {"concurrency": 50, **how.pop("settings", {})}
    async with stage(backend, folder, desk.agents, settings=settings, **how) as s:
        yield s, desk


@asynccontextmanager
async def stream_of(client: Client, runs: Sequence[str], last: str | None = None, **more: Any) -> AsyncIterator[Stream]:
    stream = await follow(client, runs, last, **more)
    try:
        yield stream
    finally:
        await stream.close()


def noted(stream: Stream, run_id: str) -> list[int]:
    return [event["payload"]["n"] for event in taken(stream).said(run_id, "message") if event["type"] == "noted"]


async def reach(stream: Stream, upto: Mapping[str, int]) -> Stream:
    """Read until each of these runs has noted so many things."""
    return await stream.until(lambda one: all(number in noted(one, run_id) for run_id, number in upto.items()))


async def closed(stream: Stream) -> Stream:
    """Read to the end, also where it is cut."""
    try:
        return await stream.end()
    except ConnectionError:
        stream.closed = True
        return stream


# Each is followed as on a stream of its own.


@pytest.mark.store
@each_backend
@pytest.mark.row("BR-01", "A28", "R43")
async def test_runs_are_followed_together_from_wherever_each_is(backend: str, tmp_path: Path) -> None:
    async with office(backend, tmp_path) as (s, desk):
        one, other = await desk.start(s.client)
        async with stream_of(s.client, [one, other]) as stream:
            await reach(stream, {one: 3, other: 3})
            at = taken(stream).cursor(one)
            await desk.tell(one)
            await desk.tell(other, times=2)
            await reach(stream, {one: 4, other: 5})
            # One that joins late, one that goes on, and one whose place is beside it.
            late = await s.client.start("worker")
            await desk.tell(late)
            async with stream_of(s.client, [f"{one}@{at}", late, other]) as joined:
                await reach(joined, {one: 4, late: 1, other: 5})
                await desk.tell(late)
                await reach(joined, {late: 2})
                assert noted(joined, one) == [4]
                assert noted(joined, other) == [1, 2, 3, 4, 5]
                alone = await s.client.open(late)
                await alone.type("noted", 2)
                await alone.close()
                assert taken(joined).said(late, "message") == alone.events
                assert [frame.id for frame in taken(joined).of(late) if frame.event == "message"] == [
                    frame.id for frame in alone.frames if frame.event == "message"
                ]
            assert b"event: noted" not in stream.raw


class Tab:
    """A page that shows several runs, and loses its connection at any byte."""

    def __init__(self, client: Client, runs: Sequence[str]) -> None:
        self.client, self.runs = client, runs
        self.screens = {run_id: Screen() for run_id in runs}
        self.last: str | None = None  # the id that a browser sends
        self.said = dict.fromkeys(runs, 0)  # bytes of text, by each run
        self._events: dict[str | None, str] = {}  # by cursor

    async def visit(self, by: str, upto: float) -> Taken:
        """Read all that there is, and have the connection break within it. `by`: the id of the last connection, or
        the cursors of the runs."""
        header = self.last if by == "id" else None
        places = {run_id: self.screens[run_id].cursor for run_id in self.runs}
        if by == "id":
            places = {run_id: Taken(last=header).place(run_id) for run_id in self.runs}
        asked = self.runs if by == "id" else [f"{run}@{at}" if at else run for run, at in places.items()]
        stream = await follow(self.client, asked, header)
        tips = {run_id: (await self.client.bootstrap(run_id))["cursor"] for run_id in self.runs}

        def current(one: Stream) -> bool:
            got = taken(one, header)
            return one.closed or all(
                places[run_id] == END
                or ((got.cursor(run_id) or places[run_id]) == tips[run_id] and self._has_text(got, run_id))
                for run_id in self.runs
            )

        await stream.until(current)
        stream.reset()
        await stream.close()
        got = Taken(bytes(stream.raw)[: round(len(stream.raw) * upto)], header)
        for run_id in self.runs:
            self.screens[run_id].opened()
            self.take(run_id, got, places[run_id])
        self.last = got.last
        return got

    def _has_text(self, got: Taken, run_id: str) -> bool:
        ends = [piece["end"] for piece in got.said(run_id, "text")]
        return not self.said[run_id] or ends[-1:] == [self.said[run_id]]

    def take(self, run_id: str, got: Taken, place: str | None) -> None:
        """What came after the place comes, once more if it came before, and nothing from before it does."""
        screen = self.screens[run_id]
        known = list(screen.events)
        again = [] if place == END else known[known.index(self._events[place]) + 1 if place else 0 :]
        for frame in got.of(run_id):
            if frame.event == "message" and frame.data["id"] in screen.events:
                assert frame.data["id"] == again.pop(0), "what is told again begins behind the place, in its order"
                continue
            screen.frame(frame)
            if frame.event == "message":
                self._events[frame.id] = frame.data["id"]


steps = st.tuples(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["note", "say"]), st.integers(1, 3)), max_size=4),
    st.sampled_from(["id", "cursors"]),
    st.floats(0, 1),
)


@pytest.mark.slow
@pytest.mark.row("BR-05", "A29")
def test_cut_at_any_byte_a_page_loses_nothing_and_shows_nothing_twice(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        serving = office("memory", tmp_path)
        s, desk = runner.run(serving.__aenter__())

        async def play(plan: list[tuple[list[tuple[int, str, int]], str, float]]) -> None:
            runs = [await s.client.start("worker") for _ in range(2)]
            tab = Tab(s.client, runs)
            for orders, by, upto in [*plan, ([], "id", 1.0)]:
                for which, what, times in orders:
                    await desk.tell(runs[which], what, 1, times)
                    tab.said[runs[which]] += 5 * times * (what == "say")
                await tab.visit(by, upto)
            for run_id in runs:
                await desk.tell(run_id, "end")
                await s.client.ended(run_id)
            async with stream_of(s.client, runs, tab.last) as stream:
                await stream.end()
            got = taken(stream, tab.last)
            for run_id in runs:
                tab.take(run_id, got, Taken(last=tab.last).place(run_id))
                screen, shown = tab.screens[run_id], await s.client.bootstrap(run_id, limit=200)
                assert screen.faults == []
                assert list(screen.events.values()) == shown["events"]
                assert screen.over
                assert screen.snapshot == shown["snapshot"]
                assert "".join(screen.shown_text().values()) == "word " * (tab.said[run_id] // 5)
            assert got.last == END
            async with stream_of(s.client, runs, END) as stopped:
                assert stopped.status == 204

        @effort(max_examples=40, deadline=None)
        @given(st.lists(steps, max_size=5))
        def check(plan: list[tuple[list[tuple[int, str, int]], str, float]]) -> None:
            runner.run(play(plan))

        try:
            check()
        finally:
            runner.run(serving.__aexit__(None, None, None))


def wrapped(app: Any) -> Any:
    """A middleware as many write it: each send is another one, in a time limit of its own."""

    async def middle(scope: Any, receive: Any, send: Any) -> None:
        async def passing(message: Any) -> None:
            async with asyncio.timeout(600):
                await send(message)

        await app(scope, receive, passing)

    return middle


@each_backend
async def test_behind_a_middleware_it_is_the_same(backend: str, tmp_path: Path) -> None:
    async with office(backend, tmp_path, front=wrapped) as (s, desk):
        one, other = await desk.start(s.client)
        async with stream_of(s.client, [one, other]) as stream:
            await reach(stream, {one: 3, other: 3})
            await asyncio.gather(*(desk.tell(run_id, times=40) for run_id in (one, other)))
            for run_id in (one, other):
                await desk.tell(run_id, "end")
            await stream.end()
        for run_id in (one, other):
            assert noted(stream, run_id) == [*range(1, 44)]
            assert taken(stream).names(run_id)[-1] == "end"
        assert taken(stream).last == END


# What happens to one does not touch the others.


@pytest.mark.store
@each_backend
async def test_one_run_s_lost_view_is_told_of_and_the_other_goes_on(backend: str, tmp_path: Path) -> None:
    async with office(backend, tmp_path) as (s, desk):
        one, other = await desk.start(s.client)
        async with stream_of(s.client, [one, other]) as stream:
            await reach(stream, {one: 3, other: 3})
            await asyncio.sleep(2.1)  # no two epochs are minted within two seconds
            await s.engine.ports.live.drop(run_feed(one))
            await stream.until(lambda now: taken(now).said(one, "resync_required"))
            [told] = taken(stream).said(one, "resync_required")
            assert told["reason"] == "epoch"
            assert [e["type"] for e in told["bootstrap"]["events"]].count("noted") == 3
            await desk.tell(one)
            await desk.tell(other)
            await reach(stream, {one: 4, other: 4})
            assert noted(stream, other) == [1, 2, 3, 4]
            assert taken(stream).said(other, "resync_required") == []
            place = await _place(stream, one)
        async with stream_of(s.client, [one, other], taken(stream).last) as again:
            await again.until(lambda now: taken(now).said(one, "state") and taken(now).said(other, "state"))
            assert place is not None
            assert taken(again).said(one, "resync_required") == []


async def _place(stream: Stream, run_id: str) -> str | None:
    """Where the id is, once it has come up with the frames."""
    await stream.until(lambda now: taken(now).place(run_id) == taken(now).cursor(run_id))
    return taken(stream).place(run_id)


@each_backend
async def test_an_erased_run_is_refused_and_the_other_goes_on(backend: str, tmp_path: Path) -> None:
    async with office(backend, tmp_path) as (s, desk):
        one, other = await desk.start(s.client)
        async with stream_of(s.client, [one, other]) as stream:
            await reach(stream, {one: 3, other: 3})
            await desk.tell(one, "end")
            await stream.until(lambda now: taken(now).said(one, "end"))
            assert (await s.client.call("DELETE", f"/runs/{one}")).status == 204
            await desk.tell(other)
            await reach(stream, {other: 4})
        async with stream_of(s.client, [one, other, NEVER, "x"]) as again:
            await reach(again, {other: 4})
            for run_id in (one, NEVER, "x"):
                assert taken(again).said(run_id, "refused") == [{"code": "not_found"}]
        for runs in ([one], [NEVER, "x"]):
            answer = await s.client.get(query(runs))
            assert (answer.status, answer.json()["code"]) == (404, "not_found")


@each_backend
@pytest.mark.row("A42")
async def test_a_grant_that_is_taken_back_ends_its_feed_alone(backend: str, tmp_path: Path) -> None:
    hidden: set[str] = set()

    def authorize(principal: Principal, action: str, run: Run | None) -> bool:
        return run is None or run.id not in hidden or action != "run.stream"

    quick = {"keepalive": 0.05, "recheck": 0.1}
    async with office(backend, tmp_path, settings=quick, authorize=authorize) as (s, desk):
        one, other = await desk.start(s.client)
        async with stream_of(s.client, [one, other]) as stream:
            await reach(stream, {one: 3, other: 3})
            hidden.add(one)
            await stream.until(lambda now: taken(now).said(one, "refused"))
            assert taken(stream).said(one, "refused") == [{"code": "forbidden"}]
            seen = len(taken(stream).of(one))
            await desk.tell(one)
            await desk.tell(other)
            await reach(stream, {other: 4})
            assert len(taken(stream).of(one)) == seen
        async with stream_of(s.client, [one, other]) as again:
            await reach(again, {other: 4})
            assert taken(again).said(one, "refused") == [{"code": "forbidden"}]
        assert (await s.client.get(query([one]))).status == 403


@each_backend
async def test_a_store_that_is_slow_for_one_run_holds_up_no_other(backend: str, tmp_path: Path) -> None:
    async with office(backend, tmp_path) as (s, desk):
        one, other = await desk.start(s.client)
        await s.engine.hub.close()  # nothing is remembered: the store has to answer
        live, go_on = s.engine.ports.live, asyncio.Event()
        read = live.read

        async def slow(feed: Any, **window: Any) -> Any:
            if feed == run_feed(one):
                await go_on.wait()
            return await read(feed, **window)

        live.read = slow
        async with stream_of(s.client, [one, other]) as stream:
            async with asyncio.timeout(1.0):
                await reach(stream, {other: 3})
            await stream.until(lambda now: taken(now).said(one, "state"))
            assert taken(stream).said(one, "state")[0]["degraded"] == "store_unavailable"
            await desk.tell(other)
            await reach(stream, {other: 4})
            assert noted(stream, one) == []
            go_on.set()
            await reach(stream, {one: 3})
            assert taken(stream).said(one, "state")[-1]["degraded"] is None
        live.read = read


@each_backend
async def test_a_connection_is_a_viewer_of_each_of_its_runs(backend: str, tmp_path: Path) -> None:
    async with office(backend, tmp_path) as (s, desk):
        watched, elsewhere = await s.client.start("shy"), await s.client.start("shy")
        staying = await s.client.start("worker")
        runs = [watched, elsewhere, staying]
        for run_id in runs:
            await desk.tell(run_id)
        async with stream_of(s.client, [elsewhere]) as other:
            await reach(other, {elsewhere: 1})
            async with stream_of(s.client, runs) as stream:
                await reach(stream, dict.fromkeys(runs, 1))
            assert (await s.client.ended(watched))["status"] == "cancelled"
            for run_id in (elsewhere, staying):
                assert (await s.client.run(run_id))["status"] == "running"


# How it ends.


@each_backend
@pytest.mark.row("A31", "BR-08")
async def test_when_all_have_ended_the_stream_ends_and_is_not_called_back(backend: str, tmp_path: Path) -> None:
    async with office(backend, tmp_path) as (s, desk):
        one, other = await desk.start(s.client)
        async with stream_of(s.client, [one, other]) as stream:
            await reach(stream, {one: 3, other: 3})
            await desk.tell(one, "end")
            await stream.until(lambda now: taken(now).place(one) == END)
            assert (await s.client.run(one))["status"] == "succeeded"
            last = taken(stream).last
            await desk.tell(other)
            await desk.tell(other, "end")
            await stream.end()
        assert taken(stream).names(one)[-2:] == taken(stream).names(other)[-2:] == ["message", "end"]
        assert taken(stream).last == END
        async with stream_of(s.client, [one, other], last) as again:  # as if the end had got lost
            await again.end()
        assert taken(again, last).of(one) == []
        assert noted(again, other) == [4]
        assert taken(again).last == END
        for headers in ({}, OURS):
            answer = await s.client.get(query([one, other]), headers={**headers, "last-event-id": END})
            assert (answer.status, answer.body) == (204, b"")


@each_backend
@pytest.mark.row("M-restart", "M-other-process")
async def test_a_server_that_goes_says_so_once_and_its_successor_goes_on(backend: str, tmp_path: Path) -> None:
    desk = Desk()
    async with office(backend, tmp_path, desk, settings={"drain_grace": 0.05}) as (s, _):
        one, other = await desk.start(s.client)
        stream = await follow(s.client, [one, other])
        await reach(stream, {one: 3, other: 3})
        await desk.tell(one)
        await reach(stream, {one: 4})
        draining = asyncio.create_task(s.app.drain())
        await stream.end()
        await draining
        raw = taken(stream).raw
        assert [frame.event for frame in raw].count("draining") == 1
        assert raw[-1].event == "draining"
        assert 0 < (taken(stream).retry or 0) <= 4_500
        last, ids = taken(stream).last, {run_id: taken(stream).events(run_id) for run_id in (one, other)}
        assert all(taken(stream).place(run_id) == taken(stream).cursor(run_id) for run_id in (one, other))
        await stream.close()
        kept = s.engine.ports
    desk._orders.clear()
    async with office(backend, tmp_path, desk, kept=kept) as (s, _):
        async with stream_of(s.client, [one, other], last) as again:
            for run_id in (one, other):
                await desk.tell(run_id)
                await desk.tell(run_id, "end")
            await again.end()
        got = taken(again, last)
        for run_id in (one, other):
            assert got.said(run_id, "resync_required") == []
            whole = [event["id"] for event in (await s.client.bootstrap(run_id))["events"]]
            assert ids[run_id] + got.events(run_id) == whole
            assert len(set(whole)) == len(whole)


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.row("M-restart")
async def test_a_server_that_died_is_gone_on_with(backend: str, tmp_path: Path) -> None:
    """Its connection breaks in the middle of anything, and the id on it is as old as may be."""
    desk = Desk()
    async with office(backend, tmp_path, desk, settings={"drain_grace": 0.05}) as (s, _):
        one, other = await desk.start(s.client)
        stream = await follow(s.client, [one, other])
        await reach(stream, {one: 3, other: 3})
        await stream.until(lambda now: taken(now).place(one) and taken(now).place(other))
        old = taken(stream).last
        await desk.tell(one, times=2)
        await reach(stream, {one: 5})
        stream.reset()
        await stream.close()
    desk._orders.clear()
    async with office(backend, tmp_path, desk) as (s, _):
        async with stream_of(s.client, [one, other], old) as again:
            await desk.tell(other)
            await reach(again, {one: 5, other: 4})
            first = taken(stream)
            for run_id in (one, other):
                place = Taken(last=old).place(run_id)
                line = [f.id for f in first.of(run_id) if f.event == "message"]
                missing = first.events(run_id)[line.index(place) + 1 :]
                assert taken(again).events(run_id)[: len(missing)] == missing


# Bounds.


@each_backend
@pytest.mark.row("M-slow-client")
async def test_a_slow_reader_is_cut_off_alone_and_comes_back_for_the_rest(backend: str, tmp_path: Path) -> None:
    # From servers several events come in one piece: whoever keeps up may still be that far behind.
    most = (512 if backend == "servers" else 64) << 10
    settings = {"viewer_bytes": most, "ring_bytes": most}
    async with office(backend, tmp_path, settings=settings) as (s, desk):
        one, other = await desk.start(s.client)
        slow = await follow(s.client, [one, other], buffer=4_096)
        await reach(slow, {one: 3, other: 3})
        await slow.until(lambda now: taken(now).place(one) and taken(now).place(other))
        slow.reader._transport.pause_reading()  # type: ignore[attr-defined]
        async with stream_of(s.client, [one, other]) as quick:
            # More than any socket buffer on the way takes.
            writing = asyncio.create_task(desk.tell(one, size=40_000, times=200))
            await quick.until(lambda now: b'"n":203,' in now.raw[-100_000:])
            await writing
            assert s.engine.hub.statistics.get("lagging") == 1
            slow.reader._transport.resume_reading()  # type: ignore[attr-defined]
            await closed(slow)
            await slow.close()
            part = taken(slow)
            assert 3 <= len(noted(slow, one)) < 203
            async with stream_of(s.client, [one, other], part.last) as rest:
                await rest.until(lambda now: b'"n":203,' in now.raw[-100_000:])
            for run_id in (one, other):
                whole = [frame for frame in taken(quick).of(run_id) if frame.event == "message"]
                behind = [frame.id for frame in whole].index(part.place(run_id)) + 1
                assert taken(rest).events(run_id) == [frame.data["id"] for frame in whole[behind:]]


@each_backend
@pytest.mark.row("R43")
async def test_32_runs_fit_and_33_are_refused(backend: str, tmp_path: Path) -> None:
    async with office(backend, tmp_path) as (s, desk):
        runs = [await s.client.start("worker") for _ in range(MAX_FEEDS)]
        await asyncio.gather(*(desk.tell(run_id) for run_id in runs))
        async with stream_of(s.client, runs) as stream:
            await reach(stream, dict.fromkeys(runs, 1))
            for run_id in runs:
                await _place(stream, run_id)
            last = taken(stream).last
            assert last is not None
            assert len(last) <= MAX_COMPOSITE
            assert s.engine.hub.streams == 1
            assert len(s.engine.hub.viewers) == MAX_FEEDS
        await desk.tell(runs[9])
        async with stream_of(s.client, runs, last) as again:
            await reach(again, {runs[9]: 2})
            assert [event for run_id in runs for event in taken(again, last).events(run_id)] == [f"{runs[9]}:1:2"]
        cursors = [taken(stream).cursor(run_id) for run_id in runs]
        beside = [f"{run_id}@{at}" for run_id, at in zip(runs, cursors, strict=True)]
        async with stream_of(s.client, beside) as again:
            await reach(again, {runs[9]: 2})
            assert [event for run_id in runs for event in taken(again).events(run_id)] == [f"{runs[9]}:1:2"]
        for asked, fields in ((query([*runs, NEVER]), ["run"]), (f"{query(runs[:1])}&news=all", ["news"])):
            answer = await s.client.get(asked)
            assert (answer.status, answer.json()["details"]["fields"]) == (400, fields)


@each_backend
@pytest.mark.row("R44")
async def test_a_connection_counts_once_and_above_the_cap_it_is_sent_away(backend: str, tmp_path: Path) -> None:
    async with office(backend, tmp_path, settings={"max_streams": 1}) as (s, desk):
        one, other = await desk.start(s.client)
        async with stream_of(s.client, [one, other]) as stream:
            await reach(stream, {one: 3, other: 3})
            answer = await s.client.get(query([one]), headers=OURS)
            assert (answer.status, answer.json()["code"]) == (429, "too_many_streams")
            async with stream_of(s.client, [one]) as native:
                await native.end()
            assert [frame.event for frame in taken(native).raw] == ["draining"]
            metrics = (await s.client.get("/metrics")).body
            assert b"playhead_streams_open 1.0" in metrics


@each_backend
@pytest.mark.row("R41")
async def test_a_quiet_connection_is_kept_alive_by_one_comment_for_all(backend: str, tmp_path: Path) -> None:
    async with office(backend, tmp_path, settings={"keepalive": 1.2, "sweep": 60.0}) as (s, desk):
        runs = await desk.start(s.client, 4)
        async with stream_of(s.client, runs) as stream:
            await reach(stream, dict.fromkeys(runs, 3))
            for run_id in runs:
                await _place(stream, run_id)
            last, seen = taken(stream).last, len(stream.raw)
            await stream.until(lambda now: bytes(now.raw[seen:]).count(b":\n\n") >= 2)
            assert bytes(stream.raw[seen:]).replace(b":\n\n", b"") == b""
            assert taken(stream).last == last


@each_backend
@pytest.mark.row("BR-65", "R40")
async def test_headers_and_a_first_byte_come_at_once(backend: str, tmp_path: Path) -> None:
    async with office(backend, tmp_path) as (s, desk):
        runs = await desk.start(s.client)
        await s.engine.hub.close()
        s.engine.ports.live.read = lambda *args, **window: asyncio.Event().wait()
        async with asyncio.timeout(1.0):
            stream = await follow(s.client, runs)
            await stream.more()
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-store, no-transform"
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.raw.startswith(b"retry: ")
        await stream.close()
        del s.engine.ports.live.read
