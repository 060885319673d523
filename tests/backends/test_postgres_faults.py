"""The record while its server stops, dies, fills its disk, or is kept waiting by a client that is gone."""

import asyncio
import signal
import subprocess
import sys
import threading
import time

import psycopg
import pytest

from playhead.backends.postgres import PostgresRecord
from playhead.backends.postgres.faults import connection_lost, rolled_back, typed
from playhead.core.ids import EVERY_TENANT
from playhead.errors import PlayheadError, StoreCorrupt, StoreFull, StoreUnavailable
from playhead.runtime.clock import SystemClock
from playhead.testing.check import eventually
from playhead.testing.harness.postgres import Postgres
from playhead.testing.ports.given import TENANT, TTL_MS, new_run
from tests.support.postgres import upgrade

pytestmark = pytest.mark.anyio

DEADLINE = 1.0
PATIENCE = 60.0  # far beyond every deadline here


@pytest.fixture(scope="module")
def own_server():
    """A server that only this module troubles. It keeps what it acknowledged through a crash."""
    server = Postgres(durable=True)
    asyncio.run(upgrade(server.dsn()))
    yield server
    server.close()


@pytest.fixture
def server(own_server):
    yield own_server
    own_server.process.resume()
    own_server.process.start()


async def opened(dsn, deadline=DEADLINE, **options):
    return await PostgresRecord.open(dsn, clock=SystemClock(), deadline=deadline, wait=True, **options)


async def when_back(call):
    """What is answered once the server is there again."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return await call()
        except StoreUnavailable:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)


async def test_a_server_that_stands_still_is_not_waited_for(server):
    record = await opened(server.dsn())
    run, _ = await when_back(lambda: record.create(new_run(SystemClock())))
    server.process.pause()
    start = time.monotonic()
    calls = (
        record.get(TENANT, run.id),
        record.create(new_run(SystemClock())),
        record.beat("p1", TTL_MS, ()),
        *(record.list_runs(TENANT) for _ in range(20)),  # more than there are connections
    )
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(one) for one in answers} == {StoreUnavailable}
    assert time.monotonic() - start < 10 * DEADLINE
    server.process.resume()
    assert await when_back(lambda: record.get(TENANT, run.id)) == run
    await record.close()


async def test_who_is_cancelled_while_the_server_stands_still_is_free_at_once(server):
    record = await opened(server.dsn(), deadline=PATIENCE)
    server.process.pause()
    call = asyncio.create_task(record.create(new_run(SystemClock())))
    await asyncio.sleep(0.05)
    call.cancel()
    start = time.monotonic()
    await asyncio.wait([call])
    assert call.cancelled()
    assert time.monotonic() - start < 5.0  # the driver asks the server for leave, and gives up after ten
    server.process.resume()
    assert await when_back(lambda: record.list_runs(EVERY_TENANT, limit=1)) is not None
    await record.close()


async def test_closing_does_not_wait_for_a_server_that_stands_still(server):
    record = await opened(server.dsn())
    server.process.pause()
    calls = [asyncio.create_task(record.list_runs(TENANT)) for _ in range(3)]
    await asyncio.sleep(0)
    start = time.monotonic()
    await record.close()
    assert time.monotonic() - start < 10 * DEADLINE
    await asyncio.gather(*calls, return_exceptions=True)


async def test_what_was_answered_outlives_a_crash_of_the_server(server):
    record = await opened(server.dsn(), deadline=10.0)
    answered, stop = [], asyncio.Event()

    async def create():
        while not stop.is_set():
            try:
                run, _ = await record.create(new_run(SystemClock()))
            except StoreUnavailable:
                await asyncio.sleep(0.01)
            else:
                answered.append(run.id)

    async def more(count):
        wanted = len(answered) + count
        await eventually(lambda: len(answered) >= wanted, PATIENCE)

    creating = [asyncio.create_task(create()) for _ in range(4)]
    for _ in range(2):
        await more(20)
        await asyncio.to_thread(server.process.kill)
        await asyncio.to_thread(restarted, server)
    await more(5)
    stop.set()
    await asyncio.gather(*creating)
    for run_id in answered:
        assert await record.get(TENANT, run_id) is not None
    await record.close()


def restarted(server):
    """Its children of before may take a moment to notice that it died."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            server.process.start()
            return
        except Exception:  # whatever it was, the last one is told
            if time.monotonic() > end:
                raise


async def test_a_restart_between_two_calls_is_not_noticed(server):
    record = await opened(server.dsn(), deadline=10.0)
    await asyncio.gather(*(record.list_runs(TENANT) for _ in range(5)))
    await asyncio.to_thread(server.process.stop)
    await asyncio.to_thread(server.process.start)
    assert len(await asyncio.gather(*(record.list_runs(TENANT) for _ in range(5)))) == 5
    await record.close()


