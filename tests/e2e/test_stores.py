"""Stores that fail, are lost, go back or are full, and processes that come and go beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import playhead
from playhead.core.ids import run_feed
from playhead.core.run import Outcome, Status
from playhead.core.transition import NeedsRebuild, Stale, WrongEpoch
from playhead.errors import DataLocked, RunFinal, StoreFull, StoreUnavailable
from playhead.runtime.clock import SystemClock
from playhead.runtime.ear import Ear
from playhead.runtime.heartbeat import Heartbeat
from tests.e2e.test_recovery import holding, two_attempts
from tests.support import behind
from tests.support.agents import counting
from tests.support.stage import STORES, Gates, stage, visible

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", STORES)]

FINALS = {"run_succeeded", "run_failed", "run_cancelled", "run_interrupted"}


async def eventually(look: Any, wait: float = 15.0) -> Any:
    """What `look` gives once it is something."""
    async with asyncio.timeout(wait):
        while not (found := await look()):
            await asyncio.sleep(0.02)
        return found


# A live store that is lost, or went back.


@pytest.mark.store
@pytest.mark.row("A8", "A10", "BR-35")
async def test_a_lost_token_lets_no_stale_attempt_in(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, holding) as s:
        old, new = await two_attempts(s)
        await s.flush()
        for attempt in (old, new):  # nothing is there that could tell them apart: neither is accepted
            assert await attempt.publish() == NeedsRebuild(0)
            assert await attempt.say("x", 0) == NeedsRebuild(0)
        assert await s.engine.ports.live.read(run_feed(old.run.id)) is None
        rebuilt = await s.engine.projector.bring(old.run.id)
        assert rebuilt is not None
        assert isinstance(await old.publish(), WrongEpoch)
        view = await s.engine.ports.live.read(run_feed(old.run.id))
        assert (view.marks.token, view.entries) == (new.run.token, ())
        for attempt in (old, new):
            attempt.guard = type(attempt.guard)(rebuilt.epoch, attempt.run.token, rebuilt.rev)
        assert await old.publish() == Stale(new.run.token)
        assert await old.say("late", 0) == Stale(new.run.token)
        assert (await new.publish()).cursor.position == 1  # type: ignore[union-attr]


def working(gates: Gates) -> Sequence[playhead.Agent]:
    @playhead.agent
    async def worker(run: playhead.RunContext) -> str:
        await run.event("work_begun", {"files": 3}, progress=10, current_step="read", total=3)
        await run.text("The first ")
        await run.flush()
        await gates.wait("begun")
        await run.event("work_moved", {"files": 1}, progress=42, done=1, detail="one of three")
        await run.text("half. ")
        await run.flush()
        await gates.wait("moved")
        decision = await run.ask({"title": "Go on?"})
        await run.event("work_ended", {"approved": decision.approved}, progress=100)
        await gates.wait("last")
        return "done"

    return [worker]


@pytest.mark.store
@pytest.mark.row("H-flush", "A5")
@pytest.mark.parametrize("when", ["moved", "asked", "last", "over"])
async def test_a_live_store_that_went_back_is_brought_to_the_truth_under_its_viewers(
    backend: str, tmp_path: Path, when: str
) -> None:
    async with stage(backend, tmp_path, working) as s:
        run_id = await s.client.start("worker")
        await s.gates.reached("begun")
        earlier = await behind.remember(s.app, tmp_path)
        stream = await s.client.open(run_id)
        await stream.type("work_begun")
        s.gates.open("begun")
        await s.gates.reached("moved")
        if when != "moved":
            s.gates.open("moved")
            await stream.type("approval_required")
        if when in ("last", "over"):
            [question] = (await s.client.bootstrap(run_id))["interrupts"]
            path = f"/runs/{run_id}/interrupts/{question['id']}/decision"
            await s.client.post(path, {"approved": True})
            await s.gates.reached("last")
        if when == "over":
            s.gates.open("last")
            await stream.end()
            await stream.close()
            assert stream.types[-1] == "run_succeeded"
        await s.archived(run_id)
        before = visible(await s.client.bootstrap(run_id))
        if when != "over":
            await stream.type({"moved": "work_moved", "asked": "approval_required", "last": "work_ended"}[when])
        seen = stream.cursor
        await behind.go_back(s.app, earlier)

        async def true() -> bool:
            shown = visible(await s.client.bootstrap(run_id))
            shown["text"] = before["text"] if when == "over" else shown["text"]  # gone with the message it became
            return shown == before

        await eventually(true)
        if when == "over":
            await s.engine.hub.close()
            async with s.client.stream(run_id, seen) as late:
                await late.end(2.0)
            told = [one["reason"] for one in late.named("resync_required")]
            assert late.status == 204 or told in (["ahead"], ["foreign"], ["expired"])
            assert late.events == []
            async with s.client.stream(run_id) as bare:
                await bare.end(2.0)
            assert bare.types[-1] == "run_succeeded"
            return
        # The open stream was not left behind: it was told why it cannot go on, and a new one begins at the truth.
        await stream.end()
        assert [told["reason"] in ("epoch", "ahead", "foreign") for told in stream.named("resync_required")] == [True]
        shown = await s.client.bootstrap(run_id)
        again = await s.client.open(run_id, shown["cursor"])
        await again.until(lambda one: one.named("state"))
        assert again.snapshot["progress"] == before["snapshot"]["progress"]
        assert again.text() == "The first half. "
        s.gates.open("moved", "last")
        if when != "last":
            await again.until(lambda one: when == "asked" or "approval_required" in one.types)
            [question] = (await s.client.bootstrap(run_id))["interrupts"]
            await s.client.post(f"/runs/{run_id}/interrupts/{question['id']}/decision", {"approved": True})
        await again.end()
        assert again.types[-1] == "run_succeeded"
        await again.close()
        await stream.close()


@pytest.mark.row("H-flush")
async def test_a_live_file_that_was_deleted_is_missed_by_nobody(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting, settings={"drain_grace": 0.1}) as s:
        over = await s.client.start("count", {"n": 3})
        await s.client.ended(over)
        going = await s.client.start("count", {"n": 3, "hold": True})
        await s.gates.reached("end")
        cursors = {}
        for run_id in (over, going):
            async with s.client.stream(run_id) as stream:
                await stream.until(lambda one: one.types.count("counted") == 3)
                cursors[run_id] = stream.cursor
            await s.archived(run_id)
        before = [one["id"] for one in (await s.client.bootstrap(going))["events"]]
        # Deleted while it is open, by somebody who cleans up: it serves on, and is gone after the next start.
        for path in tmp_path.glob("live.db*"):
            path.unlink()
        assert [one["id"] for one in (await s.client.bootstrap(going))["events"]] == before
        kept = s.engine.ports
    if backend == "memory":
        kept.live.lose()
    elif backend == "servers":
        behind.flush_server(s.app)
    async with stage(backend, tmp_path, counting, kept=kept) as s:
        for run_id, status, final in ((over, "succeeded", "run_succeeded"), (going, "interrupted", "run_interrupted")):
            shown = await s.client.bootstrap(run_id)
            assert (shown["run"]["status"], shown["snapshot"]["status"], shown["cursor"]) == (status, status, None)
            assert [event["type"] for event in shown["events"]][-1] == final
            assert [event["type"] for event in shown["events"]].count("counted") == 3
            async with s.client.stream(run_id, cursors[run_id]) as stream:
                await stream.end(2.0)
            assert [told["reason"] for told in stream.named("resync_required")] == ["expired"]
            assert stream.events == []
            async with s.client.stream(run_id) as stream:
                await stream.end(2.0)
            assert stream.types == [final]
        following = await s.client.start("count", {"n": 1})
        assert (await s.client.ended(following))["status"] == "succeeded"


@pytest.mark.row("A26")
async def test_an_unreadable_event_blocks_nobody(
    backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On the timeline and in the archive; the memory store, which decodes nothing, only shows what is not there."""
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 5, "hold": True})
        await s.gates.reached("end")
        await s.archived(run_id)
        before = await s.client.bootstrap(run_id)
        names = [event["id"] for event in before["events"]]
        bad = names[4]
        if backend == "sqlite":
            live, record = s.engine.ports.live, s.engine.ports.record
            await live._write(lambda db: db.execute("UPDATE entry SET body = x'7b786d' WHERE position = 5").rowcount)
            act = "UPDATE archive SET body = x'7b22696422' WHERE event_id = ?"
            assert await record.file.write(lambda db: db.execute(act, (bad,)).rowcount) == 1
        await s.engine.hub.close()
        expected = "event_unreadable" if backend == "sqlite" else "counted"
        async with s.client.stream(run_id) as stream:
            await stream.until(lambda one: len(one.events) == 8)
            assert [event["id"] for event in stream.events] == names
            assert stream.types[4] == expected
            place = [frame.id for frame in stream.frames if frame.event == "message"][4]
        # Whoever comes back to that very place goes on behind it.
        async with s.client.stream(run_id, place) as again:
            await again.until(lambda one: len(one.events) == 3)
            assert [event["id"] for event in again.events] == names[5:]
        shown = await s.client.bootstrap(run_id)
        assert [event["id"] for event in shown["events"]] == names
        assert shown["timeline"] == before["timeline"]
        s.gates.open("end")
        await s.client.ended(run_id)
        await s.flush()
        shown = await s.client.bootstrap(run_id)
        assert [event["id"] for event in shown["events"]][:8] == names
        assert [event["type"] for event in shown["events"]][4] == expected
        if backend == "sqlite":
            live, record = s.engine.ports.live.unreadable, s.engine.ports.record.unreadable
            assert min(live, record) > 0
            assert (
                f"playhead_events_unreadable_total {live + record}.0" in (await s.client.get("/metrics")).body.decode()
            )
            assert "cannot be read" in caplog.text


