"""The composite cursor: where a reader of several feeds is in each of them, as one id of a multiplexed stream.

`1.` and base64url of an entry of 37 bytes for each feed, in order, and of a checksum: opaque to clients, at most 2 KiB.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from playhead.core.cursor import Cursor
from playhead.core.ids import LIMIT, Feed, is_id, run_feed

MAX_FEEDS = 32
MAX_COMPOSITE = 2_048  # characters

_VERSION = "1."
_RUN = 1
_LATER = (2, 3)  # threads and topics: a newer server may have named them, and this one passes over them
_ENDED = 0x80
_ENTRY = struct.Struct(">B16s7s7s6s")  # kind and flag, id, epoch, position, tag
_SUM = 4


@dataclass(frozen=True, slots=True)
class Held:
    """What a reader has of one feed. Once it has `ended` nothing follows, and there is no cursor."""

    cursor: Cursor | None
    ended: bool = False


OVER = Held(None, ended=True)


def encode(held: Mapping[Feed, Held]) -> str:
    """The id that says this. The feeds are runs, at most 32; each has a cursor or has ended."""
    if len(held) > MAX_FEEDS:
        raise ValueError(f"a composite cursor has at most {MAX_FEEDS} feeds, not {len(held)}")
    return _text(b"".join(sorted(_write(feed, one) for feed, one in held.items())))


def decode(text: str) -> dict[Feed, Held] | None:
    """What this id says; None for every text that `encode` did not write."""
    if len(text) > MAX_COMPOSITE or not text.startswith(_VERSION):
        return None
    packed = text[len(_VERSION) :]
    try:
        data = base64.b64decode(packed + "=" * (-len(packed) % 4), b"-_", validate=True)[:-_SUM]
    except (binascii.Error, ValueError):
        return None
    size = _ENTRY.size
    if _text(data) != text or len(data) % size or len(data) > MAX_FEEDS * size:
        return None
    entries = [data[start : start + size] for start in range(0, len(data), size)]
    read = [_read(entry) for entry in entries if entry[0] & ~_ENDED not in _LATER]
    if None in read or any(one >= other for one, other in pairwise(entries)):
        return None
    held = dict(one for one in read if one is not None)
    return held if len(held) == len(read) else None


def _write(feed: Feed, held: Held) -> bytes:
    if feed.kind != "run" or not is_id(feed.id):
        raise ValueError(f"not the feed of a run: {feed.key!r:.80}")
    name, at = bytes.fromhex(feed.id.replace("-", "")), held.cursor
    if held.ended and at is None:
        return _ENTRY.pack(_RUN | _ENDED, name, b"", b"", b"")
    if held.ended or at is None:
        raise ValueError("a feed has either a cursor or an end")
    return _ENTRY.pack(_RUN, name, at.epoch.to_bytes(7, "big"), at.position.to_bytes(7, "big"), bytes.fromhex(at.tag))


def _read(entry: bytes) -> tuple[Feed, Held] | None:
    kind, name, *place = _ENTRY.unpack(entry)
    text = name.hex()
    feed = run_feed(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
    if not is_id(feed.id):
        return None
    if kind == _RUN | _ENDED:
        return None if any(map(any, place)) else (feed, OVER)
    epoch, position = (int.from_bytes(number, "big") for number in place[:2])
    if kind != _RUN or epoch >= LIMIT or position >= LIMIT:
        return None
    return feed, Held(Cursor(epoch, position, place[2].hex()))


def _text(data: bytes) -> str:
    """With the checksum: a damaged id must be told from the id of another place."""
    packed = base64.urlsafe_b64encode(data + zlib.crc32(data).to_bytes(_SUM, "big"))
    return _VERSION + packed.rstrip(b"=").decode()
