"""PostgreSQL for tests: one server per session, and in it a database that each test has for itself.

`TEST_POSTGRES_DSN` names a server to use in place of one that is started here; its account must be allowed to make
databases there.
"""

import asyncio
import atexit
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import psycopg
import pytest

from playhead.testing.harness.postgres import Postgres, drop_database, make_database

_numbers = itertools.count(1)

# Of an earlier test that was not tidy.
_ALONE = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_TABLES = """
SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
WHERE schemaname = 'playhead' AND tablename <> 'schema_step'
"""


def fresh_name() -> str:
    return f"playhead_test_{os.getpid()}_{next(_numbers)}"


@cache
def _server() -> str:
    """The DSN of a server that lives as long as this process."""
    given = os.environ.get("TEST_POSTGRES_DSN")
    if given is None:
        server = Postgres()
        atexit.register(server.close)
        given = server.dsn()
    return given


@pytest.fixture(scope="session")
def postgres_server() -> str:
    """The DSN of a server."""
    return _server()


@pytest.fixture(scope="session")
def postgres_database(postgres_server: str) -> Iterator[str]:
    """The DSN of a database with the whole schema, which one test after the other has for itself."""
    name = fresh_name()
    dsn = make_database(postgres_server, name)
    try:
        with ThreadPoolExecutor(1) as aside:  # whoever asks for this may have a loop of its own
            aside.submit(lambda: asyncio.run(upgrade(dsn))).result()
        yield dsn
    finally:
        drop_database(postgres_server, name)


@pytest.fixture
def postgres_dsn(postgres_database: str) -> str:
    """A database with the whole schema and nothing in it, to which nobody else is connected."""
    empty(postgres_database)
    return postgres_database


def empty(dsn: str) -> None:
    """Take everything out of a database but its schema, and everybody else off it."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_ALONE)
        tables = [name for (name,) in connection.execute(_TABLES)]
        connection.execute(f"TRUNCATE {', '.join(tables)} RESTART IDENTITY".encode())


@pytest.fixture
def sql(postgres_dsn: str) -> Callable[..., list[tuple[Any, ...]]]:
    """Ask the database past all that is tested."""

    def ask(statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    return ask


@pytest.fixture
def empty_dsn(postgres_server: str) -> Iterator[str]:
    """A database without a schema."""
    name = fresh_name()
    try:
        yield make_database(postgres_server, name)
    finally:
        drop_database(postgres_server, name)


@cache
def _template() -> str:
    """The name of a database with the whole schema that others are copied from."""
    name = fresh_name()
    dsn = make_database(_server(), name)
    with ThreadPoolExecutor(1) as aside:  # whoever asks for this may have a loop of its own
        aside.submit(lambda: asyncio.run(upgrade(dsn))).result()
    return name


def database() -> str:
    """The DSN of a database with the whole schema, which nobody else uses."""
    return make_database(_server(), fresh_name(), template=_template())


async def upgrade(dsn: str) -> None:
    from playhead.backends.postgres import migrate
    from playhead.backends.postgres.database import Database
    from playhead.backends.postgres.record import SCHEMA

    database = Database(dsn, max_size=1, deadline=60.0)
    try:
        await migrate.apply(database, SCHEMA)
    finally:
        await database.close()
