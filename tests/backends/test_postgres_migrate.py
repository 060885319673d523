"""The schema: who makes it, who refuses it."""

import asyncio

import psycopg
import pytest

from playhead.backends.postgres import PostgresRecord, migrate
from playhead.backends.postgres.database import Database
from playhead.backends.postgres.record import SCHEMA
from playhead.core.ids import EVERY_TENANT
from playhead.errors import PlayheadError, StoreTooNew, StoreTooOld, StoreUnavailable
from playhead.runtime.clock import SystemClock
from playhead.testing.harness.postgres import drop_database
from playhead.testing.harness.process import free_port
from tests.support.postgres import fresh_name

pytestmark = pytest.mark.anyio

FIRST = (
    "CREATE SCHEMA IF NOT EXISTS playhead; CREATE TABLE playhead.schema_step"
    " (version int PRIMARY KEY, name text NOT NULL, checksum text NOT NULL); CREATE TABLE playhead.a (n int);"
)


def step(number, kind, text):
    return migrate.Step(number, f"{number:03d}_{kind}_x", text)


STEPS = (
    step(1, "pre", FIRST),
    step(2, "pre", "-- a comment; with a semicolon\nCREATE TABLE playhead.b (n int);\nCREATE TABLE playhead.c (n int)"),
    step(3, "post", "DROP TABLE playhead.a;"),
    step(4, "pre", "CREATE TABLE playhead.d (n int);"),
)


@pytest.fixture
async def database(empty_dsn):
    made = Database(empty_dsn, max_size=4, deadline=30.0)
    yield made
    await made.close()


