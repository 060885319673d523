"""The archive: an order of its own per feed, unique by event id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from playhead.core import event
from playhead.core.event import Event
from playhead.core.ids import Feed, run_feed
from playhead.interfaces import Archive
from playhead.testing.check import Rules
from playhead.testing.ports.given import HOSTILE, STRANGE

rule: Rules[Archive] = Rules()

# What of a run may be archived depends on the record: that is a rule of records.
FEED = Feed("thread", "0190163d-8694-739b-aea5-966c26f8ad90")
OTHER = Feed("thread", "0190163d-8694-739b-aea5-966c26f8ad91")


def _events(first: int, last: int, feed: Feed = FEED, token: int = 1) -> list[tuple[Event, int]]:
    return [
        (event.published(feed.id, token, n, "step_done", {"t": STRANGE}, n), n + 100) for n in range(first, last + 1)
    ]


async def _newest(archive: Archive, feed: Feed = FEED) -> str | None:
    found = await archive.read(feed, None, 1)
    return found[-1][0].id if found else None


async def _add(archive: Archive, feed: Feed, entries: Sequence[tuple[Event, int]]) -> None:
    """Append as an archiver does that is alone."""
    newest = await archive.append(feed, entries, await _newest(archive, feed))
    assert newest == await _newest(archive, feed)
    assert newest is not None or not entries


class _Gate:
    """Between what an archiver looks at and what it appends."""

    def __init__(self) -> None:
        self.looked, self.open = asyncio.Event(), asyncio.Event()

    async def append(self, archive: Archive, entries: Sequence[tuple[Event, int]]) -> str | None:
        newest = await _newest(archive)
        self.looked.set()
        await self.open.wait()
        return await archive.append(FEED, entries, newest)


@rule()
async def what_is_archived_is_read_back_the_same(archive: Archive) -> None:
    """Events come back in their order with their version, byte for byte."""
    await _add(archive, FEED, _events(1, 3))
    await _add(archive, FEED, [])
    await _add(archive, FEED, _events(4, 5))
    assert await archive.read(FEED, None, 10) == _events(1, 5)


@rule()
async def the_order_is_that_of_appending(archive: Archive) -> None:
    """An event that comes later stands later, whatever its id or its version says."""
    late = _events(20, 20)
    await _add(archive, FEED, late)
    await _add(archive, FEED, _events(1, 12))
    assert await archive.read(FEED, None, 100) == late + _events(1, 12)


@rule()
async def an_event_is_archived_once(archive: Archive) -> None:
    """An event that is there already is passed over and keeps its place and its version; the others are added."""
    await _add(archive, FEED, _events(1, 3))
    again = [(one, version + 1_000) for one, version in _events(2, 5)]
    for _ in range(2):
        await _add(archive, FEED, again)
    assert await archive.read(FEED, None, 10) == _events(1, 3) + again[2:]
    await _add(archive, FEED, _events(6, 6) + _events(6, 6))
    assert len(await archive.read(FEED, None, 10)) == 6


@rule()
async def archivers_at_once_archive_once(archive: Archive) -> None:
    """Concurrent appending of the same events keeps one of each, in order."""

    async def archiver() -> None:
        while await archive.append(FEED, _events(1, 20), await _newest(archive)) is None:
            pass

    await asyncio.gather(*(archiver() for _ in range(5)))
    assert await archive.read(FEED, None, 100) == _events(1, 20)


@rule()
async def who_is_overtaken_reads_again(archive: Archive) -> None:
    """Of two archivers that looked at the same moment the second one to append is told, and writes nothing: neither
    what is new, nor what is there already, behind what came between."""
    for known in ([], _events(1, 3)):
        await archive.forget(FEED)
        await _add(archive, FEED, known)
        slow, quick = _Gate(), _Gate()
        late = asyncio.create_task(slow.append(archive, _events(1, 6)))
        soon = asyncio.create_task(quick.append(archive, _events(1, 9)))
        await slow.looked.wait()
        await quick.looked.wait()
        quick.open.set()
        assert await soon == _events(9, 9)[0][0].id
        slow.open.set()
        assert await late is None
        assert await archive.append(FEED, _events(10, 12), _events(8, 8)[0][0].id) is None
        assert await archive.append(FEED, _events(10, 12), None) is None
        assert await archive.read(FEED, None, 100) == _events(1, 9)
        assert await archive.append(FEED, _events(1, 10), _events(9, 9)[0][0].id) == _events(10, 10)[0][0].id
        assert await archive.read(FEED, None, 100) == _events(1, 10)
    assert await archive.append(OTHER, _events(1, 1, OTHER), _events(9, 9)[0][0].id) is None
    assert await archive.read(OTHER, None, 1) == []


@rule()
async def of_those_who_append_at_once_one_does(archive: Archive) -> None:
    """Whatever is appended at the same moment behind the same event, one of it is there, whole."""
    given = [_events(1, 4, token=token) for token in range(1, 9)]
    for _ in range(3):
        before, newest = await archive.read(FEED, None, 100), await _newest(archive)
        told = await asyncio.gather(*(archive.append(FEED, entries, newest) for entries in given))
        (won,) = [number for number, newest in enumerate(told) if newest is not None]
        assert await archive.read(FEED, None, 100) == before + given.pop(won)


@rule()
async def a_page_is_the_newest_before(archive: Archive) -> None:
    """A page holds the newest events before the named one, oldest first; pages join without a seam."""
    await _add(archive, FEED, _events(1, 25))
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
    await _add(archive, FEED, _events(1, 3))
    await _add(archive, OTHER, _events(1, 3, OTHER))
    assert await archive.read(FEED, _events(3, 3, OTHER)[0][0].id, 10) == []
    for text in HOSTILE:
        assert await archive.read(FEED, text, 10) == []
        assert await archive.read(run_feed(text), None, 10) == []
    assert await archive.read(run_feed(FEED.id), None, 10) == []
    assert await archive.read(FEED, None, 10) == _events(1, 3)


@rule()
async def forgetting_concerns_one_feed(archive: Archive) -> None:
    """A forgotten feed is empty and can be archived anew; others stay."""
    await _add(archive, FEED, _events(1, 3))
    await _add(archive, OTHER, _events(1, 2, OTHER))
    for _ in range(2):
        await archive.forget(FEED)
        assert await archive.read(FEED, None, 10) == []
    assert await archive.read(OTHER, None, 10) == _events(1, 2, OTHER)
    await _add(archive, FEED, _events(2, 3))
    assert await archive.read(FEED, None, 10) == _events(2, 3)