@pytest.mark.row("A14")
async def test_a_write_whose_answer_was_lost_is_stored_once(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def talk(run: playhead.RunContext) -> None:
            await run.text("one ")
            for i in range(1, 6):
                await run.event("counted", {"i": i})
            await run.text("two")
            await gates.wait("end")

        return [talk]

    async with stage(backend, tmp_path, agents) as s:
        ports = s.engine.ports
        lost = {"publish": 3, "fact": 2, "append": 2, "finish": 2}
        told: list[str] = []

        def losing(store: Any, name: str) -> None:
            act = getattr(store, name)

            async def done_and_not_answered(*args: Any, **options: Any) -> Any:
                answer = await act(*args, **options)
                if lost[name]:
                    lost[name] -= 1
                    told.append(name)
                    raise StoreUnavailable
                return answer

            setattr(store, name, done_and_not_answered)

        losing(ports.live, "publish")
        losing(ports.live, "fact")
        losing(ports.texts, "append")
        losing(ports.record, "finish")
        run_id = await s.client.start("talk")
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("end")
            await stream.until(lambda one: one.types.count("counted") == 5 and one.text() == "one two")
            s.gates.open("end")
            await stream.end()
            await eventually(lambda: _later(not s.engine.worker._tasks))
        assert {name: told.count(name) for name in told} == {"publish": 3, "fact": 2, "append": 2, "finish": 2}
        names = [event["id"] for event in stream.events]
        assert len(names) == len(set(names)) == 9
        assert [event["payload"]["i"] for event in stream.events if event["type"] == "counted"] == [1, 2, 3, 4, 5]
        shown = await s.client.bootstrap(run_id)
        assert [event["id"] for event in shown["events"]] == names
        assert [name for name in stream.types if name in FINALS] == ["run_succeeded"]


# A record that is full.


@pytest.mark.row("F47")
async def test_a_full_record_refuses_and_reading_and_streams_go_on(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 2, "stops": [2], "hold": True})
        stream = await s.client.open(run_id)
        await s.gates.reached("at-2")
        record = s.engine.ports.record
        create = record.create
        if backend == "sqlite":

            def fill(db: Any) -> int:
                (pages,) = db.execute("PRAGMA page_count").fetchone()
                (most,) = db.execute(f"PRAGMA max_page_count = {pages + 2}").fetchone()
                return int(most)

            await record.file.write(fill)
        else:

            async def full(new: Any) -> Any:
                raise StoreFull

            record.create = full
        big = {"agent": "count", "input": {"n": 1}, "labels": {f"l{n}": "x" * 250 for n in range(16)}}

        async def refused() -> Any:
            answer = await s.client.post("/runs", big)
            return answer if answer.status != 201 else None

        answer = await eventually(refused)
        assert (answer.status, answer.json()["code"], answer.json()["retryable"]) == (507, "store_full", True)
        assert int(answer.headers["retry-after"]) > 0
        known = len((await s.client.get("/runs?limit=200")).json()["runs"])
        assert (await s.client.post("/runs", big)).status == 507
        assert len((await s.client.get("/runs?limit=200")).json()["runs"]) == known
        s.gates.open("at-2")
        await stream.until(lambda one: one.types.count("counted") == 2)
        assert (await s.client.bootstrap(run_id))["snapshot"]["done"] == 2
        if backend == "sqlite":
            await record.file.write(lambda db: db.execute("PRAGMA max_page_count = 1000000").fetchone())
        record.create = create
        following = await s.client.start("count", {"n": 1})
        assert (await s.client.ended(following))["status"] == "succeeded"
        s.gates.open("end")
        await stream.end()
        assert stream.types[-1] == "run_succeeded"
        await stream.close()


