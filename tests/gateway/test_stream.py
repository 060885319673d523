"""The stream of one run, asked in process: any cursor, any state of the run, any way to go away."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import pytest

from playhead.core.cursor import Cursor, parse
from playhead.core.ids import run_feed
from playhead.core.retention import Retention
from playhead.core.run import Run, Status
from playhead.core.snapshot import State
from playhead.errors import NotReady, TooManyStreams
from playhead.gateway.stream import StreamOptions, serve_stream
from playhead.runtime.hub import Hub, HubOptions
from tests.runtime.bench import Attempt, Bench, Socket, bench

pytestmark = pytest.mark.anyio

OURS = "text/event-stream; client=playhead"
MALFORMED = ["does-not-exist", "-1", "abc-def", "1-2-3", "\uff11", "\uff11-0", "x" * 5_000, "$", "+", "1-1", "1-1.zzzz"]


class Connection(Socket):
    """One request and what came back."""

    def __init__(self) -> None:
        super().__init__()
        self.left = asyncio.Event()
        self.asked = 0
        self.task: asyncio.Task[int] | None = None

    async def receive(self) -> dict[str, Any]:
        self.asked += 1
        if self.asked == 1:
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    @property
    def status(self) -> int:
        status: int = self.messages[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def ids(self) -> list[str | None]:
        return [frame.id for frame in self.frames if frame.event == "message"]

    @property
    def served(self) -> bool:
        assert self.task is not None
        return self.task.done()


@asynccontextmanager
async def stream(
    b: Bench,
    run: Run,
    cursor: str | Cursor | None = None,
    *,
    query: list[tuple[str, str]] | None = None,
    headers: list[tuple[str, str]] | None = None,
    **how: Any,
) -> AsyncIterator[Connection]:
    """Ask with the cursor as Last-Event-ID; the connection is closed at the end."""
    given = [*(headers or []), *([("last-event-id", str(cursor))] if cursor is not None else [])]
    scope = {
        "type": "http",
        "method": "GET",
        "query_string": urlencode(query or []).encode(),
        "headers": [(name.encode(), value.encode("utf-8")) for name, value in given],
    }
    connection = Connection()
    fresh = await b.get(run)
    connection.task = asyncio.create_task(
        serve_stream(scope, connection.receive, connection.send, run=fresh, hub=b.hub, screens=b.screens, **how)
    )
    await b.settle(60)
    try:
        yield connection
    finally:
        connection.left.set()
        connection.open.set()
        await b.settle()
        if not connection.task.done():
            connection.task.cancel()
        await asyncio.gather(connection.task, return_exceptions=True)


async def six(b: Bench) -> tuple[Attempt, list[Cursor]]:
    """A live run with three facts and three events, and the cursor of each."""
    attempt = await b.attempt()
    await attempt.publish(3)
    return attempt, await b.cursors(attempt.run)


def numbers(connection: Connection) -> list[str]:
    """The events by the ends of their ids: r1 for a fact, 1 for an event of the attempt."""
    found = []
    for each in connection.events:
        series, _, number = each["id"].rpartition(":")
        found.append(("r" if series.startswith("run:") else "") + number)
    return found


# Where a cursor can stand.


@pytest.mark.row("BR-01", "S1-7", "R29", "R31", "T-4")
async def test_a_reconnect_continues_after_the_last_id():
    async with bench() as b:
        attempt, cursors = await six(b)
        async with stream(b, attempt.run) as first:
            assert numbers(first) == ["r1", "r2", "r3", "1", "2", "3"]
            assert first.ids == [str(cursor) for cursor in cursors]
        async with stream(b, attempt.run, cursors[2]) as again, stream(b, attempt.run, cursors[5]) as tip:
            assert numbers(again) == ["1", "2", "3"]
            assert numbers(tip) == []
            await attempt.publish()
            await b.settle()
            assert numbers(again) == ["1", "2", "3", "4"]
            assert numbers(tip) == ["4"]


@pytest.mark.row("R30")
async def test_a_long_replay_goes_in_pages_and_then_live():
    async with bench() as b:
        attempt = await b.attempt()
        await attempt.publish(750)
        async with stream(b, attempt.run) as c:
            assert len(c.events) == 753
            sends = [m["body"].count(b"id: ") for m in c.messages[1:]]
            assert max(sends) == 100
            await attempt.publish()
            await b.settle()
            assert numbers(c)[-1] == "751"


@pytest.mark.row("BR-02", "A1", "R32", "M-cursor-expired", "T-2", "T-3", "T-4", "S1-9")
async def test_the_borders_of_the_window_are_exact():
    async with bench(retention=Retention(count=10, archive=True)) as b:
        attempt = await b.attempt()
        cursors = []
        for _ in range(22):
            await attempt.publish()
            cursors.append(await b.cursor(attempt.run))
        await b.live.archived(attempt.feed, cursors[0].epoch, 25)
        view = await b.live.read(attempt.feed, after=0, limit=1)
        assert view is not None
        assert view.entries[0].position == 16
        at = {cursor.position: cursor for cursor in cursors}
        async with stream(b, attempt.run, at[5]) as c:
            assert c.served
            assert c.status == 200
            assert [frame.event for frame in c.frames] == ["resync_required"]
            assert c.said("resync_required") == [
                {"reason": "expired", "requested": str(at[5]), "oldest": str(at[16]), "newest": str(at[25])}
            ]
            assert c.frames[0].id == "stop"
        async with stream(b, attempt.run, at[16]) as c:
            assert c.ids == [str(at[n]) for n in range(17, 26)]
            assert c.said("resync_required") == []
        async with stream(b, attempt.run, at[15]) as c:
            assert c.ids == [str(at[n]) for n in range(16, 26)]
        async with stream(b, attempt.run, at[14]) as c:
            assert c.said("resync_required")[0]["reason"] == "expired"
        async with stream(b, attempt.run) as c:
            assert c.ids == [str(at[n]) for n in range(16, 26)]  # no cursor: from the oldest retained
        screen = await b.screens.bootstrap(await b.get(attempt.run))
        assert screen.cursor == at[25]
        async with stream(b, attempt.run, screen.cursor) as c:
            assert c.said("resync_required") == []


@pytest.mark.row("BR-03", "A7", "R33", "R34", "M-bad-cursor")
@pytest.mark.parametrize(
    "cursor",
    [
        "does-not-exist",
        "-1",
        "abc-def",
        "1-2-3",
        "\uff11",
        "\uff11-0",
        "x" * 5_000,
        "$",
        "+",
        "1-1",
        "1-1.zzzzzzzzzzzz",
    ],
)
@pytest.mark.parametrize("where", ["header", "query"])
async def test_a_malformed_cursor_gets_one_resync_and_a_close(
    cursor: str, where: str, caplog: pytest.LogCaptureFixture
):
    async with bench() as b:
        attempt, cursors = await six(b)
        how: dict[str, Any] = {"cursor": cursor} if where == "header" else {"query": [("cursor", cursor)]}
        async with stream(b, attempt.run, **how) as c:
            assert c.served
            assert c.status == 200
            assert c.names == ["resync_required"]
            said = c.said("resync_required")[0]
            assert (said["reason"], said["requested"]) == ("malformed", None)
            assert (said["oldest"], said["newest"]) == (str(cursors[0]), str(cursors[-1]))
            assert c.closed
        assert caplog.records == []


@pytest.mark.row("BR-03")
async def test_an_empty_cursor_is_none():
    async with bench() as b:
        attempt, cursors = await six(b)
        async with stream(b, attempt.run, "") as c:
            assert len(c.events) == 6
        async with stream(b, attempt.run, "", query=[("cursor", str(cursors[3]))]) as c:
            assert numbers(c) == ["2", "3"]


@pytest.mark.row("BR-04", "A5", "T-7", "M-bad-cursor")
async def test_a_cursor_beyond_the_newest_is_told_so():
    async with bench() as b:
        attempt, cursors = await six(b)
        tip = cursors[-1]
        async with stream(b, attempt.run, f"{tip.epoch}-{tip.position + 10_000_000}.{tip.tag}") as c:
            assert c.said("resync_required")[0]["reason"] == "ahead"
            assert c.served
        await attempt.publish()
        newest = await b.cursor(attempt.run)
        assert (newest.epoch, newest.position) > (tip.epoch, tip.position)


@pytest.mark.row("BR-04", "M-other-process")
async def test_another_process_on_the_same_store_goes_on_where_the_first_one_was():
    async with bench() as b:
        attempt, cursors = await six(b)
        async with stream(b, attempt.run) as c:
            assert len(c.events) == 6
        await attempt.publish()
        fresh = Hub(b.record, b.live, b.live, b.live.signal, b.projector, b.clock)
        b.hub, first = fresh, b.hub
        async with stream(b, attempt.run, cursors[-1]) as c:
            assert numbers(c) == ["4"]
            assert (parse(c.ids[0] or "") or cursors[0]).position > cursors[-1].position
        b.hub = first
        await fresh.close()


@pytest.mark.row("A4", "T-6")
async def test_an_event_that_was_deleted_from_the_middle_is_noticed():
    async with bench() as b:
        attempt, cursors = await six(b)
        async with stream(b, attempt.run, cursors[-1]) as ahead:
            del b.live._held[attempt.feed].rows[3]
            b.hub._feeds.clear()  # nothing is remembered
            async with stream(b, attempt.run) as passing:
                assert numbers(passing) == ["r1", "r2", "r3"]
                assert passing.names[-1] == "resync_required"
                assert passing.said("resync_required")[0]["reason"] == "expired"
            async with stream(b, attempt.run, cursors[4]) as beyond:
                assert numbers(beyond) == ["3"]
            assert ahead.said("resync_required") == []
        screen = await b.screens.bootstrap(await b.get(attempt.run))
        assert json.loads(screen.body)["timeline"]["complete"] is False


@pytest.mark.row("A5", "T-7", "M-foreign-cursor")
async def test_another_epoch_and_another_run_s_cursor_are_told_apart():
    async with bench() as b:
        attempt, cursors = await six(b)
        tip = cursors[-1]
        other, _ = await six(b)
        async with stream(b, attempt.run, f"{tip.epoch - 1}-{tip.position}.{tip.tag}") as c:
            assert c.said("resync_required")[0]["reason"] == "epoch"
        async with stream(b, attempt.run, f"{tip.epoch}-{tip.position}.000000000000") as c:
            assert c.said("resync_required")[0]["reason"] == "foreign"
        async with stream(b, other.run, tip) as c:
            assert c.said("resync_required")[0]["reason"] in ("epoch", "foreign")
        async with stream(b, attempt.run, f"{tip.epoch}-2.000000000000") as c:
            assert c.said("resync_required")[0]["reason"] == "foreign"


@pytest.mark.row("A2", "T-1")
async def test_the_start_of_an_untrimmed_timeline_is_a_good_cursor():
    async with bench() as b:
        run = await b.queued()
        view = await b.live.read(run_feed(run.id), after=0)
        assert view is not None
        start = Cursor(view.marks.epoch, 0, view.entries[0].prev)
        async with stream(b, run, start) as c:
            assert c.types == ["run_queued"]
            assert c.said("resync_required") == []


@pytest.mark.row("A3", "T-5", "M-projection-expired", "R38", "A36")
async def test_a_timeline_that_vanished_is_rebuilt_and_told_of():
    async with bench() as b:
        attempt, cursors = await six(b)
        await b.clock.advance(3)  # no two epochs are minted within two seconds
        b.live.lose()
        async with stream(b, attempt.run, cursors[-1]) as c:
            said = c.said("resync_required")
            assert [each["reason"] for each in said] == ["epoch"]
            assert c.served
        async with stream(b, attempt.run) as c:
            assert c.said("state")[0]["snapshot"]["status"] == "running"
            await attempt.publish()
            await b.settle()
            assert numbers(c) == ["4"]


@pytest.mark.row("BR-06", "BR-07")
async def test_events_of_one_instant_are_followed_exactly_across_every_digit_border():
    async with bench(retention=Retention(count=2_000)) as b:
        attempt = await b.attempt()
        for _ in range(10):
            await attempt.publish(110)
        cursors = await b.cursors(attempt.run)
        assert len({str(cursor) for cursor in cursors}) == len(cursors) == 1_103
        assert [cursor.position for cursor in cursors] == list(range(1, 1_104))
        for at in [9, 10, 11, 99, 100, 101, 999, 1_000, 1_001, *random.Random(7).sample(range(1, 1_103), 12)]:
            async with stream(b, attempt.run, cursors[at - 1]) as c:
                assert c.ids == [str(cursor) for cursor in cursors[at:]]


@pytest.mark.row("BR-11")
async def test_the_header_beats_the_address_and_the_last_of_several_counts():
    async with bench() as b:
        attempt, cursors = await six(b)
        two, five = str(cursors[1]), str(cursors[4])
        async with stream(b, attempt.run, five, query=[("cursor", two)]) as c:
            assert numbers(c) == ["3"]
        async with stream(b, attempt.run, query=[("cursor", two)]) as c:
            assert numbers(c) == ["r3", "1", "2", "3"]
        async with stream(b, attempt.run, query=[("cursor", two), ("cursor", five)]) as c:
            assert numbers(c) == ["3"]
        async with stream(b, attempt.run, headers=[("last-event-id", two), ("last-event-id", five)]) as c:
            assert numbers(c) == ["3"]


@pytest.mark.row("BR-05", "M-join-race")
async def test_nothing_falls_between_replay_and_live_wherever_the_reader_is_held_up():
    chance = random.Random(20)
    for _ in range(200):
        async with bench() as b:
            attempt = await b.attempt()
            await attempt.publish(chance.randrange(1, 5))
            held = chance.random() < 0.5
            if held:
                b.live.held = asyncio.Event()
            joining = stream(b, attempt.run)
            writing = asyncio.create_task(_write(b, attempt, chance))
            async with joining as c:
                if chance.random() < 0.5:
                    c.open.clear()
                await b.settle(chance.randrange(20))
                if b.live.held is not None:
                    b.live.held.set()
                    b.live.held = None
                await writing
                c.open.set()
                await b.settle(60)
                expected = ["r1", "r2", "r3", *map(str, range(1, attempt.n + 1))]
                assert numbers(c) == expected
                assert c.most_under_way == 1


async def _write(b: Bench, attempt: Attempt, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 8)):
        await b.settle(chance.randrange(4))
        await attempt.publish(chance.randrange(1, 4))


# How a stream looks.


@pytest.mark.row("BR-65", "R40")
async def test_headers_and_a_first_byte_come_at_once():
    async with bench() as b:
        run = await b.queued()
        async with stream(b, run, options=StreamOptions(retry=4.0)) as c:
            assert c.headers["content-type"].startswith("text/event-stream")
            assert c.headers["cache-control"] == "no-store, no-transform"
            assert c.headers["x-accel-buffering"] == "no"
            assert "content-length" not in c.headers
            assert 2_000 <= int(c.body.split(b"\n")[0].removeprefix(b"retry: ")) <= 6_000
            assert b"\r" not in c.body


async def test_retry_times_spread():
    async with bench() as b:
        run = await b.queued()
        waits = []
        for _ in range(40):
            async with stream(b, run) as c:
                waits.append(int(c.body.split(b"\n")[0].removeprefix(b"retry: ")))
        assert max(waits) - min(waits) > 1_500


@pytest.mark.row("R36", "A28", "A29")
async def test_a_connection_begins_with_state_and_text_once_and_only_events_have_an_id():
    async with bench() as b:
        attempt, cursors = await six(b)
        await attempt.text("so ")
        await attempt.text("far")
        await attempt.write(0, state=State(progress=61))
        async with stream(b, attempt.run) as fresh, stream(b, attempt.run, cursors[4]) as again:
            for c in (fresh, again):
                assert c.names[:2] == ["state", "text"]
                assert c.names.count("state") == c.names.count("text") == 1
                assert c.said("state")[0]["snapshot"]["progress"] == 61
                assert c.said("state")[0]["degraded"] is None
                assert c.said("text")[0] == {
                    "part": "answer",
                    "attempt": 1,
                    "offset": 0,
                    "end": 6,
                    "text": "so far",
                    "final": False,
                }
            blocks = fresh.body.decode().split("\n\n")
            assert all(("id:" in block) == ("event:" not in block) for block in blocks if "data:" in block)
            await b.clock.advance(0.2)
            assert fresh.names.count("state") == 1


@pytest.mark.row("BR-12")
@pytest.mark.parametrize("joined", [0, 1, 59, 60, 119, 120])
async def test_whoever_joins_gets_the_exact_whole_text(joined: int):
    async with bench() as b:
        attempt = await b.attempt()
        tokens = [f"tök{n} " for n in range(120)]
        for token in tokens[:joined]:
            await attempt.text(token)
        async with stream(b, attempt.run) as c:
            for token in tokens[joined:]:
                await attempt.text(token)
                await b.settle(2)
            await b.settle()
            assert c.text == {"1.answer": "".join(tokens)}


async def test_a_client_that_names_its_text_gets_the_rest():
    async with bench() as b:
        attempt = await b.attempt()
        await attempt.text("so far")
        await attempt.text("hm", part="reasoning")
        query = [("text", "1.answer:3"), ("text", "1.reasoning:2"), ("text", "nonsense")]
        async with stream(b, attempt.run, query=query) as c:
            assert [(t["offset"], t["text"]) for t in c.said("text")] == [(3, "far")]


# How a stream ends.


@pytest.mark.row("BR-08", "R39", "A31", "M-reconnect-after-end")
async def test_a_finished_run_s_stream_ends_and_does_not_call_back_for_ever():
    async with bench() as b:
        attempt, _ = await six(b)
        await attempt.finish()
        tip = await b.cursor(attempt.run)
        async with stream(b, attempt.run) as c:
            assert c.served
            assert c.types[-1] == "run_succeeded"
            assert c.names[-1] == "end"
            assert c.frames[-1].id == "end"
            assert c.said("end") == [{"run_id": attempt.run.id, "status": "succeeded"}]
        for last in (str(tip), "end", "stop"):
            async with stream(b, attempt.run, last) as c:
                assert c.served
                assert c.status == 204
                assert c.body == b""
                assert c.headers == {}


async def test_ends_that_nobody_waits_for_still_end_every_stream():
    async with bench() as b:
        attempt, _ = await six(b)
        async with stream(b, attempt.run) as c:
            await attempt.finish(Status.FAILED)
            await b.settle()
            assert c.names[-2:] == ["message", "end"]
            assert c.served


@pytest.mark.row("BR-08", "R38", "R39")
async def test_a_finished_run_whose_projection_expired_is_answered_from_the_record():
    async with bench() as b:
        attempt, cursors = await six(b)
        await attempt.finish()
        tip = await b.cursor(attempt.run)
        await b.clock.advance(3_601)
        await b.live.expire()
        await b.clock.advance(60)
        async with stream(b, attempt.run) as c:  # the timeline is gone, the snapshot is not
            assert c.served
            assert c.types == ["run_succeeded"]
            assert c.names[-1] == "end"
            assert c.ids == [None]
        async with stream(b, attempt.run, tip) as c:
            assert c.status == 204
        async with stream(b, attempt.run, cursors[0]) as c:
            assert c.said("resync_required")[0]["reason"] == "expired"
        await b.clock.advance(86_400)
        await b.live.expire()
        await b.clock.advance(60)
        async with stream(b, attempt.run) as c:
            assert c.served
            assert c.types == ["run_succeeded"]
            assert c.events[0]["id"] == f"run:{attempt.run.id}:4"
            assert c.names == ["state", "message", "end"]
        for last in (cursors[0], tip):
            async with stream(b, attempt.run, last) as c:
                assert c.names == ["resync_required"]
                assert c.said("resync_required")[0]["reason"] == "expired"
                assert c.frames[0].id == "stop"
        async with stream(b, attempt.run, tip, query=[("resync", "inline")]) as c:
            assert c.names == ["resync_required", "end"]
            assert c.said("resync_required")[0]["bootstrap"]["cursor"] is None


@pytest.mark.row("A31", "S1-9")
async def test_an_inline_resync_shows_the_screen_and_goes_on():
    async with bench() as b:
        attempt, _ = await six(b)
        await attempt.text("so far")
        query = [("resync", "inline")]
        async with stream(b, attempt.run, "nonsense", query=query) as c:
            said = c.said("resync_required")[0]
            assert said["reason"] == "malformed"
            screen = said["bootstrap"]
            assert [each["type"] for each in screen["events"]][-1] == "step_done"
            assert screen["text"][0]["text"] == "so far"
            assert c.frames[0].id == screen["cursor"] == str(await b.cursor(attempt.run))
            assert c.events == []
            assert c.said("text") == []
            await attempt.publish()
            await attempt.text(" good")
            await b.settle()
            assert numbers(c) == ["4"]
            assert [(t["offset"], t["text"]) for t in c.said("text")] == [(6, " good")]


@pytest.mark.row("T-8", "A6")
async def test_an_open_stream_that_cannot_be_continued_is_told_why():
    async with bench() as b:
        attempt, cursors = await six(b)
        async with (
            stream(b, attempt.run, cursors[-1]) as native,
            stream(b, attempt.run, cursors[-1], query=[("resync", "inline")]) as ours,
        ):
            await b.clock.advance(3)
            b.live.lose()
            await b.bring(attempt.run)
            await b.settle(60)
            assert native.names[-1] == "resync_required"
            assert native.said("resync_required")[0]["requested"] == str(cursors[-1])
            assert native.frames[-1].id == "stop"
            assert native.served
            assert ours.said("resync_required")[0]["reason"] == "epoch"
            await attempt.publish()
            await b.settle()
            assert numbers(ours) == ["4"]
            assert not ours.served


# Refusals.


@pytest.mark.row("R44")
async def test_above_the_cap_our_clients_get_an_error_and_native_ones_a_time_to_come_back():
    async with bench() as b:
        run = await b.queued()
        few = StreamOptions(max_streams=1)
        async with stream(b, run, options=few) as first:
            async with stream(b, run, options=few) as native:
                assert native.served
                assert native.status == 200
                assert native.names == ["draining"]
                assert 15_000 <= native.said("draining")[0]["retry_ms"] <= 45_000
            async with stream(b, run, headers=[("accept", OURS)], options=few) as ours:
                assert ours.messages == []
                assert ours.task is not None
                assert isinstance(ours.task.exception(), TooManyStreams)
            assert not first.served
        async with stream(b, run, options=few) as again:
            assert not again.served


async def test_while_not_ready_nobody_is_served():
    async with bench() as b:
        run = await b.queued()
        async with stream(b, run, ready=False) as native:
            assert native.names == ["draining"]
        b.hub.draining = True
        async with stream(b, run, headers=[("accept", OURS)]) as ours:
            assert ours.task is not None
            assert isinstance(ours.task.exception(), NotReady)


@pytest.mark.row("A42")
async def test_a_stream_outlives_no_permission():
    async with bench(options=HubOptions(keepalive=1.0)) as b:
        attempt, _ = await six(b)
        allowed = True

        async def recheck() -> bool:
            return allowed

        async with stream(b, attempt.run, recheck=recheck, options=StreamOptions(recheck=1.0)) as c:
            await b.clock.advance(2.5)
            assert not c.served
            allowed = False
            await b.clock.advance(1.0)
            assert c.served
            assert c.closed
            assert c.names[-1] != "end"
            seen = c.body
            await attempt.publish()
            await b.settle()
            assert c.body == seen


# A store that does not answer.


async def test_with_the_store_down_a_stream_begins_degraded_and_recovers():
    async with bench() as b:
        attempt, cursors = await six(b)
        b.live.down = True
        async with stream(b, attempt.run, cursors[3], options=StreamOptions(first_byte=0.01)) as c:
            await asyncio.sleep(0.05)
            await b.settle()
            assert c.status == 200
            assert c.said("state")[0]["degraded"] == "store_unavailable"
            assert c.said("state")[0]["snapshot"]["status"] == "running"
            b.live.down = False
            await b.clock.advance(3)
            await asyncio.sleep(0.02)
            await b.settle(60)
            assert c.said("state")[-1]["degraded"] is None
            assert numbers(c) == ["2", "3"]
            assert c.said("resync_required") == []


async def test_a_client_that_leaves_while_the_store_is_down_leaves_nothing_behind():
    async with bench() as b:
        attempt, _ = await six(b)
        b.live.down = True
        async with stream(b, attempt.run, options=StreamOptions(first_byte=0.01)) as c:
            await asyncio.sleep(0.05)
            c.left.set()
            await asyncio.sleep(0.05)
            assert c.served
        assert b.hub.streams == 0
        await b.clock.advance(30)
        assert b.hub.feeds == 0


async def test_a_store_that_fails_in_the_middle_of_a_replay_is_waited_for():
    async with bench() as b:
        attempt = await b.attempt()
        await attempt.publish(450)
        live = await b.hub.attach(attempt.feed)
        b.live.down = True
        async with stream(b, attempt.run) as c:
            assert c.events == []
            b.live.down = False
            await b.clock.advance(3)
            await b.settle(60)
            assert len(c.events) == 453
        b.hub.detach(live)


# Going away.


@pytest.mark.row("BR-71")
async def test_clients_that_go_at_any_moment_leave_nothing_and_stop_nothing():
    chance = random.Random(3)
    async with bench() as b:
        attempt, _ = await six(b)
        await b.settle()
        tasks = len(asyncio.all_tasks())
        for n in range(300):
            async with stream(b, attempt.run) as c:
                if n % 3 == 0:
                    c.open.clear()
                    await attempt.publish()
                await b.settle(chance.randrange(4))
                c.left.set()
        await b.clock.advance(1)
        assert (b.hub.viewers, b.hub.streams, b.hub.watched(attempt.feed)) == (set(), 0, 0)
        await b.clock.advance(30)
        assert b.hub.feeds == 0
        assert len(asyncio.all_tasks()) <= tasks
        run = await b.get(attempt.run)
        assert (run.status, run.cancel_requested_at) == (Status.RUNNING, None)


async def test_a_request_that_is_cancelled_leaves_the_hub():
    async with bench() as b:
        attempt, _ = await six(b)
        async with stream(b, attempt.run) as c:
            c.open.clear()
            await attempt.publish()
            await b.settle()
            assert c.under_way == 1
            assert c.task is not None
            c.task.cancel()
            await b.settle()
            assert c.under_way == 0
        assert b.hub.viewers == set()


async def test_a_drain_says_when_to_come_back():
    async with bench() as b:
        attempt, _ = await six(b)
        async with stream(b, attempt.run) as c:
            draining = asyncio.create_task(b.hub.drain(1.0))
            await b.clock.advance(2)
            await draining
            assert c.names[-1] == "draining"
            assert c.closed
            assert c.served
            assert json.loads(c.frames[-1].data)["retry_ms"] == c.frames[-1].retry
