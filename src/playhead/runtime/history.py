"""A run's events newest to oldest, first from its timeline and then from the archive, without a seam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from playhead.core.ids import Feed, fact_id
from playhead.interfaces import Archive, View
from playhead.runtime.documents import event_document


@dataclass(frozen=True, slots=True)
class Page:
    """Consecutive events, oldest first. `complete` says that nothing between them, or up to them, is known to lack."""

    ids: tuple[str, ...]
    events: tuple[bytes, ...]
    has_older: bool
    complete: bool

    @property
    def oldest(self) -> str | None:
        return self.ids[0] if self.ids else None


async def page(
    archive: Archive,
    feed: Feed,
    view: View | None,
    limit: int,
    *,
    before: str | None = None,
    last: tuple[str, bytes] | None = None,
    rev: int | None = None,
) -> Page:
    """Up to `limit` events: those of the view, and older ones from the archive.

    `before` is the event that the page ends in front of; None: it ends at the tip, where `last` is appended unless it
    is there, and `rev`, the feed's newest fact, has to be in it.
    """
    entries = view.entries[-limit:] if view else ()
    ids = [entry.event.id for entry in entries]
    events = [entry.data for entry in entries]
    hole = view is not None and view.marks.floor > view.marks.archived
    more = bool(entries) and view is not None and entries[0].position > view.marks.floor + 1
    first = ids[0] if ids else before
    if not more and first != fact_id(feed, 1):
        oldest = entries[0].position if entries else view.marks.floor + 1 if view else 0
        waiting = view is not None and view.marks.archived < oldest
        older, more = await _archived(archive, feed, ids, before, limit - len(ids), waiting)
        ids[:0] = [name for name, _ in older]
        events[:0] = [data for _, data in older]
    if last is not None and last[0] not in ids:
        ids, events = [*ids, last[0]][-limit:], [*events, last[1]][-limit:]
    whole = unbroken(feed, ids, from_start=not more, rev=rev)
    return Page(tuple(ids), tuple(events), more, whole and not hole)


async def _archived(
    archive: Archive, feed: Feed, shown: Sequence[str], before: str | None, room: int, waiting: bool
) -> tuple[list[tuple[str, bytes]], bool]:
    """The newest archived events in front of those shown, and whether there are more still.

    `waiting`: as far as the timeline knows, the archive has not come to those yet.
    """
    first = shown[0] if shown else before
    found = await archive.read(feed, first, room + 1)
    if not found and first is not None and waiting:
        # So what it has is older; unless it came there just now.
        known = {*shown, first}
        newest = await archive.read(feed, None, room + 1 + len(shown))
        found = await archive.read(feed, first, room + 1) or list(
            takewhile(lambda pair: pair[0].id not in known, newest)
        )
    kept = found[-room:] if room else []
    return [(event.id, event_document(event, version)) for event, version in kept], len(found) > room


def unbroken(feed: Feed, ids: Sequence[str], *, from_start: bool, rev: int | None = None) -> bool:
    """Whether these ids show no hole: facts are numbered without one, and so are the events of each attempt.

    `from_start`: nothing is said to come before them. `rev`: the newest fact there is, where they go up to the tip.
    """
    last: dict[str, int] = {}
    for name in ids:
        series, _, number = name.rpartition(":")
        if not number.isdecimal():
            continue  # of a recorded step: it has no number
        known = last.get(series, 0 if from_start else int(number) - 1)
        if int(number) != known + 1:
            return False
        last[series] = int(number)
    newest = last.get(feed.key)
    if rev is None or (newest is None and not from_start):
        return True
    return newest == rev or (newest is None and rev == 0)
