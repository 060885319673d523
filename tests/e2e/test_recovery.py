"""Crashes, stale attempts, leases: what becomes of a run whose worker is gone, or only seems to be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import playhead
from playhead.core.event import published
from playhead.core.ids import run_feed, uuid7
from playhead.core.interrupt import Question
from playhead.core.run import Outcome, Run, Status
from playhead.core.snapshot import State
from playhead.core.text import TextApplied, TextWrite
from playhead.core.transition import Applied, Guard, Publish, Reply, Stale
from playhead.errors import AttemptLost, PlayheadError, RunFinal, StoreUnavailable
from tests.support.agents import counting
from tests.support.stage import STORES, Gates, Stage, stage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", STORES)]

FINALS = {"run_succeeded", "run_failed", "run_cancelled", "run_interrupted"}


def holding(gates: Gates) -> Sequence[playhead.Agent]:
    @playhead.agent
    async def holder(run: playhead.RunContext) -> str:
        await run.event("work_begun", progress=10, current_step="work")
        await gates.wait("end")
        return "done"

    @playhead.agent(resumable=True, max_attempts=2)
    async def stayer(run: playhead.RunContext) -> int:
        await run.event("work_begun", {"attempt": run.attempt}, progress=10, current_step="work")
        await gates.wait(f"end-{run.attempt}")
        return run.attempt

    return [holder, stayer]


async def types(s: Stage, run_id: str) -> list[str]:
    async with s.client.stream(run_id) as stream:
        await stream.end()
        return stream.types


async def abandon(s: Stage, run_id: str) -> None:
    """Take the run away from its attempt, as if its process had died: the lease row is gone."""
    run = await s.engine.ports.record.get("local", run_id)
    await s.engine.ports.record.leave(run.owner)
    await s.engine.reconciler.reap()
    await s.engine.heartbeat.beat()  # now the attempt learns of it


QUIET = {"beat": 60.0, "lease": 120.0}  # no beat comes in between


class ByHand:
    """An attempt that the test drives itself, write by write, against the ports."""

    def __init__(self, s: Stage, run: Run) -> None:
        self.s, self.run, self.n = s, run, 0
        self.guard = Guard(run.epoch, run.token, run.rev)

    async def publish(self, *, events: bool = True) -> Reply:
        self.n += 1
        event = published(self.run.id, self.run.token, self.n, "step_taken", {"n": self.n}, 0)
        made, tags = ((event,), (self.s.engine.projector.tag(),)) if events else ((), ())
        state = State(progress=self.n).encode()
        write = Publish(run_feed(self.run.id), self.guard, self.n, made, tags, state, self.n, 0)
        return await self.s.engine.ports.live.publish(write)

    async def say(self, text: str, offset: int) -> Any:
        write = TextWrite(run_feed(self.run.id), self.guard, "answer", offset, text.encode())
        return await self.s.engine.ports.texts.append(write)


async def two_attempts(s: Stage) -> tuple[ByHand, ByHand]:
    """An attempt that was lost and does not know it, and the one that took over."""
    await s.take_none()
    record, projector = s.engine.ports.record, s.engine.projector
    run_id = await s.client.start("stayer")
    await record.beat("worker", 60_000, [])
    first = await record.claim("local", run_id, "worker")
    old = ByHand(s, (await projector.bring(run_id)) or first)
    assert isinstance(await old.publish(), Applied)
    assert isinstance(await old.say("old ", 0), TextApplied)
    await record.leave("worker")
    assert await record.lose(run_id, first.token, None) is not None
    await record.beat("worker", 60_000, [])  # the same name again: it proves nothing
    second = await record.claim("local", run_id, "worker") if await free_now(s, run_id) else None
    assert second is not None
    new = ByHand(s, (await projector.bring(run_id)) or second)
    assert isinstance(await new.publish(), Applied)
    return old, new


async def free_now(s: Stage, run_id: str) -> bool:
    """Wait out the backoff of the crash."""
    record = s.engine.ports.record
    async with asyncio.timeout(10):
        while (await record.get("local", run_id)).not_before > s.engine.clock.wall_ms():
            await asyncio.sleep(0.05)
    return True


@pytest.mark.store
@pytest.mark.row("BR-35", "A8", "A10", "A37", "R22", "S1-5")
async def test_a_stale_attempt_writes_nothing_anywhere(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, holding) as s:
        old, new = await two_attempts(s)
        record = s.engine.ports.record
        before = (await s.client.bootstrap(new.run.id), await record.get("local", new.run.id))

        assert isinstance(await old.publish(), Stale)
        assert isinstance(await old.publish(events=False), Stale)  # progress alone
        assert isinstance(await old.say("older", 4), Stale)
        question = Question("k", "approval", b'{"title":"?"}', None)
        for refused in (
            record.finish(old.run.id, old.run.token, Outcome(Status.SUCCEEDED, b'"late"')),
            record.finish(old.run.id, old.run.token, Outcome(Status.INTERRUPTED, released=True)),
            record.ask(old.run.id, old.run.token, question, uuid7(1, b"0" * 10), None),
            record.note("local", old.run.id, old.run.token, "kind", "who", b"{}"),
        ):
            with pytest.raises(AttemptLost):
                await refused
        beat = await record.beat("worker", 60_000, [(old.run.id, old.run.token), (new.run.id, new.run.token)])
        assert beat.lost == {(old.run.id, old.run.token)}

        after = (await s.client.bootstrap(new.run.id), await record.get("local", new.run.id))
        for one in (before[0], after[0]):
            one["run"].pop("heartbeat_at", None)
        assert after[0] == before[0]
        assert replace(after[1], heartbeat_at=None) == replace(before[1], heartbeat_at=None)


@pytest.mark.row("BR-33", "M-restart", "F11", "R26")
async def test_a_lost_run_is_interrupted_once_and_its_viewers_hear_of_it(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, holding, settings=QUIET) as s:
        run_id = await s.client.start("holder")
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("end")
            await abandon(s, run_id)
            await s.engine.reconciler.reap()
            await stream.end()
        assert [name for name in stream.types if name in FINALS] == ["run_interrupted"]
        run = await s.client.run(run_id)
        assert (run["status"], run["error"]["code"]) == ("interrupted", "worker_lost")
        s.gates.open("end")  # the woken zombie returns a result; nothing of it is kept
        await asyncio.sleep(0.1)
        assert (await s.client.run(run_id))["result"] is None


@pytest.mark.row("BR-34", "M-second-process")
async def test_recovery_looks_again_before_it_writes(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, holding, settings=QUIET) as s:
        record = s.engine.ports.record
        await s.take_none()
        run_id = await s.client.start("holder")
        await record.beat("slow", 60_000, [])
        run = await record.claim("local", run_id, "slow")
        await record.beat("slow", 1, [(run_id, run.token)])
        await asyncio.sleep(0.05)
        assert [one.id for one in await record.expired(10)] == [run_id]  # listed as expired …
        await record.beat("slow", 60_000, [(run_id, run.token)])  # … its owner renews …
        assert await record.lose(run_id, run.token, None) is None  # … and recovery goes on
        assert (await record.get("local", run_id)).status is Status.RUNNING
        done = await record.finish(run_id, run.token, Outcome(Status.SUCCEEDED, b"1"))
        assert await record.lose(run_id, run.token, None) is None
        assert (await record.get("local", run_id)).rev == done.rev


@pytest.mark.row("F12")
async def test_a_run_that_kills_its_workers_is_given_up(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, holding, settings=QUIET) as s:
        run_id = await s.client.start("stayer")
        async with s.client.stream(run_id) as stream:
            for attempt in (1, 2):
                await s.gates.reached(f"end-{attempt}")
                await abandon(s, run_id)
            await stream.end()
        assert stream.types.count("attempt_started") == 2
        assert stream.types[-1] == "run_failed"
        assert stream.events[-1]["payload"]["code"] == "attempts_exhausted"


@pytest.mark.row("BR-37", "M-silent-run", "H-block-60s")
async def test_silence_is_not_death(backend: str, tmp_path: Path) -> None:
    """A blocked loop and a silent agent keep their lease; only a heartbeat that stops ends the run."""

    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def blocker(run: playhead.RunContext) -> str:
            await run.event("work_begun", progress=5, current_step="a long call")
            time.sleep(3.0)  # ten leases of this test; nothing of this process's loop runs
            await gates.wait("end")
            return "done"

        return [blocker]

    async with stage(backend, tmp_path, agents, settings={"lease": 0.3, "beat": 0.1}) as s:
        run_id = await s.client.start("blocker")
        await s.gates.reached("end")
        shown = await s.client.bootstrap(run_id)
        assert (shown["run"]["status"], shown["snapshot"]["current_step"]) == ("running", "a long call")
        assert shown["snapshot"]["step_started_at"] is not None
        assert [event["type"] for event in shown["events"]][-1] == "work_begun"
        s.gates.open("end")
        assert (await s.client.ended(run_id))["status"] == "succeeded"


@pytest.mark.row("M-outcome-throws", "R25")
async def test_no_end_is_announced_before_it_is_recorded(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, holding) as s:
        record = s.engine.ports.record
        finish, tries = record.finish, []

        async def failing(*args: Any) -> Any:
            tries.append(args)
            if len(tries) < 3:
                raise StoreUnavailable
            return await finish(*args)

        record.finish = failing
        run_id = await s.client.start("holder")
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("end")
            s.gates.open("end")
            await stream.end()
        assert len(tries) == 3
        assert [name for name in stream.types if name in FINALS] == ["run_succeeded"]


@pytest.mark.row("M-graceful-shutdown", "BR-68")
async def test_an_orderly_stop_is_not_a_failure(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, holding, settings={"drain_grace": 0.1}) as s:
        plain, resumable = await s.client.start("holder"), await s.client.start("stayer")
        await s.gates.reached("end")
        await s.gates.reached("end-1")
        async with s.client.stream(plain) as stream:
            await stream.type("work_begun")
            await s.app.drain()
            await stream.end()
        assert not FINALS & set(stream.types)
        record = s.engine.ports.record
        assert (await record.get("local", plain)).failure.code == "server_stopped"
        assert (await record.get("local", plain)).status is Status.INTERRUPTED
        kept = await record.get("local", resumable)
        assert (kept.status, kept.owner, kept.crashes) == (Status.RUNNING, None, 0)


@pytest.mark.row("BR-15", "R24", "R25")
async def test_whoever_reads_on_the_final_frame_reads_the_final_state(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting, settings={"concurrency": 50}) as s:
        record = s.engine.ports.record
        finish = record.finish

        async def slow(*args: Any) -> Any:
            await asyncio.sleep(0.2)
            return await finish(*args)

        record.finish = slow

        async def one() -> tuple[str, Any]:
            run_id = await s.client.start("count", {"n": 1})
            async with s.client.stream(run_id) as stream:
                await stream.type("run_succeeded")
                run = await s.client.run(run_id)
                return run["status"], run["result"]

        for _ in range(4):
            assert await asyncio.gather(*(one() for _ in range(25))) == [("succeeded", {"counted": 1})] * 25


@pytest.mark.row("A33")
async def test_the_reconciler_and_the_worker_write_one_end(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 1, "hold": True})
        await s.gates.reached("end")
        s.gates.open("end")
        await asyncio.gather(*(s.engine.reconciler.round() for _ in range(5)), s.client.ended(run_id))
        await asyncio.gather(*(s.engine.projector.bring(run_id) for _ in range(5)))
        assert [name for name in await types(s, run_id) if name in FINALS] == ["run_succeeded"]


async def test_a_refused_end_is_the_typed_error(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 1})
        run = await s.client.ended(run_id)
        with pytest.raises(RunFinal):
            await s.engine.ports.record.finish(run_id, run["attempt"], Outcome(Status.FAILED))
        with pytest.raises(PlayheadError):
            await s.engine.ports.record.finish(run_id, run["attempt"] + 1, Outcome(Status.FAILED))
