"""What goes where: timeline, state, text and audit, what each holds, how large it gets and how long it stays."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import playhead
from playhead.core.event import FACT_TYPES
from playhead.core.ids import run_feed
from playhead.runtime.clock import SystemClock
from tests.support import behind
from tests.support.agents import counting
from tests.support.stage import STORES, Gates, Stage, stage
from tests.support.wire import Frame

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", STORES)]

ENVELOPE = {
    "version", "id", "type", "run_id", "thread_id", "attempt", "occurred_at", "schema_version", "payload",
}  # fmt: skip
SNAPSHOT = {
    "status", "title", "subtitle", "current_step", "step_started_at", "progress", "done", "total", "detail", "scope",
    "as_of", "next_action", "attempt", "version", "rev", "started_at", "heartbeat_at", "updated_at",
}  # fmt: skip


class Later(SystemClock):
    """This machine's clock, some milliseconds ahead."""

    ahead = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead


def speaking(gates: Gates) -> Sequence[playhead.Agent]:
    @playhead.agent
    async def speaker(run: playhead.RunContext) -> dict[str, str]:
        await run.event("chapter_begun", {"mark": "EVENT-MARK"}, current_step="one", progress=1)
        await run.update(detail="STATE-MARK", progress=2)
        await run.text("TEXT-MARK and more", part="answer")
        await run.audit("looked_up", {"mark": "AUDIT-MARK"})
        await run.flush()
        await gates.wait("said")
        return {"mark": "RESULT-MARK"}

    return [speaker]


async def every_event(s: Stage, run_id: str, page: int = 40) -> list[dict[str, Any]]:
    """All that there is, oldest first, page by page; each page says whether something is missing."""
    events: list[dict[str, Any]] = []
    before = ""
    while True:
        got = (await s.client.get(f"/runs/{run_id}/events?limit={page}{before}")).json()
        assert got["timeline"]["complete"] is True
        events[:0] = got["events"]
        if not got["timeline"]["has_older"]:
            return events
        before = f"&before={got['timeline']['oldest']}"


@pytest.mark.row("R19", "S1-14")
async def test_each_channel_carries_its_own_and_nothing_else(backend: str, tmp_path: Path) -> None:
    clock = Later()
    async with stage(backend, tmp_path, speaking, clock=clock, settings={"sweep": 60.0}) as s:
        run_id = await s.client.start("speaker")
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("said")
            await stream.until(lambda one: "and more" in one.text())
            await stream.until(lambda one: one.snapshot["detail"] == "STATE-MARK")
            s.gates.open("said")
            await stream.end()
        places: dict[str, set[str]] = {}
        for frame in stream.frames:
            for mark in re.findall(r"[A-Z]+-MARK", json.dumps(frame.data)):
                places.setdefault(mark, set()).add(frame.event)
        assert places == {"EVENT-MARK": {"message"}, "STATE-MARK": {"state"}, "TEXT-MARK": {"text"}}
        record = s.engine.ports.record
        seen = bytes(stream.raw)
        for path in ("", "/bootstrap", "/events"):
            seen += (await s.client.get(f"/runs/{run_id}{path}")).body
        assert b"AUDIT-MARK" not in seen
        assert [entry.kind for entry in await record.audit("local", run_id)] == ["looked_up"]

        # Each has its own time: first the timeline goes, then snapshot and text; archive and audit stay.
        await s.archived(run_id)
        live = s.engine.ports.live
        ids = [event["id"] for event in stream.events]
        clock.ahead += 3_601_000
        assert await live.expire() == 1
        view = await live.read(run_feed(run_id))
        assert view.entries == ()
        shown = await s.client.bootstrap(run_id)
        assert shown["snapshot"]["detail"] == "STATE-MARK"
        assert [event["id"] for event in shown["events"]] == ids
        clock.ahead += 86_400_000
        assert await live.expire() == 1
        assert await live.read(run_feed(run_id)) is None
        shown = await s.client.bootstrap(run_id)
        assert (shown["text"], shown["cursor"]) == ([], None)
        assert [event["id"] for event in shown["events"]] == ids
        assert shown["run"]["result"] == {"mark": "RESULT-MARK"}
        assert len(await record.audit("local", run_id)) == 1


