"""What a viewer costs: memory while idle, and CPU of the server for connecting and getting a first event.

python3 dev.py bench viewers [VIEWERS]
"""

from __future__ import annotations

import statistics
import sys
import time

from bench import measure
from bench.fanout import ROUNDS, playhead_server, viewers

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


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    found = [one_round(count) for _ in range(ROUNDS)]
    measure.report("connect_us", statistics.median(one[0] for one in found), "us of CPU", peer="first event included")
    measure.report("idle_viewer_kib", statistics.median(one[1] for one in found), "KiB", peer="resident memory")


if __name__ == "__main__":
    main()
