"""Server processes for tests: forked from one that has imported everything, so that a start costs next to nothing."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.wire import PATIENCE, Client

ROOT = Path(__file__).parents[2]


class Server:
    """One server process. `code` is its exit code once it has ended, negative for a signal."""

    def __init__(self, pid: int, data: Path) -> None:
        self.pid, self.data = pid, data
        self.code: int | None = None
        self.url: str | None = None

    @property
    def client(self) -> Client:
        assert self.url is not None
        return Client("127.0.0.1", int(self.url.rpartition(":")[2]))

    @property
    def log(self) -> str:
        path = self.data.with_name(self.data.name + ".log")
        return path.read_text() if path.exists() else ""

    def signal(self, number: int = signal.SIGKILL) -> None:
        """To this process alone; its nursery reaps it, so that its number is not another's before `code` is known."""
        if self.code is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass  # reaped just now

    async def ready(self) -> Server:
        """Return once it answers; fails with its log when it ends before."""
        async with asyncio.timeout(PATIENCE):
            while self.url is None:
                assert self.code is None, (self.code, self.log)
                await asyncio.sleep(0.005)
        return self

    async def ended(self, wait: float = PATIENCE) -> int:
        async with asyncio.timeout(wait):
            while self.code is None:
                await asyncio.sleep(0.005)
        return self.code


class Nursery:
    """Close it: that ends the servers which still run."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.support.killable", "--nursery"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._born: queue.Queue[int] = queue.Queue()
        self._servers: dict[int, Server] = {}
        self._told: dict[int, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, data: Path, *arguments: str, port: int = 0) -> Server:
        """Start a server on this folder; what it writes to its standard error is in `<data>.log`."""
        line: Sequence[str] = ["--data", str(data), "--port", str(port), *arguments]
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        self._process.stdin.flush()
        pid = self._born.get(timeout=60.0)
        server = Server(pid, data)
        with self._lock:
            self._servers[pid] = server
            self._tell(server, self._told.pop(pid, {}))
        return server

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30.0)
        self._reader.join(5.0)
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if "born" in said:
                self._born.put(said["born"])
                continue
            pid = said.get("ready") or said["ended"]
            with self._lock:
                if pid in self._servers:
                    self._tell(self._servers[pid], said)
                else:  # quicker than the answer to its birth
                    self._told.setdefault(pid, {}).update(said)

    def _tell(self, server: Server, said: dict[str, Any]) -> None:
        server.url = said.get("url", server.url)
        if "code" in said:
            server.code = said["code"]
            del self._servers[server.pid]