@pytest.mark.row("R15", "R11")
async def test_what_moves_is_state_and_what_turns_is_an_event(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def mover(run: playhead.RunContext) -> int:
            await run.event("rules_started", current_step="rules", total=1_000)
            for i in range(1, 1_001):
                await run.update(progress=i / 10, done=i)
                await run.text("t ")
                if i % 100 == 0:
                    await asyncio.sleep(0.03)  # for several states to be sent
            await run.event("rules_applied", current_step=None)
            return 1

        return [mover]

    async with stage(backend, tmp_path, agents, settings={"tick": 0.01, "state_flush": 0.005}) as s:
        run_id = await s.client.start("mover")
        async with s.client.stream(run_id) as stream:
            await stream.end()
        whole = ["run_queued", "run_started", "attempt_started", "rules_started", "rules_applied", "run_succeeded"]
        assert stream.types == whole
        assert [event["type"] for event in await every_event(s, run_id)] == whole
        moved = {one["snapshot"]["done"] for one in stream.named("state")}
        assert len(moved) > 2  # and between two entries of the timeline, at that
        assert stream.snapshot["progress"] == 100
        assert stream.text() == "t " * 1_000


@pytest.mark.row("R2", "S1-1")
async def test_the_snapshot_is_one_small_entry_however_long_the_run(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting, settings={"sweep": 60.0}) as s:
        run_id = await s.client.start("count", {"n": 400, "size": 500, "hold": True, "stops": [3]})
        await s.gates.reached("at-3")
        [early] = behind.snapshots(s.app)
        s.gates.open("at-3")
        await s.gates.reached("end")
        [late] = behind.snapshots(s.app)
        assert len(late) < len(early) + 50 < 2_000
        shown = await s.client.bootstrap(run_id)
        snapshot = shown["snapshot"]
        assert snapshot.keys() == SNAPSHOT
        assert (snapshot["status"], snapshot["progress"], snapshot["done"]) == ("running", 100, 400)
        assert snapshot["attempt"] == (await s.client.run(run_id))["attempt"] == 1
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", snapshot["updated_at"])
        async with s.client.stream(run_id, shown["cursor"]) as stream:  # the last event that it knows is the newest
            s.gates.open("end")
            await stream.end()
        assert stream.types == ["run_succeeded"]


@pytest.mark.store
@pytest.mark.row("R3", "R4", "S1-10")
async def test_a_timeline_only_grows_within_its_bound_and_the_archive_keeps_all(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting, settings={"keep_events": 20}) as s:
        live = s.engine.ports.live
        stops = list(range(50, 301, 50))
        run_id = await s.client.start("count", {"n": 300, "stops": stops, "hold": True})
        feed = run_feed(run_id)
        known: dict[int, Any] = {}
        for gate in [*(f"at-{stop}" for stop in stops), "end"]:
            await s.gates.reached(gate)
            for most in (80, 20):  # before and after all of it is archived
                view = await live.read(feed, limit=1_000)
                assert len(view.entries) <= most
                assert view.entries[-1].position == view.marks.position
                for entry in view.entries:
                    assert known.setdefault(entry.position, entry) == entry  # what was written is not written again
                await s.archived(run_id)
            s.gates.open(gate)
        await s.client.ended(run_id)
        await s.archived(run_id)
        events = await every_event(s, run_id)
        assert [event["payload"]["i"] for event in events if event["type"] == "counted"] == list(range(1, 301))
        assert (len(events), events[-1]["type"]) == (304, "run_succeeded")
        by_place = {place: event["id"] for place, event in enumerate(events, 1)}
        assert {place: entry.event.id for place, entry in known.items()}.items() <= by_place.items()


@pytest.mark.row("R3", "S1-10")
async def test_without_an_archive_the_bytes_of_a_timeline_are_bounded_and_its_hole_is_told(
    backend: str, tmp_path: Path
) -> None:
    async with stage(backend, tmp_path, counting, settings={"archive": "off", "keep_bytes": 20_000}) as s:
        run_id = await s.client.start("count", {"n": 200, "size": 1_000, "hold": True})
        await s.gates.reached("end")
        view = await s.engine.ports.live.read(run_feed(run_id), limit=1_000)
        assert 5 < len(view.entries) < 30
        assert sum(len(entry.event.body) for entry in view.entries) <= 20_000
        shown = await s.client.bootstrap(run_id, limit=200)
        assert shown["timeline"]["complete"] is False
        assert len(shown["events"]) == len(view.entries)


@pytest.mark.row("R12", "S1-4")
async def test_every_event_is_whole_and_the_same_wherever_it_is_read(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent(resumable=True)
        async def asker(run: playhead.RunContext) -> int:
            await run.event("work_begun", {"attempt": run.attempt})
            if run.attempt == 1:
                await gates.wait("never")
            await run.ask({"title": "?"})
            return run.attempt

        return [asker]

    async with stage(backend, tmp_path, agents, settings={"beat": 60.0, "lease": 120.0}) as s:
        run_id = await s.client.start("asker")
        record = s.engine.ports.record
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("never")
            await record.leave(s.engine.process)  # the first attempt is lost
            await s.engine.reconciler.reap()
            await s.engine.heartbeat.beat()
            await stream.type("approval_required")
            [question] = (await s.client.bootstrap(run_id))["interrupts"]
            await s.client.post(f"/runs/{run_id}/interrupts/{question['id']}/decision", {"approved": True})
            await stream.end()
        assert stream.types == [
            "run_queued", "run_started", "attempt_started", "work_begun", "attempt_started", "work_begun",
            "approval_required", "approval_decided", "run_succeeded",
        ]  # fmt: skip
        assert [event["attempt"] for event in stream.events] == [0, 0, 1, 1, 2, 2, 2, 2, 2]
        assert (await s.client.run(run_id))["attempt"] == 2
        for event in stream.events:
            assert event.keys() == ENVELOPE
            assert (event["run_id"], event["schema_version"]) == (run_id, 1)
            assert isinstance(event["payload"], dict)
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["occurred_at"])
            assert event["type"] in FACT_TYPES | {"work_begun"}
        assert len({event["id"] for event in stream.events}) == len(stream.events)
        await s.archived(run_id)
        assert (await s.client.bootstrap(run_id))["events"] == stream.events
        await s.flush()  # now they come from the archive
        assert (await s.client.bootstrap(run_id))["events"] == stream.events
        assert await every_event(s, run_id, 2) == stream.events


@pytest.mark.store
@pytest.mark.row("S1-2", "R21", "R4")
async def test_snapshot_and_timeline_always_end_at_the_same_place(backend: str, tmp_path: Path) -> None:
    """Read while it is written to, in one act: the snapshot is the one that its last event led to."""
    async with stage(backend, tmp_path, counting, settings={"sweep": 60.0}) as s:
        run_id = await s.client.start("count", {"n": 300, "hold": True})
        live, feed, seen = s.engine.ports.live, run_feed(run_id), set()
        while not s.gates._event(s.gates._reached, "end").is_set():
            view = await live.read(feed, limit=1)
            if view is None or view.marks.n == 0:
                await asyncio.sleep(0)
                continue
            [entry] = view.entries
            assert (entry.position, entry.tag) == (view.marks.position, view.marks.tag)
            assert entry.version <= view.snapshot.version == view.marks.version
            event, state = json.loads(entry.data), json.loads(view.snapshot.encode())
            assert event["payload"]["i"] == state["done"]
            seen.add(state["done"])
            await asyncio.sleep(0)
        shown = await s.client.bootstrap(run_id)
        async with s.client.stream(run_id) as stream:
            await stream.type("counted", 300)
            assert shown["cursor"] == stream.cursor
            s.gates.open("end")
        assert seen


@pytest.mark.row("R18")
async def test_what_comes_twice_changes_nothing(backend: str, tmp_path: Path) -> None:
    """Frames hold new values and no differences: applying some of them again leaves the same screen."""

    def screen(frames: Sequence[Frame], times: int) -> dict[str, Any]:
        shown: dict[str, Any] = {"state": None, "text": "", "end": 0, "events": {}}
        for frame in frames:
            for _ in range(times):
                if frame.event == "state":
                    assert frame.data["snapshot"].keys() == SNAPSHOT
                    shown["state"] = frame.data["snapshot"]
                elif frame.event == "message":
                    shown["events"][frame.data["id"]] = frame.data
                elif frame.event == "text" and frame.data["offset"] in (0, shown["end"]):
                    kept = shown["text"] if frame.data["offset"] else ""
                    shown["text"], shown["end"] = kept + frame.data["text"], frame.data["end"]
        return shown

    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def mixer(run: playhead.RunContext) -> None:
            for i in range(1, 21):
                await run.event("step_taken", {"i": i}, done=i, total=20)
                await run.text(f"{i}é ")
                await run.update(progress=i * 5)
                await run.flush()

        return [mixer]

    async with stage(backend, tmp_path, agents, settings={"tick": 0.01}) as s:
        run_id = await s.client.start("mixer")
        async with s.client.stream(run_id) as stream:
            await stream.end()
        once = screen(stream.frames, 1)
        assert once == screen(stream.frames, 3)
        assert once["text"] == "".join(f"{i}é " for i in range(1, 21))
        # The newest state alone is the whole truth, for whoever saw no other.
        assert once["state"] == (await s.client.bootstrap(run_id))["snapshot"]
        assert (once["state"]["done"], once["state"]["progress"]) == (20, 100)


@pytest.mark.row("R16")
async def test_events_hold_no_input_no_result_and_no_place_on_this_machine(backend: str, tmp_path: Path) -> None:
    """What the server itself puts into events is little: the prompt, the question and the result stay in the record."""
    prompt = "PROMPT-MARK tell me everything about ann@example.com"

    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def careful(run: playhead.RunContext, prompt: str) -> dict[str, str]:
            await run.ask({"title": "Go on?", "words": "QUESTION-MARK", "folder": str(tmp_path)})
            if prompt.endswith("!"):
                raise RuntimeError("no luck")
            return {"answer": "RESULT-MARK"}

        return [careful]

    async with stage(backend, tmp_path, agents) as s:
        seen = b""
        for given in (prompt, prompt + "!"):
            run_id = await s.client.start("careful", {"prompt": given}, labels={"team": "LABEL-MARK"}, key="KEY-MARK")
            async with s.client.stream(run_id) as stream:
                await stream.type("approval_required")
                [question] = (await s.client.bootstrap(run_id))["interrupts"]
                assert question["payload"]["words"] == "QUESTION-MARK"
                await s.client.post(f"/runs/{run_id}/interrupts/{question['id']}/decision", {"approved": True})
                await stream.end()
            assert stream.types[-1] == ("run_failed" if given.endswith("!") else "run_succeeded")
            seen += bytes(stream.raw)
            await s.archived(run_id)
            for event, _ in await s.engine.ports.archive.read(run_feed(run_id), None, 100):
                seen += event.body
        assert re.findall(rb"[A-Z]+-MARK", seen) == []
        for private in (str(tmp_path), __file__, "Traceback", "ann@example.com"):
            assert private.encode() not in seen


@pytest.mark.row("R27")
async def test_a_step_is_on_the_screen_while_it_is_worked_at(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def stepper(run: playhead.RunContext) -> None:
            for step in ("collect", "judge"):
                await run.event("step_begun", {"step": step}, current_step=step)
                await gates.wait(step)
                await run.event("step_ended", {"step": step}, current_step=None)

        return [stepper]

    def steps(events: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
        return [(event["type"], event["payload"]["step"]) for event in events if event["type"].startswith("step_")]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("stepper")
        told: list[tuple[str, str]] = []
        async with s.client.stream(run_id) as stream:
            for step in ("collect", "judge"):
                told.append(("step_begun", step))
                await stream.until(lambda one: len(steps(one.events)) == len(told))
                assert steps(stream.events) == told
                shown = await s.client.bootstrap(run_id)
                assert shown["snapshot"]["current_step"] == step
                assert shown["snapshot"]["step_started_at"] is not None
                told.append(("step_ended", step))
                s.gates.open(step)
            await stream.end()
        assert steps(stream.events) == told
