"""Real processes on one record: taking runs, keeping them, and losing them."""

import asyncio
import json
import queue
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from playhead.backends.postgres import PostgresRecord
from playhead.core.ids import EVERY_TENANT
from playhead.core.run import Status
from playhead.testing.check import RecordBench
from playhead.testing.clock import FakeClock
from playhead.testing.ports.given import AGENT, queued, resumable

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
TTL_MS = 600_000  # nobody waits for it: whoever judges a lease here goes by a clock of his own


class Worker:
    def __init__(self, dsn, name, ttl_ms, count):
        command = [sys.executable, "-m", "tests.support.postgres_worker", dsn, name, str(ttl_ms), str(count)]
        self.name = name
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin
        assert self.process.stdout
        self._ears, self._mouth = self.process.stdin, self.process.stdout
        self._lines: queue.Queue = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._mouth:
            self._lines.put(json.loads(line))

    async def told(self):
        return await asyncio.to_thread(self._lines.get, timeout=PATIENCE)

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self._ears.close()
        self._mouth.close()


@pytest.fixture
def workers(postgres_dsn):
    @contextmanager
    def start(*names, runs=1):
        made = [Worker(postgres_dsn, name, TTL_MS, runs) for name in names]
        try:
            yield made
        finally:
            for one in made:
                one.close()

    return start


@pytest.fixture
async def b(postgres_dsn):
    clock = FakeClock()
    record = await PostgresRecord.open(postgres_dsn, clock=clock, deadline=30.0)
    yield RecordBench(record, record, clock)
    await record.close()


async def beats(dsn):
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        return dict(await (await connection.execute("SELECT process, beat FROM playhead.process")).fetchall())


async def reaped(b, dsn, lively=()):
    """What is lost to an onlooker for whom a whole lease passes between two beats of the lively ones."""
    async with asyncio.timeout(PATIENCE):
        while True:
            assert await b.store.expired(10) == []
            before = await beats(dsn)
            while {name: before[name] for name in lively}.items() & (await beats(dsn)).items():
                await asyncio.sleep(0.01)
            await b.clock.advance(TTL_MS / 1000)
            if found := await b.store.expired(10):
                return found


async def test_no_run_goes_to_two_processes(b, workers):
    runs = [await queued(b) for _ in range(60)]
    with workers("w1", "w2", "w3", runs=20) as started:
        taken = []
        for worker in started:
            assert await worker.told() == {"ready": True}
            taken += [((await worker.told())["took"], worker.name) for _ in range(20)]
        assert sorted(run_id for run_id, _ in taken) == sorted(run.id for run in runs)
        for run_id, name in taken:
            found = await b.store.get(EVERY_TENANT, run_id)
            assert (found.owner, found.token) == (name, 1)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_the_runs_of_a_process_that_is_silent_are_lost_and_no_others(b, workers, postgres_dsn, how):
    runs = [await queued(b, policy=resumable()) for _ in range(2)]
    with workers("w1", "w2") as started:
        owners = {}
        for worker in started:
            assert await worker.told() == {"ready": True}
            owners[(await worker.told())["took"]] = worker
        silent, lively = owners[runs[0].id], owners[runs[1].id]
        silent.process.send_signal(how)
        (gone,) = await reaped(b, postgres_dsn, [lively.name])
        assert (gone.id, gone.owner) == (runs[0].id, silent.name)
        lost = await b.store.lose(gone.id, gone.token, None)
        assert (lost.owner, lost.status) == (None, Status.RUNNING)
        assert (await b.store.get(EVERY_TENANT, runs[1].id)).owner == lively.name
        if how is signal.SIGSTOP:
            silent.process.send_signal(signal.SIGCONT)
            assert await silent.told() == {"lost": runs[0].id, "token": 1}


async def test_a_run_that_was_lost_goes_to_another_process(b, workers, postgres_dsn):
    run = await queued(b, policy=resumable())
    with workers("w1") as (first,):
        assert await first.told() == {"ready": True}
        assert await first.told() == {"took": run.id, "token": 1}
        first.process.send_signal(signal.SIGSTOP)
        (gone,) = await reaped(b, postgres_dsn)
        await b.store.lose(gone.id, gone.token, None)
        with workers("w2") as (second,):
            assert await second.told() == {"ready": True}
            assert await second.told() == {"took": run.id, "token": 2}
            first.process.send_signal(signal.SIGCONT)
            assert await first.told() == {"lost": run.id, "token": 1}
            assert await b.store.acquire(first.name, [AGENT], 5) == []
