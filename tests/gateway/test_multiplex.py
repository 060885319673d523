"""Several runs on one connection, asked in process: each is followed as on a stream of its own, and holds up none."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from playhead.core.composite import MAX_COMPOSITE, MAX_FEEDS, OVER, Held, encode
from playhead.core.cursor import END, Cursor
from playhead.core.ids import uuid7
from playhead.core.multiplexed import rewrite
from playhead.core.run import Run, Status
from playhead.core.snapshot import State
from playhead.errors import NotReady, StoreUnavailable, TooManyStreams
from playhead.gateway import lane
from playhead.gateway.feeds import AskedFeeds
from playhead.gateway.multiplex import serve_feeds
from playhead.gateway.stream import StreamOptions
from playhead.runtime.hub import HubOptions
from tests.gateway.stub import scope_of
from tests.gateway.test_spec import check
from tests.runtime.bench import Attempt, Bench, Socket, bench
from tests.support.feeds import Taken, query

pytestmark = pytest.mark.anyio

OURS = {"accept": "text/event-stream; client=playhead"}


class Connection(Socket):
    """One request and what came back."""

    def __init__(self, last: str | None) -> None:
        super().__init__()
        self.left = asyncio.Event()
        self.handed = b""  # to `send`, whether it took it or not
        self.task: asyncio.Task[int] | None = None
        self._last = last

    async def send(self, message: Any) -> None:
        self.handed += message.get("body", b"")
        await super().send(message)

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    @property
    def status(self) -> int:
        status: int = self.messages[0]["status"]
        return status

    @property
    def taken(self) -> Taken:
        return Taken(self.body, self._last)

    @property
    def served(self) -> bool:
        assert self.task is not None
        return self.task.done()

    @property
    def writes(self) -> list[bytes]:
        return [message["body"] for message in self.messages[1:]]


@asynccontextmanager
async def stream(
    b: Bench,
    runs: Sequence[Run | str],
    last: str | None = None,
    *,
    refusals: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
    address: dict[str, str] | None = None,
    **how: Any,
) -> AsyncIterator[Connection]:
    """Ask for these runs, each of them one or `<id>@<cursor>`, with the id that an earlier connection gave."""
    named = [run if isinstance(run, str) else run.id for run in runs]
    given = {**(headers or {}), **({"last-event-id": last} if last is not None else {})}
    scope = scope_of("GET", query([*named, *(refusals or {})], **(address or {})), given)
    connection = Connection(last)
    found = [await b.record.get("acme", run_id) for run_id in dict.fromkeys(one.partition("@")[0] for one in named)]
    connection.task = asyncio.create_task(
        serve_feeds(
            connection.receive,
            connection.send,
            asked=AskedFeeds.read(HTTPConnection(scope)),
            runs=[one for one in found if one is not None],
            refusals=refusals or {},
            hub=b.hub,
            screens=b.screens,
            **how,
        )
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


async def two(b: Bench) -> tuple[Attempt, Attempt]:
    """Two live runs with three facts and three events each."""
    attempts = await b.attempt(), await b.attempt()
    for attempt in attempts:
        await attempt.publish(3)
    return attempts


def numbers(taken: Taken, attempt: Attempt) -> list[str]:
    """The events by the ends of their ids: r1 for a fact, 1 for an event of the attempt."""
    found = (name.rpartition(":") for name in taken.events(attempt.run.id))
    return [("r" if series.startswith("run:") else "") + number for series, _, number in found]


ALL = ["r1", "r2", "r3", "1", "2", "3"]


# What is told.


async def test_each_feed_begins_with_its_state_and_text_and_is_followed():
    async with bench() as b:
        one, other = await two(b)
        await one.text("so far")
        await other.write(0, state=State(progress=61))
        async with stream(b, [one.run, other.run]) as c:
            assert c.status == 200
            taken = c.taken
            assert taken.names(one.run.id)[:2] == ["state", "text"]
            assert taken.names(other.run.id)[0] == "state"
            assert taken.said(other.run.id, "state")[0]["snapshot"]["progress"] == 61
            assert taken.said(one.run.id, "text")[0]["text"] == "so far"
            assert numbers(taken, one) == numbers(taken, other) == ALL
            assert taken.cursor(one.run.id) == taken.place(one.run.id) == str(await b.cursor(one.run))
            await other.publish()
            await one.text(" good")
            await b.settle()
            assert numbers(c.taken, other) == [*ALL, "4"]
            assert numbers(c.taken, one) == ALL
            assert c.taken.said(one.run.id, "text")[-1]["offset"] == 6


async def test_every_frame_is_as_the_schema_says():
    async with bench(options=HubOptions(tick=0.01)) as b:
        one, other = await two(b)
        await other.text("so far")
        gone = uuid7(1, bytes(10))
        runs = [f"{one.run.id}@nonsense", other.run.id]
        async with stream(b, runs, refusals={gone: "not_found", "\u2028": "forbidden"}) as c:
            await one.publish()
            await other.finish(Status.CANCELLED)
            await b.settle()
            draining = asyncio.create_task(b.hub.drain(0.2))
            await b.clock.advance(1)
            await draining
        names = set()
        for frame in c.taken.raw:
            assert frame.id is None or frame.id == c.taken.last or frame.id.startswith("1.")
            check("multiplexed", {"event": frame.event, "data": json.loads(frame.data)})
            names.add(frame.event)
        assert names == {"message", "state", "text", "resync_required", "end", "refused", "draining"}


async def test_what_is_said_in_one_turn_is_one_write_and_one_id_follows():
    async with bench() as b:
        attempts = [await b.attempt() for _ in range(5)]
        async with stream(b, [attempt.run for attempt in attempts]) as c:
            await b.clock.advance(2)
            before = len(c.writes)
            guard = [await attempt._guard() for attempt in attempts]
            assert guard
            await asyncio.gather(*(attempt.publish() for attempt in attempts))
            await b.settle()
            [write] = c.writes[before:]
            assert write.count(b'"event":') == 5
            assert write.count(b"\nid: ") == 1
            assert write.rstrip().rpartition(b"\n")[2].startswith(b"id: 1.")
            for attempt in attempts:
                assert c.taken.place(attempt.run.id) == str(await b.cursor(attempt.run))


async def test_an_id_comes_at_most_once_a_second_and_then_by_itself():
    async with bench() as b:
        one, other = await two(b)
        async with stream(b, [one.run, other.run]) as c:
            assert c.body.count(b"\nid: ") == 1
            for _ in range(4):
                await other.publish()
                await b.clock.advance(0.1)
            assert c.body.count(b"\nid: ") == 1
            assert c.taken.place(other.run.id) != str(await b.cursor(other.run))
            await b.clock.advance(0.7)
            assert c.body.count(b"\nid: ") == 2
            assert c.taken.place(other.run.id) == str(await b.cursor(other.run))
            assert c.writes[-1].startswith(b"id: ")
            frames = len(c.taken.frames)
            await b.clock.advance(10)
            assert c.body.count(b"\nid: ") == 2
            assert len(c.taken.frames) == frames
            await one.publish()
            await b.settle()
            assert c.body.count(b"\nid: ") == 3


async def test_the_comments_of_one_sweep_are_one():
    async with bench() as b:
        attempts = [await b.attempt() for _ in range(8)]
        async with stream(b, [attempt.run for attempt in attempts]) as c:
            await b.clock.advance(2)
            before = c.body
            await b.clock.advance(60)
            assert c.body.removeprefix(before) == b":\n\n" * 4


async def test_a_feed_s_frames_are_rewritten_once_for_all_who_get_the_same(monkeypatch):
    made = []

    def counted(feed, piece):
        made.append(piece)
        return rewrite(feed, piece)

    async with bench() as b:
        attempt = await b.attempt()
        async with stream(b, [attempt.run]) as c1, stream(b, [attempt.run]) as c2, stream(b, [attempt.run]) as c3:
            monkeypatch.setattr(lane, "_once", lru_cache(8)(counted))
            monkeypatch.setattr(lane, "rewrite", counted)
            await attempt.publish(1)
            await b.settle()
            assert len(made) == 1
            await attempt.publish(1, {"pad": "x" * lane._KEPT_BYTES})  # large ones are not kept
            await b.settle()
            assert len(made) == 4
            for c in (c1, c2, c3):
                assert numbers(c.taken, attempt)[-2:] == ["1", "2"]


# Where each goes on.


@pytest.mark.parametrize("seed", range(25))
async def test_cut_anywhere_the_id_leads_to_what_each_feed_lacks(seed: int):
    chance = random.Random(seed)
    async with bench() as b:
        attempts = await two(b)
        async with stream(b, [attempt.run for attempt in attempts]) as c:
            for _ in range(chance.randrange(1, 9)):
                await chance.choice(attempts).publish(chance.randrange(1, 4))
                await b.clock.advance(chance.choice((0.0, 0.3, 1.1)))
        for _ in range(chance.randrange(3)):
            await chance.choice(attempts).publish()
        for cut in sorted(chance.randrange(len(c.body) + 1) for _ in range(12)):
            first = Taken(c.body[:cut])
            held = [first.place(attempt.run.id) for attempt in attempts]
            async with stream(b, [attempt.run for attempt in attempts], first.last) as again:
                for attempt, place in zip(attempts, held, strict=True):
                    line = [str(cursor) for cursor in await b.cursors(attempt.run)]
                    got = [frame.id for frame in again.taken.of(attempt.run.id) if frame.event == "message"]
                    assert got == line[line.index(place) + 1 if place else 0 :]
                    assert again.taken.said(attempt.run.id, "resync_required") == []
                    assert again.taken.names(attempt.run.id)[0] == "state"
                    # The id never runs ahead of what was given before it.
                    assert place is None or place in [frame.id for frame in first.of(attempt.run.id)]


async def test_a_run_of_its_own_cursor_and_the_address_are_heard():
    async with bench() as b:
        one, other = await two(b)
        first, second = await b.cursors(one.run), await b.cursors(other.run)
        held = encode({one.feed: Held(first[1]), other.feed: Held(second[4])})
        async with stream(b, [f"{one.run.id}@{first[3]}", other.run], address={"cursor": held}) as c:
            assert numbers(c.taken, one) == ["2", "3"]
            assert numbers(c.taken, other) == ["3"]
        async with stream(b, [f"{one.run.id}@{first[3]}", other.run], held) as c:
            assert numbers(c.taken, one) == ["r3", "1", "2", "3"]
            assert numbers(c.taken, other) == ["3"]
        text = {"text": f"run:{one.run.id}.1.answer:3"}
        await one.text("so far")
        async with stream(b, [one.run], address=text) as c:
            assert c.taken.said(one.run.id, "text")[0]["text"] == "far"


async def test_a_place_that_nobody_moved_stays_in_the_id():
    async with bench() as b:
        one, other = await two(b)
        first, second = await b.cursors(one.run), await b.cursors(other.run)
        b.live.down = True
        runs = [f"{one.run.id}@{first[-1]}", f"{other.run.id}@{second[2]}"]
        async with stream(b, runs, options=StreamOptions(first_byte=0.01)) as c:
            b.live.down = False
            await b.clock.advance(3)
            await one.publish()
            await b.clock.advance(2)
            assert c.taken.place(one.run.id) == str(await b.cursor(one.run))
            assert c.taken.place(other.run.id) == str(second[-1])


async def test_32_feeds_fit():
    async with bench() as b:
        attempts = [await b.attempt() for _ in range(MAX_FEEDS)]
        async with stream(b, [attempt.run for attempt in attempts]) as c:
            last = c.taken.last
            assert last is not None
            assert len(last) <= MAX_COMPOSITE
            for attempt in attempts:
                assert c.taken.place(attempt.run.id) == str(await b.cursor(attempt.run))
        await attempts[7].publish()
        async with stream(b, [attempt.run for attempt in attempts], last) as again:
            assert [event for attempt in attempts for event in again.taken.events(attempt.run.id)] == [
                f"{attempts[7].run.id}:1:1"
            ]


# What cannot be continued.


@pytest.mark.row("A31")
async def test_a_resync_of_one_feed_is_inline_and_the_others_go_on():
    async with bench() as b:
        one, other = await two(b)
        async with stream(b, [one.run, other.run]) as c:
            await b.clock.advance(3)
            before = c.taken.cursor(one.run.id)
            b.live._held.pop(one.feed)
            b.hub.on_gap(one.feed)
            await b.settle(60)
            [said] = c.taken.said(one.run.id, "resync_required")
            assert (said["reason"], said["requested"]) == ("epoch", before)
            assert said["bootstrap"]["run"]["id"] == one.run.id
            assert c.taken.cursor(one.run.id) == said["bootstrap"]["cursor"]
            assert c.taken.said(other.run.id, "resync_required") == []
            await one.publish()
            await other.publish()
            await b.clock.advance(1)
            assert numbers(c.taken, one)[-1] == numbers(c.taken, other)[-1] == "4"
            assert c.taken.place(one.run.id) == str(await b.cursor(one.run))
            assert not c.served


@pytest.mark.parametrize("bad", ["nonsense", "1.AAAA", "1-2.0123456789ab"])
async def test_an_id_that_is_none_is_told_to_each_feed(bad: str):
    async with bench() as b:
        one, other = await two(b)
        at = await b.cursor(other.run)
        async with stream(b, [one.run, f"{other.run.id}@{at}"], bad) as c:
            assert c.taken.names(one.run.id)[0] == "resync_required"
            assert c.taken.said(one.run.id, "resync_required")[0]["reason"] == "malformed"
            assert c.taken.said(one.run.id, "resync_required")[0]["requested"] is None
            assert c.taken.names(other.run.id) == ["state"]
            await one.publish()
            await b.settle()
            assert numbers(c.taken, one) == ["4"]


async def test_a_place_of_another_epoch_in_the_id_is_told_to_its_feed():
    async with bench() as b:
        one, other = await two(b)
        here, there = await b.cursor(one.run), await b.cursor(other.run)
        old = Cursor(here.epoch - 1, here.position, here.tag)
        last = encode({one.feed: Held(old), other.feed: Held(there)})
        async with stream(b, [one.run, other.run], last) as c:
            assert c.taken.said(one.run.id, "resync_required")[0]["reason"] == "epoch"
            assert c.taken.said(one.run.id, "resync_required")[0]["requested"] == str(old)
            assert c.taken.names(other.run.id) == ["state"]


# How it ends.


@pytest.mark.row("BR-08", "A31")
async def test_feeds_end_one_by_one_and_the_last_one_ends_the_stream():
    async with bench() as b:
        one, other = await two(b)
        async with stream(b, [one.run, other.run]) as c:
            await one.finish()
            await b.clock.advance(2)
            assert c.taken.names(one.run.id)[-2:] == ["message", "end"]
            assert c.taken.said(one.run.id, "end") == [{"run_id": one.run.id, "status": "succeeded"}]
            assert c.taken.place(one.run.id) == END
            assert not c.served
            assert b.hub.watched(one.feed) == 0
            last = c.taken.last
            await other.publish()
            await b.settle()
            assert numbers(c.taken, other)[-1] == "4"
        async with stream(b, [one.run, other.run], last) as c:
            assert c.taken.of(one.run.id) == []  # it was told before
            assert numbers(c.taken, other) == ["4"]
            await other.finish(Status.FAILED)
            await b.settle()
            assert c.taken.names(other.run.id)[-1] == "end"
            assert c.body.endswith(b"\n\nid: end\n\n")
            assert c.closed
            assert c.served
            assert c.taken.last == END
        async with stream(b, [one.run, other.run], END) as c:
            assert (c.status, c.body, c.served) == (204, b"", True)
        both = encode({one.feed: OVER, other.feed: OVER})
        async with stream(b, [one.run, other.run], both) as c:
            assert (c.status, c.body) == (204, b"")
        async with stream(b, [one.run, other.run]) as c:
            assert c.taken.last == END
            assert c.served
            assert numbers(c.taken, one) == [*ALL, "r4"]
            assert numbers(c.taken, other) == [*ALL, "4", "r4"]


@pytest.mark.row("A32")
async def test_a_finished_run_without_a_timeline_is_told_from_the_record():
    async with bench() as b:
        one, other = await two(b)
        at = await b.cursor(one.run)
        await one.finish()
        await b.live.drop(one.feed)
        await b.clock.advance(60)
        runs = [one.run, other.run]
        async with stream(b, runs) as c:
            assert c.taken.names(one.run.id) == ["state", "message", "end"]
            assert c.taken.cursor(one.run.id) is None
            assert c.taken.place(one.run.id) == END
            assert not c.served
        async with stream(b, [f"{one.run.id}@{at}", other.run]) as c:
            assert c.taken.names(one.run.id) == ["resync_required", "end"]
            [said] = c.taken.said(one.run.id, "resync_required")
            assert (said["reason"], said["bootstrap"]["cursor"]) == ("expired", None)
            assert c.taken.place(one.run.id) == END
            assert numbers(c.taken, other) == ALL


async def test_refused_feeds_are_told_and_the_others_go_on():
    async with bench() as b:
        one, _ = await two(b)
        async with stream(b, [one.run], refusals={"nonsense": "not_found", uuid7(1, bytes(10)): "forbidden"}) as c:
            assert c.taken.said("nonsense", "refused") == [{"code": "not_found"}]
            assert c.taken.said(uuid7(1, bytes(10)), "refused") == [{"code": "forbidden"}]
            assert numbers(c.taken, one) == ALL
            await one.finish()
            await b.settle()
            assert c.taken.last == END
            assert c.served
        async with stream(b, [one.run], encode({one.feed: OVER}), refusals={"x": "not_found"}) as c:
            assert [frame.event for _, frame in c.taken.frames] == ["refused"]
            assert c.taken.last == END
            assert c.served


async def test_a_run_that_is_erased_on_the_way_in_is_refused():
    async with bench() as b:
        one, other = await two(b)
        await one.finish()
        await b.clock.advance(60)
        b.live.down = True
        async with stream(b, [one.run, other.run]) as c:
            assert await b.record.delete("acme", one.run.id)
            await b.live.drop(one.feed)
            b.live.down = False
            await b.clock.advance(3)
            assert c.taken.names(one.run.id)[-1] == "refused"
            assert c.taken.said(one.run.id, "refused") == [{"code": "not_found"}]
            assert numbers(c.taken, other) == ALL
            assert not c.served


# Grants.


@pytest.mark.row("A42")
@pytest.mark.parametrize("code", ["forbidden", "not_found"])
async def test_a_grant_that_is_taken_back_ends_its_feed_alone(code: str):
    async with bench(options=HubOptions(keepalive=1.0)) as b:
        one, other = await two(b)
        refused: dict[str, str | None] = {}

        async def recheck(run: Run) -> str | None:
            return refused.get(run.id)

        async with stream(b, [one.run, other.run], recheck=recheck, options=StreamOptions(recheck=1.0)) as c:
            await b.clock.advance(2.5)
            refused[one.run.id] = code
            await b.clock.advance(1.0)
            assert c.taken.said(one.run.id, "refused") == [{"code": code}]
            seen = c.taken.names(one.run.id)
            await one.publish()
            await other.publish()
            await b.settle()
            assert c.taken.names(one.run.id) == seen
            assert numbers(c.taken, other)[-1] == "4"
            assert b.hub.watched(one.feed) == 0
            refused[other.run.id] = code
            await b.clock.advance(1.0)
            assert c.served
            assert c.taken.last == END


async def test_a_client_that_is_not_known_any_more_is_sent_away_without_a_word():
    async with bench(options=HubOptions(keepalive=1.0)) as b:
        one, other = await two(b)
        refused: list[str] = []

        async def recheck(run: Run) -> str | None:
            return refused[0] if refused else None

        async with stream(b, [one.run, other.run], recheck=recheck, options=StreamOptions(recheck=1.0)) as c:
            await b.clock.advance(1.5)
            refused.append("unauthenticated")
            names = [frame.event for _, frame in c.taken.frames]
            await b.clock.advance(1.0)
            assert c.served
            assert c.closed
            assert [frame.event for _, frame in c.taken.frames] == names
            assert c.taken.place(one.run.id) == str(await b.cursor(one.run))


async def test_nobody_is_sent_away_while_nobody_can_say():
    async with bench(options=HubOptions(keepalive=1.0)) as b:
        one, other = await two(b)
        asked = []

        async def recheck(run: Run) -> str | None:
            asked.append(run.id)
            raise StoreUnavailable

        async with stream(b, [one.run, other.run], recheck=recheck, options=StreamOptions(recheck=1.0)) as c:
            await b.clock.advance(5)
            assert not c.served
            assert len(asked) > 4


# A store that does not answer.


async def test_a_slow_feed_holds_no_other():
    async with bench() as b:
        one, other = await two(b)
        read = b.live.read
        go_on = asyncio.Event()

        async def slow(feed: Any, **window: Any) -> Any:
            if feed == one.feed:
                await go_on.wait()
            return await read(feed, **window)

        b.live.read = slow  # type: ignore[method-assign]
        b.hub._feeds.clear()
        async with stream(b, [one.run, other.run], options=StreamOptions(first_byte=0.01)) as c:
            assert c.status == 200
            assert c.body.startswith(b"retry: ")
            assert numbers(c.taken, other) == ALL
            assert c.taken.of(one.run.id) == []
            await asyncio.sleep(0.05)
            await b.settle()
            [said] = c.taken.said(one.run.id, "state")
            assert (said["degraded"], said["snapshot"]["status"]) == ("store_unavailable", "running")
            await other.publish()
            await b.settle()
            assert numbers(c.taken, other)[-1] == "4"
            go_on.set()
            await b.settle(60)
            assert c.taken.said(one.run.id, "state")[-1]["degraded"] is None
            assert numbers(c.taken, one) == ALL


async def test_a_feed_whose_past_does_not_come_says_so():
    async with bench() as b:
        one, other = await two(b)
        await one.publish(300)
        async with stream(b, [f"{one.run.id}@{await b.cursor(one.run)}"]):
            b.live.held = asyncio.Event()  # the feed is known, and only its newest events are at hand
            async with stream(b, [one.run, other.run], options=StreamOptions(first_byte=0.01)) as c:
                await asyncio.sleep(0.05)
                await b.settle()
                assert [said["degraded"] for said in c.taken.said(one.run.id, "state")] == ["store_unavailable"]
                b.live.held.set()
                b.live.held = None
                await b.settle(120)
                assert c.taken.said(one.run.id, "state")[1]["degraded"] is None
                assert len(c.taken.events(one.run.id)) == 306
                assert numbers(c.taken, other) == ALL


async def test_with_the_store_down_all_begin_degraded_and_recover():
    async with bench() as b:
        one, other = await two(b)
        b.live.down = True
        async with stream(b, [one.run, other.run], options=StreamOptions(first_byte=0.01)) as c:
            await asyncio.sleep(0.05)
            await b.settle()
            for attempt in (one, other):
                assert c.taken.said(attempt.run.id, "state")[0]["degraded"] == "store_unavailable"
            b.live.down = False
            await b.clock.advance(3)
            for attempt in (one, other):
                assert c.taken.said(attempt.run.id, "state")[-1]["degraded"] is None
                assert numbers(c.taken, attempt) == ALL
                assert c.taken.said(attempt.run.id, "resync_required") == []


async def test_while_a_store_does_not_answer_the_client_hears_that_the_connection_lives():
    async with bench(options=HubOptions(keepalive=0.02)) as b:
        one, _ = await two(b)
        b.live.held = asyncio.Event()
        async with stream(b, [one.run], options=StreamOptions(first_byte=0.01)) as c:
            await asyncio.sleep(0.05)
            for n in range(3):
                seen = c.body
                await b.clock.advance(1)
                await asyncio.sleep(0.05)
                assert c.body == seen + b":\n\n", n
            assert b.hub.viewers == set()


# Room, shutdown, and going away.


@pytest.mark.row("R44")
async def test_it_counts_as_one_stream_and_as_a_viewer_of_each_run():
    async with bench() as b:
        one, other = await two(b)
        few = StreamOptions(max_streams=1)
        async with stream(b, [one.run, other.run], options=few) as first:
            assert b.hub.streams == 1
            assert b.hub.watched(one.feed) == b.hub.watched(other.feed) == 1
            async with stream(b, [one.run], options=few) as native:
                assert native.served
                assert native.status == 200
                assert [frame.event for frame in native.taken.raw] == ["draining"]
                assert native.taken.retry is not None
                assert 15_000 <= native.taken.retry <= 45_000
            async with stream(b, [one.run], options=few, headers=OURS) as ours:
                assert ours.messages == []
                assert ours.task is not None
                assert isinstance(ours.task.exception(), TooManyStreams)
            assert not first.served
        assert (b.hub.streams, b.hub.watched(one.feed), b.hub.viewers) == (0, 0, set())
        b.hub.draining = True
        async with stream(b, [one.run], headers=OURS) as ours:
            assert ours.task is not None
            assert isinstance(ours.task.exception(), NotReady)


async def test_a_drain_is_said_once_for_the_connection():
    async with bench() as b:
        one, other = await two(b)
        async with stream(b, [one.run, other.run]) as c:
            await b.clock.advance(2)
            await one.publish()
            await b.settle()
            await one.publish()
            await b.settle()
            assert c.taken.place(one.run.id) != str(await b.cursor(one.run))
            draining = asyncio.create_task(b.hub.drain(1.0))
            await b.clock.advance(2)
            await draining
            raw = c.taken.raw
            assert [frame.event for frame in raw].count("draining") == 1
            assert raw[-1].event == "draining"
            assert json.loads(raw[-1].data) == {"retry_ms": raw[-1].retry}
            assert c.taken.place(one.run.id) == str(await b.cursor(one.run))  # before the close
            assert c.closed
            assert c.served


async def test_a_client_on_its_way_in_is_told_of_a_drain():
    async with bench() as b:
        one, other = await two(b)
        b.live.held = asyncio.Event()
        async with stream(b, [one.run, other.run]) as c:
            draining = asyncio.create_task(b.hub.drain(0.0))
            await b.clock.advance(1)
            await draining
            await b.settle()
            assert [frame.event for frame in c.taken.raw] == ["draining"]
            assert c.served


@pytest.mark.row("M-slow-client")
async def test_a_lane_that_lags_ends_the_connection_and_the_id_leads_to_the_rest():
    async with bench(options=HubOptions(viewer_bytes=4_000, ring_bytes=8_000)) as b:
        one, other = await two(b)
        async with stream(b, [one.run, other.run]) as c, stream(b, [one.run, other.run]) as quick:
            await b.clock.advance(2)
            last = c.taken.last
            c.open.clear()
            for _ in range(12):
                await one.publish(1, {"pad": "x" * 600})
                await b.settle()
            assert c.served
            assert not quick.served
            assert b.hub.statistics["lagging"] == 1
            assert not c.closed  # cut, without a frame
        async with stream(b, [one.run, other.run], last) as again:
            assert numbers(again.taken, one) == [str(number) for number in range(4, 16)]
            assert numbers(again.taken, other) == []


async def test_a_connection_that_takes_nothing_is_cut():
    async with bench() as b:
        one, other = await two(b)
        async with stream(b, [one.run, other.run]) as c:
            c.open.clear()
            await one.publish()
            await b.clock.advance(50)
            assert c.served
            assert b.hub.statistics["stalled"] == 1


async def test_a_send_that_fails_ends_the_connection():
    async with bench() as b:
        one, other = await two(b)
        async with stream(b, [one.run, other.run]) as c:
            c.fails = OSError("gone")
            await one.publish()
            await b.settle()
            assert c.served
            assert b.hub.statistics["broken"] == 1
            assert (b.hub.streams, b.hub.viewers) == (0, set())


async def test_sends_never_overlap_and_places_move_only_past_what_was_handed_over():
    chance = random.Random(11)
    async with bench() as b:
        one, other = await two(b)
        async with stream(b, [one.run, other.run]) as c:
            for _ in range(60):
                if chance.random() < 0.3:
                    (c.open.clear if c.open.is_set() else c.open.set)()
                await chance.choice((one, other)).publish(chance.randrange(1, 3))
                await b.settle(chance.randrange(4, 9))
                given = {str(frame.id) for _, frame in Taken(c.handed).frames}
                for viewer in b.hub.viewers:
                    assert viewer.feed.ring is not None
                    assert str(viewer.feed.ring.cursor(viewer.place.position)) in given
            c.open.set()
            await b.settle(60)
            assert c.most_under_way == 1
            for attempt in (one, other):
                assert numbers(c.taken, attempt) == ["r1", "r2", "r3", *map(str, range(1, attempt.n + 1))]


@pytest.mark.row("BR-71")
async def test_clients_that_go_at_any_moment_leave_nothing():
    chance = random.Random(3)
    async with bench() as b:
        one, other = await two(b)
        await b.settle()
        tasks = len(asyncio.all_tasks())
        for n in range(200):
            if n % 5 == 0:
                b.hub._feeds.clear()
            async with stream(b, [one.run, other.run]) as c:
                if n % 3 == 0:
                    c.open.clear()
                    await one.publish()
                await b.settle(chance.randrange(6))
                c.left.set()
        await b.clock.advance(2)
        assert (b.hub.viewers, b.hub.streams, b.hub.watched(one.feed)) == (set(), 0, 0)
        await b.clock.advance(30)
        assert b.hub.feeds == 0
        await asyncio.sleep(0.01)
        assert len(asyncio.all_tasks()) <= tasks


async def test_a_fault_in_one_lane_is_the_caller_s_to_log():
    async with bench() as b:
        one, other = await two(b)
        b.hub._feeds.clear()
        read = b.live.read

        async def fails(feed: Any, **window: Any) -> Any:
            if feed == one.feed:
                raise ZeroDivisionError
            return await read(feed, **window)

        b.live.read = fails  # type: ignore[method-assign]
        async with stream(b, [one.run, other.run]) as c:
            assert c.task is not None
            assert isinstance(c.task.exception(), ZeroDivisionError)
            assert (b.hub.streams, b.hub.viewers) == (0, set())
