"""The frames of a single-feed stream: JSON that exists already, inside the framing of server-sent events."""

from __future__ import annotations

from playhead.core import payload as payloads
from playhead.core import sse
from playhead.core.cursor import END, STOP, Cursor
from playhead.core.replay import Reason
from playhead.core.run import Status
from playhead.core.snapshot import Snapshot
from playhead.runtime.documents import join, text_document
from playhead.runtime.textview import Key


def event(cursor: Cursor, data: bytes) -> bytes:
    return sse.event_frame(str(cursor), data)


def unplaced(data: bytes) -> bytes:
    """An event that has no cursor: the final one of a run whose timeline is gone.

    Its id is empty: a frame that has no id at all takes over the one before it.
    """
    return b"id: \ndata: %b\n\n" % data


def state(snapshot: Snapshot, degraded: str | None) -> bytes:
    return sse.named_frame("state", b'{"snapshot":%b,"degraded":%b}' % (snapshot.encode(), payloads.encode(degraded)))


def text(key: Key, offset: int, data: bytes, final: bool, truncated: bool) -> bytes:
    token, part = key
    return sse.named_frame("text", text_document(part, token, offset, data, final, truncated))


def end(run_id: str, status: Status) -> bytes:
    return sse.named_frame("end", payloads.encode({"run_id": run_id, "status": status.value}), END)


def draining(retry_ms: int) -> bytes:
    """A farewell with the time to come back in."""
    return sse.retry(retry_ms) + sse.named_frame("draining", b'{"retry_ms":%d}' % retry_ms)


def resync(
    reason: Reason,
    *,
    requested: Cursor | None,
    oldest: Cursor | None = None,
    newest: Cursor | None = None,
    bootstrap: bytes | None = None,
    cursor: Cursor | None = None,
) -> bytes:
    """Why a reader cannot go on from where it was. With a bootstrap, it goes on from that one's cursor; without, or
    when there is nothing to follow, the frame's id makes the next request the last."""
    said = {
        "reason": reason.value,
        "requested": _text(requested),
        "oldest": _text(oldest),
        "newest": _text(newest),
    }
    data = payloads.encode(said) if bootstrap is None else join(said, bootstrap=bootstrap)
    return sse.named_frame("resync_required", data, STOP if cursor is None else str(cursor))


def _text(cursor: Cursor | None) -> str | None:
    return None if cursor is None else str(cursor)
