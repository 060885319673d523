"""A run's events newest to oldest, first from its timeline and then from the archive, without a seam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from playhead.core.event import Event, published_before
from playhead.core.ids import Feed, fact_id, published_id
from playhead.errors import StoreUnavailable
from playhead.interfaces import Archive, ProjectionStore, View
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
    live: ProjectionStore,
    feed: Feed,
    view: View | None,
    limit: int,
    *,
    before: str | None = None,
    last: Event | None = None,
    rev: int | None = None,
) -> Page:
    """Up to `limit` events: those of the view, and older ones from the archive.

    `before` is the event that the page ends in front of; None: it ends at the tip, where `last` is appended unless it
    is there, and `rev`, the feed's newest fact, has to be in it.
    """
    entries = view.entries[-limit:] if view else ()
    shown = [(entry.event, entry.version) for entry in entries]
    hole = view is not None and view.marks.floor > view.marks.archived
    older_live = bool(entries) and view is not None and entries[0].position > view.marks.floor + 1
    more = older_live
    first = shown[0][0].id if shown else before
    if not more and first != fact_id(feed, 1):
        oldest = entries[0].position if entries else view.marks.floor + 1 if view else 0
        waiting = view is not None and view.marks.archived < oldest
        ids = [event.id for event, _ in shown]
        older, more = await _archived(archive, feed, ids, before, limit - len(ids), waiting)
        shown[:0] = older
    if last is not None and all(event.id != last.id for event, _ in shown):
        more = more or len(shown) >= limit
        shown = [*shown, (last, 0)][-limit:]
    ids = [event.id for event, _ in shown]
    told = dict(said for event, _ in shown if (said := published_before(event)) is not None)
    whole = not hole and unbroken(feed, ids, from_start=not more, rev=rev, before=before, told=told)
    if whole and more:
        whole = await _all_there(archive, live if older_live else None, feed, unshown(feed, ids, told))
    return Page(tuple(ids), tuple(event_document(*one) for one in shown), more, whole)


async def _archived(
    archive: Archive, feed: Feed, shown: Sequence[str], before: str | None, room: int, waiting: bool
) -> tuple[list[tuple[Event, int]], bool]:
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
    return found[-room:] if room else [], len(found) > room


async def _all_there(archive: Archive, live: ProjectionStore | None, feed: Feed, ids: Sequence[str]) -> bool:
    """Whether these are among the older events, which are archived, or on the timeline where that goes on behind."""
    for name in ids:
        if await archive.read(feed, name, 1):
            continue
        try:
            if live is None or await live.find(feed, name) is None:
                return False
        except StoreUnavailable:
            return False
    return True


def unshown(feed: Feed, ids: Sequence[str], told: Mapping[int, int]) -> list[str]:
    """Of the attempts whose events end within these ids and begin before them, the last event of each."""
    series = {name.rpartition(":")[0] for name in ids}
    return [published_id(feed.id, token, n) for token, n in told.items() if f"{feed.id}:{token}" not in series]


def unbroken(
    feed: Feed,
    ids: Sequence[str],
    *,
    from_start: bool,
    rev: int | None = None,
    before: str | None = None,
    told: Mapping[int, int] | None = None,
) -> bool:
    """Whether these ids show no hole: facts are numbered without one, and so are the events of each attempt.

    `from_start`: nothing is said to come before them. `rev`: the newest fact there is, where they go up to the tip.
    `before`: what comes right behind them, where they do not. `told`: token → how many events an attempt published
    that has none behind these.
    """
    last: dict[str, int] = {}
    for name in [*ids, before] if ids and before is not None else ids:
        series, _, number = name.rpartition(":")
        if not number.isdecimal():
            continue  # of a recorded step: it has no number
        known = last.get(series, 0 if from_start else int(number) - 1)
        if int(number) != known + 1:
            return False
        last[series] = int(number)
    for token, count in (told or {}).items():
        if last.get(f"{feed.id}:{token}", 0 if from_start else count) < count:
            return False
    newest = last.get(feed.key)
    if rev is None or (newest is None and not from_start):
        return True
    return newest == rev or (newest is None and rev == 0)
