"""The record decides: existence, access, status, outcome; what is shown beside it can be lost, wrong or late."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import playhead
from playhead.core import event as events
from playhead.core.event import FactDraft
from playhead.core.ids import run_feed, uuid7
from playhead.core.run import Status
from playhead.core.transition import Applied, Opening
from playhead.errors import StoreUnavailable
from playhead.gateway import Principal
from tests.support.agents import counting
from tests.support.reducer import FINALS
from tests.support.stage import BACKENDS, Gates, Stage, stage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", BACKENDS)]

STILL = {"sweep": 60.0}  # no sign of life in between: nothing is published but what the agent says


def telling(gates: Gates) -> Sequence[playhead.Agent]:
    @playhead.agent
    async def teller(run: playhead.RunContext, gate: bool = False) -> dict[str, Any]:
        """Says everything that an agent can say, but asks nothing."""
        await run.event("work_begun", {"files": 2}, progress=10, current_step="read", total=2)
        for i in (1, 2):
            await run.text(f"file {i}. ")
            await run.update(done=i, detail=f"file {i}")
        await run.event("work_ended", {"files": 2}, progress=100)
        if gate:
            await gates.wait("end")
        return {"files": 2}

    @playhead.agent(resumable=True)
    async def stayer(run: playhead.RunContext) -> int:
        await run.event("work_begun", {"attempt": run.attempt})
        await gates.wait(f"end-{run.attempt}")
        return run.attempt

    return [teller, stayer]


def by_header(request: Any) -> Principal:
    name = request.headers.get("x-user", "ann")
    return Principal(name, name)


async def readings(s: Stage, run_id: str, **headers: str) -> set[tuple[int, bytes]]:
    """What each way to look at a run answers: 200, or the refusal with its body."""
    found = set()
    for path in ("", "/bootstrap", "/events"):
        answer = await s.client.get(f"/runs/{run_id}{path}", headers=headers)
        found.add((answer.status, b"" if answer.status == 200 else answer.body))
    async with s.client.stream(run_id, headers=headers) as stream:
        body = b""
        if stream.status != 200:
            await stream.reader.readexactly(length := int(stream.headers["content-length"]))
            body = next(iter({body for status, body in found if status == stream.status}))
            assert length == len(body)
        found.add((stream.status, body))
    return found


def project_anything(s: Stage, run_id: str, **more: Any) -> Opening:
    """An opening for a run of this id, whether or not the record has it."""
    now = s.engine.clock.wall_ms()
    fields: dict[str, Any] = {"rev": 1, "token": 1, "status": Status.RUNNING, "started_at": now, "state": None}
    fields |= {"feed": run_feed(run_id), "seen": 0, "epoch": now, "tag": s.engine.projector.tag(), "at": now}
    return Opening(**{**fields, **more})


@pytest.mark.row("R1", "S1-11")
async def test_a_run_exists_if_the_record_has_it_and_for_those_who_may_see_it(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, telling, settings=STILL, authenticate=by_header) as s:
        run_id = await s.client.start("teller", {"gate": True})
        await s.gates.reached("end")
        ghost = uuid7(s.engine.clock.wall_ms(), b"0123456789")
        absent = await readings(s, ghost)
        assert {status for status, _ in absent} == {404}

        assert isinstance(await s.engine.ports.live.open(project_anything(s, ghost)), Applied)
        assert await readings(s, ghost) == absent  # a projection makes no run …
        assert await readings(s, run_id, **{"x-user": "bob"}) == absent  # … nor a tenant of whoever knows an id
        assert await readings(s, run_id) == {(200, b"")}
        await s.flush()
        assert await readings(s, run_id) == {(200, b"")}
        s.gates.open("end")
        await s.client.ended(run_id)
        await s.flush()
        await s.engine.hub.close()  # what it holds would be served
        assert await readings(s, run_id) == {(200, b"")}


@pytest.mark.row("R9")
async def test_a_projection_that_knows_more_than_the_record_is_replaced(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, telling, settings=STILL) as s:
        run_id = await s.client.start("teller", {"gate": True})
        await s.gates.reached("end")
        record, live = s.engine.ports.record, s.engine.ports.live
        run = await record.get("local", run_id)
        lie = FactDraft(events.RUN_FAILED, {"code": "x", "message": "x"}, Status.FAILED, run.token)
        fact = events.numbered(lie, run_feed(run_id), run.rev + 1, started_at=run.started_at, at=0)
        assert isinstance(await live.fact(run.epoch, fact, s.engine.projector.tag()), Applied)

        shown = await s.client.bootstrap(run_id)
        assert (shown["run"]["status"], shown["snapshot"]["status"]) == ("running", "running")
        assert "run_failed" not in [event["type"] for event in shown["events"]]
        async with s.client.stream(run_id, shown["cursor"]) as stream:
            s.gates.open("end")
            await stream.end()
        assert stream.types == ["run_succeeded"]


@pytest.mark.row("R9", "R24")
async def test_the_end_is_committed_before_it_is_shown_and_shown_once_it_can_be(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, telling, settings=STILL) as s:
        record, live = s.engine.ports.record, s.engine.ports.live
        finish, fact, order, down = record.finish, live.fact, [], True

        async def finishing(*args: Any) -> Any:
            ended = await finish(*args)
            order.append("committed")
            return ended

        async def projecting(epoch: int, one: Any, tag: str) -> Any:
            if one.final:
                order.append("refused" if down else "projected")
                if down:
                    raise StoreUnavailable
            return await fact(epoch, one, tag)

        record.finish, live.fact = finishing, projecting
        run_id = await s.client.start("teller", {"gate": True})
        async with s.client.stream(run_id) as stream:
            await stream.type("work_ended")
            s.gates.open("end")
            run = await s.client.ended(run_id)
            assert (run["status"], run["result"]) == ("succeeded", {"files": 2})
            shown = await s.client.bootstrap(run_id)  # the record's word, though the hot view lags
            assert shown["run"]["status"] == "succeeded"
            assert (shown["snapshot"]["status"], shown["degraded"]) == ("succeeded", "store_unavailable")
            while order.count("refused") < 3:  # the reconciler tries again
                await asyncio.sleep(0.02)
            assert not stream.named("end")
            down = False
            await stream.end()
        assert order[0] == "committed"
        assert "projected" in order
        assert [name for name in stream.types if name in FINALS] == ["run_succeeded"]


@pytest.mark.row("R10")
async def test_no_truth_of_a_run_is_computed_from_its_events(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def boaster(run: playhead.RunContext) -> str:
            for name in ("work_succeeded", "run_done", "failed", "cancelled"):
                await run.event(name, {"status": "succeeded", "final": True}, progress=100)
            await gates.wait("end")
            return "true"

        return [boaster]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("boaster")
        await s.gates.reached("end")
        assert (await s.client.run(run_id))["status"] == "running"
        assert (await s.client.bootstrap(run_id))["snapshot"]["status"] == "running"
        s.gates.open("end")
        before = await s.client.ended(run_id)
        await s.archived(run_id)
        await s.flush()
        await s.engine.ports.archive.forget(run_feed(run_id))
        after = await s.client.bootstrap(run_id)
        assert after["run"] == before == await s.client.run(run_id)
        assert (before["status"], before["result"]) == ("succeeded", "true")
        assert after["timeline"]["complete"] is False  # and that is told, not made up


@pytest.mark.row("R20")
async def test_a_whole_result_is_in_the_record_and_its_event_only_points_there(backend: str, tmp_path: Path) -> None:
    text = "result " * 200_000

    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def writer(run: playhead.RunContext) -> dict[str, str]:
            return {"report": text}

        return [writer]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("writer")
        async with s.client.stream(run_id) as stream:
            await stream.end()
        assert stream.events[-1]["payload"] == {
            "result_bytes": len(text) + len('{"report":""}'),
            "published": None,
        }
        assert len(stream.raw) < 10_000
        assert (await s.client.run(run_id))["result"] == {"report": text}


@pytest.mark.row("R8")
async def test_the_statuses_of_a_run_and_where_each_comes_from(backend: str, tmp_path: Path) -> None:
    """Every status is reached over the wire; the final ones stay; an interruption resumes nothing by itself."""

    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def worker(run: playhead.RunContext, ends: str = "well") -> str:
            await gates.wait(f"run-{ends}")
            if ends == "badly":
                raise ValueError("no")
            if ends == "asking":
                await run.ask({"title": "?"})
            if ends == "never":
                await gates.wait("never")
            return "done"

        return [worker]

    seen = []
    async with stage(backend, tmp_path, agents, settings={"concurrency": 1, "drain_grace": 0.1}) as s:
        record = s.engine.ports.record

        async def status(run_id: str, *wanted: str) -> dict[str, Any]:
            async with asyncio.timeout(20):
                while (run := await s.client.run(run_id))["status"] not in wanted:
                    await asyncio.sleep(0.01)
            seen.append(run["status"])
            return run

        well = await s.client.start("worker")
        await s.gates.reached("run-well")
        badly, asking = await s.client.start("worker", {"ends": "badly"}), None
        assert (await status(badly, "queued"))["started_at"] is None
        await status(well, "running")
        s.gates.open("run-well", "run-badly", "run-asking", "run-never")
        await status(well, "succeeded")
        await status(badly, "failed")
        asking = await s.client.start("worker", {"ends": "asking"})
        await status(asking, "waiting")
        await s.client.post(f"/runs/{asking}/cancel")
        await status(asking, "cancelled")
        never = await s.client.start("worker", {"ends": "never"})
        await s.gates.reached("never")
        ended = [well, badly, asking]
        before = [await s.client.run(run_id) for run_id in ended]
        await s.app.drain()
        lost = await record.get("local", never)
        assert lost.status is Status.INTERRUPTED
        seen.append("interrupted")
        assert set(seen) == {status.value for status in Status}
        assert len(Status) == 7
        assert {status for status in Status if status.final} == {Status(name) for name in FINALS.values()}
        kept = s.engine.ports
    async with stage(backend, tmp_path, agents, kept=kept) as s:
        s.gates.open("run-well")
        later = await s.client.start("worker")
        await s.client.ended(later)  # a worker is there, and takes what it may
        assert (await s.client.run(never))["status"] == "interrupted"
        assert [await s.client.run(run_id) for run_id in ended] == before


@pytest.mark.row("M-unwatched-run", "M-fast-run")
async def test_a_run_that_nobody_watched_is_stored_like_a_watched_one(backend: str, tmp_path: Path) -> None:
    def story(run_id: str, shown: dict[str, Any]) -> dict[str, Any]:
        """The screen without what differs from run to run."""
        keep = ("status", "progress", "current_step", "done", "total", "detail", "title", "attempt")
        return {
            "run": {name: shown["run"][name] for name in ("status", "result", "error", "input", "attempt")},
            "snapshot": {name: shown["snapshot"][name] for name in keep},
            "events": [(e["id"].replace(run_id, "run"), e["type"], e["payload"]) for e in shown["events"]],
            "timeline": shown["timeline"]["complete"],
            "text": [(part["part"], part["text"], part["final"]) for part in shown["text"]],
        }

    async with stage(backend, tmp_path, telling) as s:
        watched = await s.client.start("teller", {"gate": True})
        async with s.client.stream(watched) as stream:
            await stream.type("work_ended")
            s.gates.open("end")
            await stream.end()
        unwatched = await s.client.start("teller", {"gate": True})
        while not (await s.engine.ports.record.get("local", unwatched)).status.final:
            await asyncio.sleep(0.01)
        async with s.client.stream(unwatched) as late:  # it was over before anybody came
            await late.end()
        assert late.types == stream.types
        assert late.named("end") == [{"run_id": unwatched, "status": "succeeded"}]
        assert late.text() == "file 1. file 2. "
        screens = [story(run_id, await s.client.bootstrap(run_id)) for run_id in (watched, unwatched)]
        assert screens[0] == screens[1]
        assert screens[1]["timeline"] is True


@pytest.mark.row("M-other-process")
async def test_a_viewer_goes_on_by_its_cursor_at_another_server(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, telling, settings={"drain_grace": 0.05}) as s:
        run_id = await s.client.start("stayer")
        async with s.client.stream(run_id) as first:
            await first.type("work_begun")
        kept = s.engine.ports
    async with stage(backend, tmp_path, telling, kept=kept) as s:
        async with s.client.stream(run_id, first.cursor) as second:
            await second.type("work_begun")
            s.gates.open("end-2")
            await second.end()
        assert second.named("resync_required") == []
        ids = [event["id"] for event in first.events + second.events]
        assert second.types == ["attempt_started", "work_begun", "run_succeeded"]
        assert ids == [event["id"] for event in (await s.client.bootstrap(run_id))["events"]]
        assert len(set(ids)) == len(ids)


@pytest.mark.row("R26")
async def test_recovery_passes_over_an_ended_run_without_a_word(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 1})
        ended = await s.client.ended(run_id)
        record = s.engine.ports.record
        await record.leave(s.engine.process)  # as if the process that ended it were gone
        for _ in range(3):
            await s.engine.reconciler.reap()
            assert await record.lose(run_id, ended["attempt"], None) is None
            await s.engine.reconciler.round()
        await s.engine.heartbeat.beat()
        kept = s.engine.ports
    async with stage(backend, tmp_path, counting, kept=kept) as s:
        async with s.client.stream(run_id) as stream:
            await stream.end()
        assert [name for name in stream.types if name in FINALS] == ["run_succeeded"]
        assert (await s.client.run(run_id))["ended_at"] == ended["ended_at"]
