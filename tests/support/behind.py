"""What is done to a live store behind its back, and what it holds, on each backend alike."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import redis

from playhead.app import App
from playhead.core.ids import Feed


def memory(app: App) -> bool:
    return hasattr(app.engine.ports.live, "lose")


async def flush(app: App) -> None:
    """Lose everything."""
    live: Any = app.engine.ports.live
    if memory(app):
        live.lose()
    elif app.settings.live is None:
        await live.flush()
    else:
        flush_server(app)


def flush_server(app: App) -> None:
    """Also of an app that is closed."""
    with server(app) as client:
        client.flushall()


async def remember(app: App, folder: Path) -> Any:
    """What it holds now, for `go_back`."""
    live: Any = app.engine.ports.live
    if memory(app):
        return live.copy()
    if app.settings.live is None:
        await live.copy(folder / "earlier.db")
        return folder / "earlier.db"
    with server(app) as client:
        return [(name, max(0, client.pttl(name)), client.dump(name)) for name in names(app, client)]


async def go_back(app: App, earlier: Any) -> None:
    live: Any = app.engine.ports.live
    if memory(app):
        live.restore(earlier)
    elif app.settings.live is None:
        await live.restore(earlier)
    else:
        with server(app) as client:
            if held := names(app, client):
                client.delete(*held)
            for name, left, value in earlier:
                client.restore(name, left, value)


def forget(app: App, feed: Feed, position: int | None = None) -> None:
    """Take one entry out of a timeline, or all."""
    live: Any = app.engine.ports.live
    if memory(app):
        rows = live._held[feed].rows
        before = len(rows)
        rows[:] = [row for row in rows if position is not None and row.entry.position != position]
        assert len(rows) < before
    elif app.settings.live is None:
        where, values = ("", ()) if position is None else (" WHERE position = ?", (position,))
        with closing(sqlite3.connect(live.path)) as db, db:
            assert db.execute(f"DELETE FROM entry{where}", values).rowcount > 0
    else:
        with server(app) as client:
            [events] = [name for name in names(app, client) if name.endswith(b"{%b}:events" % feed.id.encode())]
            ids = [id for id, _ in client.xrange(events) if position in (None, int(id.split(b"-")[1]))]
            assert client.xdel(events, *ids) > 0


def snapshots(app: App) -> list[bytes]:
    """Each projection's own row, as it is stored."""
    live: Any = app.engine.ports.live
    if memory(app):
        return [held.snapshot.encode() for held in live._held.values()]
    if app.settings.live is None:
        with closing(sqlite3.connect(live.path)) as db:
            return [b"".join(str(value).encode() for value in row) for row in db.execute("SELECT * FROM projection")]
    with server(app) as client:
        states = [name for name in names(app, client) if name.endswith(b":state")]
        return [b"".join(b"%b=%b;" % pair for pair in client.hgetall(name).items()) for name in states]


@contextmanager
def server(app: App) -> Iterator[Any]:
    assert app.settings.live is not None
    url, options = app.settings.live, {"protocol": 2, "legacy_responses": False}
    kind = redis.RedisCluster if url.startswith("redis+cluster") else redis.Redis
    with kind.from_url(url.replace("redis+cluster", "redis"), **options) as client:
        yield client


def names(app: App, client: Any) -> list[bytes]:
    return sorted(client.scan_iter(f"{app.settings.live_prefix}:*", count=1_000))


@contextmanager
def lost_hints(app: App) -> Iterator[list[Any]]:
    """While this is on, nobody hears of anything; what they would have heard."""
    signal: Any = app.engine.ports.signal
    last = getattr(signal, "_local", signal)
    lost: list[Any] = []
    last.notify = lost.append
    try:
        yield lost
    finally:
        del last.notify


def listeners(app: App) -> list[Any]:
    """Who is told of hints, once for each feed."""
    signal: Any = app.engine.ports.signal
    if app.settings.live is None or memory(app):
        return [one for held in signal._listeners.values() for _, one in held]
    return [one for wish in signal._wishes.values() for one in wish.listeners]
