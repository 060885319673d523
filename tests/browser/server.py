"""A true server in a process of its own, that can be killed, and a proxy in front of it that can cut connections."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playhead.testing.harness.process import free_port

ROOT = Path(__file__).parents[2]
QUICK = {
    "lease": 2,
    "beat": 0.5,
    "retry": 0.3,
    "reconcile": 0.1,
    "drain_window": 0.2,
    "drain_grace": 0.5,
}
PATIENCE = 60.0
FINAL = ("succeeded", "failed", "cancelled", "interrupted")


class Calls:
    """What is asked of a server on this machine."""

    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def call(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.url + path, data, sent)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    @property
    def streams(self) -> int:
        """How many streams are open at the server."""
        with urllib.request.urlopen(f"{self.url}metrics", timeout=PATIENCE) as answer:
            lines = answer.read().decode().splitlines()
        return int(float(next(line for line in lines if line.startswith("playhead_streams_open ")).split()[1]))

    def history(self, run_id: str) -> list[str]:
        """The ids of all events of a run, oldest first."""
        ids: list[str] = []
        before = ""
        while True:
            page = self.call(f"runs/{run_id}/events?limit=200{before}")
            ids[:0] = [event["id"] for event in page["events"]]
            if not page["timeline"]["has_older"]:
                return ids
            before = f"&before={page['timeline']['oldest']}"

    def wait(self, run_id: str, *statuses: str) -> Any:
        """The run, once it has one of these statuses."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            run = self.call(f"runs/{run_id}")
            if run["status"] in statuses:
                return run
            if run["status"] in FINAL:
                break  # no other comes
            time.sleep(0.05)  # between two looks
        raise AssertionError(f"the run is {run['status']}: {run['error']}")


class Server(Calls):
    """Serves agents from `data` on one port, over any number of deaths; settings are in seconds."""

    def __init__(self, data: Path, agents: str | None = None, **settings: float) -> None:
        super().__init__(free_port())
        self.data = data
        self._agents = () if agents is None else (agents,)
        self._settings = {f"PLAYHEAD_{name.upper()}": str(value) for name, value in {**QUICK, **settings}.items()}
        self._gates = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "playhead", "serve", "--no-open", *self._agents]
        command += ["--data", str(self.data), "--port", str(self.port)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("PLAYHEAD_")}
        env |= self._settings
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env, cwd=ROOT)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                self.call("readyz")
                return
            assert self._process.poll() is None, "the server did not start"
            time.sleep(0.05)  # between two looks
        raise AssertionError("the server is not ready")

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def stop(self) -> None:
        self.end(signal.SIGTERM)

    def end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(PATIENCE)

    def run(self, **given: Any) -> str:
        """Start a licence review; its id."""
        return str(self.call("runs", {"agent": "licence_review", "input": given})["id"])

    def go(self, agent: str, **given: Any) -> tuple[str, Path]:
        """Start a run of one of `tests.browser.agents`: its id, and the file whose presence ends it."""
        self._gates += 1
        gate = self.data.with_name(f"{self.data.name}-gate-{self._gates}")
        return str(self.call("runs", {"agent": agent, "input": {"gate": str(gate), **given}})["id"]), gate


class Proxy:
    """Passes bytes on to a port. `idle`: after so many seconds without a byte it closes a connection."""

    def __init__(self, to: int, idle: float | None = None) -> None:
        self._to, self._idle = to, idle
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.idled = 0  # connections that were closed for that
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._passes = threading.Event()
        self._passes.set()
        self._refuses = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def cut(self) -> None:
        """Reset every connection that is open."""
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def shut(self) -> None:
        """Cut, and let nobody in before `open`."""
        self._refuses = True
        self.cut()

    def hold(self) -> None:
        """Leave every connection as it is, and pass nothing on before `open`."""
        self._passes.clear()

    def open(self) -> None:
        self._refuses = False
        self._passes.set()

    def close(self) -> None:
        self._listener.close()
        self.cut()
        self.open()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                refused = self._refuses
                if not refused:
                    self._open.add(near)  # `cut` is for those too that do not reach the port yet
            if refused:
                near.close()
            else:
                threading.Thread(target=self._pass, args=(near,), daemon=True).start()

    def _pass(self, near: socket.socket) -> None:
        try:
            self._pass_between(near)
        finally:
            with self._lock:
                self._open.discard(near)

    def _pass_between(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), self._connect(near) as far:
            pair = {near: far, far: near}
            with self._lock:
                self._open.add(far)
            try:
                while readable := select.select(list(pair), [], [], self._idle)[0]:
                    for one in readable:
                        data = one.recv(65536)
                        self._passes.wait()
                        if not data:
                            return
                        pair[one].sendall(data)
                self.idled += 1
            finally:
                with self._lock:
                    self._open.discard(far)

    def _connect(self, near: socket.socket) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._to))


class Socks(Proxy):
    """The way out of a browser for whatever it wants to reach: notes where to, and lets it through to one port."""

    def __init__(self, to: int) -> None:
        self.asked: list[str] = []
        super().__init__(to)

    def _connect(self, near: socket.socket) -> socket.socket:
        with near.makefile("rb") as said:
            said.read(said.read(2)[1])
            near.sendall(b"\x05\x00")
            kind = said.read(4)[3]
            size = {1: 4, 4: 16}.get(kind) or said.read(1)[0]
            host, port = said.read(size), int.from_bytes(said.read(2))
        name = host.decode() if kind == 3 else socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, host)
        self.asked.append(f"{name}:{port}")
        mine = (name, port) == ("127.0.0.1", self._to)
        near.sendall(bytes((5, 0 if mine else 2, 0, 1)) + bytes(6))
        if not mine:
            raise OSError("not let through")
        return super()._connect(near)
