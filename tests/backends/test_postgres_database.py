"""Transactions with a deadline over a bounded pool."""

import asyncio
import threading
import time

import psycopg
import pytest

from playhead.backends.postgres import pool as pools
from playhead.backends.postgres.database import Asked, Database
from playhead.errors import PlayheadError, StoreUnavailable
from playhead.testing.check import eventually
from playhead.testing.harness.process import free_port

pytestmark = pytest.mark.anyio

LONG = 30.0
SHORT = 0.3


@pytest.fixture
def database(postgres_dsn):
    return lambda max_size=2, deadline=LONG: Database(postgres_dsn, max_size=max_size, deadline=deadline)


@pytest.fixture
def look(postgres_dsn):
    """Ask the server by another connection."""

    def ask(statement):
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    yield ask
    ask(OTHERS.format("pg_terminate_backend(pid, 5000)"))
    ask("DROP TABLE IF EXISTS t")


OTHERS = "SELECT {} FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


async def test_what_was_answered_is_committed_and_what_raised_is_not(database, look):
    db = database()
    look("CREATE TABLE t (n int)")

    async def good(session):
        session.write("INSERT INTO t VALUES (%(n)s)", n=1)
        return await session.rows("SELECT n FROM t")

    async def bad(session):
        session.write("INSERT INTO t VALUES (%(n)s)", n=2)
        await session.rows("SELECT 1")
        raise KeyError

    assert await db.act(good) == [(1,)]
    with pytest.raises(KeyError):
        await db.act(bad)
    assert look("SELECT n FROM t") == [(1,)]
    assert await db.read(("SELECT n FROM t", {}), ("SELECT 7", {})) == [[(1,)], [(7,)]]
    await db.close()


async def test_what_is_read_together_is_of_one_moment(database, look):
    db = database()
    look("CREATE TABLE t (n int)")
    first, second = await db.read(
        ("SELECT count(*), pg_sleep(0.2) FROM t", {}),
        # By another session, in between.
        ("SELECT txid_current_if_assigned() IS NULL, current_setting('transaction_isolation')", {}),
    )
    assert first[0][0] == 0
    assert second == [(True, "repeatable read")]
    await db.close()


async def test_a_text_with_nul_finds_no_row_and_is_never_written(database, look):
    db = database()
    look("CREATE TABLE t (name text); INSERT INTO t VALUES ('a')")
    assert await db.read(("SELECT 1 FROM t WHERE name = %(n)s OR true", {"n": "a\0"}), ("SELECT 2", {})) == [[], [(2,)]]

    async def write(session):
        session.write("INSERT INTO t VALUES (%(n)s)", n="a\0")

    with pytest.raises(PlayheadError) as caught:
        await db.act(write)
    assert not isinstance(caught.value, StoreUnavailable)
    assert look("SELECT name FROM t") == [("a",)]
    await db.close()


async def test_connections_are_bounded_and_used_again(database, look):
    db = database(max_size=2)
    pids = [
        row[0][0][0]
        for row in await asyncio.gather(*(db.read(("SELECT pg_backend_pid(), pg_sleep(0.01)", {})) for _ in range(20)))
    ]
    assert 1 <= len(set(pids)) <= 2
    assert look(OTHERS.format("state")) == [("idle",)] * len(set(pids))
    await db.close()
    await eventually(lambda: look(OTHERS.format("pid")) == [])


async def test_waiting_for_a_connection_is_bounded_too(database):
    db = database(max_size=1, deadline=SHORT)
    gate = asyncio.Event()

    async def hold(session):
        await session.rows("SELECT 1")
        await gate.wait()

    holding = asyncio.create_task(db.act(hold))
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable):
        await db.read(("SELECT 1", {}))
    gate.set()
    with pytest.raises(StoreUnavailable):  # it held the line beyond its own deadline
        await holding
    db._deadline = LONG
    assert await db.read(("SELECT 1", {})) == [[(1,)]]
    await db.close()


