"""Names and identities: what may be one, how it is written, and who makes it.

Ids that reach a store or a key are made here from the server's own clock and randomness (UUIDv7, RFC 9562). What a
client sends is matched against its grammar before any store sees it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal

LIMIT = 2**53  # integers below it are exact in every reader, JavaScript and Lua included

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}", re.ASCII)
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
_KEY = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)

EVERY_TENANT = "*"  # what loops of the server itself pass; by the grammar above no tenant can have this name

FeedKind = Literal["run", "thread", "topic"]


@dataclass(frozen=True, slots=True)
class Feed:
    """What a projection is about."""

    kind: FeedKind
    id: str

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.id}"


def run_feed(run_id: str) -> Feed:
    return Feed("run", run_id)


def parse_feed(key: str) -> Feed:
    """Read back a feed's key. The key must be one that this module wrote."""
    kind, _, rest = key.partition(":")
    if kind == "run":
        return Feed("run", rest)
    return Feed("thread" if kind == "thread" else "topic", rest)


def uuid7(wall_ms: int, random: bytes) -> str:
    """An id that sorts by its time of creation; `random` is 10 bytes."""
    value = (wall_ms & (2**48 - 1)) << 80 | int.from_bytes(random, "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def check_whole(*numbers: object) -> None:
    """Raise ValueError unless each is a whole number from 0 that is exact in every reader.

    Whatever is written passes here before any store sees it: a store that counts in doubles would take one token
    for another, and one that takes text for a number would let anything pass afterwards.
    """
    for number in numbers:
        if type(number) is not int or not 0 <= number < LIMIT:
            raise ValueError(f"not a whole number from 0 to 2^53 - 1: {number!r:.80}")


def is_id(text: str) -> bool:
    """Whether this could be an id that the server made."""
    return _UUID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether this can name an agent, an event type or a text part: snake_case, 1 to 64 characters."""
    return _NAME.fullmatch(text) is not None


def is_tenant(text: str) -> bool:
    return _TENANT.fullmatch(text) is not None


def is_label(text: str) -> bool:
    return _LABEL.fullmatch(text) is not None


def is_key(text: str) -> bool:
    """Whether this can be an idempotency key or an external key: 1 to 255 visible ASCII characters."""
    return _KEY.fullmatch(text) is not None


def published_id(run_id: str, token: int, n: int) -> str:
    """The id of an attempt's n-th published event, the same in every epoch and in the archive."""
    return f"{run_id}:{token}:{n}"


def published_place(event_id: str) -> tuple[int, int]:
    """The token and the n of a published event's id. The id must be one that this module made."""
    _, token, n = event_id.rsplit(":", 2)
    return int(token), int(n)


def fact_id(feed: Feed, rev: int) -> str:
    return f"{feed.key}:{rev}"


def fact_rev(feed: Feed, event_id: str) -> int | None:
    """The rev of the fact whose event has this id; None for every other event."""
    series, _, rev = event_id.rpartition(":")
    return int(rev) if series == feed.key and rev.isascii() and rev.isdecimal() else None


def iso(wall_ms: int) -> str:
    """An instant in UTC, as every time on the wire is written: `2026-01-31T09:30:00.250Z`."""
    seconds, rest = divmod(wall_ms, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=1_024)
def _second(seconds: int) -> str:
    """Most of what is written at all is written in the same few seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def iso_or_none(wall_ms: int | None) -> str | None:
    return None if wall_ms is None else iso(wall_ms)
