"""The whole screen of a run in one answer, and its older events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from playhead.core import payload as payloads
from playhead.core import repair
from playhead.core.cursor import Cursor
from playhead.core.ids import run_feed
from playhead.core.run import Run
from playhead.core.text import TextPart
from playhead.errors import NotFound, StoreUnavailable
from playhead.interfaces import Archive, ProjectionStore, RunStore, TextChannel, View
from playhead.runtime.documents import (
    final_event,
    interrupt_document,
    record_snapshot,
    run_document,
    text_document,
)
from playhead.runtime.history import Page, page
from playhead.runtime.projector import Projector

DEFAULT_EVENTS = 50
MAX_EVENTS = 200

_ROUNDS = 3  # looks at a run that moves while it is read


@dataclass(frozen=True, slots=True)
class Screen:
    """A bootstrap, encoded. `cursor` is never newer than what it shows; None: there is nothing to follow (now)."""

    body: bytes
    run: Run
    cursor: Cursor | None = None
    version: int = -1  # of the snapshot shown
    text: Mapping[tuple[int, str], tuple[int, bool]] = field(default_factory=dict)  # end and final of each part shown


class Screens:
    """Reads screens. `patience`: seconds that the hot view gets to answer, before the record alone has to do."""

    def __init__(
        self,
        record: RunStore,
        archive: Archive,
        live: ProjectionStore,
        texts: TextChannel,
        projector: Projector,
        *,
        patience: float = 5.0,
    ) -> None:
        self._record, self._archive, self._live, self._texts = record, archive, live, texts
        self._projector = projector
        self._patience = patience

    async def bootstrap(self, run: Run, limit: int = DEFAULT_EVENTS) -> Screen:
        """The screen of a run as the record had it just now. Raises StoreUnavailable when the record does not answer.

        Guarantees that whatever the cursor is past is in the answer: the run and the questions are not older than it.
        """
        feed = run_feed(run.id)
        degraded: str | None = None
        view: View | None = None
        parts: list[TextPart] = []
        try:
            async with asyncio.timeout(self._patience):
                run, view = await self._agreed(run, limit)
                parts = await self._texts.read_text(feed) if view else []
        except (StoreUnavailable, TimeoutError):
            degraded, view = StoreUnavailable.code, None
        shown = await self._newest(run, view, limit, seen=degraded is None, archived=await self._archived_whole(run))
        # After the view: a question that the cursor is past must be here.
        asked = await self._record.interrupts(run.tenant, run.id)
        body = b"".join(
            (
                b'{"run":',
                run_document(run),
                b',"snapshot":',
                (view.snapshot if view else record_snapshot(run)).encode(),
                b',"events":[',
                b",".join(shown.events[-limit:] if limit else ()),
                b'],"cursor":',
                payloads.encode(str(view.marks.cursor) if view else None),
                b',"timeline":',
                _timeline(shown, limit),
                b',"text":[',
                b",".join(
                    text_document(part.part, part.token, 0, part.data, part.final, part.truncated) for part in parts
                ),
                b'],"interrupts":[',
                b",".join(map(interrupt_document, asked)),
                b'],"degraded":',
                payloads.encode(degraded),
                b"}",
            )
        )
        ends = {(part.token, part.part): (part.length, part.final) for part in parts}
        if view is None:
            return Screen(body, run)
        return Screen(body, run, view.marks.cursor, view.snapshot.version, ends)

    async def earlier(self, run: Run, before: str | None, limit: int) -> bytes:
        """Up to `limit` events before the event of this id (None: the newest), oldest first."""
        feed = run_feed(run.id)
        view: View | None = None
        seen, archived = True, await self._archived_whole(run)
        try:
            if not archived:
                position = await self._live.find(feed, before) if before is not None else None
                if before is None or position is not None:
                    view = await self._live.read(feed, before=position, limit=limit)
        except StoreUnavailable:
            seen = False  # the archive has what it has
        if before is None:
            found = await self._newest(run, view, limit, seen=seen, archived=archived)
        else:
            found = await page(self._archive, self._live, feed, view, limit, before=before)
        return b'{"events":[%b],"timeline":%b}' % (b",".join(found.events), _timeline(found, limit))

    async def _agreed(self, run: Run, limit: int) -> tuple[Run, View | None]:
        """The run and its view, neither older than the other; no view: the run is over and has none."""
        feed = run_feed(run.id)
        for _ in range(_ROUNDS):
            view = await self._live.read(feed, limit=max(limit, 1))
            if view is not None and view.snapshot.rev > run.rev:
                run = await self._again(run)
            marks, shown = (view.marks, view.snapshot.status) if view else (None, None)
            if repair.needed(run, marks, shown=shown) is repair.Repair.NONE:
                return run, view
            brought = await self._projector.bring(run.id)
            if brought is None:
                raise NotFound
            run = brought
        view = await self._live.read(feed, limit=max(limit, 1))
        if view is None and not run.status.final:
            raise StoreUnavailable("The projection cannot be rebuilt now.")
        return (await self._again(run) if view and view.snapshot.rev > run.rev else run), view

    async def _again(self, run: Run) -> Run:
        found = await self._record.get(run.tenant, run.id)
        if found is None:
            raise NotFound
        return found

    async def _newest(self, run: Run, view: View | None, limit: int, *, seen: bool, archived: bool) -> Page:
        """The page that ends at the tip. `seen`: whether the timeline could be looked at. `archived`: whether the
        archive has all of it."""
        feed = run_feed(run.id)
        last = final_event(run) if view is None and run.status.final else None
        rev = view.marks.rev if view else run.rev
        shown = await page(
            self._archive, self._live, feed, None if archived else view, max(limit, 1), last=last, rev=rev
        )
        # The archive follows behind a timeline that cannot be seen; and what was trimmed before it came is nowhere.
        hidden = not seen and not archived
        holed = view is not None and view.marks.floor > view.marks.archived
        return replace(shown, complete=shown.complete and not hidden and not holed)

    async def _archived_whole(self, run: Run) -> bool:
        """Whether the run is over and the archive has it to its end. Then the archive beats the timeline: should that
        have gone back since, no attempt is left that would miss what it published."""
        if not run.status.final:
            return False
        newest = await self._archive.read(run_feed(run.id), None, 1)
        return bool(newest) and newest[-1][0].id == final_event(run).id


def _timeline(shown: Page, limit: int) -> bytes:
    return payloads.encode(
        {
            "complete": shown.complete,
            "has_older": shown.has_older or (limit == 0 and bool(shown.ids)),
            "oldest": shown.oldest if limit else None,
        }
    )