async def test_turns_are_taken_in_order_and_given_on_by_who_left(database):
    db = database(max_size=1)
    gate, order = asyncio.Event(), []

    async def hold(session):
        await gate.wait()

    def asks(name):
        async def note(session):
            order.append(name)

        return asyncio.create_task(db.act(note))

    holding = asyncio.create_task(db.act(hold))
    await asyncio.sleep(0)
    waiting = [asks(name) for name in "abcd"]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[2].cancel()
    gate.set()
    await asyncio.gather(holding, *waiting, return_exceptions=True)
    assert order == ["b", "d"]
    # One that is cancelled in the very moment of its turn.
    gate.clear()
    holding = asyncio.create_task(db.act(hold))
    await asyncio.sleep(0)
    late = asks("e")
    await asyncio.sleep(0)
    gate.set()
    await holding
    late.cancel()
    await asyncio.wait([late])
    assert await db.read(("SELECT 1", {})) == [[(1,)]]
    await db.close()


async def test_loops_of_several_threads_share_the_connections(database):
    db = database(max_size=2)
    found: list[int] = []

    def run():
        async def many():
            return await asyncio.gather(*(db.read(("SELECT pg_backend_pid()", {})) for _ in range(20)))

        found.extend(row[0][0][0] for row in asyncio.run(many()))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    mine = await asyncio.gather(*(db.read(("SELECT pg_backend_pid()", {})) for _ in range(20)))
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert len(found) == 80
    assert len({*found, *(row[0][0][0] for row in mine)}) <= 2
    await db.close()


async def test_a_cancelled_call_leaves_nothing_open(database, look):
    db = database(max_size=1)
    look("CREATE TABLE t (n int)")
    begun = asyncio.Event()

    async def slow(session):
        session.write("INSERT INTO t VALUES (1)")
        await session.rows("SELECT 1")
        begun.set()
        await session.rows("SELECT pg_sleep(20)")

    task = asyncio.create_task(db.act(slow))
    await begun.wait()
    task.cancel()
    start = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - start < 10  # the statement would take longer
    assert await db.read(("SELECT count(*) FROM t", {})) == [[(0,)]]
    await db.close()


async def test_a_call_ends_at_its_deadline(database, look):
    db = database(deadline=SHORT)
    look("CREATE TABLE t (n int)")

    async def slow(session):
        session.write("INSERT INTO t VALUES (1)")
        await session.rows("SELECT pg_sleep(20)")

    start = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await db.act(slow)
    assert time.monotonic() - start < 10
    # The server gave up by itself: nothing of it goes on, or is kept.
    await eventually(lambda: ("active",) not in look(OTHERS.format("state")))
    assert look("SELECT count(*) FROM t") == [(0,)]
    await db.close()


async def test_bounds_are_of_the_transaction_alone(database):
    db = database(max_size=1, deadline=7.0)
    asked: Asked = (
        "SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')",
        {},
    )
    assert await db.read(asked) == [[("7s", "7s")]]
    with pytest.raises(PlayheadError):
        await db.read(("SELECT nonsense", {}))
    async with db_connection(db) as connection:
        cursor = await connection.execute("SHOW lock_timeout")
        assert await cursor.fetchone() == ("0",)
    await db.close()


def db_connection(db):
    class Borrowed:
        async def __aenter__(self):
            self.lent = await db._pool.lend(time.monotonic() + LONG)
            return self.lent.connection

        async def __aexit__(self, *error):
            db._pool.back(self.lent)

    return Borrowed()


async def test_a_connection_that_the_server_ended_is_not_used_again(database, look):
    db = database(max_size=3)
    sleep: Asked = ("SELECT pg_backend_pid(), pg_sleep(0.05)", {})
    before = {found[0][0][0] for found in await asyncio.gather(*(db.read(sleep) for _ in range(3)))}
    look(OTHERS.format("pg_terminate_backend(pid, 5000)"))
    # Not one call pays for it: a try on each of them would be two too many.
    ((found,),) = await db.read(sleep)
    assert found[0] not in before
    await db.close()


