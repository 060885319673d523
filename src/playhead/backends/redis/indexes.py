"""Which feeds wait for something: each slot's own indexes, looked through a part at a time.

The scripts keep an index with the feeds of its slot, so it misses none. On one server there is one of each kind. In a
cluster there are as many as slots: a look goes through those that this process wrote to, unless it knows that nothing
can be due there yet, and through the next few, so that whatever any process wrote is found after some looks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis.exceptions import ResponseError

from playhead.backends.redis.names import INDEXES, Names
from playhead.backends.redis.nodes import Command
from playhead.core.ids import Feed, parse_feed

_STEP = 256  # slots that a look goes through besides those known to be used
_AT_ONCE = 512  # commands in one write

Run = Callable[[Sequence[Command]], Awaitable[list[Any]]]


class Indexes:
    def __init__(self, names: Names, run: Run) -> None:
        """`run` executes commands and gives each one's reply or error."""
        self._names, self._run = names, run
        self._known: dict[str, dict[int, float]] = {name: {} for name in INDEXES}  # slot → nothing is due there before
        self._next = dict.fromkeys(INDEXES, 0)

    def used(self, feed: Feed, *, ended: bool) -> None:
        """Note that this process wrote to the feed."""
        slot = self._names.bucket(feed)
        for name in INDEXES:
            if ended or name != "ends":
                self._known[name][slot] = 0.0

    async def due(self, name: str, limit: int, bound: int) -> list[Feed]:
        """Up to so many feeds that this index names; of an index by time, up to this one."""
        found: list[Feed] = []
        slots = self._slots(name, bound)
        for first in range(0, len(slots), _AT_ONCE):
            part = slots[first : first + _AT_ONCE]
            replies = await self._run([self._command(name, slot, limit) for slot in part])
            for slot, first_reply in zip(part, replies, strict=True):
                reply = first_reply
                feeds, strangers = self._read(name, slot, reply, bound)
                while strangers:  # nobody of ours wrote them, and no script would ever remove them
                    remove = "SREM" if name == "waiting" else "ZREM"
                    await self._run([[remove, self._names.index(slot, name), *strangers]])
                    (reply,) = await self._run([self._command(name, slot, limit)])
                    feeds, strangers = self._read(name, slot, reply, bound)
                found += feeds
            if len(found) >= limit:
                break
        return found[:limit]

    def _slots(self, name: str, bound: int) -> list[int]:
        first, count = self._next[name], self._names.buckets
        step = min(_STEP, count)
        self._next[name] = (first + step) % count
        likely = [slot for slot, earliest in self._known[name].items() if earliest <= bound]
        return list(dict.fromkeys([*((first + i) % count for i in range(step)), *likely]))

    def _command(self, name: str, slot: int, limit: int) -> Command:
        key = self._names.index(slot, name)
        return ["SRANDMEMBER", key, limit] if name == "waiting" else ["ZRANGE", key, 0, limit - 1, "WITHSCORES"]

    def _read(self, name: str, slot: int, reply: Any, bound: int) -> tuple[list[Feed], list[bytes]]:
        """The feeds of a reply, and the members that are none."""
        if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
            reply = []  # the next script that writes to it makes it anew
        if isinstance(reply, Exception):
            raise reply
        if name == "waiting":
            times, members = [0.0] * len(reply), reply
        else:
            times, members = [float(one) for one in reply[1::2]], reply[::2]
        if members:
            self._known[name][slot] = 0.0 if times[0] <= bound else times[0]
        else:
            self._known[name].pop(slot, None)
        feeds, strangers = [], []
        for member, time in zip(members, times, strict=True):
            feed = parse_feed(member.decode(errors="replace"))
            if feed.key.encode() != member:
                strangers.append(member)
            elif name == "waiting" or time <= bound:
                feeds.append(feed)
        return feeds, strangers
