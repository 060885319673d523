"""The Redis servers for tests: there or said not to be, and gone afterwards."""

import os
import subprocess
import sys

import pytest
from redis.exceptions import ConnectionError

from playhead.testing.harness import redis
from playhead.testing.harness.process import ServerFailed, listens
from playhead.testing.harness.redis import Server, binary, given_url


@pytest.mark.parametrize(("flavor", "name"), [("redis", "redis_version"), ("valkey", "valkey_version")])
def test_a_server_answers_and_leaves_nothing(flavor, name):
    with Server(flavor) as server:
        assert server.ask("INFO", "server")[name]
        folder, port = server.folder, server.port
        server.process.kill()
        with pytest.raises(ConnectionError):
            server.ask("PING")
        server.start()
        assert server.ask("PING")
    assert not folder.exists()
    assert not listens(port)


def test_a_server_that_is_not_here_is_a_failure(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert binary("debian") is None
    with pytest.raises(ServerFailed, match="no debian server"):
        Server("debian")


def test_a_server_that_does_not_start_tells_why():
    server = Server("redis", ["--no-such-option", "x"])
    with pytest.raises(ServerFailed, match="no-such-option"):
        server.start()
    server.close()


def test_the_environment_may_name_a_server(monkeypatch):
    monkeypatch.setenv("TEST_REDIS_URL", "redis://127.0.0.1:1/2")
    monkeypatch.delenv("TEST_VALKEY_URL", raising=False)
    assert given_url("redis") == "redis://127.0.0.1:1/2"
    assert given_url("valkey") is None
    assert given_url("cluster") is None


def test_servers_end_with_the_process_that_started_them():
    script = """
import os, sys
from playhead.testing.harness.redis import Server
server = Server("redis")
server.start()
print(server.process.pid, server.folder, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    pid, folder = done.stdout.split()
    redis._await(lambda: not os.path.exists(f"/proc/{pid}") and not os.path.exists(folder))
