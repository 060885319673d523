"""Runs whose attempts are made by the workers of somebody's job queue, in processes of their own, under a gateway."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import playhead
from playhead.testing.harness.process import Process
from tests.support.job_queue import TABLES
from tests.support.stage import QUICK, Gates, Stage, stage, where
from tests.support.wire import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def external(gates: Gates) -> Sequence[playhead.Agent]:
    return [playhead.external_agent("loader", resumable=True)]


class Queue:
    """The tables of the job queue, beside the record."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._settings = {**QUICK, **where("servers", folder), "data": folder / "worker"}
        self.dsn = str(self._settings["record"])
        self.ask(TABLES)

    def ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as db:
            cursor = db.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    async def start(self, s: Stage) -> str:
        """A run, and the job to do it."""
        run_id = await s.client.start("loader")
        self.ask("INSERT INTO job (run_id) VALUES (%s)", run_id)
        return run_id

    def open(self, run_id: str) -> None:
        self.ask("INSERT INTO gate VALUES (%s)", run_id)

    async def outcome(self, run_id: str) -> str:
        async with asyncio.timeout(PATIENCE):
            while not (found := self.ask("SELECT outcome FROM job WHERE run_id = %s", run_id)[0][0]):
                await asyncio.sleep(0.05)
        return str(found)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Process]:
        process = Process(
            [sys.executable, "-m", "tests.support.job_queue", self.dsn],
            folder=Path(tempfile.mkdtemp(prefix="playhead-queue-")),
            env={f"PLAYHEAD_{name.upper()}": str(value) for name, value in self._settings.items()}
            | {"PYTHONPATH": str(ROOT)},
            ready=lambda: True,
        )
        try:
            await asyncio.to_thread(process.start)
            yield process
        finally:
            await asyncio.to_thread(process.close)


async def test_a_stop_at_the_gateway_ends_the_job_and_the_worker_takes_the_next(tmp_path: Path) -> None:
    async with stage("servers", tmp_path, external) as s:
        queue = Queue(tmp_path)
        async with queue.worker() as process:
            stopped = await queue.start(s)
            async with s.client.stream(stopped) as stream:
                await stream.type("rows_read")
                assert (await s.client.post(f"/runs/{stopped}/cancel")).status < 300
                await stream.end()
            assert stream.types[-2:] == ["cancel_requested", "run_cancelled"]
            assert await queue.outcome(stopped) == "cancelled"
            done = await queue.start(s)
            async with s.client.stream(done) as stream:
                await stream.until(lambda one: one.text() == "by 1")
                assert stream.snapshot["progress"] == 50
                queue.open(done)
                await stream.end()
            assert stream.types == ["run_queued", "run_started", "attempt_started", *DONE]
            assert await queue.outcome(done) == "done"
            assert (await s.client.run(done))["result"] == {"by": 1}
            assert process.running, process.log


DONE = ["rows_read", "rows_written", "run_succeeded"]


async def test_a_job_whose_worker_was_killed_is_done_by_another(tmp_path: Path) -> None:
    async with stage("servers", tmp_path, external) as s:
        queue = Queue(tmp_path)
        run_id = await queue.start(s)
        async with s.client.stream(run_id) as stream:
            async with queue.worker() as first:
                await stream.until(lambda one: one.text() == "by 1")
                await asyncio.to_thread(first.kill)
            queue.open(run_id)
            queue.ask("UPDATE job SET taken = false")  # as every queue does with a job that nobody finished
            async with queue.worker() as second:
                await stream.end()
                assert await queue.outcome(run_id) == "done", second.log
        started = ["run_queued", "run_started", "attempt_started"]
        assert stream.types == [*started, "rows_read", "attempt_started", *DONE]
        assert [event["attempt"] for event in stream.events[-4:]] == [2, 2, 2, 2]
        assert stream.text() == "by 2"
        assert (await s.client.run(run_id))["result"] == {"by": 2}
