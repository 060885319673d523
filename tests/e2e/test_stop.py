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
                if i == 3:
                    await asyncio.gather(gates.wait("tool-3"), asyncio.sleep(5))  # a tool that says nothing

        return [steps]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("steps")
        await s.gates.reached("tool-3")
        answer = await s.client.post(f"/runs/{run_id}/cancel", {"reason": "enough"})
        assert answer.status == 202
        run = await s.client.ended(run_id, wait=2.0)
        # Nothing is left that could go on ten seconds later.
        async with asyncio.timeout(2.0):
            while s.engine.worker._tasks:
                await asyncio.sleep(0.01)
        assert not s.engine.worker._left_behind
        s.gates.open("tool-3")
        await asyncio.sleep(0.5)
        assert (run["status"], done) == ("cancelled", [1, 2, 3])
        assert (await s.client.run(run_id))["status"] == "cancelled"
        assert await whole(s, run_id) == (events := await whole(s, run_id))
        assert events[-1]["type"] == "run_cancelled"


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
        await s.take_none()
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
        # Stop at the moment at which the worker would take it: a run that waits in the queue over a restart.
        await s.take_none()
        waiting = await s.client.start("count", {"n": 1})
        kept = s.engine.ports

    def stopped(gates: Gates) -> Sequence[playhead.Agent]:
        [agent] = counting(gates)
        agent.runs_here = False  # no worker is free for it yet
        return [agent]

    async with stage(backend, tmp_path, stopped, kept=kept) as s:
        assert (await s.client.run(waiting))["status"] == "queued"
        first = await s.client.post(f"/runs/{waiting}/cancel")
        assert (first.status, first.json()["status"]) == (202, "cancelled")
        assert (await s.client.post(f"/runs/{waiting}/cancel")).json() == first.json()
        assert [e["type"] for e in await whole(s, waiting)] == ["run_queued", "run_cancelled"]
    async with stage(backend, tmp_path, counting, kept=kept) as s:
        await s.engine.reconciler.round()
        await s.engine.worker.take()
        assert (await s.client.run(waiting))["status"] == "cancelled"
        assert s.gates.calls == 0


@pytest.mark.row("BR-29", "H-cancel-partial")
async def test_what_was_said_before_the_stop_is_kept(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def talker(run: playhead.RunContext, tokens: int = 40) -> str:
            for i in range(tokens):
                await run.text(f"t{i} ")
            await gates.wait(f"said-{tokens}")
            return "whole"

        return [talker]

    async with stage(backend, tmp_path, agents) as s:
        for tokens in (40, 0):
            run_id = await s.client.start("talker", {"tokens": tokens})
            await s.gates.reached(f"said-{tokens}")
            await s.client.post(f"/runs/{run_id}/cancel")
            run = await s.client.ended(run_id)
            said = "".join(f"t{i} " for i in range(tokens))
            assert (run["status"], run["result"]) == ("cancelled", None)
            assert run["partial"] == ([{"part": "answer", "text": said}] if tokens else None)
            assert (await s.client.run(run_id))["partial"] == run["partial"]
        following = await s.client.start("talker", {"tokens": 3})
        s.gates.open("said-3")
        run = await s.client.ended(following)
        assert (run["status"], run["result"], run["partial"]) == ("succeeded", "whole", None)


@pytest.mark.row("H-cancel-partial", "BR-29")
@pytest.mark.parametrize("how", ["cancel", "fail", "lose"])
async def test_the_text_that_was_shown_is_the_text_that_is_kept(backend: str, tmp_path: Path, how: str) -> None:
    """Closed parts too, what is left of a part whose end was held back, and what was said an instant before."""

    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def talker(run: playhead.RunContext) -> None:
            await run.text("First I think.", part="reasoning")
            await run.close_text("reasoning")
            for i in range(40):
                await run.text(f"t{i} 你好🙂 ")
            await run.text("use sk-lea")  # it could be the beginning of a key
            await run.text("half \ud83d", part="notes")
            await gates.wait("said")
            raise RuntimeError("no luck")

        return [talker]

    async with stage(backend, tmp_path, agents, settings={"beat": 60.0, "lease": 120.0}) as s:
        run_id = await s.client.start("talker")
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("said")
            if how == "lose":
                await stream.until(lambda one: one.text().endswith("t39 你好🙂 use sk-"))
                run = await s.engine.ports.record.get("local", run_id)
                await s.engine.ports.record.leave(run.owner)
                await s.engine.reconciler.reap()
            elif how == "cancel":
                await s.client.post(f"/runs/{run_id}/cancel")
            else:
                s.gates.open("said")
            await stream.end()
        kept = {part["part"]: part["text"] for part in (await s.client.run(run_id))["partial"]}
        shown = {part: stream.text(part) for part in ("answer", "reasoning", "notes")}
        assert kept == shown
        assert kept["reasoning"] == "First I think."
        assert kept["answer"].startswith("t0 你好🙂 t1 ")
        if how != "lose":
            assert (kept["answer"][-10:], kept["notes"]) == ("use sk-lea", "half \ufffd")
        s.gates.open("said")


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
        # The wish to stop is told beside what the agent does about it.
        rest = [event for event in stream.events if event["type"] != "cancel_requested"][-2:]
        assert [event["type"] for event in rest] == [
            "tool_executed",
            f"run_{'failed' if how == 'fail' else 'cancelled'}",
        ]
        assert stream.events[-1] is rest[-1]
        assert rest[0]["payload"] == {"call_id": "c1", "state": "failed" if how == "fail" else "interrupted"}
        assert [frame.event for frame in stream.frames][-1] == "end"
        assert stream.named("text")[-1]["final"] is True
        order = [frame.event for frame in stream.frames]
        ends = [at for at, frame in enumerate(stream.frames) if frame.event == "text" and frame.data["final"]]
        assert ends[-1] < len(order) - 2  # before the final event and `end`
        assert order[-2:] == ["message", "end"]
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
            broken._input = None  # type: ignore[assignment]  # the call itself raises, before the function is entered
            broken.validate = lambda given: b"{}"  # type: ignore[method-assign]
        return [broken]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("broken")
        async with s.client.stream(run_id) as stream:
            await stream.end(1.0)
        assert stream.types[-1] == "run_failed"
        assert stream.events[-1]["payload"]["code"] == "agent_error"
        assert (await s.client.run(run_id))["status"] == "failed"


@pytest.mark.row("BR-31")
async def test_a_viewer_who_leaves_takes_nothing_with_him(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def answerer(run: playhead.RunContext) -> str:
            await run.event("asked")
            await run.text("almost ")
            await run.text("done")
            return "almost done"

        return [answerer]

    async with stage(backend, tmp_path, agents, settings={"concurrency": 50}) as s:
        record = s.engine.ports.record
        finish = record.finish

        async def slow(*args: Any) -> Any:
            await asyncio.sleep(0.3)
            return await finish(*args)

        record.finish = slow

        async def one() -> str:
            run_id = await s.client.start("answerer")
            stream = await s.client.open(run_id)
            await stream.until(lambda one: one.text() == "almost done")
            assert "run_succeeded" not in stream.types
            stream.reset()
            run = await s.client.ended(run_id)
            assert run["result"] == "almost done"
            assert [e["type"] for e in await whole(s, run_id)][-2:] == ["asked", "run_succeeded"]
            return str(run["status"])

        for _ in range(4):
            assert await asyncio.gather(*(one() for _ in range(25))) == ["succeeded"] * 25