async def test_a_work_whose_connection_is_lost_is_done_again_once(database, look):
    db = database()
    look("CREATE TABLE t (n int)")
    tries = []

    async def lost_once(session):
        ((pid,),) = await session.rows("SELECT pg_backend_pid()")
        session.write("INSERT INTO t VALUES (1)")
        tries.append(pid)
        if len(tries) == 1:
            await asyncio.to_thread(look, f"SELECT pg_terminate_backend({pid}, 5000)")
        return await session.rows("SELECT n FROM t")

    assert await db.act(lost_once, repeatable=False) == [(1,)]
    assert len(tries) == 2
    assert look("SELECT n FROM t") == [(1,)]

    async def lost_always(session):
        ((pid,),) = await session.rows("SELECT pg_backend_pid()")
        tries.append(pid)
        await asyncio.to_thread(look, f"SELECT pg_terminate_backend({pid}, 5000)")
        await session.rows("SELECT 1")

    tries.clear()
    with pytest.raises(StoreUnavailable):
        await db.act(lost_always)
    assert len(tries) == 2
    await db.close()


async def test_of_two_that_block_each_other_both_succeed(database, look):
    db = database()
    look("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0), (2, 0)")
    met = {1: asyncio.Event(), 2: asyncio.Event()}

    def crossing(first, second):
        async def act(session):
            await session.rows(f"UPDATE t SET n = n + 1 WHERE id = {first} RETURNING 1")
            met[first].set()
            await met[second].wait()
            await session.rows(f"UPDATE t SET n = n + 1 WHERE id = {second} RETURNING 1")

        return act

    await asyncio.gather(db.act(crossing(1, 2)), db.act(crossing(2, 1)))
    assert look("SELECT n FROM t ORDER BY id") == [(2,), (2,)]
    await db.close()


async def test_an_end_that_was_not_answered_is_repeated_only_where_that_does_no_harm(database, look):
    db = database()
    look("CREATE TABLE t (n serial, pid int)")

    def act(repeatable):
        done: list[int] = []

        async def work(session):
            ((pid,),) = await session.rows("SELECT pg_backend_pid()")
            session.write("INSERT INTO t (pid) VALUES (%(pid)s)", pid=pid)
            if not done:
                done.append(pid)
                # With its end goes what ends the session: the answer to the end is lost.
                session.write("COMMIT")
                session.write("SELECT pg_terminate_backend(pg_backend_pid())")

        return db.act(work, repeatable=repeatable)

    await act(True)
    assert len(look("SELECT * FROM t")) == 2
    with pytest.raises(StoreUnavailable):
        await act(False)
    assert len(look("SELECT * FROM t")) == 3
    await db.close()


async def test_closing_lets_end_what_is_under_way(database):
    db = database()
    gate, ended = asyncio.Event(), []

    async def slow(session):
        await session.rows("SELECT 1")
        await gate.wait()
        ended.append(await session.rows("SELECT 2"))

    going = asyncio.create_task(db.act(slow))
    await asyncio.sleep(0)
    closing = asyncio.create_task(db.close())
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable):
        await db.read(("SELECT 1", {}))
    assert not closing.done()
    gate.set()
    await closing
    await going
    assert ended == [[(2,)]]
    await db.close()


async def test_closing_sends_away_who_waits(database):
    db = database(max_size=1)
    gate = asyncio.Event()

    async def hold(session):
        await gate.wait()

    going = asyncio.create_task(db.act(hold))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(db.read(("SELECT 1", {})))
    await asyncio.sleep(0)
    closing = asyncio.create_task(db.close())
    with pytest.raises(StoreUnavailable):
        await waiting
    gate.set()
    await asyncio.gather(going, closing)


async def test_old_connections_are_closed(database, look, monkeypatch):
    db = database(max_size=3)
    await asyncio.gather(*(db.read(("SELECT pg_sleep(0.05)", {})) for _ in range(3)))
    assert len(look(OTHERS.format("pid"))) == 3
    monkeypatch.setattr(pools, "IDLE_S", 0.0)
    await db.read(("SELECT 1", {}))
    await db.read(("SELECT 1", {}))
    await eventually(lambda: len(look(OTHERS.format("pid"))) <= 1)
    await db.close()