# Processes beside and after each other.


@pytest.mark.row("BR-34", "F50")
async def test_a_second_process_leaves_the_first_ones_runs_alone(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 2, "hold": True})
        await s.gates.reached("end")
        over = await s.client.start("count", {"n": 1})
        await s.client.ended(over)
        stream = await s.client.open(run_id)
        await stream.until(lambda one: one.types.count("counted") == 2)
        before = [await s.client.run(one) for one in (run_id, over)]
        if backend == "sqlite":
            with pytest.raises(DataLocked):
                async with playhead.App(counting(Gates()), data=tmp_path):
                    pass
        else:
            async with stage(backend, tmp_path, counting, kept=s.engine.ports) as second:
                await second.engine.reconciler.round()
                await second.engine.worker.take()
                assert (await second.client.run(run_id))["status"] == "running"
                assert second.gates.calls == 0
        after = [await s.client.run(one) for one in (run_id, over)]
        for one in (*before, *after):
            del one["heartbeat_at"]
        assert after == before
        s.gates.open("end")
        await stream.end()
        assert [name for name in stream.types if name in FINALS] == ["run_succeeded"]
        assert s.gates.calls == 2
        await stream.close()


@pytest.mark.row("BR-35")
async def test_an_attempt_whose_beat_is_refused_stops(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(ear: Ear) -> None:
        """It would hear of it before."""

    monkeypatch.setattr(Ear, "listen", deaf)
    seen: list[str] = []

    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def worker(run: playhead.RunContext) -> None:
            await run.event("work_begun")
            try:
                await gates.wait("never")
            except asyncio.CancelledError:
                seen.append("cancelled")
                for act in (run.event("late"), run.update(progress=1), run.text("late"), run.audit("late", {})):
                    try:
                        await act
                    except playhead.PlayheadError as error:
                        seen.append(error.code)
                raise

        return [worker]

    async with stage(backend, tmp_path, agents, settings={"beat": 60.0, "lease": 120.0}) as s:
        run_id = await s.client.start("worker")
        await s.gates.reached("never")
        run = await s.engine.ports.record.get("local", run_id)
        await s.engine.ports.record.leave(run.owner)
        await s.engine.reconciler.reap()
        before = await s.client.bootstrap(run_id)
        assert seen == []
        await s.engine.heartbeat.beat()
        await eventually(lambda: _later(not s.engine.worker._tasks))
        assert seen == ["cancelled", *["attempt_lost"] * 4]
        assert await s.client.bootstrap(run_id) == before
        with pytest.raises(RunFinal):
            await s.engine.ports.record.finish(run_id, run.token, Outcome(Status.SUCCEEDED, b"1"))


async def _later(value: Any) -> Any:
    return value


class Leaping(SystemClock):
    """Time that a test lets pass at once."""

    ahead = 0.0

    def wall_ms(self) -> int:
        return super().wall_ms() + round(self.ahead * 1000)

    def steady(self) -> float:
        return super().steady() + self.ahead


@pytest.mark.row("BR-37")
async def test_twenty_silent_minutes_are_no_death_and_a_lost_heartbeat_is(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Heartbeat, "_run", lambda self: None)  # it beats when the test says so
    clock = Leaping()
    still = {"lease": 10.0, "reconcile": 600.0, "sweep": 600.0, "keepalive": 600.0}
    async with stage(backend, tmp_path, holding, settings=still, clock=clock) as s:
        run_id = await s.client.start("holder")
        await s.gates.reached("end")
        since = (await s.client.bootstrap(run_id))["snapshot"]["step_started_at"]
        assert since is not None
        before = [event["id"] for event in (await s.client.bootstrap(run_id))["events"]]
        for _ in range(150):  # of eight seconds: twenty minutes
            clock.ahead += 8.0
            await s.engine.heartbeat.beat()
            await s.engine.reconciler.round()
        shown = await s.client.bootstrap(run_id)
        assert (shown["run"]["status"], shown["snapshot"]["current_step"]) == ("running", "work")
        assert shown["snapshot"]["step_started_at"] == since
        assert [event["id"] for event in shown["events"]] == before
        # Now it is the heartbeat that is silent.
        async with s.client.stream(run_id) as stream:
            await stream.type("work_begun")
            for _ in range(2):
                clock.ahead += 4.0
                await s.engine.reconciler.round()
            assert (await s.client.run(run_id))["status"] == "running"
            for _ in range(2):
                clock.ahead += 4.0
                await s.engine.reconciler.round()
            await stream.end()
        assert stream.types[-1] == "run_interrupted"
        assert (await s.client.run(run_id))["error"]["code"] == "worker_lost"
        s.gates.open("end")
