"""Who watches which run, beyond the port: several processes at once, each with its own view of leases."""

import asyncio
import random
import sqlite3
from contextlib import asynccontextmanager

import psycopg
import pytest

from playhead.backends.postgres import PostgresRecord
from playhead.backends.sqlite import SqliteRecord
from playhead.core import event
from playhead.core.ids import run_feed
from playhead.core.run import Policy
from playhead.testing.clock import FakeClock
from playhead.testing.ports.given import TENANT, TTL_MS, new_run

pytestmark = pytest.mark.anyio

AT_ONCE = Policy(cancel_after=0.0)


@pytest.fixture
def opened(postgres_dsn):
    @asynccontextmanager
    async def several(*clocks):
        made = []
        try:
            for clock in clocks:
                made.append(await PostgresRecord.open(postgres_dsn, clock=clock, wall=lambda _: clocks[0].wall_ms()))
            yield made
        finally:
            for record in made:
                await record.close()

    return several


async def started(record, clock):
    run, _ = await record.create(new_run(clock, policy=AT_ONCE))
    return run.id


async def test_each_process_takes_another_for_gone_by_what_it_saw_itself(opened):
    clock, other_clock = FakeClock(), FakeClock()
    async with opened(clock, other_clock) as (one, other):
        run = await started(one, clock)
        await one.beat("p1", TTL_MS, ())
        await one.watch("p1", [run])
        await clock.advance(11.0)
        assert await other.unwatch_expired(0, 10) == 0  # it sees that beat for the first time
        await other_clock.advance(9.0)
        assert await other.unwatch_expired(0, 10) == 0
        await one.beat("p1", TTL_MS, ())
        await other_clock.advance(9.0)
        assert await other.unwatch_expired(0, 10) == 0
        await other_clock.advance(11.0)
        assert await other.unwatch_expired(0, 10) == 1
        assert await other.desert(run) is not None


async def test_however_processes_come_leave_and_look_no_run_is_lost_between_them(opened):
    """Nor cancelled twice, nor while somebody watches and the record knows."""
    clocks = [FakeClock() for _ in range(3)]
    chance = random.Random(7)
    async with opened(*clocks) as records:
        runs = [await started(records[0], clocks[0]) for _ in range(8)]
        watched, *others = runs
        for number, record in enumerate(records):
            await record.beat(f"p{number}", TTL_MS, ())
        await records[0].watch("p0", runs)

        async def act(number):
            record, process = records[number], f"p{number}"
            for _ in range(12):
                some = chance.sample(others, 4)
                await record.watch(process, some)
                await record.unwatch(process, chance.sample(some, 3))
                for run in await record.deserted(20):
                    await record.desert(run)
            await record.unwatch(process, others)

        await asyncio.gather(*map(act, range(3)))
        for run in await records[1].deserted(100):
            await records[1].desert(run)
        for run in runs:
            page = await records[2].facts(run_feed(run), 0)
            ends = [fact for fact in page.facts if fact.event.type == event.RUN_CANCELLED]
            assert len(ends) == (run != watched)


async def test_what_postgresql_knows_is_not_written_again_and_goes_with_its_run(opened, postgres_dsn):
    clock = FakeClock()
    async with opened(clock) as (record,):
        runs = [await started(record, clock) for _ in range(3)]
        await record.watch("p1", runs[:2])

        def rows():
            with psycopg.connect(postgres_dsn, autocommit=True) as connection:
                found = connection.execute("SELECT run_id, xmin::text, xmax::text, ctid::text FROM playhead.presence")
                return {row[0]: row[1:] for row in found}

        before = rows()
        await record.watch("p1", runs)
        after = rows()
        assert after.keys() == set(runs)
        assert {run: after[run] for run in before} == before
        await record.request_cancel(TENANT, runs[0], "ann", None)
        await record.delete(TENANT, runs[0])
        assert rows().keys() == set(runs[1:])


async def test_what_sqlite_knows_is_not_written_again(tmp_path):
    clock, path = FakeClock(), tmp_path / "record.db"
    record = await SqliteRecord.open(path, clock=clock)
    beside = sqlite3.connect(path)
    try:
        run = await started(record, clock)
        await record.watch("p1", [run])
        (before,) = beside.execute("PRAGMA data_version").fetchone()
        await record.watch("p1", [run])
        assert beside.execute("PRAGMA data_version").fetchone() == (before,)
        await record.unwatch("p1", [run])
        assert beside.execute("PRAGMA data_version").fetchone() != (before,)
    finally:
        beside.close()
        await record.close()
