"""The live store is lost: at any moment, and no viewer sees anything but the truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import playhead
from tests.e2e.test_outage import lag
from tests.support.stage import STORES, Gates, Outage, Stage, stage, visible
from tests.support.wire import Stream

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", STORES)]


def working(gates: Gates) -> Sequence[playhead.Agent]:
    @playhead.agent
    async def worker(run: playhead.RunContext) -> str:
        await run.event("work_begun", {"files": 3}, progress=10, current_step="read", total=3)
        await run.text("The first ")
        await gates.wait("running")
        await run.update(progress=42, done=1, detail="one of three")
        await run.text("half. ")
        await run.flush()
        await gates.wait("state")
        decision = await run.ask({"title": "Go on?"})
        await gates.wait("decided")
        await run.event("work_ended", {"approved": decision.approved}, progress=100)
        await gates.wait("last")
        return "done"

    return [worker]


async def after_flush(s: Stage, run_id: str, stream: Stream) -> Stream:
    """Lose the live store; the stream ends in a resync with a reason. A new stream, from the bootstrap."""
    await s.archived(run_id)
    before = visible(await s.client.bootstrap(run_id))
    await s.flush()
    await stream.end()
    [resync] = stream.named("resync_required")
    assert resync["reason"] in ("epoch", "foreign", "ahead", "expired")
    shown = await s.client.bootstrap(run_id)
    assert visible(shown) == before
    again = await s.client.open(run_id, shown["cursor"])
    text = "".join(text for _, _, text in before["text"])
    # The attempt says its text again, which may come after the first state.
    await again.until(lambda one: one.named("state") and len(one.text()) >= len(text))
    assert again.snapshot["progress"] == before["snapshot"]["progress"]
    assert again.text() == text
    await stream.close()
    return again


@pytest.mark.store
@pytest.mark.row("H-flush", "R6", "A16", "A21", "A35", "A36", "R38", "M-torn-write")
async def test_a_lost_live_store_changes_nothing_that_a_viewer_sees(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, working) as s:
        run_id = await s.client.start("worker")
        stream = await s.client.open(run_id)
        for gate in ("running", "state"):
            await s.gates.reached(gate)
            stream = await after_flush(s, run_id, stream)
            s.gates.open(gate)
        await stream.type("approval_required")
        stream = await after_flush(s, run_id, stream)
        [question] = (await s.client.bootstrap(run_id))["interrupts"]
        await s.client.post(f"/runs/{run_id}/interrupts/{question['id']}/decision", {"approved": True})
        await s.gates.reached("decided")
        stream = await after_flush(s, run_id, stream)
        s.gates.open("decided")
        await s.gates.reached("last")
        stream = await after_flush(s, run_id, stream)
        s.gates.open("last")
        await stream.end()
        assert stream.types[-1] == "run_succeeded"
        await stream.close()

        await s.archived(run_id)
        await s.flush()
        shown = await s.client.bootstrap(run_id)
        assert shown["cursor"] is None
        assert (shown["run"]["status"], shown["run"]["result"]) == ("succeeded", "done")
        types = [event["type"] for event in shown["events"]]
        assert types == [
            "run_queued", "run_started", "attempt_started", "work_begun", "approval_required", "approval_decided",
            "work_ended", "run_succeeded",
        ]  # fmt: skip
        assert len({event["id"] for event in shown["events"]}) == len(types)


@pytest.mark.store
@pytest.mark.row("BR-08", "R38", "R39", "A32", "M-projection-expired", "M-reconnect-after-end")
async def test_a_run_that_is_over_and_has_no_timeline_answers_from_the_record(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, working) as s:
        run_id = await s.client.start("worker")
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("running")
            await s.client.post(f"/runs/{run_id}/cancel")
            await stream.end()
        last = stream.cursor
        async with s.client.stream(run_id, last) as again:
            assert again.status == 204
        async with s.client.stream(run_id, "end") as again:
            assert again.status == 204
        await s.flush()
        await s.engine.hub.close()  # what it holds in memory is true, and would be served
        async with s.client.stream(run_id) as bare:
            await bare.end(2.0)
        assert [(frame.event, frame.id) for frame in bare.frames][-2:] == [("message", None), ("end", "end")]
        assert bare.types == ["run_cancelled"]
        async with s.client.stream(run_id, last) as late:
            await late.end(2.0)
        assert [one["reason"] for one in late.named("resync_required")] == ["expired"]
        assert late.events == []


@pytest.mark.row("M-event-before-state", "A34", "R15")
async def test_no_event_is_shown_before_the_state_it_led_to(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def stepper(run: playhead.RunContext) -> None:
            for i in range(1, 31):
                await run.event("step_taken", {"i": i}, progress=i)
            await run.ask({"title": "Enough?"})

        return [stepper]

    # Between two ticks of this feed all of it happens: only the events bring their state along.
    async with stage(backend, tmp_path, agents, settings={"tick": 3_600.0}) as s:
        run_id = await s.client.start("stepper")
        async with s.client.stream(run_id) as stream:
            await stream.type("approval_required")
            progress, status = -1.0, ""
            for frame in stream.frames:
                if frame.event == "state":
                    progress, status = frame.data["snapshot"]["progress"] or 0, frame.data["snapshot"]["status"]
                elif frame.event == "message" and frame.data["type"] == "step_taken":
                    assert progress >= frame.data["payload"]["i"]
            assert status == "waiting"


def telling(gates: Gates) -> Sequence[playhead.Agent]:
    @playhead.agent
    async def teller(run: playhead.RunContext, name: str) -> str:
        for i in range(6):
            if i == 3:
                await gates.wait(f"{name}-half")
            await run.event("told", {"i": i}, done=i)
        await gates.wait(f"{name}-told")
        return "done"

    return [teller]


@pytest.mark.store
@pytest.mark.row("A19", "R38")
async def test_the_newest_events_that_were_lost_with_the_live_store_are_known_to_lack(
    backend: str, tmp_path: Path
) -> None:
    """Nothing that is left follows what is gone: the record alone knows how much there was."""
    async with stage(backend, tmp_path, telling) as s:
        lag(s)
        for name in ("archived", "after its end", "before its end"):
            run_id = await s.client.start("teller", {"name": name})
            await s.gates.reached(f"{name}-half")
            await s.archived(run_id)
            s.gates.open(f"{name}-half")
            await s.gates.reached(f"{name}-told")
            if name == "before its end":
                await s.flush()
            s.gates.open(f"{name}-told")
            assert (await s.client.ended(run_id))["status"] == "succeeded"
            if name == "archived":
                await s.archived(run_id)
            if name == "after its end":
                await s.engine.projector.bring(run_id)
            for _ in range(2):
                await s.flush()
                shown = await s.client.bootstrap(run_id)
                assert shown["run"]["result"] == "done"
                assert shown["events"][-1]["type"] == "run_succeeded"
                told = [event["payload"]["i"] for event in shown["events"] if event["type"] == "told"]
                assert told == list(range(6 if name == "archived" else 3))
                few = await s.client.bootstrap(run_id, 1)
                newest = (await s.client.get(f"/runs/{run_id}/events?limit=5")).json()
                said = {one["timeline"]["complete"] for one in (shown, few, newest)}
                assert said == {name == "archived"}, name
                await s.archived(run_id)


async def test_an_end_that_only_the_record_can_tell_has_no_cursor_on_an_open_stream(
    backend: str, tmp_path: Path
) -> None:
    async with stage(backend, tmp_path, telling) as s:
        outage = Outage(s, reads=True)
        run_id = await s.client.start("teller", {"name": "one"})
        s.gates.open("one-half")
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("one-told")
            await stream.until(lambda one: len(one.events) == 9)
            outage.on = True
            s.gates.open("one-told")
            assert (await s.client.ended(run_id))["status"] == "succeeded"
            await s.flush()
            outage.on = False
            await stream.end()
            assert stream.named("resync_required") == []
            assert stream.types[-2:] == ["told", "run_succeeded"]
            cursors = [frame.id for frame in stream.frames if frame.event == "message"]
            assert cursors[-1] is None
            assert None not in cursors[:-1]
            assert stream.frames[-1].id == "end"
