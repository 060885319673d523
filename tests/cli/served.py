"""Servers and commands as a person starts them: other processes."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
spawned: list[subprocess.Popen] = []
PATIENCE = 60.0  # seconds; a busy machine is slow, and nothing here is judged by time
COMMAND = [sys.executable, "-m", "playhead"]


def environment(**settings):
    """The test's own environment, with nothing of playhead's but these settings."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PLAYHEAD_")}
    env |= {f"PLAYHEAD_{name.upper()}": str(value) for name, value in settings.items()}
    return env | {"PYTHONUNBUFFERED": "1"}


@dataclass
class Served:
    """A running server."""

    process: Any
    url: str
    data: Path
    log: Path

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def end(self, timeout=PATIENCE):
        return self.process.wait(timeout)


def start(data, *, targets=("tests.cli.agents:every",), command="serve", **settings):
    """Start a server on a free port and wait for the line that says where it is."""
    settings = {"retry": 0.2, "drain_window": 0.2, "drain_grace": 0.5} | settings
    log = Path(data).with_name(f"{Path(data).name}.log")
    with log.open("a") as file:
        process = subprocess.Popen(
            [*COMMAND, command, *targets, "--port", "0", "--data", str(data), "--no-open"],
            cwd=ROOT,
            env=environment(**settings),
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], PATIENCE)
    line = process.stdout.readline() if readable else ""
    if not line.startswith("http://"):
        process.kill()
        process.wait()
        raise AssertionError(f"the server did not start: {line} {log.read_text()}")
    url = line.split()[0].split("/#")[0].rstrip("/")
    return Served(process, url, Path(data), log)


@contextmanager
def serving(data, **options):
    served = start(data, **options)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.process.kill()
        served.process.wait()
        served.process.stdout.close()


def spawn(*arguments, **options):
    """A command in a process of its own, not waited for."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=ROOT,
        env=environment(**options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    spawned.append(process)
    return process


def finished(process, timeout=PATIENCE):
    """Exit code, output and errors of a command."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the command did not end: {out} {err}") from None
    return process.returncode, out, err


def playhead(*arguments, **options):
    return finished(spawn(*arguments, **options))


def until(condition, timeout=PATIENCE):
    """Wait for something true, and return it."""
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)
    return found


def frames(output, name="event"):
    """The data of the frames of this name, from the output of `tail --json`."""
    return [one["data"] for line in output.splitlines() if (one := json.loads(line))["frame"] == name]
