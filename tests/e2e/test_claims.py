"""Attempts without our worker, agents in threads, listeners, disconnect policies, mounting: the author's side."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pydantic
import pytest

import playhead
from playhead.errors import AttemptLost, NotInServerProcess, RunCancelled, RunNotFree
from tests.support.agents import counting
from tests.support.stage import BACKENDS, Gates, stage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", BACKENDS)]


class Order(pydantic.BaseModel):
    item: str
    amount: int = 1


class Receipt(pydantic.BaseModel):
    item: str
    thread: bool


def external(gates: Gates) -> Sequence[playhead.Agent]:
    return [playhead.external_agent("loader")]


async def test_a_block_is_an_attempt(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, external) as s:
        run_id = await s.client.start("loader", {"rows": 3})
        async with s.client.stream(run_id) as stream:
            async with playhead.attempt(run_id) as run:
                assert (run.id, run.attempt, run.input) == (run_id, 1, {"rows": 3})
                await run.event("rows_loaded", {"rows": 3}, progress=50)
                with pytest.raises(RunNotFree):
                    async with playhead.attempt(run_id):
                        pass
                run.result = {"rows": 3}
            await stream.end()
        assert stream.types[-2:] == ["rows_loaded", "run_succeeded"]
        assert (await s.client.run(run_id))["result"] == {"rows": 3}


async def test_a_block_that_raises_is_a_failure(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, external) as s:
        run_id = await s.client.start("loader")
        with pytest.raises(ValueError, match="bad row"):
            async with playhead.attempt(run_id):
                raise ValueError("bad row")
        assert (await s.client.run(run_id))["error"] == {"code": "agent_error", "message": "ValueError: bad row"}


async def test_stop_reaches_a_block(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, external) as s:
        run_id = await s.client.start("loader")
        with pytest.raises(RunCancelled):
            async with playhead.attempt(run_id):
                await s.client.post(f"/runs/{run_id}/cancel")
                await asyncio.sleep(30)
        assert (await s.client.run(run_id))["status"] == "cancelled"
        await asyncio.sleep(0)  # the cancellation is spent: this task goes on


async def test_a_block_that_lost_its_run_is_told(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, external, settings={"beat": 60.0, "lease": 120.0}) as s:
        run_id = await s.client.start("loader")
        with pytest.raises(AttemptLost):
            async with playhead.attempt(run_id):
                await s.engine.ports.record.leave(s.engine.process)
                await s.engine.reconciler.reap()
                await s.engine.heartbeat.beat()
                await asyncio.sleep(30)
        assert (await s.client.run(run_id))["status"] == "interrupted"


async def test_a_process_without_a_server_is_told_so(backend: str, tmp_path: Path) -> None:
    with pytest.raises(NotInServerProcess):
        async with playhead.attempt("00000000-0000-7000-8000-000000000000"):
            pass


async def test_a_plain_function_runs_in_a_thread(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        def buy(run: playhead.SyncRun, order: Order) -> Receipt:
            run.event("order_read", order, progress=10)
            run.update(current_step="ask")
            run.text("one moment")
            decision = run.ask({"title": f"Buy {order.item}?"})
            assert decision.approved
            run.audit("bought", {"item": order.item})
            return Receipt(item=order.item, thread=threading.current_thread() is not threading.main_thread())

        return [buy]

    async with stage(backend, tmp_path, agents) as s:
        bad = await s.client.post("/runs", {"agent": "buy", "input": {"amount": "many"}})
        assert (bad.status, bad.json()["code"]) == (422, "invalid_input")
        assert {one["field"] for one in bad.json()["details"]["problems"]} == {"item", "amount"}
        run_id = await s.client.start("buy", {"item": "tea"})
        async with s.client.stream(run_id) as stream:
            await stream.type("approval_required")
            [question] = (await s.client.bootstrap(run_id))["interrupts"]
            await s.client.post(f"/runs/{run_id}/interrupts/{question['id']}/decision", {"approved": True})
            await stream.end()
        assert (await s.client.run(run_id))["result"] == {"item": "tea", "thread": True}
        assert [e["payload"] for e in stream.events if e["type"] == "order_read"] == [{"item": "tea", "amount": 1}]


async def test_stop_reaches_a_thread_at_its_next_call(backend: str, tmp_path: Path) -> None:
    seen: list[str] = []
    go = threading.Event()

    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        def busy(run: playhead.SyncRun) -> None:
            run.event("work_begun")
            go.wait(10)
            try:
                run.update(progress=50)
            except playhead.PlayheadError as error:
                seen.append(error.code)
                raise

        return [busy]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("busy")
        async with s.client.stream(run_id) as stream:
            await stream.type("work_begun")
            await s.client.post(f"/runs/{run_id}/cancel")
            go.set()
            await stream.end()
        assert (seen, stream.types[-1]) == (["run_cancelled"], "run_cancelled")


@pytest.mark.row("A32")
async def test_listeners_hear_each_fact_and_delay_nothing(backend: str, tmp_path: Path) -> None:
    heard: list[str] = []
    failed: list[str] = []
    slow = asyncio.Event()

    @playhead.on("run_succeeded", "run_queued")
    async def listener(event: dict[str, Any]) -> None:
        heard.append(event["type"])

    @playhead.on("run_queued")
    async def stuck(event: dict[str, Any]) -> None:
        await slow.wait()

    @playhead.on("run_succeeded")
    def broken(event: dict[str, Any]) -> None:
        failed.append(event["run_id"])
        raise RuntimeError("no luck")

    async with stage(backend, tmp_path, counting, listeners=[listener, stuck, broken]) as s:
        run_id = await s.client.start("count")
        await s.client.ended(run_id)
        async with asyncio.timeout(10):
            while len(failed) < 3:
                await asyncio.sleep(0.02)
        slow.set()
    assert sorted(heard) == ["run_queued", "run_succeeded"]
    assert failed == [run_id] * 3


async def test_what_was_not_heard_is_told_after_a_restart(backend: str, tmp_path: Path) -> None:
    heard: list[str] = []

    @playhead.on("run_succeeded")
    async def listener(event: dict[str, Any]) -> None:
        heard.append(event["run_id"])

    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count")
        await s.client.ended(run_id)
        kept = s.engine.ports
    async with stage(backend, tmp_path, counting, listeners=[listener], kept=kept):
        async with asyncio.timeout(10):
            while not heard:
                await asyncio.sleep(0.02)
    assert heard == [run_id]


@pytest.mark.row("M-unwatched-run", "M-suspended-tab", "R61")
@pytest.mark.parametrize(("policy", "ends"), [("continue", "running"), ("cancel", "cancelled"), (0.2, "cancelled")])
async def test_the_disconnect_policy_and_nothing_else_ends_a_run(
    backend: str, tmp_path: Path, policy: Any, ends: str
) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent(on_disconnect=policy)
        async def watched(run: playhead.RunContext) -> str:
            await run.event("work_begun")
            await gates.wait("end")
            return "done"

        return [watched]

    async with stage(backend, tmp_path, agents) as s:
        unwatched = await s.client.start("watched")
        await s.gates.reached("end")
        run_id = await s.client.start("watched")
        streams = [await s.client.open(run_id) for _ in range(2)]
        for stream in streams:
            await stream.type("work_begun")
        streams[0].reset()
        await asyncio.sleep(0.3)
        assert (await s.client.run(run_id))["status"] == "running"  # one viewer is left
        streams[1].reset()
        if ends == "running":
            await asyncio.sleep(0.3)
        else:
            await s.client.ended(run_id)
        assert (await s.client.run(run_id))["status"] == ends
        assert (await s.client.run(unwatched))["status"] == "running"
        s.gates.open("end")
        assert (await s.client.ended(unwatched))["status"] == "succeeded"
