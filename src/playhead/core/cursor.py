"""The cursor: a place in a feed's timeline, opaque to clients, `<epoch>-<position>.<tag>`, at most 64 ASCII bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from playhead.core.ids import LIMIT

END = "end"  # the id that `end` carries: a request with it is answered 204
STOP = "stop"  # the id that a resync on a native stream carries, likewise

_TAG = re.compile(r"[0-9a-f]{12}", re.ASCII)
_CURSOR = re.compile(r"(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,15})\.([0-9a-f]{12})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cursor:
    epoch: int
    position: int
    tag: str

    def __str__(self) -> str:
        return f"{self.epoch}-{self.position}.{self.tag}"


def parse(text: str) -> Cursor | None:
    """The cursor that this text is, or None: then the reason for a resync is `malformed`, by grammar alone."""
    found = _CURSOR.fullmatch(text)
    if found is None:
        return None
    epoch, position = int(found[1]), int(found[2])
    if epoch >= LIMIT or position >= LIMIT:
        return None
    return Cursor(epoch, position, found[3])


def check_tag(text: str) -> None:
    """Raise ValueError unless this is a tag, of which a cursor can be made."""
    if not isinstance(text, str) or _TAG.fullmatch(text) is None:
        raise ValueError(f"not a tag: {text!r:.80}")


def tag(random: bytes) -> str:
    """A tag from 6 random bytes. Every send takes a new one, a repeated send too (law 7)."""
    return random.hex()
