"""What a viewer costs: memory while idle, and CPU of the server for connecting and getting a first event. Then many
viewers over Redis, each of a run of its own: how old events are when they arrive, and what a busy server needs.

python3 dev.py bench viewers [-- VIEWERS [RUNS RATE]]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from typing import Any

from bench import measure, redisload
from bench.fanout import ROUNDS, playhead_server, viewers
from playhead.testing.harness.redis import Server

SECONDS = 6.0
AIM = 10_000  # events a second
FIRST = '"type":"attempt_started"'


def one_round(count: int) -> tuple[float, float]:
    """Microseconds of CPU to connect one viewer, and KiB that it holds while nothing happens."""
    with playhead_server() as (server, port, path):
        with viewers(port, path, 50, FIRST):
            pass  # what is loaded once is no viewer's
        time.sleep(1.0)
        measure.tell(server, "rss")
        before = measure.line(server)["rss"]
        measure.tell(server, "cpu")
        cpu = measure.line(server)["cpu"]
        with viewers(port, path, count, FIRST):
            measure.tell(server, "cpu")
            used = measure.line(server)["cpu"] - cpu
            measure.tell(server, "rss")
            held = measure.line(server)["rss"] - before
    return 1e6 * used / count, held / 1024 / count


def over_redis(runs: int, rate: int) -> None:
    """One server process with a viewer on each of so many runs, and so many events a second in all."""
    with Server(redisload.FLAVOR) as store, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        port, file = measure.free_port(), f"{folder}/runs.json"
        server = measure.spawn("bench.serve_runs", str(port), store.url, str(runs), file)
        stack.callback(measure.stop, server)
        measure.line(server)
        cpu = asked(server)["cpu"]
        watching = measure.spawn("bench.ages", str(port), file)
        stack.callback(measure.stop, watching)
        measure.line(watching)
        connect = 1e6 * (asked(server)["cpu"] - cpu) / runs
        print(f"{runs:,} viewers on {runs:,} runs over Redis: {connect:.0f} us of CPU to connect one")
        publisher = measure.spawn("bench.publish_runs", store.url, file, str(rate), str(SECONDS))
        stack.callback(measure.stop, publisher)
        measure.line(publisher)
        asked(watching, "forget")
        cpu, busy = asked(server)["cpu"], redisload.server_cpu(store)
        sent = asked(publisher)
        measure.wait_for(lambda: asked(watching)["seen"] >= sent["sent"], "every event")
        told = asked(watching)
        cpu, busy = asked(server)["cpu"] - cpu, redisload.server_cpu(store) - busy
    seconds = sent["seconds"]
    print(
        f"{sent['sent'] / seconds:,.0f} events/s of {rate:,} wanted: server {cpu / seconds:.2f} cores, Redis "
        f"{busy / seconds:.2f}, publisher {sent['cpu'] / seconds:.2f}; age p50 {told['p50']:.0f} ms"
    )
    needed = AIM * cpu / sent["sent"]
    measure.report("many_runs_cores", needed, "cores of the server", peer=f"for {AIM:,} events/s, by CPU an event")
    measure.report("many_runs_p99_ms", told["p99"], "ms", peer="age at the viewer, all processes on these cores")


def asked(process: subprocess.Popen[str], word: str = "look") -> Any:
    measure.tell(process, word)
    return measure.line(process)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    runs, rate = (int(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 3 else (9_500, AIM)
    found = [one_round(count) for _ in range(ROUNDS)]
    measure.report("connect_us", statistics.median(one[0] for one in found), "us of CPU", peer="first event included")
    measure.report("idle_viewer_kib", statistics.median(one[1] for one in found), "KiB", peer="resident memory")
    over_redis(runs, rate)


if __name__ == "__main__":
    main()
