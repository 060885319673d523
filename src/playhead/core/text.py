"""The text channel: growing pieces of partial output, addressed by offset in UTF-8 bytes.

A part belongs to one attempt and only grows; a rewrite is a new part. Each piece is whole characters, so every
boundary between pieces is a place where a reader may continue.
"""

from __future__ import annotations

from dataclasses import dataclass

from playhead.core.ids import Feed, check_whole
from playhead.core.transition import Guard, Marks, Reply, judge_guard

MAX_PART = 1 << 20  # bytes; text beyond it is not kept, and the part says that it was cut
MAX_PARTS = 64  # of one attempt


@dataclass(frozen=True, slots=True)
class TextWrite:
    """The next piece of a part. `offset` is the length that the writer believes the part has."""

    feed: Feed
    guard: Guard
    part: str
    offset: int
    data: bytes  # valid UTF-8
    final: bool = False  # nothing follows
    truncated: bool = False  # text beyond MAX_PART was left out

    def __post_init__(self) -> None:
        check_whole(self.offset)
        check_whole(self.end)

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True)
class TextPart:
    """A part as the channel holds it. `data` is its text from the offset that was asked for."""

    part: str
    token: int
    length: int
    final: bool
    truncated: bool
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class TextApplied:
    end: int


@dataclass(frozen=True, slots=True)
class TextAlready:
    end: int


@dataclass(frozen=True, slots=True)
class TextFrom:
    """The part has this length: send again from there."""

    length: int


TextReply = TextApplied | TextAlready | TextFrom | Reply


def judge_text(marks: Marks | None, held: TextPart | None, write: TextWrite) -> TextReply | None:
    """The first reason not to append this piece, or None to append it."""
    refused = judge_guard(marks, write.guard)
    if refused is not None:
        return refused
    length = held.length if held else 0
    closed = held is not None and held.final
    if length >= write.end and (closed or not write.final):
        return TextAlready(length)
    if closed or length != write.offset:
        return TextFrom(length)
    return None