async def test_where_nobody_listens_a_call_fails_at_once():
    db = Database(f"postgresql://127.0.0.1:{free_port()}/x?user=secretary&password=hunter2", max_size=1, deadline=LONG)
    start = time.monotonic()
    with pytest.raises(StoreUnavailable) as caught:
        await db.read(("SELECT 1", {}))
    assert time.monotonic() - start < LONG / 2
    assert "127.0.0.1" in caught.value.message
    assert "hunter2" not in caught.value.message
    await db.close()


async def test_a_connection_that_was_given_up_is_closed_though_its_error_is_kept():
    """As a feed keeps why it is degraded."""
    given_up: asyncio.Queue[bool] = asyncio.Queue()

    async def silent(reader, writer):
        while await reader.read(1_024):
            pass
        writer.close()
        given_up.put_nowait(True)

    server = await asyncio.start_server(silent, "127.0.0.1", port := free_port())
    db = Database(f"postgresql://127.0.0.1:{port}/x?sslmode=disable&gssencmode=disable", max_size=2, deadline=SHORT)
    with pytest.raises(StoreUnavailable) as late:
        await db.read(("SELECT 1", {}))
    cancelled = asyncio.create_task(db.read(("SELECT 1", {})))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(cancelled), SHORT / 3)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError) as gone:
        await cancelled
    async with asyncio.timeout(LONG):
        assert [await given_up.get() for _ in (late, gone)] == [True, True]
    server.close()
    await db.close()


async def test_a_connection_that_fails_while_an_error_is_handled_ends_nobody_who_handles_it_too():
    """One error went to two tasks; what one of them then asks of a database that is away is no affair of the other."""
    shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    over, seen = asyncio.Event(), []
    db = Database(f"postgresql://127.0.0.1:{free_port()}/x", max_size=1, deadline=LONG)

    async def asks():
        try:
            await shared
        except ConnectionError:
            await asyncio.sleep(0)
            with pytest.raises(StoreUnavailable):
                await db.read(("SELECT 1", {}))

    async def waits():
        try:
            await shared
        except ConnectionError:
            try:
                await over.wait()
                seen.append("went on")
            finally:
                seen.append("ended")

    asking, waiting = asyncio.ensure_future(asks()), asyncio.ensure_future(waits())
    await asyncio.sleep(0)
    shared.set_exception(ConnectionError("it broke"))
    await asking
    assert seen == []
    over.set()
    await waiting
    assert seen == ["went on", "ended"]
    await db.close()


async def test_an_error_that_others_have_too_is_no_reason_to_end_them(monkeypatch):
    """As if the driver told two attempts of one failure: what is cleared is the attempt, not who it was told to."""
    shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    over, seen = asyncio.Event(), []

    async def waits():
        try:
            await shared
        except OSError:
            try:
                await over.wait()
                seen.append("went on")
            finally:
                seen.append("ended")

    async def connect(*given, **options):
        try:
            await shared
        except OSError as error:
            await asyncio.sleep(0)
            raise psycopg.OperationalError("no connection") from error

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", connect)
    db = Database("postgresql://127.0.0.1/x", max_size=1, deadline=LONG)
    call, waiting = asyncio.ensure_future(db.read(("SELECT 1", {}))), asyncio.ensure_future(waits())
    await asyncio.sleep(0)
    shared.set_exception(OSError("no such host"))
    with pytest.raises(StoreUnavailable):
        await call
    assert seen == []
    over.set()
    await waiting
    assert seen == ["went on", "ended"]
    await db.close()


@pytest.mark.parametrize("dsn", ["hello password=hunter2 x", "postgresql://a:hunter2@[/x"])
async def test_an_address_that_is_none_is_told_without_its_password(dsn):
    with pytest.raises(ValueError, match="no address") as caught:
        Database(dsn, max_size=1, deadline=1.0)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ValueError, match="one connection"):
        Database("postgresql://127.0.0.1/x", max_size=0, deadline=1.0)
