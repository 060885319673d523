"""The record behind a transaction pooler, which lends another session for each transaction."""

from contextlib import asynccontextmanager

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from playhead.backends.postgres import PostgresRecord
from playhead.testing.check import RecordBench
from playhead.testing.check_archive import CHECKS as ARCHIVE
from playhead.testing.check_run_store import CHECKS as RUNS
from playhead.testing.clock import FakeClock
from playhead.testing.harness.pgbouncer import PgBouncer
from playhead.testing.ports.given import new_run

pytestmark = [pytest.mark.anyio, pytest.mark.wide]


@pytest.fixture(scope="module")
def pooler(postgres_database):
    """Two sessions for everybody: whoever relies on his own soon meets another's."""
    bouncer = PgBouncer(postgres_database, {"default_pool_size": 2, "min_pool_size": 0})
    yield bouncer
    bouncer.close()


@pytest.fixture
def bench(pooler, postgres_dsn):
    dsn = make_conninfo(postgres_dsn, port=pooler.port, host="127.0.0.1")

    @asynccontextmanager
    async def make():
        clock = FakeClock()
        store = await PostgresRecord.open(dsn, clock=clock, wall=lambda _: clock.wall_ms(), deadline=30.0)
        try:
            yield RecordBench(store, store, clock)
        finally:
            await store.close()

    return make


@pytest.mark.row("F45")
@pytest.mark.parametrize("check", RUNS, ids=lambda check: check.name)
async def test_run_store(bench, check):
    await check.run(bench)


@pytest.mark.row("F45")
@pytest.mark.parametrize("check", ARCHIVE, ids=lambda check: check.name)
async def test_archive(bench, check):
    @asynccontextmanager
    async def archive():
        async with bench() as made:
            yield made.archive

    await check.run(archive)


async def test_a_pooler_that_starts_anew_costs_no_call_more_than_one_try(pooler, bench):
    async with bench() as b:
        await b.store.create(new_run(b.clock))
        pooler.process.kill()
        pooler.process.start()
        await b.store.create(new_run(b.clock))
        assert len(await b.store.list_runs("acme")) == 2


@pytest.mark.row("F45")
def test_the_pooler_is_one(pooler, postgres_dsn):
    """Otherwise nothing above was tried: a session's own setting is gone, or another's is seen."""
    import psycopg

    dsn = make_conninfo(postgres_dsn, port=pooler.port, host="127.0.0.1")
    assert conninfo_to_dict(dsn)["port"] != conninfo_to_dict(postgres_dsn)["port"]
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as one:
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as other:
            one.execute("SET lock_timeout = 4321")
            assert other.execute("SHOW lock_timeout").fetchone() == ("4321ms",)
