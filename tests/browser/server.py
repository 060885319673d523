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
from pathlib import Path
from typing import Any

QUICK = {
    "PLAYHEAD_LEASE": "2",
    "PLAYHEAD_BEAT": "0.5",
    "PLAYHEAD_RETRY": "0.3",
    "PLAYHEAD_RECONCILE": "0.1",
    "PLAYHEAD_DRAIN_WINDOW": "0.2",
    "PLAYHEAD_DRAIN_GRACE": "0.5",
}
PATIENCE = 60.0


class Server:
    """Serves the demo agents from `data` on one port, over any number of deaths."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        command = [sys.executable, "-m", "playhead", "serve", "--no-open"]
        command += ["--data", str(self.data), "--port", str(self.port)]
        env = {name: value for name, value in os.environ.items() if not name.startswith("PLAYHEAD_")} | QUICK
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                self.call("readyz")
                return
            assert self._process.poll() is None, "the server did not start"
            time.sleep(0.05)
        raise AssertionError("the server is not ready")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(PATIENCE)

    def call(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def run(self, **given: Any) -> str:
        """Start a licence review; its id."""
        return str(self.call("runs", {"agent": "licence_review", "input": given})["id"])

    def wait(self, run_id: str, *statuses: str) -> Any:
        """The run, once it has one of these statuses."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            run = self.call(f"runs/{run_id}")
            if run["status"] in statuses:
                return run
            time.sleep(0.05)
        raise AssertionError(f"the run is {run['status']}")


class Proxy:
    """Passes bytes on to a port. `cut` resets every connection that is open."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(near,), daemon=True).start()

    def _pass(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._to)) as far:
            pair = {near: far, far: near}
            with self._lock:
                self._open |= pair.keys()
            try:
                while True:
                    for one in select.select(list(pair), [], [])[0]:
                        data = one.recv(65536)
                        if not data:
                            return
                        pair[one].sendall(data)
            finally:
                with self._lock:
                    self._open -= pair.keys()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])
