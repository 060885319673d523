"""PostgreSQL and Redis by their addresses: a gateway, a worker, and commands beside them."""

import json
import signal

import pytest

from tests.cli.served import finished, frames, spawn, until
from tests.support import postgres, redis_servers


@pytest.fixture
def stores(monkeypatch):
    """The settings that name stores of this test's own, which are in the environment of commands here."""
    found = {
        "record": postgres.database(),
        "live": redis_servers.url("redis"),
        "live_prefix": redis_servers.prefix(),
    }
    for name, value in found.items():
        monkeypatch.setenv(f"PLAYHEAD_{name.upper()}", value)
    return found


def served(stores):
    """A gateway without a worker, and its address."""
    process = spawn("serve", "tests.cli.agents:every", "--no-worker", "--no-open", "--port", "0", **stores)
    line = process.stdout.readline()
    assert " serves " in line, process.stderr.read()
    return process, line.split()[0].rstrip("/")


def test_a_run_goes_through_a_gateway_and_a_worker(cli, stores):
    one, first = served(stores)
    two, second = served(stores)
    code, started, err = cli("run", "recite", "--url", first)
    assert (code, err) == (0, "")
    run = started.strip()
    assert json.loads(cli("show", run, "--url", second, "--json")[1])["status"] == "queued"
    working = spawn("worker", "tests.cli.agents:every", "--concurrency", "2", **stores)
    assert "2 at once" in working.stdout.readline()
    watching = spawn("tail", run, "--url", second, "--json")
    until(lambda: json.loads(cli("show", run, "--url", first, "--json")[1])["interrupts"])
    assert cli("approve", run, "--url", first)[0] == 0
    code, out, err = finished(watching)
    assert (code, err) == (0, "")
    assert frames(out)[-1]["type"] == "run_succeeded"
    assert cli("runs", "--json")[0] == 0  # from the record itself: no server is named
    [listed] = json.loads(cli("runs", "--json")[1])["runs"]
    assert (listed["id"], listed["status"]) == (run, "succeeded")
    for process in (working, one, two):
        process.send_signal(signal.SIGTERM)
        assert finished(process)[0] == 0


@pytest.mark.parametrize("agent", ["deaf", "clog"])
def test_a_worker_leaves_an_agent_behind_that_does_not_stop(cli, stores, agent):
    gateway, url = served(stores)
    quick = stores | {"drain_grace": 0.5, "cancel_grace": 0.2}
    working = spawn("worker", "tests.cli.agents:every", **quick)
    assert "at once" in working.stdout.readline()
    run = cli("run", agent, "--url", url)[1].strip()
    until(lambda: json.loads(cli("show", run, "--url", url, "--json")[1])["status"] == "running")
    working.send_signal(signal.SIGTERM)
    code, _, err = finished(working)
    assert (code, "Traceback" in err) == (0, False)
    assert json.loads(cli("show", run, "--url", url, "--json")[1])["status"] == "interrupted"
    gateway.send_signal(signal.SIGTERM)
    assert finished(gateway)[0] == 0


def test_a_command_that_needs_a_server_says_how_to_name_one(cli, stores):
    code, out, err = cli("run", "greet")
    assert (code, out) == (3, "")
    assert "PLAYHEAD_URL" in err


def test_doctor_looks_at_both_servers(cli, stores, monkeypatch):
    code, out, err = cli("doctor", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    record, *live = [one for one in found["findings"] if one["name"] in ("record", "live")]
    assert "0 runs have not ended" in record["message"]
    assert any("Redis" in one["message"] for one in live)
    monkeypatch.setenv("PLAYHEAD_LIVE", "redis://:hunter2@127.0.0.1:1/0")
    code, out, err = cli("doctor", "--json")
    assert (code, err) == (1, "")
    assert [one["level"] for one in json.loads(out)["findings"] if one["name"] == "live"] == ["fail"]
    assert "hunter2" not in out


def test_a_database_without_a_schema_is_told_of(cli, empty_dsn, stores, monkeypatch):
    monkeypatch.setenv("PLAYHEAD_RECORD", empty_dsn)
    code, out, err = cli("doctor")
    assert code == 1
    assert "playhead db upgrade" in out
    refused = spawn("serve", "tests.cli.agents:every", "--no-open", "--port", "0", **stores | {"record": empty_dsn})
    code, out, err = finished(refused)
    assert (code, out) == (2, "")
    assert "playhead db upgrade" in err


@pytest.mark.parametrize("name", ["PLAYHEAD_RECORD", "PLAYHEAD_LIVE"])
def test_an_address_that_is_none_is_refused_by_name(cli, stores, monkeypatch, name):
    monkeypatch.setenv(name, "http://127.0.0.1")
    reads = [["runs"], ["show", "x"]] if name == "PLAYHEAD_RECORD" else []  # the only store that a command reads
    target = "tests.cli.agents:every"
    for command in (["serve", "--no-open", "--port", "0", target], ["worker", target], *reads):
        code, out, err = cli(*command)
        assert (code, out) == (2, "")
        assert err.endswith("(invalid_setting)\n")
