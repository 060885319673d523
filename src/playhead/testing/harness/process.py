"""Server processes for tests: started, awaited and stopped by their id, and gone when whoever started them is gone."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from time import monotonic

PATIENCE = 30.0  # seconds for a server to answer, or to end
_LOOK = 0.01

# Ends the server and removes its folder once the pipe to its standard input closes. That happens however the
# process that holds the other end of it ends.
_WATCH = """
read -r line
kill -s "$2" "$1"; kill -s CONT "$1"
for i in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$1" || break; sleep 0.2; done
kill -s KILL "$1"
rm -rf -- "$3"
"""


_SLICES, _SLICE = 24, 500
_ports: list[int] = []  # of this process's slice, not given away yet


class ServerFailed(Exception):
    """A server did not start, or ended by itself. The message has the end of its log."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has.

    It is below those that the system lends to clients: a client that keeps calling a server which is away must not be
    lent the server's own port, and so speak to itself. Until its server listens nobody can see that a port is given
    away, so processes with neighbouring numbers draw from different ones, and each draws a port again only after all.
    """
    while True:
        if not _ports:
            first = 20_000 + os.getpid() % _SLICES * _SLICE
            _ports.extend(random.SystemRandom().sample(range(first, first + _SLICE), _SLICE))
        port = _ports.pop()
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def listens(port: int) -> bool:
    """Whether somebody takes connections at this port of 127.0.0.1."""
    with socket.socket() as one:
        one.settimeout(1.0)
        return one.connect_ex(("127.0.0.1", port)) == 0


class Process:
    """One server process. Every method may be called in every state; none returns before it is done."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        folder: Path,
        ready: Callable[[], bool],
        env: Mapping[str, str] | None = None,
        user: int | None = None,
        ends_by: signal.Signals = signal.SIGTERM,
        patience: float = PATIENCE,
    ) -> None:
        """Describe a server; `start` starts it.

        `folder` exists and is the server's own: its working folder, the place of its log, removed by `close`.
        `ready` is asked until it answers true. `user` is the account to run as, where the caller may choose.
        `ends_by` is the signal that ends the server quickly and without a trace.
        """
        self.folder, self.log_file = folder, folder / "server.log"
        self._command = [str(part) for part in command]
        self._ready, self._ends_by, self._patience = ready, ends_by, patience
        self._env = {**os.environ, **(env or {})}
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Raises ServerFailed if it was not started."""
        if self._process is None:
            raise ServerFailed(f"{self._command[0]} was not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def start(self) -> None:
        """Start it, again after it ended, and return when it is ready. Raises ServerFailed."""
        if self.running:
            return
        self._reap()
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is for the tests, which then stop their servers
                user=self._user,
                group=self._user,
                extra_groups=None if self._user is None else [],
            )
        self._watch = subprocess.Popen(
            ["sh", "-c", _WATCH, "watch", str(self.pid), self._ends_by.name.removeprefix("SIG"), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._await(self._ready, "did not become ready")
        except BaseException:
            self.kill()
            raise

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process alone; to one that ended, nothing."""
        if self._process is not None:
            self._process.send_signal(number)

    def pause(self) -> None:
        """Let it and its children hold still, connections open, until `resume`."""
        self.send(signal.SIGSTOP)  # first: from then on it has no more children
        self._send_to_children(signal.SIGSTOP)

    def resume(self) -> None:
        self._send_to_children(signal.SIGCONT)
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash does, and keep its folder."""
        self.send(signal.SIGKILL)
        self._reap()

    def stop(self) -> None:
        """End it as it wishes to be ended, and keep its folder. Raises ServerFailed, with the server killed."""
        self.send(self._ends_by)
        self.resume()
        try:
            self._await(lambda: not self.running, "did not end", ended_is_bad=False)
        finally:
            self.kill()

    def close(self) -> None:
        """Stop it and remove its folder."""
        try:
            self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _send_to_children(self, number: signal.Signals) -> None:
        if not self.running:
            return
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended just now
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(int(child), number)

    def _reap(self) -> None:
        """Wait for what was ended; only then its number may be another's, and its watch must not use it any more."""
        if self._process is not None:
            self._process.wait(self._patience)
        if self._watch is not None:
            self._watch.kill()
            self._watch.wait(self._patience)
            assert self._watch.stdin is not None
            self._watch.stdin.close()
            self._watch = None

    def _await(self, condition: Callable[[], bool], complaint: str, *, ended_is_bad: bool = True) -> None:
        end, pause = monotonic() + self._patience, Event()
        while not condition():
            if ended_is_bad and not self.running:
                raise ServerFailed(f"{self._command[0]} ended\n{self.log[-4_000:]}")
            if monotonic() > end:
                raise ServerFailed(f"{self._command[0]} {complaint}\n{self.log[-4_000:]}")
            pause.wait(_LOOK)
