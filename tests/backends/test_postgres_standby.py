"""A standby beside the server, an hour behind it: it tells of an earlier moment, and so it is never asked."""

import asyncio

import psycopg
import pytest

from playhead.backends.postgres import PostgresRecord
from playhead.core.ids import EVERY_TENANT, run_feed
from playhead.core.run import Status
from playhead.errors import StoreUnavailable
from playhead.testing.check import RecordBench, eventually
from playhead.testing.clock import FakeClock
from playhead.testing.harness.postgres import Postgres
from playhead.testing.ports.given import DONE, TENANT, get, queued, running
from tests.support.postgres import upgrade

pytestmark = [pytest.mark.anyio, pytest.mark.wide]


@pytest.fixture
def pair(anyio_backend):
    primary = Postgres(durable=True)
    try:
        asyncio.run(upgrade(primary.dsn()))
        standby = Postgres({"recovery_min_apply_delay": "1h"}, of=primary)
        yield primary, standby
        standby.close()
    finally:
        primary.close()


def ask(server, statement):
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        return connection.execute(statement).fetchall()


@pytest.mark.row("F46")
def test_every_read_and_every_decision_is_of_the_server_that_is_written_to(pair):
    asyncio.run(whole(*pair))


async def whole(primary, standby):
    clock = FakeClock()
    either = f"host=127.0.0.1,127.0.0.1 port={standby.port},{primary.port} user=postgres dbname=postgres"
    record = await PostgresRecord.open(either, clock=clock, deadline=30.0)
    b = RecordBench(record, record, clock)
    run = await running(b)
    await asyncio.gather(*(get(b, run) for _ in range(20)))  # on every connection that there may be
    assert (await record.finish(run.id, 1, DONE)).status is Status.SUCCEEDED
    assert (await get(b, run)).status is Status.SUCCEEDED
    page = await record.facts(run_feed(run.id), 0)
    assert page is not None
    assert (page.run.status, page.facts[-1].status) == (Status.SUCCEEDED, Status.SUCCEEDED)
    assert ask(standby, "SELECT count(*) FROM playhead.run") == [(0,)]  # it answers, of long ago

    # By itself it is as good as none: what it would say is not true any more.
    alone = PostgresRecord.at(standby.dsn(), clock=clock, deadline=30.0)
    for call in (
        alone.get(TENANT, run.id),
        alone.list_runs(TENANT),
        alone.expired(10),
        queued(RecordBench(alone, alone, clock)),
    ):
        with pytest.raises(StoreUnavailable):
            await call
    await alone.close()

    # Until it is the one that is written to.
    [(written,)] = ask(primary, "SELECT pg_current_wal_flush_lsn()")
    await eventually(lambda: ask(standby, f"SELECT pg_last_wal_receive_lsn() >= '{written}'") == [(True,)])
    primary.process.kill()
    assert ask(standby, "SELECT pg_promote()") == [(True,)]
    found = None
    async with asyncio.timeout(30.0):
        while found is None:
            try:
                found = await record.get(EVERY_TENANT, run.id)
            except StoreUnavailable:  # a connection to the old one had to be found broken
                pass
    assert found.status is Status.SUCCEEDED
    await queued(b)
    assert len(await record.list_runs(TENANT)) == 2
    await record.close()
