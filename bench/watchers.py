"""Many viewers in one process: opens N streams, reads them all, and counts the marks it sees.

    python -m bench.watchers PORT PATH N MARK

Prints {"open": N} when every stream has its headers, then answers each line of standard input: `count` with the number
of marks seen, `quit` by ending.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys


def main() -> None:
    port, path, count, mark = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4].encode()
    selector = selectors.DefaultSelector()
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n\r\n".encode()
    tails: dict[socket.socket, bytes] = {}
    seen = opened = 0
    for _ in range(count):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(head)
        sock.setblocking(False)
        tails[sock] = b""
        selector.register(sock, selectors.EVENT_READ, sock)
    selector.register(sys.stdin, selectors.EVENT_READ)
    keep = len(mark) - 1
    answered: set[socket.socket] = set()
    while True:
        for key, _ in selector.select():
            if key.data is None:
                word = sys.stdin.readline().strip()
                if word in ("", "quit"):
                    return
                print(json.dumps({"seen": seen}), flush=True)
                continue
            sock = key.data
            try:
                data = sock.recv(262_144)
            except BlockingIOError:
                continue
            if not data:
                selector.unregister(sock)
                continue
            if sock not in answered:
                answered.add(sock)
                opened += 1
                if opened == count:
                    print(json.dumps({"open": opened}), flush=True)
            data = tails[sock] + data
            seen += data.count(mark)
            tails[sock] = data[-keep:] if keep else b""


if __name__ == "__main__":
    main()