VANISHING = """
import sys, psycopg, time
with psycopg.connect(sys.argv[1]) as connection:
    connection.execute("SET LOCAL idle_in_transaction_session_timeout = " + sys.argv[3])
    connection.execute("SELECT 1 FROM playhead.run WHERE id = %s FOR UPDATE", (sys.argv[2],))
    print("held", flush=True)
    sys.stdin.read()
"""


async def test_a_client_that_stands_still_in_a_transaction_is_put_out(server):
    """As ours are, by what every transaction sets for itself."""
    record = await opened(server.dsn(), deadline=10.0)
    run, _ = await record.create(new_run(SystemClock()))
    command = [sys.executable, "-c", VANISHING, server.dsn(), run.id, "300"]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert await asyncio.to_thread(other.stdout.readline) == b"held\n"
        other.send_signal(signal.SIGSTOP)
        assert (await record.request_cancel(TENANT, run.id, "ann", None)).cancel_by == "ann"
    finally:
        other.kill()
        other.communicate()
    await record.close()


async def test_our_own_transactions_ask_to_be_put_out(server):
    """One of ours that stops in the middle, its process standing still, blocks others for its deadline at most."""
    record = await opened(server.dsn(), deadline=3.0)
    other = await opened(server.dsn(), deadline=30.0)
    run, _ = await when_back(lambda: record.create(new_run(SystemClock())))
    locked, go_on = threading.Event(), threading.Event()

    async def hold(session):
        await record._load(session, run.id, TENANT)
        locked.set()
        go_on.wait(PATIENCE)  # this loop stands still, with the lock
        await session.rows("SELECT 1")

    holding = threading.Thread(target=lambda: asyncio.run(put_out(record, hold)))
    holding.start()
    await asyncio.to_thread(locked.wait, PATIENCE)
    assert (await other.request_cancel(TENANT, run.id, "ann", None)).cancel_by == "ann"
    go_on.set()
    await asyncio.to_thread(holding.join)
    await record.close()
    await other.close()


async def put_out(record, work):
    with pytest.raises(StoreUnavailable):
        await record._database.act(work)


async def test_a_full_disk_is_told_and_leaves_what_is_there(server):
    record = await opened(server.dsn(), deadline=30.0)
    run, _ = await record.create(new_run(SystemClock()))

    async def fill(session):
        session.write(
            "INSERT INTO playhead.audit (tenant, run_id, at, kind, actor, data) VALUES ('t', 'r', 1, 'k', '', '')"
        )
        await session.rows("SELECT 1")
        session.write("DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$")

    with pytest.raises(StoreFull) as caught:
        await record._database.act(fill)
    assert isinstance(caught.value, StoreUnavailable)
    assert await record.get(TENANT, run.id) == run
    assert await record.audit(EVERY_TENANT, "r") == []
    await record.close()


class Reported(psycopg.Error):
    def __init__(self, state, text="the server says so\nDETAIL: more"):
        super().__init__(text)
        self.sqlstate = state


@pytest.mark.parametrize(
    ("state", "kind", "lost", "again"),
    [
        ("40001", StoreUnavailable, False, True),
        ("40P01", StoreUnavailable, False, True),
        ("57P01", StoreUnavailable, True, False),
        ("57P02", StoreUnavailable, True, False),
        ("57P03", StoreUnavailable, True, False),
        ("08006", StoreUnavailable, True, False),
        ("08P01", StoreUnavailable, True, False),
        ("25P03", StoreUnavailable, True, False),
        ("25006", StoreUnavailable, True, False),
        ("55P03", StoreUnavailable, False, False),
        ("57014", StoreUnavailable, False, False),
        ("53300", StoreUnavailable, False, False),
        ("58030", StoreUnavailable, False, False),
        ("28P01", StoreUnavailable, False, False),
        ("3D000", StoreUnavailable, False, False),
        ("42501", StoreUnavailable, False, False),
        ("53100", StoreFull, False, False),
        ("XX001", StoreCorrupt, False, False),
        ("42P01", PlayheadError, False, False),
        ("23505", PlayheadError, False, False),
        (None, PlayheadError, False, False),
    ],
)
def test_every_report_has_a_name_of_ours(state, kind, lost, again):
    error = Reported(state)
    assert (connection_lost(error), rolled_back(error)) == (lost, again)
    told = typed(error, "PostgreSQL somewhere")
    assert type(told) is kind
    assert "somewhere" in told.message
    assert "DETAIL" not in told.message


def test_a_connection_that_breaks_says_no_more_than_that():
    assert connection_lost(psycopg.OperationalError("server closed the connection unexpectedly"))
    assert connection_lost(psycopg.InterfaceError("the connection is closed"))
    assert not connection_lost(psycopg.DataError("no"))
