"""Hints as scripts write them: one line of numbers, then the bytes that it counts."""

from __future__ import annotations

from playhead.backends.redis import rows
from playhead.core.event import Entry
from playhead.core.ids import Feed
from playhead.interfaces import Hint, TextPiece


def decode(feed: Feed, message: bytes) -> Hint | None:
    """The hint; None where it says that something was left out, or cannot be read: then the feed has to be."""
    try:
        return _decode(feed, message)
    except (ValueError, KeyError, IndexError):  # whoever may publish there may publish anything
        return None


def _decode(feed: Feed, message: bytes) -> Hint | None:
    line, _, rest = message.partition(b"\n")
    words = line.split(b" ")
    if len(words) != 10:
        return None
    guard, marks_text, voids, status, started_at, heartbeat_at, updated_at, size, count, pieces = words
    held = rows.marks(guard, marks_text)
    if held is None:
        return None
    snapshot, entries, texts = None, [], []
    if size != b"-":
        state, rest = _cut(rest, size)
        snapshot = rows.snapshot(held, (status, _none(started_at), _none(heartbeat_at), _none(updated_at), state))
        if snapshot is None:
            return None
    for _ in range(int(count)):
        line, _, rest = rest.partition(b"\n")
        position, tag, prev, version, *sizes = line.split(b" ")
        (event_id, rest), (name, rest), (head, rest), (payload, rest) = _cuts(rest, sizes)
        event = rows.event(feed, event_id, name, head, payload)
        entries.append(Entry(held.epoch, int(position), tag.decode(), prev.decode(), int(version), event))
    for _ in range(int(pieces)):
        line, _, rest = rest.partition(b"\n")
        token, part, offset, final, cut, size = line.split(b" ")
        data, rest = _cut(rest, size)
        texts.append(TextPiece(part.decode(), int(token), int(offset), data, final == b"1", cut == b"1"))
    return None if rest else Hint(feed, held, snapshot, tuple(entries), tuple(texts), int(voids))


def _cut(data: bytes, size: bytes) -> tuple[bytes, bytes]:
    end = int(size)
    if not 0 <= end <= len(data):
        raise ValueError("a hint is shorter than it says")
    return data[:end], data[end:]


def _cuts(data: bytes, sizes: list[bytes]) -> list[tuple[bytes, bytes]]:
    found = []
    for size in sizes:
        piece, data = _cut(data, size)
        found.append((piece, data))
    return found


def _none(word: bytes) -> bytes | None:
    return None if word == b"-" else word