def tables(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'playhead'").fetchall()
    return {name for (name,) in found} - {"schema_step"}


async def test_steps_are_applied_in_order_and_once(database, empty_dsn):
    assert await migrate.missing(database, STEPS) == STEPS
    assert await migrate.apply(database, STEPS[:2]) == list(STEPS[:2])
    assert tables(empty_dsn) == {"a", "b", "c"}
    assert await migrate.missing(database, STEPS) == STEPS[2:]
    assert await migrate.apply(database, STEPS) == list(STEPS[2:])
    assert tables(empty_dsn) == {"b", "c", "d"}
    assert await migrate.apply(database, STEPS) == []
    assert await migrate.missing(database, STEPS) == ()


async def test_before_the_old_code_is_gone_nothing_is_taken_from_it(database, empty_dsn):
    assert await migrate.apply(database, STEPS, pre_only=True) == list(STEPS[:2])
    assert tables(empty_dsn) == {"a", "b", "c"}
    assert await migrate.apply(database, STEPS, pre_only=True) == []


async def test_many_at_once_apply_each_step_once(database, empty_dsn):
    done = await asyncio.gather(*(migrate.apply(database, STEPS) for _ in range(4)))
    assert sorted(step.version for some in done for step in some) == [1, 2, 3, 4]


async def test_a_step_that_fails_leaves_nothing(database, empty_dsn):
    broken = (*STEPS[:2], step(3, "pre", "CREATE TABLE playhead.e (n int); SELECT nonsense;"))
    with pytest.raises(PlayheadError):
        await migrate.apply(database, broken)
    assert tables(empty_dsn) == {"a", "b", "c"}
    assert [one.version for one in await migrate.missing(database, broken)] == [3]


async def test_the_script_does_the_same(database, empty_dsn):
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(migrate.script(STEPS[:2]).encode())
    assert tables(empty_dsn) == {"a", "b", "c"}
    assert await migrate.missing(database, STEPS) == STEPS[2:]
    assert migrate.script(()) == ""


async def test_code_works_beside_a_later_pre_step_and_without_a_post_step(database):
    await migrate.apply(database, STEPS[:2])
    await migrate.check(database, STEPS[:1])
    await migrate.check(database, STEPS[:3])
    with pytest.raises(StoreTooOld, match="playhead db upgrade") as caught:
        await migrate.check(database, STEPS)
    assert caught.value.details["missing"] == ["004_pre_x"]
    await migrate.apply(database, STEPS)
    with pytest.raises(StoreTooNew, match="003_post_x"):
        await migrate.check(database, STEPS[:2])
    with pytest.raises(StoreTooNew):
        await migrate.apply(database, STEPS[:2])


async def test_a_step_that_was_changed_is_noticed(database):
    await migrate.apply(database, STEPS[:1])
    changed = (step(1, "pre", FIRST + "\n"), *STEPS[1:])
    for act in (migrate.missing, migrate.check, migrate.apply):
        with pytest.raises(StoreTooNew, match="001_pre_x"):
            await act(database, changed)


async def test_who_reads_the_schema_is_not_held_up_for_long(database, empty_dsn):
    """A step that waits for a table would hold up everybody who comes after it."""
    await migrate.apply(database, STEPS[:2])
    with pytest.MonkeyPatch.context() as patch, psycopg.connect(empty_dsn) as reader:
        patch.setattr(migrate, "_LOCK_WAIT_MS", 50)
        reader.execute("SELECT * FROM playhead.a")
        with pytest.raises(StoreUnavailable, match="took too long"):
            await migrate.apply(database, STEPS)
    await migrate.apply(database, STEPS)


async def test_steps_have_a_number_and_a_kind(tmp_path):
    (tmp_path / "001_pre_first.sql").write_text("SELECT 1;")
    (tmp_path / "002_post_second.sql").write_text("SELECT 2;")
    assert [(one.version, one.pre) for one in migrate.load(tmp_path)] == [(1, True), (2, False)]
    for wrong in ("004_pre_gap.sql", "003_later_x.sql"):
        (tmp_path / wrong).write_text("")
        with pytest.raises(ValueError, match="not numbered"):
            migrate.load(tmp_path)
        (tmp_path / wrong).unlink()
    assert SCHEMA[0].name == "001_pre_first"


async def test_a_record_opens_only_on_its_schema(empty_dsn, database):
    with pytest.raises(StoreTooOld, match="playhead db upgrade"):
        await PostgresRecord.open(empty_dsn, clock=SystemClock(), wait=True)
    await migrate.apply(database, SCHEMA)
    record = await PostgresRecord.open(empty_dsn, clock=SystemClock())
    assert await record.list_runs(EVERY_TENANT) == []
    await record.close()
    later = (*SCHEMA, step(len(SCHEMA) + 1, "post", "DROP TABLE playhead.audit;"))
    await migrate.apply(database, later)
    with pytest.raises(StoreTooNew):
        await PostgresRecord.open(empty_dsn, clock=SystemClock())


async def test_a_record_may_be_made_before_its_database_is_there(empty_dsn, database):
    away = PostgresRecord.at(f"postgresql://127.0.0.1:{free_port()}/x", clock=SystemClock())
    with pytest.raises(StoreUnavailable):
        await away.list_runs(EVERY_TENANT)
    await away.close()
    record = PostgresRecord.at(empty_dsn, clock=SystemClock(), deadline=30.0)
    for _ in range(2):
        answers = await asyncio.gather(*(record.list_runs(EVERY_TENANT) for _ in range(5)), return_exceptions=True)
        assert {type(one) for one in answers} == {StoreTooOld}
    await migrate.apply(database, SCHEMA)
    assert await record.list_runs(EVERY_TENANT) == []
    await record.close()


async def test_a_database_of_another_encoding_is_refused(postgres_server):
    name = fresh_name()
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'".encode())
    try:
        dsn = psycopg.conninfo.make_conninfo(postgres_server, dbname=name)
        with pytest.raises(StoreUnavailable, match="SQL_ASCII"):
            await PostgresRecord.open(dsn, clock=SystemClock())
    finally:
        drop_database(postgres_server, name)


async def test_a_record_that_is_not_there_is_told_at_once_or_waited_for(postgres_dsn, monkeypatch, caplog):
    clock = SystemClock()
    away = f"postgresql://127.0.0.1:{free_port()}/x"
    with pytest.raises(StoreUnavailable):
        await PostgresRecord.open(away, clock=clock)
    real, tries = migrate.check, []

    async def check(database, steps):
        tries.append(1)
        if len(tries) < 3:
            raise StoreUnavailable("The server is starting.")
        await real(database, steps)

    monkeypatch.setattr(migrate, "check", check)
    record = await PostgresRecord.open(postgres_dsn, clock=clock, wait=True)
    assert len(tries) == 3
    assert caplog.text.count("The server is starting.") == 1
    await record.close()
