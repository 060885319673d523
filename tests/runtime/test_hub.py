"""The hub: many viewers, one reader, and sockets that misbehave."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from playhead.core.ids import Feed, run_feed
from playhead.core.replay import Reason
from playhead.core.retention import Retention
from playhead.core.run import Policy, Status
from playhead.core.snapshot import State
from playhead.errors import StoreUnavailable
from playhead.interfaces import Listener
from playhead.runtime.clock import SystemClock
from playhead.runtime.hub import HubOptions
from tests.runtime.bench import Attempt, Watcher, bench, watch

pytestmark = pytest.mark.anyio


async def test_every_viewer_gets_the_same_bytes_once():
    async with bench() as b:
        attempt = await b.attempt()
        watchers = [await watch(b, attempt.run) for _ in range(5)]
        await attempt.publish(3)
        await b.settle()
        assert [w.socket.types for w in watchers] == [["step_done"] * 3] * 5
        assert len({w.socket.body for w in watchers}) == 1
        assert len(watchers[0].socket.messages) == 1  # what came in one turn goes out in one piece


@pytest.mark.row("BR-09", "R42", "M-split-viewers", "S1-13")
@pytest.mark.parametrize("driven", [True, False])
async def test_a_viewer_that_never_reads_and_one_that_leaves_take_nothing_from_the_others(driven: bool):
    async with bench() as b:
        attempt = await b.attempt()
        a = await watch(b, attempt.run, driven=driven)
        await attempt.publish(2)
        await b.settle()
        late, stuck = await watch(b, attempt.run, driven=driven), await watch(b, attempt.run, driven=driven)
        stuck.socket.open.clear()
        await attempt.publish(20)
        await b.settle()
        stuck.viewer.leave()
        await attempt.publish(28)
        await b.settle()
        assert len(a.socket.events) == 50
        assert [e["id"] for e in late.socket.events] == [e["id"] for e in a.socket.events][2:]
        assert late.socket.body in a.socket.body
        assert stuck.socket.events == []


async def test_a_sweep_tells_the_store_what_is_watched(monkeypatch):
    async with bench() as b:
        attempt, told = await b.attempt(), []

        async def watched(feeds):
            told.extend(feeds)

        monkeypatch.setattr(b.live, "watched", watched)
        await b.clock.advance(b.hub.options.sweep)
        assert told == []
        await watch(b, attempt.run)
        await b.clock.advance(b.hub.options.sweep)
        assert told == [attempt.feed]


async def test_viewers_that_have_everything_share_one_place():
    async with bench() as b:
        attempt = await b.attempt()
        a, c = await watch(b, attempt.run), await watch(b, attempt.run)
        assert a.viewer.place is c.viewer.place
        behind = await watch(b, attempt.run, position=0)
        await b.settle()
        assert behind.viewer.place is a.viewer.place
        await attempt.publish(2)
        late = await watch(b, attempt.run)
        await b.settle()
        assert len({id(w.viewer.place) for w in (a, c, behind, late)}) == 1


async def test_a_hot_feed_serves_a_viewer_without_a_store_read():
    async with bench() as b:
        attempt = await b.attempt()
        await watch(b, attempt.run)
        await attempt.publish(10)
        await b.settle()
        reads = b.live.reads
        late = await watch(b, attempt.run, position=0)
        await b.settle()
        assert b.live.reads == reads
        assert len(late.socket.events) == 13


# Sockets.


async def test_a_send_that_suspends_parks_its_viewer_which_then_gets_all_it_missed_in_one_piece():
    async with bench() as b:
        attempt = await b.attempt()
        w, other = await watch(b, attempt.run), await watch(b, attempt.run)
        w.socket.open.clear()
        for _ in range(4):
            await attempt.publish()
            await attempt.text("some ")
            await b.settle()
        assert w.socket.messages == []
        assert len(other.socket.events) == 4
        w.socket.open.set()
        await b.settle()
        assert len(w.socket.messages) == 2  # the one that was under way, and the rest
        assert w.socket.events == other.socket.events
        assert w.socket.text == {"1.answer": "some some some some "}
        assert len(w.socket.said("text")) < len(other.socket.said("text"))
        await attempt.publish()
        await b.settle()
        assert len(w.socket.events) == 5
        assert w.socket.most_under_way == 1


@pytest.mark.parametrize("driven", [True, False])
async def test_a_send_that_raises_costs_its_own_viewer_alone(driven: bool):
    async with bench() as b:
        attempt = await b.attempt()
        w, other = await watch(b, attempt.run, driven=driven), await watch(b, attempt.run)
        w.socket.fails = OSError("gone")
        await attempt.publish()
        await b.settle()
        assert w.viewer.gone
        assert w.socket.cut
        assert b.hub.statistics == {"broken": 1}
        assert len(other.socket.events) == 1


@pytest.mark.row("BR-71", "R42")
@pytest.mark.parametrize("driven", [True, False])
async def test_a_viewer_that_leaves_half_way_through_a_send_leaves_nothing_behind(driven: bool):
    async with bench(clock=SystemClock()) as b:
        attempt = await b.attempt()
        await b.settle()
        tasks = len(asyncio.all_tasks())
        watchers = [await watch(b, attempt.run, driven=driven) for _ in range(500)]
        for w in watchers:
            w.socket.open.clear()
        await attempt.publish()
        await b.settle(5)
        assert all(w.socket.under_way == 1 for w in watchers)
        # Half of them before their task was ever run.
        for w in watchers:
            w.viewer.leave()
            b.hub.detach(w.live)
        await asyncio.sleep(0.2)  # for the tick to run out
        assert all((w.socket.under_way, w.socket.finished, w.socket.ended) == (0, 1, True) for w in watchers)
        assert b.hub.viewers == set()
        assert b.hub.watched(attempt.feed) == 0
        assert len(asyncio.all_tasks()) <= tasks + 1  # the one that waits out the feed's grace


async def test_a_half_driven_send_is_closed_when_its_task_never_got_to_run():
    async with bench() as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        w.socket.open.clear()
        await attempt.publish()
        while w.socket.under_way == 0:
            await asyncio.sleep(0)
        w.viewer.leave()  # in the turn in which it was parked
        await b.settle()
        assert (w.socket.under_way, w.socket.finished) == (0, 1)


@pytest.mark.row("BR-76", "M-slow-client")
@pytest.mark.parametrize("driven", [True, False])
async def test_a_viewer_that_does_not_read_is_bounded_and_dropped_and_can_come_back(driven: bool):
    async with bench(options=HubOptions(viewer_bytes=20_000, ring_bytes=100_000)) as b:
        attempt = await b.attempt()
        w, other = await watch(b, attempt.run, driven=driven), await watch(b, attempt.run)
        w.socket.open.clear()
        reached = None
        for n in range(200):
            await attempt.publish(payload={"fill": "x" * 500})
            await b.settle(3)
            if w.viewer.gone and reached is None:
                reached = n
            live = w.live
            assert live.ring is not None
            assert live.ring.size <= 100_000
        await b.settle()
        assert reached is not None
        assert 15 < reached < 40
        assert w.socket.cut
        assert w.socket.frames == []  # no farewell: nothing could take it
        assert b.hub.statistics["lagging"] == 1
        assert len(other.socket.events) == 200
        back = await watch(b, attempt.run, position=190)
        await b.settle()
        assert len(back.socket.events) == 203 - 190


async def test_text_counts_to_what_a_viewer_lacks_by_its_length_alone():
    async with bench(options=HubOptions(viewer_bytes=10_000)) as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        w.socket.open.clear()
        await attempt.publish()
        for _ in range(900):
            await attempt.text("0123456789")
            await b.settle(1)
        await b.settle()
        assert not w.viewer.gone  # 900 frames would be far beyond the bound; their text is not
        for _ in range(200):
            await attempt.text("0123456789")
        await b.settle()
        assert w.viewer.gone


@pytest.mark.row("BR-77")
@pytest.mark.parametrize("driven", [True, False])
async def test_a_stuck_viewer_does_not_stay_open_after_the_end(driven: bool):
    async with bench() as b:
        attempt = await b.attempt()
        slow, stuck = await watch(b, attempt.run, driven=driven), await watch(b, attempt.run, driven=driven)
        for w in (slow, stuck):
            w.socket.open.clear()
        await attempt.publish()
        await attempt.finish()
        await b.settle()
        slow.socket.open.set()
        await b.settle()
        assert slow.socket.types == ["step_done", "run_succeeded"]
        assert slow.socket.names[-1] == "end"
        assert slow.socket.closed
        await b.clock.advance(46)
        assert stuck.viewer.gone
        assert stuck.socket.cut
        assert b.hub.statistics == {"stalled": 1}


async def test_a_wrapped_send_runs_in_a_task_with_the_request_s_own_context():
    async with bench() as b:
        attempt = await b.attempt()
        mark: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="none")
        mark.set("request")
        context = contextvars.copy_context()
        mark.set("elsewhere")
        seen = []
        w = Watcher(b, await b.hub.attach(attempt.feed), driven=False, context=context)

        async def timed(message: object) -> None:
            async with asyncio.timeout(5):  # asks which task it is in
                seen.append((mark.get(), asyncio.current_task() is not None))
                await w.socket.send(message)

        w.viewer._send = timed
        w.start()
        await attempt.publish()
        await b.settle()
        assert seen == [("request", True)]


async def test_many_viewers_are_served_in_slices():
    async with bench(options=HubOptions(slice=10)) as b:
        attempt = await b.attempt()
        watchers = [await watch(b, attempt.run) for _ in range(35)]
        await attempt.publish()
        served = []
        for _ in range(12):
            await asyncio.sleep(0)
            served.append(sum(len(w.socket.events) for w in watchers))
        steps = [b - a for a, b in pairwise([0, *served])]
        assert [step for step in steps if step] == [10, 10, 10, 5]


# Chaining, and what breaks it.


@pytest.mark.row("M-hint-lost", "R42")
async def test_a_lost_hint_is_made_up_by_the_next_one():
    async with bench() as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        b.live.deaf = True
        await attempt.publish(2)
        b.live.deaf = False
        await attempt.publish()
        await b.settle()
        assert len(w.socket.events) == 3
        assert len({e["id"] for e in w.socket.events}) == 3
        assert w.resyncs == []


@pytest.mark.row("M-hint-lost")
async def test_the_last_lost_hint_is_found_by_the_sweep():
    async with bench() as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        b.live.deaf = True
        await attempt.publish(2, state=State(progress=40))
        await attempt.text("lost")
        await b.settle()
        assert w.socket.events == []
        await b.clock.advance(16)
        assert len(w.socket.events) == 2
        assert w.socket.said("state")[-1]["snapshot"]["progress"] == 40
        assert w.socket.text == {"1.answer": "lost"}
        assert b.hub.statistics == {"hint_lost": 1}


async def test_who_looks_while_an_end_whose_hint_was_lost_is_read_finds_it_with_its_state_and_text(monkeypatch):
    async with bench() as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        reading, go_on, read_text = asyncio.Event(), asyncio.Event(), b.live.read_text

        async def held(feed):
            reading.set()
            await go_on.wait()
            return await read_text(feed)

        monkeypatch.setattr(b.live, "read_text", held)
        w.socket.open.clear()
        await attempt.publish()
        await b.settle()
        b.live.deaf = True
        await attempt.text("so")
        await attempt.finish()
        w.live.refresh()
        await reading.wait()
        w.socket.open.set()  # it looks for what has come since
        await b.settle()
        assert w.socket.types == ["step_done"]
        go_on.set()
        await b.settle()
        assert w.socket.types == ["step_done", "run_succeeded"]
        assert w.socket.said("state")[-1]["snapshot"]["status"] == "succeeded"
        assert w.socket.text == {"1.answer": "so"}
        assert w.socket.names[-1] == "end"


async def test_text_whose_hint_was_lost_is_read_again():
    async with bench() as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        await attempt.text("one ")
        b.live.deaf = True
        await attempt.text("two ")
        b.live.deaf = False
        await attempt.text("three")
        await b.settle()
        assert w.socket.text == {"1.answer": "one two three"}


async def test_a_hint_that_carries_nothing_is_enough():
    async with bench() as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        b.live.deaf = True
        await attempt.publish(250)
        b.live.deaf = False
        b.hub.on_gap(attempt.feed)
        await b.settle(60)
        assert len(w.socket.events) == 250


@pytest.mark.row("A6", "T-8", "R30")
async def test_a_trim_under_a_live_reader_shows():
    async with bench(retention=Retention(count=10, archive=False, max_bytes=3_000)) as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        b.live.deaf = True
        await attempt.publish(100)
        b.live.deaf = False
        await attempt.publish()
        await b.settle()
        assert w.socket.events == []
        assert [reason for reason, _ in w.resyncs] == [Reason.EXPIRED]


@pytest.mark.row("A5", "M-projection-expired")
async def test_a_lost_projection_is_rebuilt_and_its_viewers_are_told():
    async with bench() as b:
        attempt = await b.attempt()
        await attempt.publish(3)
        w = await watch(b, attempt.run)
        at = await b.cursor(attempt.run)
        b.live.lose()
        await b.clock.advance(16)
        assert w.resyncs == [(Reason.EPOCH, at)]
        live = await b.hub.attach(attempt.feed)
        assert live.ring is not None
        assert live.ring.epoch > at.epoch


async def test_a_store_that_went_back_is_noticed_and_judged_by_a_read():
    async with bench() as b:
        attempt = await b.attempt()
        await attempt.publish(3)
        earlier = b.live.copy()
        w = await watch(b, attempt.run)
        await attempt.publish(2)
        await b.settle()
        at = await b.cursor(attempt.run)
        b.live.restore(earlier)
        await b.clock.advance(16)
        assert w.resyncs == [(Reason.AHEAD, at)]


async def test_another_history_at_the_same_place_is_foreign():
    async with bench() as b:
        attempt = await b.attempt()
        earlier = b.live.copy()
        w = await watch(b, attempt.run)
        await attempt.publish(2)
        await b.settle()
        b.live.restore(earlier)
        attempt.n = 0
        b.live.deaf = True
        await attempt.publish(2)
        b.live.deaf = False
        await b.clock.advance(16)
        assert [reason for reason, _ in w.resyncs] == [Reason.FOREIGN]


@pytest.mark.row("BR-05", "M-join-race", "A21")
@pytest.mark.parametrize("before_read", [True, False])
async def test_what_is_written_while_a_feed_is_joined_arrives_once(before_read: bool):
    async with bench() as b:
        attempt = await b.attempt()
        await attempt.publish(2)
        if not before_read:
            b.live.held = asyncio.Event()  # the answer is taken, and then held up
        joining = asyncio.create_task(watch(b, attempt.run, position=0))
        await b.settle(3)
        await attempt.publish(2)
        await attempt.text("so far")
        if b.live.held is not None:
            b.live.held.set()
            b.live.held = None
        w = await joining
        await b.settle()
        assert [e["id"] for e in w.socket.events] == [
            *(f"run:{attempt.run.id}:{rev}" for rev in (1, 2, 3)),
            *(f"{attempt.run.id}:1:{n}" for n in (1, 2, 3, 4)),
        ]
        assert w.socket.text in ({"1.answer": "so far"}, {})  # told at the start, or in the stream


# State.


@pytest.mark.row("A34")
async def test_state_is_conflated_to_one_tick_and_the_same_for_all():
    async with bench() as b:
        attempt = await b.attempt()
        watchers = [await watch(b, attempt.run) for _ in range(3)]
        for progress in range(1, 30):
            await attempt.write(0, state=State(progress=progress))
            await b.clock.advance(0.01)
        await b.clock.advance(0.2)
        states = [[s["snapshot"]["progress"] for s in w.socket.said("state")] for w in watchers]
        assert states[0] == states[1] == states[2]
        assert states[0][-1] == 29
        assert len(states[0]) <= 5
        assert watchers[0].socket.events == []


async def test_an_event_after_a_quiet_moment_brings_its_state_along():
    async with bench() as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        await b.clock.advance(0.15)
        for progress in range(5):
            await attempt.publish(state=State(progress=progress))
            await b.clock.advance(0.15)
        newest = 0
        for frame in w.socket.frames:
            said = json.loads(frame.data)
            if frame.event == "state":
                newest = said["snapshot"]["version"]
            elif frame.event == "message":
                assert newest >= said["version"]


async def test_the_final_state_goes_out_before_the_end():
    async with bench() as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        await attempt.write(0, state=State(progress=1))
        await attempt.finish()
        await b.settle()
        assert w.socket.names == ["state", "message", "end"]
        assert w.socket.said("state")[-1]["snapshot"]["status"] == "succeeded"
        assert w.socket.said("end") == [{"run_id": attempt.run.id, "status": "succeeded"}]
        assert w.socket.frames[-1].id == "end"
        assert w.socket.closed
        assert w.viewer.gone
        assert not w.socket.cut


# Text.


async def test_text_reaches_viewers_by_offset_and_a_void_attempt_s_text_is_forgotten():
    async with bench() as b:
        attempt = await b.attempt(policy=Policy(resumable=True))
        w = await watch(b, attempt.run)
        await attempt.text("Grüße ")
        await b.settle()
        await attempt.text("\U0001f600", final=True)
        await b.settle()
        pieces = w.socket.said("text")
        assert [(p["part"], p["attempt"], p["offset"], p["end"], p["final"]) for p in pieces] == [
            ("answer", 1, 0, 8, False),
            ("answer", 1, 8, 12, True),
        ]
        await b.record.leave("p")
        await b.record.lose(attempt.run.id, 1, None)
        await b.clock.advance(60)
        await b.record.beat("p", 10_000_000, ())
        again = await b.record.claim("acme", attempt.run.id, "p")
        await b.bring(again)
        await Attempt(b, again).text("new")
        await b.settle()
        late = Watcher(b, w.live)
        frames, _, _ = w.live.beginning({})
        assert [b"event: text" in frame for frame in frames] == [False, True]
        assert w.socket.text == {"1.answer": "Grüße \U0001f600", "2.answer": "new"}
        late.viewer.leave()


async def test_a_viewer_may_name_the_text_it_has():
    async with bench() as b:
        attempt = await b.attempt()
        await attempt.text("aé")
        live = await b.hub.attach(attempt.feed)

        def told(offset: int) -> list[tuple[int, str]]:
            frames, _, _ = live.beginning({(1, "answer"): offset})
            return [(said["offset"], said["text"]) for frame in frames[1:] if (said := _data(frame))]

        assert told(1) == [(1, "é")]
        assert told(3) == []  # it has all, and the part goes on
        assert told(2) == told(4) == told(10_000) == [(0, "aé")]  # inside a character; beyond the end


# Keeping alive, checking again, draining.


@pytest.mark.row("BR-66", "R41", "A24")
async def test_idle_viewers_are_kept_alive_by_comments_that_move_nothing():
    async with bench(options=HubOptions(keepalive=1.0)) as b:
        queued = await b.queued()
        attempt = await b.attempt()
        await attempt.ask()
        idle = [await watch(b, queued), await watch(b, attempt.run), await watch(b, attempt.run, driven=False)]
        b.live.held = asyncio.Event()  # a store that does not answer is no reason to be silent
        await b.clock.advance(3.5)
        for w in idle:
            assert w.socket.body == b":\n\n" * 3
            assert w.socket.frames == []


@pytest.mark.row("A42", "R44")
async def test_grants_are_looked_at_again_and_a_stream_ends_with_them():
    async with bench() as b:
        attempt = await b.attempt()
        asked = []
        answers: list[bool | Exception] = [True, StoreUnavailable(), False]

        async def recheck() -> bool:
            asked.append(b.clock.steady())
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        live = await b.hub.attach(attempt.feed)
        w = Watcher(b, live, recheck=recheck, recheck_every=60.0).start()
        await b.clock.advance(200)
        assert asked == [60.0, 120.0, 135.0]
        assert w.socket.closed
        assert w.viewer.gone
        before = w.socket.body
        await attempt.publish()
        await b.settle()
        assert w.socket.body == before


async def test_draining_spreads_the_end_of_the_streams_over_its_window():
    async with bench() as b:
        attempt = await b.attempt()
        watchers = [await watch(b, attempt.run) for _ in range(100)]
        stuck = await watch(b, attempt.run)
        stuck.socket.open.clear()
        draining = asyncio.create_task(b.hub.drain(5.0))
        closed = []
        for _ in range(6):
            closed.append(sum(w.socket.closed for w in watchers))
            await b.clock.advance(1.0)
        await draining
        steps = [after - before for before, after in pairwise(closed)]
        assert all(step <= 25 for step in steps)
        assert closed[-1] == 100
        assert stuck.socket.cut
        waits = {w.socket.said("draining")[0]["retry_ms"] for w in watchers}
        assert max(waits) - min(waits) >= 1_500
        assert b.hub.viewers == set()


# Feeds come and go.


@pytest.mark.row("BR-74")
async def test_a_thousand_watched_and_finished_runs_leave_no_subscription_behind():
    async with bench() as b:
        await b.settle()
        tasks = len(asyncio.all_tasks())
        for _ in range(1_000):
            attempt = await b.attempt()
            w = await watch(b, attempt.run)
            await attempt.finish()
            await b.settle(3)
            assert w.viewer.gone
            b.hub.detach(w.live)
        assert b.hub.feeds > 0
        await b.clock.advance(11)
        assert b.hub.feeds == 0
        assert b.live.signal._listeners == {}
        del attempt, w
        gc.collect()
        assert len(asyncio.all_tasks()) <= tasks


async def test_a_feed_that_is_joined_again_in_its_grace_keeps_its_place():
    async with bench() as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        w.viewer.leave()
        b.hub.detach(w.live)
        await b.clock.advance(5)
        reads = b.live.reads
        again = await watch(b, attempt.run)
        assert (b.live.reads, again.live) == (reads, w.live)
        await b.clock.advance(30)
        await attempt.publish()
        await b.settle()
        assert len(again.socket.events) == 1


async def test_the_first_and_the_last_viewer_of_a_feed_are_told_of():
    async with bench() as b:
        attempt, other = await b.attempt(policy=Policy(cancel_after=5.0)), await b.attempt()
        told: list[str] = []
        b.hub.on_first = lambda feed: told.append(f"first {feed.kind}")
        b.hub.on_empty = lambda feed: told.append(f"empty {feed.kind}")
        for run in (attempt.run, other.run):
            b.hub.detach(await b.hub.attach(run_feed(run.id), run))
        (await watch(b, other.run)).viewer.leave()
        assert told == []  # that run goes on without viewers
        one, two = await watch(b, attempt.run), await watch(b, attempt.run)
        assert b.hub.watched(attempt.feed) == 2
        one.viewer.leave()
        assert told == ["first run"]
        b.live.lose()
        await b.clock.advance(16)  # a resync is no absence
        two.viewer.leave()
        assert told == ["first run", "empty run"]
        unstarted = Watcher(b, two.live)
        unstarted.viewer.leave()
        assert told == ["first run", "empty run"]


# A store that is down.


async def test_viewers_see_that_the_store_is_down_and_then_what_they_missed():
    async with bench() as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        b.live.deaf = True
        await attempt.publish(2)
        b.live.down = True
        await b.clock.advance(16)
        assert w.socket.said("state")[-1]["degraded"] == "store_unavailable"
        assert w.resyncs == []
        b.live.down = False
        await b.clock.advance(2)
        assert w.socket.said("state")[-1]["degraded"] is None
        assert len(w.socket.events) == 2


async def test_a_feed_cannot_be_joined_while_the_store_is_down():
    async with bench() as b:
        attempt = await b.attempt()
        b.live.down = True
        with pytest.raises(StoreUnavailable):
            await b.hub.attach(attempt.feed)
        b.live.down = False
        await b.clock.advance(2)
        await b.hub.attach(attempt.feed)


# Runs that are over.


@pytest.mark.row("A32", "A3")
async def test_the_streams_of_a_run_that_ended_without_a_projection_end_at_the_next_sweep():
    async with bench() as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        b.live.lose()
        await attempt.finish(Status.FAILED, project=False)
        await b.clock.advance(16)
        assert w.socket.types == ["run_failed"]
        assert w.socket.events[0]["id"] == f"run:{attempt.run.id}:4"
        assert w.socket.frames[-2].id is None
        assert w.socket.said("end") == [{"run_id": attempt.run.id, "status": "failed"}]
        assert w.socket.closed
        assert (await b.hub.attach(attempt.feed)).over is not None


async def test_an_end_that_has_no_place_does_not_take_that_of_the_event_before_it():
    async with bench() as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run, 0)
        await attempt.publish()
        await b.settle()
        cursors = [str(cursor) for cursor in await b.cursors(attempt.run)]
        b.live.lose()
        await attempt.finish(project=False)
        await b.clock.advance(16)
        frames = [frame for frame in w.socket.frames if frame.event == "message"]
        assert [frame.id for frame in frames] == [*cursors, None]
        assert w.socket.types[-2:] == ["step_done", "run_succeeded"]
        assert w.socket.frames[-1].id == "end"


@pytest.mark.row("A32")
async def test_an_end_that_was_committed_and_never_projected_is_found_in_the_record():
    async with bench() as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        await attempt.finish(project=False)
        await b.clock.advance(46)
        assert w.socket.types == ["run_succeeded"]
        assert w.socket.closed


async def test_the_streams_of_an_erased_run_end():
    async with bench() as b:
        attempt = await b.attempt()
        await attempt.finish()
        other = await b.attempt()
        w = await watch(b, other.run)
        b.live.lose()
        b.record._files.pop(other.run.id)
        await b.clock.advance(16)
        assert w.socket.closed
        assert w.socket.events == []


@pytest.mark.row("BR-69")
def test_several_event_loops_each_have_their_hub():
    async def once() -> int:
        async with bench(clock=SystemClock()) as b:
            attempt = await b.attempt()
            w = await watch(b, attempt.run)
            await attempt.publish()
            await attempt.finish()
            await b.settle()
            return len(w.socket.events)

    assert [asyncio.run(once()) for _ in range(2)] == [2, 2]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: asyncio.run(once()), range(2))) == [2, 2]


def _data(frame: bytes) -> dict:
    return json.loads(frame.split(b"data: ", 1)[1])


async def test_a_feed_that_is_joined_while_it_is_being_left_is_heard():
    async with bench() as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        signal, held = b.live.signal, asyncio.Event()
        remove = signal.remove

        async def slow(feed: Feed, listener: Listener) -> None:
            await held.wait()
            await remove(feed, listener)

        signal.remove = slow  # type: ignore[method-assign]
        w.viewer.leave()
        b.hub.detach(w.live)
        await b.clock.advance(11)
        joining = asyncio.create_task(watch(b, attempt.run))
        await b.settle()
        held.set()
        again = await joining
        await attempt.publish()
        await b.settle()
        assert len(again.socket.events) == 1


@pytest.mark.row("A4", "T-6")
async def test_a_page_with_a_hole_is_taken_up_to_the_hole():
    async with bench() as b:
        attempt = await b.attempt()
        w = await watch(b, attempt.run)
        b.live.deaf = True
        await attempt.publish(6)
        b.live.deaf = False
        del b.live._held[attempt.feed].rows[5]
        b.hub.on_gap(attempt.feed)
        await b.settle()
        assert [reason for reason, _ in w.resyncs] == [Reason.EXPIRED]
        assert len(w.socket.events) <= 2
        late = await watch(b, attempt.run, position=6)
        await b.settle()
        assert [each["id"][-1] for each in late.socket.events] == ["4", "5", "6"]
