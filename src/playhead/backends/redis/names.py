"""The keys of a feed, which all lie in one slot, and the indexes of feeds, of which each slot has its own."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from playhead.core.ids import Feed

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}", re.ASCII)

_HELD = 10_000  # feeds whose keys are not spelled anew each time

INDEXES = ("waiting", "ends", "oldest")


class Names:
    """How keys are called under this prefix. `spread` says that there are as many indexes as slots (a cluster)."""

    def __init__(self, prefix: str, *, spread: bool) -> None:
        """Raises ValueError for a prefix that would break the hash tag."""
        if _PREFIX.fullmatch(prefix) is None:
            raise ValueError(f"not a prefix: {prefix!r:.80}")
        self.prefix, self.spread = prefix, spread
        self._held: dict[Feed, tuple[str, ...]] = {}

    def base(self, feed: Feed) -> str:
        return f"{self.prefix}:{feed.kind}:{{{_tag(feed)}}}"

    def channel(self, feed: Feed) -> str:
        return f"{self.base(feed)}:hints"

    def keys(self, feed: Feed) -> tuple[str, ...]:
        """What every script is given: state, events, channel and the three indexes of their slot."""
        held = self._held.get(feed)
        if held is None:
            base, bucket = self.base(feed), self.bucket(feed)
            held = (f"{base}:state", f"{base}:events", f"{base}:hints", *(self.index(bucket, one) for one in INDEXES))
            if len(self._held) >= _HELD:
                self._held.clear()
            self._held[feed] = held
        return held

    def text(self, feed: Feed, part: str) -> str:
        """The key of a text part, which scripts call `<token>:<name>`."""
        return f"{self.base(feed)}:text:{part}"

    def bucket(self, feed: Feed) -> int:
        return int(key_slot(_tag(feed).encode())) if self.spread else 0

    @property
    def buckets(self) -> int:
        return REDIS_CLUSTER_HASH_SLOTS if self.spread else 1

    def index(self, bucket: int, name: str) -> str:
        return f"{self.prefix}:index:{{{slot_tags()[bucket] if self.spread else 'all'}}}:{name}"


def _tag(feed: Feed) -> str:
    """The id where it is one of ours; any other text in a form that leaves the tag whole, and never empty."""
    return quote(feed.id, safe="@/") or "%"


@lru_cache(maxsize=1)
def slot_tags() -> list[str]:
    """For each slot a short tag that lies in it."""
    tags: dict[int, str] = {}
    number = 0
    while len(tags) < REDIS_CLUSTER_HASH_SLOTS:
        text = str(number)
        tags.setdefault(int(key_slot(text.encode())), text)
        number += 1
    return [tags[slot] for slot in range(REDIS_CLUSTER_HASH_SLOTS)]
