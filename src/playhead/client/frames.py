"""Frames of the wire as a client takes them: read, checked for their form, and freed from what is the transport's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from playhead.core import sse
from playhead.core.cursor import END, STOP


@dataclass(frozen=True, slots=True)
class Frame:
    """One thing that a stream said.

    `name` is `event` for the timeline, else the name of a control frame. `cursor` is the place that a client goes on
    from after it, if the frame moves it. `data` is a JSON object.
    """

    name: str
    cursor: str | None
    data: dict[str, Any]


def read(frame: sse.Frame) -> Frame | None:
    """A frame of a stream of one run. None: it is unknown, or not of its form, and to be passed over."""
    data = _object(frame.data)
    cursor = None if frame.id in (END, STOP) else frame.id
    return _checked(frame.event, cursor, data) if data is not None else None


def read_joined(frame: sse.Frame) -> tuple[str, Frame] | None:
    """A frame of a stream of several, with the feed that it is about; `draining` is about every one, named ""."""
    data = _object(frame.data)
    if data is None:
        return None
    feed, cursor = data.pop("feed", None), data.pop("cursor", None)
    if frame.event == "draining":
        feed = ""
    elif frame.event == "message":
        event = data.get("event")
        data = event if isinstance(event, dict) else {}
    if not isinstance(feed, str) or not isinstance(cursor, str | None):
        return None
    checked = _checked(frame.event, cursor, data)
    return None if checked is None else (feed, checked)


def is_event(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("id"), str) and isinstance(one.get("type"), str)


def is_piece(one: Any) -> bool:
    """Whether this is a piece of text."""
    return (
        isinstance(one, dict)
        and all(isinstance(one.get(name), str) for name in ("part", "text"))
        and all(isinstance(one.get(name), int) for name in ("attempt", "offset", "end"))
    )


def is_snapshot(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("version"), int) and isinstance(one.get("status"), str)


def is_screen(one: Any) -> bool:
    """Whether this is a bootstrap."""
    if not isinstance(one, dict):
        return False
    run, timeline, degraded, cursor = (one.get(name) for name in ("run", "timeline", "degraded", "cursor"))
    lists = [one.get(name) for name in ("events", "text", "interrupts")]
    return (
        isinstance(run, dict)
        and isinstance(run.get("status"), str)
        and isinstance(timeline, dict)
        and isinstance(degraded, str | None)
        and isinstance(cursor, str | None)
        and is_snapshot(one.get("snapshot"))
        and all(isinstance(each, list) for each in lists)
        and all(map(is_event, one["events"]))
        and all(map(is_piece, one["text"]))
        and all(isinstance(each, dict) and isinstance(each.get("id"), str) for each in one["interrupts"])
    )


def _checked(name: str, cursor: str | None, data: dict[str, Any]) -> Frame | None:
    match name:
        case "message":
            return Frame("event", cursor, data) if is_event(data) else None
        case "state":
            good = is_snapshot(data.get("snapshot")) and isinstance(data.get("degraded"), str | None)
        case "text":
            good = is_piece(data)
        case "resync_required":
            good = isinstance(data.get("reason"), str) and ("bootstrap" not in data or is_screen(data["bootstrap"]))
            return Frame(name, cursor, data) if good else None
        case "end":
            good = isinstance(data.get("status"), str)
        case "draining":
            good = isinstance(data.get("retry_ms"), int)
        case "refused":
            good = isinstance(data.get("code"), str)
        case _:
            good = False
    return Frame(name, None, data) if good else None


def _object(text: str) -> dict[str, Any] | None:
    try:
        data = orjson.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None
