"""What the benches share: CPU of processes, medians over rounds, and the comparison with bench/targets.json."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TARGETS = Path(__file__).with_name("targets.json")
_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """CPU that a process and its threads used so far, its ended children included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return sum(int(fields[i]) for i in (11, 12, 13, 14)) / _TICK


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def spawn(*args: str) -> subprocess.Popen[str]:
    """A process of the bench itself, that speaks JSON lines on its standard output."""
    return subprocess.Popen([sys.executable, "-m", *args], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        raise SystemExit(f"{process.args!r} ended without an answer")
    return json.loads(text)


def tell(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def rounds(count: int, *variants: Callable[[], float]) -> list[list[float]]:
    """Run the variants in turn, `count` times: what drifts, drifts for all of them."""
    found: list[list[float]] = [[] for _ in variants]
    for _ in range(count):
        for results, variant in zip(found, variants, strict=True):
            results.append(variant())
    return found


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios, round by round."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def quiet() -> str:
    """How busy the machine was: figures from a busy one are upper bounds."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def report(name: str, value: float, unit: str, *, peer: str) -> None:
    """Print a figure beside its target, and how it stands to the best that was reached."""
    known = json.loads(TARGETS.read_text()).get(name)
    target = f"target {known['target']}" if known else "no target"
    best = f", best reached {known['reached']}" if known and known.get("reached") is not None else ""
    print(f"{name}: {value:.3g} {unit} ({peer}; {target}{best}; {quiet()})", flush=True)


def wait_for(check: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not check():
        if time.monotonic() > until:
            raise SystemExit(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.02)
