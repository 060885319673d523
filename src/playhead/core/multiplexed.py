"""The frames of a multiplexed stream, made from those of single feeds: the same JSON, with the feed's name in front."""

from __future__ import annotations

from dataclasses import dataclass

from playhead.core import payload as payloads
from playhead.core import sse
from playhead.core.cursor import END, STOP, Cursor, parse

_NOWHERE = (b"", END.encode(), STOP.encode())


@dataclass(frozen=True, slots=True)
class Told:
    """What a piece of one feed's stream says on a connection that carries several."""

    frames: bytes  # without ids, each naming its feed
    cursor: Cursor | None  # where the piece leads; None: not away from where its reader is
    ended: bool  # nothing follows in this feed
    farewell: bytes  # what it says of the whole connection, which then closes


def rewrite(feed: str, piece: bytes) -> Told:
    """Rewrite whole frames of a single-feed stream, that of the feed with this key.

    They are those of `runtime.frames`: every block has one line of data, which is an object that is not empty.
    Comments and waits are the connection's own affair and are left out, unless they belong to a farewell.
    """
    head = b'data: {"feed":%b,' % payloads.encode(feed)
    out: list[bytes] = []
    waits: list[bytes] = []
    last = b""
    ended = parting = False
    for block in piece.split(b"\n\n"):
        place, rest = _field(b"id: ", block)
        name, rest = _field(b"event: ", rest)
        data, _ = _field(b"data: ", rest)
        if not data:
            waits += [block] if block.startswith(b"retry: ") else []
        elif name == b"draining":
            waits.append(block)
            parting = True
        else:
            leads = place not in _NOWHERE
            last = place if leads else last
            ended = ended or name == b"end"
            where = b'"cursor":"%b",' % place if leads else b'"cursor":null,'
            if not name:
                out += (head, where, b'"event":', data, b"}\n\n")
            else:
                out += (b"event: ", name, b"\n", head, where if name == b"resync_required" else b"", data[1:], b"\n\n")
    farewell = b"".join(block + b"\n\n" for block in waits) if parting else b""
    return Told(b"".join(out), parse(last.decode()), ended, farewell)


def refused(feed: str, code: str) -> bytes:
    """This feed cannot be followed here, or not any more."""
    return sse.named_frame("refused", payloads.encode({"feed": feed, "code": code}))


def _field(name: bytes, block: bytes) -> tuple[bytes, bytes]:
    """The value of this field, if the block begins with it, and what comes after."""
    if not block.startswith(name):
        return b"", block
    value, _, rest = block[len(name) :].partition(b"\n")
    return value, rest
