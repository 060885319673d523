"""`playhead db`: the schema of a PostgreSQL record, made, looked at and printed."""

import sys

import psycopg
import pytest

from playhead.backends.postgres.record import SCHEMA
from playhead.testing.harness.process import free_port

NAMES = [step.name for step in SCHEMA]


def tables(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'playhead'").fetchall()[0][0]


def test_a_database_is_made_ready_step_by_step(cli, empty_dsn, monkeypatch):
    monkeypatch.setenv("PLAYHEAD_RECORD", empty_dsn)
    assert cli("db", "check") == (1, "".join(f"missing {name}\n" for name in NAMES), "")
    assert tables(empty_dsn) == 0
    assert cli("db", "upgrade") == (0, "".join(f"applied {name}\n" for name in NAMES), "")
    assert tables(empty_dsn) > 5
    assert cli("db", "check") == (0, "up to date\n", "")
    assert cli("db", "upgrade") == (0, "nothing to do\n", "")
    assert cli("db", "upgrade", "--pre") == (0, "nothing to do\n", "")
    assert cli("db", "sql") == (0, "", "")


def test_what_is_printed_makes_the_same(cli, empty_dsn):
    code, script, _ = cli("db", "sql", "--record", empty_dsn)
    assert code == 0
    assert tables(empty_dsn) == 0
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(script.encode())
    assert cli("db", "check", "--record", empty_dsn) == (0, "up to date\n", "")


def test_the_database_may_be_named_in_the_settings(cli, empty_dsn, tmp_path, monkeypatch):
    monkeypatch.delenv("PLAYHEAD_RECORD", raising=False)
    file = tmp_path / "settings.toml"
    file.write_text(f'record = "{empty_dsn}"\nlive = "redis://127.0.0.1:1"\n')
    assert cli("db", "check", "--settings", file)[0] == 1
    code, out, err = cli("db", "check")
    assert (code, out) == (2, "")
    assert "--record" in err


@pytest.mark.parametrize("command", ["upgrade", "check", "sql"])
def test_a_database_that_is_not_there_is_told_in_one_line(cli, command):
    code, out, err = cli("db", command, "--record", f"postgresql://ann:hunter2@127.0.0.1:{free_port()}/x")
    assert (code, out) == (2, "")
    assert "store_unavailable" in err
    assert len(err.splitlines()) == 1
    assert "hunter2" not in err


def test_a_newer_database_is_left_as_it_is(cli, empty_dsn):
    assert cli("db", "upgrade", "--record", empty_dsn)[0] == 0
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO playhead.schema_step VALUES (900, '900_post_x', 'x')")
    for command in ("upgrade", "check", "sql"):
        code, out, err = cli("db", command, "--record", empty_dsn)
        assert (code, out) == (2, "")
        assert "900_post_x" in err
        assert "store_too_new" in err


def test_without_the_driver_it_is_said_what_to_install(cli, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("playhead.backends.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    code, _, err = cli("db", "check", "--record", "postgresql://127.0.0.1/x")
    assert code == 2
    assert "pip install 'playhead[postgres]'" in err


def test_an_address_that_is_none_is_told(cli):
    code, _, err = cli("db", "check", "--record", "no address")
    assert code == 2
    assert "no address of a PostgreSQL database" in err
