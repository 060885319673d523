"""Stopping a run: it stops, everywhere, once, and what it had said is kept."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import playhead
from playhead.core.ids import run_feed
from playhead.core.run import Outcome, Status
from playhead.errors import PlayheadError
from tests.support.agents import counting
from tests.support.stage import BACKENDS, Gates, Stage, stage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", BACKENDS)]

FINALS = {"run_succeeded", "run_failed", "run_cancelled", "run_interrupted"}


async def whole(s: Stage, run_id: str) -> list[dict[str, Any]]:
    """Every event of an ended run, from its oldest."""
    async with s.client.stream(run_id) as stream:
        await stream.end()
        return stream.events


@pytest.mark.row("BR-23", "R22")
async def test_stop_ends_the_work_and_not_just_the_stream(backend: str, tmp_path: Path) -> None:
    done: list[int] = []

    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def steps(run: playhead.RunContext) -> None:
            for i in range(1, 11):
                await run.event("step_begun", {"i": i}, progress=i * 10)
                done.append(i)
                await gates.wait(f"tool-{i}")

        return [steps]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("steps")
        s.gates.open("tool-1", "tool-2")
        await s.gates.reached("tool-3")
        answer = await s.client.post(f"/runs/{run_id}/cancel", {"reason": "enough"})
        assert answer.status == 202
        run = await s.client.ended(run_id, wait=2.0)
        s.gates.open("tool-3")
        await asyncio.sleep(0.2)
        assert (run["status"], done) == ("cancelled", [1, 2, 3])
        assert (await s.client.run(run_id))["status"] == "cancelled"


@pytest.mark.row("BR-25")
@pytest.mark.parametrize("asked", [True, False])
async def test_stop_reaches_the_agent_once_and_leaving_does_not(backend: str, tmp_path: Path, asked: bool) -> None:
    seen: list[str] = []

    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        async def source() -> Any:
            try:
                for i in itertools.count():
                    yield i
                    await gates.wait("more")
            finally:
                seen.append("generator closed")

        @playhead.agent
        async def consumer(run: playhead.RunContext) -> str:
            try:
                async for i in source():
                    await run.event("item_taken", {"i": i})
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise
            finally:
                seen.append("finally")
            return "left"

        @playhead.agent
        async def leaver(run: playhead.RunContext) -> str:
            items = source()
            async for i in items:
                await run.event("item_taken", {"i": i})
                break
            await items.aclose()
            await run.event("went_on")
            return "done"

        return [consumer, leaver]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("consumer" if asked else "leaver")
        if asked:
            await s.gates.reached("more")
            await s.client.post(f"/runs/{run_id}/cancel")
        run = await s.client.ended(run_id)
        if asked:
            assert run["status"] == "cancelled"
            assert sorted(seen) == ["cancelled", "finally", "generator closed"]
        else:
            assert run["status"] == "succeeded"
            assert seen == ["generator closed"]


@pytest.mark.row("BR-26", "A12")
async def test_the_first_end_counts(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        succeeded = await s.client.start("count", {"n": 1})
        await s.client.ended(succeeded)
        answer = await s.client.post(f"/runs/{succeeded}/cancel")
        assert (answer.status, answer.json()["status"]) == (202, "succeeded")
        assert [e["type"] for e in await whole(s, succeeded) if e["type"] in FINALS] == ["run_succeeded"]

        late = await s.client.start("count", {"n": 1, "hold": True})
        await s.gates.reached("end")
        record = s.engine.ports.record
        await record.request_cancel("local", late, "test", None)  # committed, and nobody told the attempt yet
        s.gates.open("end")
        run = await s.client.ended(late)
        assert (run["status"], run["result"]) == ("cancelled", None)


@pytest.mark.row("BR-26")
async def test_any_interleaving_of_cancel_and_finish_leaves_one_end(backend: str, tmp_path: Path) -> None:
    chance = random.Random(26)
    async with stage(backend, tmp_path, counting) as s:
        record, projector = s.engine.ports.record, s.engine.projector
        s.engine.worker._accepting = False
        for _ in range(200):
            run_id = await s.client.start("count")
            run = await record.claim("local", run_id, s.engine.process)
            acts = [
                record.finish(run_id, run.token, Outcome(Status.SUCCEEDED, b"1")),
                record.request_cancel("local", run_id, "test", None),
                record.finish(run_id, run.token, Outcome(Status.CANCELLED)),
                record.lose(run_id, run.token, None),
            ]
            chance.shuffle(acts)
            for answer in await asyncio.gather(*acts, return_exceptions=True):
                assert not isinstance(answer, BaseException) or isinstance(answer, PlayheadError), answer
            await projector.bring(run_id)
            ended = await record.get("local", run_id)
            page = await record.facts(run_feed(run_id), 0)
            finals = [fact.event.type for fact in page.facts if fact.event.type in FINALS]
            assert finals == [f"run_{ended.status}"]


@pytest.mark.row("BR-27")
@pytest.mark.parametrize("kind", ["swallows", "catches", "raises"])
async def test_a_cancelled_run_is_cancelled_whatever_the_agent_makes_of_it(
    backend: str, tmp_path: Path, kind: str
) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def stubborn(run: playhead.RunContext) -> str:
            try:
                await gates.wait("never")
            except Exception:
                return "ok"
            except asyncio.CancelledError:
                if kind == "catches":
                    return "fine"
                raise
            finally:
                if kind == "raises":
                    raise RuntimeError("in finally")
            return "unreachable"

        return [stubborn]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("stubborn")
        await s.gates.reached("never")
        await s.client.post(f"/runs/{run_id}/cancel")
        run = await s.client.ended(run_id)
        assert (run["status"], run["result"]) == ("cancelled", None)
        assert [e["type"] for e in await whole(s, run_id) if e["type"] in FINALS] == ["run_cancelled"]


@pytest.mark.row("BR-28")
async def test_stop_before_the_start(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting, settings={"concurrency": 1}) as s:
        busy = await s.client.start("count", {"n": 1, "hold": True})
        await s.gates.reached("end")
        queued = await s.client.start("count", {"n": 1})
        first = await s.client.post(f"/runs/{queued}/cancel")
        assert (first.status, first.json()["status"]) == (202, "cancelled")
        again = await s.client.post(f"/runs/{queued}/cancel")
        assert (again.status, again.json()) == (202, first.json())
        s.gates.open("end")
        await s.client.ended(busy)
        assert s.gates.calls == 1
        assert [e["type"] for e in await whole(s, queued)] == ["run_queued", "run_cancelled"]
        unknown = await s.client.post("/runs/00000000-0000-7000-8000-000000000000/cancel")
        assert unknown.status == 404


@pytest.mark.row("BR-29", "H-cancel-partial")
async def test_what_was_said_before_the_stop_is_kept(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def talker(run: playhead.RunContext, tokens: int = 40) -> None:
            for i in range(tokens):
                await run.text(f"t{i} ")
            await gates.wait(f"said-{tokens}")

        return [talker]

    async with stage(backend, tmp_path, agents) as s:
        for tokens in (40, 0):
            run_id = await s.client.start("talker", {"tokens": tokens})
            await s.gates.reached(f"said-{tokens}")
            await s.client.post(f"/runs/{run_id}/cancel")
            run = await s.client.ended(run_id)
            said = "".join(f"t{i} " for i in range(tokens))
            assert run["status"] == "cancelled"
            assert run["partial"] == ([{"part": "answer", "text": said}] if tokens else None)


@pytest.mark.row("BR-30")
@pytest.mark.parametrize("how", ["fail", "cancel"])
async def test_open_parts_and_calls_are_closed_before_the_end(backend: str, tmp_path: Path, how: str) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def breaker(run: playhead.RunContext) -> None:
            await run.text("half a sent")
            await run.event("tool_call_started", {"call_id": "c1", "name": "search"}, current_step="search")
            await gates.wait("broken")
            raise ValueError("the tool broke")

        return [breaker]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("breaker")
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("broken")
            if how == "cancel":
                await s.client.post(f"/runs/{run_id}/cancel")
            else:
                s.gates.open("broken")
            await stream.end()
        assert stream.types[-2:] == ["tool_executed", "run_failed" if how == "fail" else "run_cancelled"]
        closed = stream.events[-2]["payload"]
        assert closed == {"call_id": "c1", "state": "failed" if how == "fail" else "interrupted"}
        assert [frame.event for frame in stream.frames][-1] == "end"
        assert stream.named("text")[-1]["final"] is True
        assert (await s.client.bootstrap(run_id))["snapshot"]["current_step"] is None


@pytest.mark.row("BR-38")
async def test_nobody_holds_a_run_and_it_goes_on(backend: str, tmp_path: Path) -> None:
    import gc

    async with stage(backend, tmp_path, counting) as s:
        ids = [await s.client.start("count", {"n": 2, "stops": [2]}) for _ in range(50)]
        for _ in range(20):
            gc.collect()
            await asyncio.sleep(0.01)
        s.gates.open("at-2")
        ends = [(await s.client.ended(run_id))["status"] for run_id in ids]
        assert ends == ["succeeded"] * 50


@pytest.mark.row("BR-39")
@pytest.mark.parametrize("how", ["input", "first_line"])
async def test_a_failure_before_the_first_event_ends_the_stream(backend: str, tmp_path: Path, how: str) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def broken(run: playhead.RunContext) -> None:
            raise RuntimeError("no luck")

        if how == "input":
            broken._model = None  # type: ignore[assignment]  # the call itself raises, before the function is entered
            broken.validate = lambda given: b"{}"  # type: ignore[method-assign]
        return [broken]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("broken")
        async with s.client.stream(run_id) as stream:
            await stream.end()
        assert stream.types[-1] == "run_failed"
        assert stream.events[-1]["payload"]["code"] == "agent_error"
        assert (await s.client.run(run_id))["status"] == "failed"


@pytest.mark.row("BR-31")
async def test_a_viewer_who_leaves_takes_nothing_with_him(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        record = s.engine.ports.record
        finish = record.finish

        async def slow(*args: Any) -> Any:
            await asyncio.sleep(0.03)
            return await finish(*args)

        record.finish = slow

        async def one() -> str:
            run_id = await s.client.start("count", {"n": 1})
            stream = await s.client.open(run_id)
            await stream.type("counted")
            stream.reset()
            run = await s.client.ended(run_id)
            assert run["result"] == {"counted": 1}
            return str(run["status"])

        for _ in range(10):
            assert await asyncio.gather(*(one() for _ in range(10))) == ["succeeded"] * 10
