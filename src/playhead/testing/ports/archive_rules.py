"""The archive: an order of its own per feed, unique by event id."""

from __future__ import annotations

import asyncio

from playhead.core import event
from playhead.core.event import Event
from playhead.core.ids import Feed, run_feed
from playhead.interfaces import Archive
from playhead.testing.check import Rules
from playhead.testing.ports.given import HOSTILE, STRANGE

rule: Rules[Archive] = Rules()

FEED = run_feed("0190163d-8694-739b-aea5-966c26f8ad90")
OTHER = run_feed("0190163d-8694-739b-aea5-966c26f8ad91")


def _events(first: int, last: int, feed: Feed = FEED, token: int = 1) -> list[tuple[Event, int]]:
    return [
        (event.published(feed.id, token, n, "step_done", {"t": STRANGE}, n), n + 100) for n in range(first, last + 1)
    ]


@rule()
async def what_is_archived_is_read_back_the_same(archive: Archive) -> None:
    """Events come back in their order with their version, byte for byte."""
    await archive.append(FEED, _events(1, 3))
    await archive.append(FEED, [])
    await archive.append(FEED, _events(4, 5))
    assert await archive.read(FEED, None, 10) == _events(1, 5)


@rule()
async def the_order_is_that_of_appending(archive: Archive) -> None:
    """An event that comes later stands later, whatever its id or its version says."""
    late = _events(20, 20)
    await archive.append(FEED, late)
    await archive.append(FEED, _events(1, 12))
    assert await archive.read(FEED, None, 100) == late + _events(1, 12)


@rule()
async def an_event_is_archived_once(archive: Archive) -> None:
    """An event that is there already is passed over and keeps its place and its version; the others are added."""
    await archive.append(FEED, _events(1, 3))
    again = [(one, version + 1_000) for one, version in _events(2, 5)]
    for _ in range(2):
        await archive.append(FEED, again)
    assert await archive.read(FEED, None, 10) == _events(1, 3) + again[2:]
    await archive.append(FEED, _events(6, 6) + _events(6, 6))
    assert len(await archive.read(FEED, None, 10)) == 6


@rule()
async def archivers_at_once_archive_once(archive: Archive) -> None:
    """Concurrent appending of the same events keeps one of each, in order."""
    await asyncio.gather(*(archive.append(FEED, _events(1, 20)) for _ in range(5)))
    assert await archive.read(FEED, None, 100) == _events(1, 20)


@rule()
async def a_page_is_the_newest_before(archive: Archive) -> None:
    """A page holds the newest events before the named one, oldest first; pages join without a seam."""
    await archive.append(FEED, _events(1, 25))
    whole: list[tuple[Event, int]] = []
    before: str | None = None
    while page := await archive.read(FEED, before, 10):
        assert len(page) <= 10
        whole = page + whole
        before = page[0][0].id
    assert whole == _events(1, 25)
    assert await archive.read(FEED, None, 3) == _events(23, 25)
    assert await archive.read(FEED, _events(23, 23)[0][0].id, 2) == _events(21, 22)
    assert await archive.read(FEED, _events(1, 1)[0][0].id, 10) == []
    assert await archive.read(FEED, None, 0) == []


@rule()
async def an_unknown_place_gives_nothing(archive: Archive) -> None:
    """Before an event that is not archived, or not of this feed, there is nothing."""
    await archive.append(FEED, _events(1, 3))
    await archive.append(OTHER, _events(1, 3, OTHER))
    assert await archive.read(FEED, _events(3, 3, OTHER)[0][0].id, 10) == []
    for text in HOSTILE:
        assert await archive.read(FEED, text, 10) == []
        assert await archive.read(run_feed(text), None, 10) == []
    assert await archive.read(Feed("thread", FEED.id), None, 10) == []
    assert await archive.read(FEED, None, 10) == _events(1, 3)


@rule()
async def forgetting_concerns_one_feed(archive: Archive) -> None:
    """A forgotten feed is empty and can be archived anew; others stay."""
    await archive.append(FEED, _events(1, 3))
    await archive.append(OTHER, _events(1, 2, OTHER))
    for _ in range(2):
        await archive.forget(FEED)
        assert await archive.read(FEED, None, 10) == []
    assert await archive.read(OTHER, None, 10) == _events(1, 2, OTHER)
    await archive.append(FEED, _events(2, 3))
    assert await archive.read(FEED, None, 10) == _events(2, 3)
