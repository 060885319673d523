"""Viewers of many runs, one each, in one process: how old events are when they arrive.

    python -m bench.ages PORT FILE

FILE is what `bench.serve_runs` wrote. Prints {"open": N} when every stream has its headers; each line of standard input
is answered by the events seen and their ages, in milliseconds. After `forget`, what was seen before counts no more.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import sys
import time
from pathlib import Path

AT = re.compile(rb'"payload":\{"at":([0-9.]+),')
KEEP = 60  # bytes that may be the beginning of one


def main() -> None:
    port = int(sys.argv[1])
    runs = [one[0] for one in json.loads(Path(sys.argv[2]).read_text())]
    selector = selectors.DefaultSelector()
    tails: dict[socket.socket, bytes] = {}
    ages: list[float] = []
    opened = 0
    answered: set[socket.socket] = set()

    def take(wait: float | None) -> bool:
        nonlocal opened
        for key, _ in selector.select(wait):
            sock = key.data
            if sock is None:
                word = sys.stdin.readline().strip()
                if not word:
                    return False
                if word == "forget":
                    ages.clear()
                found = sorted(ages)
                at = [found[int(len(found) * part)] if found else 0.0 for part in (0.5, 0.99)]
                print(json.dumps({"seen": len(found), "p50": at[0], "p99": at[1]}), flush=True)
                continue
            try:
                data = sock.recv(262_144)
            except BlockingIOError:
                continue
            now = time.time()
            if not data:
                selector.unregister(sock)
                continue
            if sock not in answered:
                answered.add(sock)
                opened += 1
                if opened == len(runs):
                    print(json.dumps({"open": opened}), flush=True)
            data = tails[sock] + data
            last = 0
            for mark in AT.finditer(data):
                ages.append(1000 * (now - float(mark[1])))
                last = mark.end()
            tails[sock] = data[max(last, len(data) - KEEP) :]
        return True

    selector.register(sys.stdin, selectors.EVENT_READ, None)
    for number, run in enumerate(runs):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(
            f"GET /runs/{run}/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        sock.setblocking(False)
        tails[sock] = b""
        selector.register(sock, selectors.EVENT_READ, sock)
        while number - opened > 200:  # no more at once than a server lets wait at its door
            take(1.0)
    while take(None):
        pass


if __name__ == "__main__":
    main()
