"""Several gateways of the same runs: whether anybody watches a run is a question to all of them."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import playhead
from playhead.core import event
from playhead.core.ids import run_feed
from playhead.testing.harness.process import Process, free_port
from tests.support.stage import QUICK, Stage, stage, where
from tests.support.wire import Client

pytestmark = pytest.mark.anyio
each_backend = pytest.mark.parametrize("backend", ["memory", "servers"])

ROOT = Path(__file__).parents[2]
SHORT = {"viewer_grace": 0.5}


async def work(run: playhead.RunContext) -> None:
    await run.event("work_begun")
    await asyncio.Event().wait()


AGENTS = [playhead.agent(name="shown", on_disconnect="cancel")(work), playhead.agent(name="plain")(work)]


class Told:
    """What the record was told of viewers and was asked because of that, with its answers, once they were there."""

    def __init__(self) -> None:
        self.acts: list[tuple[str, str, bool]] = []

    def listen(self, s: Stage) -> None:
        record = s.engine.ports.record
        for name in ("watch", "unwatch", "desert"):
            setattr(record, name, self._around(name, getattr(record, name)))

    def _around(self, name: str, act: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any) -> Any:
            answer = await act(*args)
            runs = [args[0]] if name == "desert" else args[1]
            self.acts += [(name, run_id, answer is not None) for run_id in runs]
            return answer

        return call

    async def wait(self, name: str, run_id: str, answer: bool = False, times: int = 1) -> None:
        async with asyncio.timeout(20):
            while self.acts.count((name, run_id, answer)) < times:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def two(backend: str, folder: Path) -> AsyncIterator[tuple[Stage, Stage, Told]]:
    """A gateway, another one that runs the agents too, and what their record is told."""
    told = Told()
    async with AsyncExitStack() as stack:
        gateway = {**SHORT, "worker": False}
        one = await stack.enter_async_context(stage(backend, folder, AGENTS, settings=gateway))
        kept = one.engine.ports if backend == "memory" else None
        other = await stack.enter_async_context(stage(backend, folder, AGENTS, settings=SHORT, kept=kept))
        told.listen(other)
        if kept is None:
            told.listen(one)
        yield one, other, told


async def wishes(s: Stage, run_id: str) -> list[str]:
    """Of all the facts of the run those that ask it to stop."""
    page = await s.engine.ports.record.facts(run_feed(run_id), 0)
    return [fact.event.type for fact in page.facts if fact.event.type == event.CANCEL_REQUESTED]


@pytest.mark.row("R61")
@each_backend
async def test_who_leaves_one_gateway_while_others_watch_at_another_stops_nothing(backend: str, tmp_path: Path) -> None:
    async with two(backend, tmp_path) as (one, other, told):
        run_id, plain = await one.client.start("shown"), await one.client.start("plain")
        async with one.client.stream(plain) as stream:
            await stream.type("work_begun")
        here, there = [await s.client.open(run_id) for s in (one, other)]
        for stream in (here, there):
            await stream.type("work_begun")
        await told.wait("watch", run_id, times=2)
        here.reset()
        await told.wait("unwatch", run_id)
        await told.wait("desert", run_id)  # it was looked at, and somebody watches
        assert (await one.client.run(run_id))["status"] == "running"
        there.reset()
        run = await one.client.ended(run_id)
        assert (run["status"], await wishes(one, run_id)) == ("cancelled", [event.CANCEL_REQUESTED])
        assert {one for _, one, _ in told.acts} == {run_id}  # of a run that goes on without viewers nothing is told
        assert (await one.client.run(plain))["status"] == "running"


@pytest.mark.row("R61")
@each_backend
async def test_a_gateway_that_drains_is_no_viewer_that_left(backend: str, tmp_path: Path) -> None:
    """Its viewers come to another one; that its lease is over then stops nothing."""
    async with two(backend, tmp_path) as (one, other, told):
        run_id = await one.client.start("shown")
        here = await one.client.open(run_id)
        await here.type("work_begun")
        await told.wait("watch", run_id)
        leave, back = one.engine.ports.record.leave, asyncio.Event()

        async def held(process: str) -> None:
            await back.wait()
            await leave(process)

        one.engine.ports.record.leave = held
        draining = asyncio.create_task(one.app.drain())
        try:
            await here.end()
            await here.close()
            assert here.named("draining")
            there = await other.client.open(run_id, here.cursor)
            await told.wait("watch", run_id, times=2)
        finally:
            back.set()
        await draining
        await told.wait("desert", run_id)  # the grace of those who were there is over
        assert (await other.client.run(run_id))["status"] == "running"
        there.reset()
        run = await other.client.ended(run_id)
        assert (run["status"], await wishes(other, run_id)) == ("cancelled", [event.CANCEL_REQUESTED])


@pytest.mark.slow
@pytest.mark.row("R61")
async def test_a_gateway_that_is_killed_takes_its_viewers_along(tmp_path: Path) -> None:
    """Once its lease is over, and who watches elsewhere too counts as ever."""
    async with stage("servers", tmp_path, AGENTS, settings=SHORT) as s, gateway(tmp_path) as (process, client):
        told = Told()
        told.listen(s)
        run_id, other_id = await s.client.start("shown"), await s.client.start("shown")
        streams = [await client.open(one) for one in (run_id, other_id)]
        async with s.client.stream(other_id) as there:
            for stream in (*streams, there):
                await stream.type("work_begun")
            async with asyncio.timeout(20):
                while await asyncio.to_thread(rows, tmp_path) != 3:
                    await asyncio.sleep(0.02)
            await asyncio.to_thread(process.kill)
            run = await s.client.ended(run_id)
            assert (run["status"], await wishes(s, run_id)) == ("cancelled", [event.CANCEL_REQUESTED])
            await told.wait("desert", other_id)
            assert (await s.client.run(other_id))["status"] == "running"
        for stream in streams:
            await stream.close()


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[tuple[Process, Client]]:
    """A gateway in a process of its own."""
    port = free_port()
    settings = {**QUICK, **SHORT, **where("servers", folder), "data": folder / "gateway"}
    command = "-m playhead serve tests.cli.agents:every --no-worker --no-open --port"
    process = Process(
        [sys.executable, *command.split(), str(port)],
        folder=Path(tempfile.mkdtemp(prefix="playhead-gateway-")),
        env={f"PLAYHEAD_{name.upper()}": str(value) for name, value in settings.items()} | {"PYTHONPATH": str(ROOT)},
        ready=lambda: ready(port),
    )
    try:
        await asyncio.to_thread(process.start)
        yield process, Client("127.0.0.1", port)
    finally:
        await asyncio.to_thread(process.close)


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2.0) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def rows(folder: Path) -> int:
    """How many runs are watched at how many processes."""
    with psycopg.connect(where("servers", folder)["record"], autocommit=True) as connection:
        row = connection.execute("SELECT count(*) FROM playhead.presence WHERE due_at IS NULL").fetchone()
        assert row is not None
        return int(row[0])
