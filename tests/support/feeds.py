"""A multiplexed stream taken apart: what each feed would have said on a stream of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from playhead.core import sse
from playhead.core.composite import decode
from playhead.core.cursor import END, STOP
from playhead.core.ids import run_feed
from tests.support.wire import Client, Frame, Stream


def single(frame: sse.Frame) -> tuple[str | None, Frame]:
    """The feed that a frame names, and the frame as that feed alone would have sent it; None: of the connection."""
    data = json.loads(frame.data)
    feed = data.pop("feed", None)
    match frame.event:
        case "message":
            return feed, Frame("message", data["event"], data["cursor"])
        case "resync_required":
            return feed, Frame(frame.event, data, data.pop("cursor") or STOP)
        case "end":
            return feed, Frame(frame.event, data, END)
    return feed, Frame(frame.event, data, None)


class Taken:
    """The bytes of one connection, so far. `last` is the id that a browser would send next."""

    def __init__(self, data: bytes = b"", last: str | None = None) -> None:
        self._parser = sse.Parser(last_event_id=last)
        self.frames: list[tuple[str | None, Frame]] = []
        self.raw: list[sse.Frame] = []
        self.feed(data)

    def feed(self, data: bytes) -> None:
        for frame in self._parser.feed(data):
            self.raw.append(frame)
            self.frames.append(single(frame))

    @property
    def last(self) -> str | None:
        return self._parser.last_event_id

    @property
    def retry(self) -> int | None:
        return self._parser.retry

    def of(self, run_id: str | None) -> list[Frame]:
        name = None if run_id is None else run_feed(run_id).key
        return [frame for feed, frame in self.frames if feed == name]

    def names(self, run_id: str | None) -> list[str]:
        return [frame.event for frame in self.of(run_id)]

    def said(self, run_id: str | None, name: str) -> list[Any]:
        return [frame.data for frame in self.of(run_id) if frame.event == name]

    def events(self, run_id: str) -> list[str]:
        """The ids of its events, in the order of their frames."""
        return [event["id"] for event in self.said(run_id, "message")]

    def cursor(self, run_id: str) -> str | None:
        """The last cursor that a frame of this feed gave."""
        return next((f.id for f in reversed(self.of(run_id)) if f.event in ("message", "resync_required")), None)

    def place(self, run_id: str) -> str | None:
        """Where the last id is in this feed: a cursor, or `end`; None: it does not say."""
        held = (decode(self.last or "") or {}).get(run_feed(run_id))
        return None if held is None else END if held.ended else str(held.cursor)


def query(runs: Iterable[str], **more: str) -> str:
    """The address of a stream of these runs, each as `<id>` or `<id>@<cursor>`."""
    return "/stream?" + "&".join([*(f"run={run}" for run in runs), *(f"{name}={v}" for name, v in more.items())])


async def follow(client: Client, runs: Iterable[str], last: str | None = None, **more: Any) -> Stream:
    """Open a stream of these runs; `last` goes as Last-Event-ID."""
    return await client.open_path(query(runs), last, **more)


def taken(stream: Stream, last: str | None = None) -> Taken:
    """What has come on it so far."""
    return Taken(bytes(stream.raw), last)
