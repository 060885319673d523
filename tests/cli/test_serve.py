"""The server as a process: how it starts, what it refuses, and how it stops."""

import asyncio
import json
import re
import signal
import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from playhead import App, Settings
from playhead.cli.direct import DirectProtocol
from playhead.cli.listen import address_of, listen
from playhead.cli.server import Server
from tests.cli.agents import every
from tests.cli.served import PATIENCE, Served, frames, playhead, serving, until

NO_TRACE = "Traceback"


def serve(data, *arguments, **settings):
    return playhead(
        "serve", "tests.cli.agents:every", "--port", "0", "--data", data, "--no-open", *arguments, **settings
    )


def test_it_says_where_it_is_until_it_ends(tmp_path):
    with serving(tmp_path / "data") as served:
        info = json.loads((served.data / "server.json").read_text())
        assert (info["pid"], info["url"]) == (served.process.pid, served.url)
        assert served.data.stat().st_mode & 0o077 == 0
        served.signal(signal.SIGINT)
        assert served.end() == 0
        assert not (served.data / "server.json").exists()
        assert NO_TRACE not in served.log.read_text()


def test_a_port_that_is_taken_is_told_before_anything_is_made(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = serve(tmp_path / "data", "--port", port)
    assert (code, out) == (2, "")
    assert f"127.0.0.1:{port} is in use" in err
    assert err.endswith("(port_in_use)\n")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.row("F50")
def test_a_second_server_on_one_folder_is_refused(tmp_path):
    data = tmp_path / "data"
    with serving(data) as served:
        code, out, err = serve(data)
        assert (code, out) == (2, "")
        assert str(served.process.pid) in err
        assert err.endswith("(data_locked)\n")
        port = urlsplit(served.url).port
        code, _, err = serve(data, "--port", port)
        assert (code, f"{served.url} serves {data} already" in err) == (2, True)
        assert served.process.poll() is None
        assert playhead("run", "greet", "--data", data)[0] == 0


def test_a_folder_that_cannot_be_used_is_told(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for data in (tmp_path / "file", tmp_path / "file" / "data"):
        code, out, err = serve(data)
        assert (code, out) == (2, "")
        assert err.endswith("(folder_unusable)\n")
        assert err.count("\n") == 1


def no_database(data):
    return b"this is no database at all, and never was one. " * 100


def torn_page(data):
    return data[:8_192] + b"\xa5" * 4_096 + data[12_288:]


def nothing(data):
    return b""


@pytest.mark.row("F49")
@pytest.mark.parametrize(("stop", "damage"), [("end", no_database), ("end", torn_page), ("kill", nothing)])
def test_a_damaged_record_stops_the_start_and_is_left_alone(tmp_path, stop, damage):
    data = tmp_path / "data"
    with serving(data) as served:
        assert playhead("run", "greet", "--follow", "--data", data)[0] == 0
        if stop == "end":
            served.signal()
            served.end()
    record = data / "record.db"
    damaged = damage(record.read_bytes())
    record.write_bytes(damaged)
    code, out, err = serve(data)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith("(store_corrupt)")
    assert "record.db" in err
    assert NO_TRACE not in err
    assert record.read_bytes() == damaged
    code, out, err = playhead("doctor", "--data", data)
    assert (code, err) == (1, "")
    assert any(line.startswith("fail  record ") for line in out.splitlines())


def test_other_machines_are_not_taken_for_the_owner(tmp_path):
    code, out, err = serve(tmp_path / "data", "--host", "0.0.0.0")
    assert (code, out) == (2, "")
    assert "authenticate" in err
    assert err.endswith("(invalid_setting)\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("nothing", "module:attribute"),
        ("no.such.module:x", "There is no module no.such.module"),
        ("tests.cli.agents:nothing", "has no nothing"),
        ("tests.cli.agents:asyncio", "is not an agent"),
        ("tests.cli.broken:agent", "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_served_is_told(tmp_path, target, told):
    code, out, err = playhead("serve", target, "--port", "0", "--data", tmp_path / "data")
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_an_address_that_is_none_is_told(tmp_path):
    code, _, err = serve(tmp_path / "data", "--host", "127.0.0.300")
    assert code == 2
    assert NO_TRACE not in err


def test_an_app_brings_its_own_settings(tmp_path):
    with serving(tmp_path / "data", targets=("tests.cli.apps:app",)) as served:
        assert playhead("run", "greet", "--data", served.data)[0] == 0


def test_the_demo_starts_one_review_and_prints_its_page(tmp_path):
    data = tmp_path / "demo"
    with serving(data, command="demo", targets=()) as served:
        found = json.loads(playhead("runs", "--json", "--data", data)[1])["runs"]
        assert [one["agent"] for one in found] == ["licence_review"]
        served.process.kill()
        served.process.wait()
    with serving(data, command="demo", targets=()) as served:
        assert len(json.loads(playhead("runs", "--json", "--data", data)[1])["runs"]) == 1
        served.signal()
        assert served.end() == 0
        assert served.process.stdout.read() == ""  # the address was its only line


class Watcher:
    """A raw reader of a stream."""

    def __init__(self, served, run_id):
        parts = urlsplit(served.url)
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE)
        request = f"GET /runs/{run_id}/stream HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: text/event-stream\r\n\r\n"
        self.socket.sendall(request.encode())
        self.got = b""

    def until(self, words):
        while words not in self.got:
            self.got += self.socket.recv(65_536) or pytest.fail(f"closed before {words!r}: {self.got!r}")

    def rest(self):
        while more := self.socket.recv(65_536):
            self.got += more
        self.socket.close()
        return self.got


@pytest.mark.row("BR-68")
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_open_streams_do_not_hold_up_a_stop(tmp_path, stop):
    grace = 3
    with serving(tmp_path / "data", drain_grace=grace, drain_window=1, retry=3) as served:
        active = playhead("run", "last", "--data", served.data)[1].strip()
        watchers = [Watcher(served, active) for _ in range(20)]
        for one in watchers:
            one.until(b'"type":"begun"')
        began = time.monotonic()
        served.signal(stop)
        endings = [one.rest() for one in watchers]
        code = served.end()
        took = time.monotonic() - began
        log = served.log.read_text()
    assert (code, NO_TRACE in log) == (0, False)
    assert took < grace + 2
    for got in endings:
        assert got.endswith(b"0\r\n\r\n")  # closed, not cut
        assert b"event: draining" in got
        assert b"event: end" not in got
        assert b"run_interrupted" not in got
    told = {re.findall(rb"retry: (\d+)\n", got)[-1] for got in endings}
    assert len(told) > 10  # each has its own time to come back
    code, out, _ = playhead("show", active, "--json", "--data", served.data)
    assert (code, json.loads(out)["status"]) == (0, "interrupted")


@pytest.mark.parametrize(("delivery", "is_direct"), [("direct", True), ("asgi", False)])
def test_the_setting_says_how_streams_come_to_sockets(tmp_path, delivery, is_direct):
    async def ready():
        pass

    server = Server(App(every, settings=Settings(data=tmp_path / "data", delivery=delivery)), ready)
    server.config.load()
    assert issubclass(server.config.http_protocol_class, DirectProtocol) is is_direct


@pytest.mark.row("BR-68")
def test_a_server_in_a_thread_stops_as_well(tmp_path):
    app = App(every, settings=Settings(data=tmp_path / "data", drain_window=0.2, drain_grace=0.2))
    taken = listen("127.0.0.1", 0, send_buffer=65_536, silence=30)
    address = address_of(taken)
    up = threading.Event()
    started: list[str] = []

    async def ready():
        app.announce(address)
        started.append((await app.start("last")).id)
        up.set()

    server = Server(app, ready)

    async def serve():
        await server.serve(sockets=[taken])
        await app.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert up.wait(PATIENCE)
    served = Served(None, address, tmp_path / "data", tmp_path / "log")
    watchers = [Watcher(served, started[0]) for _ in range(3)]
    for one in watchers:
        one.until(b'"type":"begun"')
    server.stop()
    assert all(b"event: end" not in one.rest() for one in watchers)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert json.loads(playhead("show", started[0], "--json", "--data", served.data)[1])["status"] == "interrupted"


@pytest.mark.parametrize("agent", ["deaf", "block", "clog"])
def test_an_agent_that_does_not_stop_is_left_behind(tmp_path, agent):
    with serving(tmp_path / "data", cancel_grace=0.2) as served:
        started = playhead("run", agent, "--data", served.data)[1].strip()
        until(lambda: '"running"' in playhead("show", started, "--json", "--data", served.data)[1])
        served.signal()
        assert served.end() == 0
        assert NO_TRACE not in served.log.read_text()
        assert not (served.data / "server.json").exists()
        assert not list(served.data.glob("*-wal"))  # both files were closed
    assert json.loads(playhead("show", started, "--json", "--data", served.data)[1])["status"] == "interrupted"


def test_listeners_that_never_return_do_not_hold_up_a_stop(tmp_path):
    with serving(tmp_path / "data", targets=("tests.cli.apps:hanging",)) as served:
        started = playhead("run", "greet", "--follow", "--data", served.data)[1].split()[0]
        served.signal()
        assert served.end() == 0
        assert not (served.data / "server.json").exists()
        assert not list(served.data.glob("*-wal"))
    assert json.loads(playhead("show", started, "--json", "--data", served.data)[1])["status"] == "succeeded"


def test_a_run_that_ends_within_the_grace_is_finished(tmp_path):
    with serving(tmp_path / "data", drain_grace=30) as served:
        started = playhead("run", "walk", "--input", '{"count": 20, "pause": 0.1}', "--data", served.data)[1].strip()
        served.signal()
        assert served.end() == 0
    assert json.loads(playhead("show", started, "--json", "--data", served.data)[1])["status"] == "succeeded"


def test_a_second_signal_hurries(tmp_path):
    with serving(tmp_path / "data", drain_grace=600, drain_window=600) as served:
        active = playhead("run", "last", "--data", served.data)[1].strip()
        watcher = Watcher(served, active)
        watcher.until(b'"type":"begun"')
        served.signal()
        time.sleep(1)
        assert served.process.poll() is None
        served.signal()
        assert served.end() == 0
        assert b"event: end" not in watcher.rest()
        assert NO_TRACE not in served.log.read_text()
    assert json.loads(playhead("show", active, "--json", "--data", served.data)[1])["status"] == "interrupted"


def test_while_it_drains_it_takes_no_work_and_says_so(tmp_path):
    with serving(tmp_path / "data", drain_grace=600, drain_window=1) as served:
        playhead("run", "last", "--data", served.data)
        served.signal()
        code, _, err = until(lambda: (found := playhead("run", "greet", "--data", served.data))[0] and found)
        assert code == 2
        assert "(not_ready)" in err
        served.signal()
        assert served.end() == 0


def test_the_file_limit_is_raised(server):
    limits = Path(f"/proc/{server.process.pid}/limits")
    if limits.exists():
        line = next(line for line in limits.read_text().splitlines() if line.startswith("Max open files"))
        soft, hard = line.split()[3:5]
        assert soft == "unlimited" or int(soft) >= min(10_000, int(hard) if hard.isdigit() else 10_000)


def test_queries_are_in_no_log(server, cli):
    started = cli("run", "greet", "--data", server.data)[1].strip()
    code, out, _ = cli("tail", started, "--json", "--data", server.data)
    assert (code, bool(frames(out))) == (0, True)
    assert "resync=inline" not in server.log.read_text()


def test_a_worker_needs_stores_that_can_be_shared(cli):
    code, out, err = cli("worker", "tests.cli.agents:every")
    assert (code, out) == (2, "")
    assert "use `playhead serve`" in err
