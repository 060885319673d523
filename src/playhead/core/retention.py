"""How much of a timeline is kept, and how long. Pure: the backend counts, this decides, the backend removes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from playhead.core.ids import Feed
from playhead.core.transition import Marks


@dataclass(frozen=True, slots=True)
class Retention:
    """The bounds of one timeline. `archive` says whether removed entries are to be found in the archive."""

    count: int = 1_000
    age: float | None = None  # seconds; None: by count alone
    max_bytes: int = 16 << 20
    archive: bool = True

    @property
    def hard_count(self) -> int:
        """Beyond this, entries go even when the archive lags, and the timeline has a hole."""
        return 4 * self.count


def lifetime_ms(seconds: float) -> int:
    """A time to live in milliseconds. Raises ValueError for one that would be over at once, or never."""
    if not isinstance(seconds, int | float) or not math.isfinite(seconds) or seconds * 1000 < 1:
        raise ValueError(f"no time to live: {seconds!r:.80}")
    return round(seconds * 1000)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long projections stay, in milliseconds: of a run after its final fact, else while nobody needs them."""

    timeline_ms: int
    snapshot_ms: int
    idle_ms: int

    @classmethod
    def of(cls, timeline: float, snapshot: float, idle: float) -> Lifetimes:
        """From seconds. Raises ValueError as `lifetime_ms`."""
        return cls(lifetime_ms(timeline), lifetime_ms(snapshot), lifetime_ms(idle))

    def ends(self, feed: Feed, final_at: int | None, used_at: int) -> tuple[int | None, int | None]:
        """When the timeline goes and when all of it goes, wall ms; None: not while things are as they are.

        `used_at` is when somebody last wrote a fact, opened the projection or watched.
        """
        if idles(feed):
            return None, used_at + self.idle_ms
        if final_at is None:
            return None, None
        return final_at + self.timeline_ms, final_at + self.snapshot_ms


def idles(feed: Feed) -> bool:
    """Whether the projection ends by being left alone: threads and topics have no final fact."""
    return feed.kind != "run"


def new_floor(marks: Marks, keep: Retention, *, aged: int, heavy: int) -> int:
    """The floor that a timeline should have now.

    `aged` is the highest position whose entry is older than `keep.age`, `heavy` the lowest floor that fits
    `keep.max_bytes`; the caller measures both (and passes the present floor where nothing is over). Count and age
    remove only what is archived, up to the hard limit; with the archive off they wait for the run's end. The byte
    bound always holds.
    """
    wanted = max(marks.position - keep.count, aged)
    if keep.archive:
        soft = max(min(wanted, marks.archived), marks.position - keep.hard_count)
    elif marks.final:
        soft = wanted
    else:
        soft = marks.floor
    return min(max(marks.floor, soft, heavy), marks.position)
