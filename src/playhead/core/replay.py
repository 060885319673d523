"""Can this reader go on from here? One test for cursors, pages, hints and rings (law 7)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

from playhead.core.cursor import Cursor
from playhead.core.event import Entry
from playhead.core.transition import Marks


class Reason(StrEnum):
    """Why a reader must start again from a snapshot; in the order in which they are looked for."""

    MALFORMED = "malformed"  # not of a cursor's form
    EPOCH = "epoch"  # the projection was rebuilt since
    AHEAD = "ahead"  # beyond the newest entry
    EXPIRED = "expired"  # what follows it is no longer retained
    FOREIGN = "foreign"  # the entry at this place is another one


def continues(reader: Cursor, entry: Entry) -> bool:
    """Whether this entry is the very next one for a reader at this cursor."""
    return entry.epoch == reader.epoch and entry.position == reader.position + 1 and entry.prev == reader.tag


def refusal(reader: Cursor, marks: Marks, following: Sequence[Entry]) -> Reason | None:
    """Why the page `following`, read in one act with `marks`, cannot continue this reader; None if it can.

    `following` holds the first retained entries after the reader's position, and is empty only if there are none.
    """
    if reader.epoch != marks.epoch:
        return Reason.EPOCH
    if reader.position > marks.position:
        return Reason.AHEAD
    if reader.position < marks.position and (not following or following[0].position != reader.position + 1):
        return Reason.EXPIRED
    if not following:
        return Reason.FOREIGN if marks.tag != reader.tag else None
    place = reader
    for entry in following:
        if not continues(place, entry):  # the first is where it should be; a later one may follow a hole
            return Reason.FOREIGN if entry.position == place.position + 1 else Reason.EXPIRED
        place = after(entry)
    return None


def chained(entries: Sequence[Entry]) -> int:
    """How many of these entries, from the first on, continue one another; all of them unless something was removed."""
    for number, (entry, following) in enumerate(pairwise(entries), 1):
        if not continues(after(entry), following):
            return number
    return len(entries)


def after(entry: Entry) -> Cursor:
    """The place right behind an entry."""
    return Cursor(entry.epoch, entry.position, entry.tag)
