"""A server that plays a script, and a clock that stands still: what a client does is seen without waiting for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel

from playhead.client.clock import Clock

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
GONE = b"HTTP/1.1 204 No Content\r\n\r\n"
RUN = "01a20000-0000-7000-8000-000000000001"


class StillClock(Clock):
    """Sleeps are over at once and are noted in `waits`; limits are reached by `advance` alone."""

    def __init__(self, chance: float = 0.0) -> None:
        self.time, self.chance = 0.0, chance
        self.waits: list[float] = []
        self.limits: list[tuple[float, anyio.CancelScope]] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.time += seconds
        await anyio.lowlevel.checkpoint()

    def limit(self, seconds: float) -> anyio.CancelScope:
        scope = anyio.CancelScope()
        self.limits.append((self.time + seconds, scope))
        return scope

    def random(self) -> float:
        return self.chance

    async def limited(self, before: int) -> None:
        """Wait until something is waited for that was not among the limits so far."""
        while len(self.limits) <= before:
            await anyio.sleep(0.001)

    def advance(self, seconds: float) -> None:
        self.time += seconds
        for due, scope in self.limits:
            if due <= self.time:
                scope.cancel()


def event(number: int, kind: str = "step_taken", payload: Any = None, *, cursor: bool = True) -> bytes:
    data = {"id": f"e{number}", "type": kind, "version": number, "payload": payload or {}}
    return (f"id: 1-{number}.aa\n" if cursor else "").encode() + f"data: {json.dumps(data)}\n\n".encode()


def named(name: str, data: Any, id: str | None = None) -> bytes:
    return (f"id: {id}\n" if id else "").encode() + f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def state(version: int, status: str = "running", degraded: str | None = None) -> bytes:
    return named("state", {"snapshot": {"status": status, "version": version, "rev": 1}, "degraded": degraded})


def piece(offset: int, text: str, *, final: bool = False) -> dict[str, Any]:
    end = offset + len(text.encode())
    return {"part": "answer", "attempt": 1, "offset": offset, "end": end, "text": text, "final": final}


def text(offset: int, words: str) -> bytes:
    return named("text", piece(offset, words))


def screen(last: int = 0, status: str = "running", **more: Any) -> dict[str, Any]:
    """A bootstrap behind event `last`."""
    events = [json.loads(event(n).split(b"data: ")[1]) for n in range(1, last + 1)]
    return {
        "run": {"id": RUN, "status": status, "rev": 9 if status != "running" else 1, "result": None},
        "snapshot": {"status": status, "version": last, "rev": 1},
        "events": events,
        "cursor": f"1-{last}.aa",
        "timeline": {"complete": True, "has_older": False, "oldest": "e1" if events else None},
        "text": [],
        "interrupts": [],
        "degraded": None,
        **more,
    }


END = named("end", {"run_id": RUN, "status": "succeeded"}, "end")


def answer(document: Any, status: int = 200, **headers: Any) -> bytes:
    body = json.dumps(document).encode()
    lines = [f"HTTP/1.1 {status} Word", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def refusal(status: int, code: str, **headers: Any) -> bytes:
    return answer(
        {"code": code, "detail": "No.", "status": status, "retryable": status in (429, 503)}, status, **headers
    )


OVER = answer(screen(3, "succeeded"))  # how a run that has ended looks


@dataclass
class Script:
    """`asked` are the first lines of the requests, `heads` all of each."""

    url: str = ""
    asked: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def playing(*answers: bytes | Sequence[Any]) -> AsyncIterator[Script]:
    """Answer each connection with the next of these; then refuse all others. One that is a sequence is played item by
    item: bytes are sent, an event is waited for."""
    script = Script()
    rest = list(answers)

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            script.heads.append(head)
            script.asked.append(head.split("\r\n")[0])
            length = [line.split(": ")[1] for line in head.lower().split("\r\n") if line.startswith("content-length")]
            script.bodies.append(await reader.readexactly(int(length[0]) if length else 0))
            items: Any = rest.pop(0) if rest else refusal(404, "not_found")
            for item in [items] if isinstance(items, bytes) else items:
                if isinstance(item, bytes):
                    writer.write(item)
                    await writer.drain()
                else:
                    await item.wait()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(play, "127.0.0.1", 0)
    script.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield script
    finally:
        server.close()
