"""The newest frames of one timeline, encoded once, for every viewer of this process."""

from __future__ import annotations

from playhead.core.cursor import Cursor


class Ring:
    """Consecutive frames up to the tip, in a bounded number of bytes; the oldest go first.

    `base` is the place before the oldest frame that is held. Everything in a ring is of one epoch.
    """

    __slots__ = ("_ends", "_frames", "_limit", "_start", "_tags", "base", "epoch")

    def __init__(self, base: Cursor, limit: int) -> None:
        self.epoch = base.epoch
        self.base = base.position
        self._tags = [base.tag]  # of the base, then of each frame
        self._frames: list[bytes] = []
        self._ends: list[int] = []  # bytes up to and with each frame, since the ring began
        self._start = 0  # bytes that were let go
        self._limit = limit

    @property
    def tip(self) -> Cursor:
        return Cursor(self.epoch, self.base + len(self._frames), self._tags[-1])

    @property
    def position(self) -> int:
        return self.base + len(self._frames)

    @property
    def size(self) -> int:
        return self._end - self._start

    @property
    def _end(self) -> int:
        return self._ends[-1] if self._ends else self._start

    def append(self, tag: str, frame: bytes) -> None:
        """Add the frame that follows the tip. The newest is kept, whatever its size."""
        end = self._end + len(frame)
        self._frames.append(frame)
        self._tags.append(tag)
        self._ends.append(end)
        if end - self._start > self._limit:
            # A little more than needed, so that the lists are not moved for every frame.
            self.shrink(self._limit - self._limit // 8)

    def shrink(self, size: int) -> None:
        """Let the oldest frames go until the rest fits `size`; the newest stays."""
        goes = 0
        while goes < len(self._frames) - 1 and self._end - (self._ends[goes - 1] if goes else self._start) > size:
            goes += 1
        if goes:
            self._start = self._ends[goes - 1]
            self.base += goes
            del self._frames[:goes], self._tags[:goes], self._ends[:goes]

    def cursor(self, position: int) -> Cursor | None:
        """The cursor at this position, if the ring knows it."""
        if not self.base <= position <= self.position:
            return None
        return Cursor(self.epoch, position, self._tags[position - self.base])

    def since(self, position: int) -> list[bytes] | None:
        """The frames after this position; None if some of them are gone."""
        return self._frames[position - self.base :] if self.base <= position <= self.position else None

    def lag(self, position: int) -> int | None:
        """The bytes after this position; None if some of them are gone."""
        if not self.base <= position <= self.position:
            return None
        return self._end - (self._ends[position - self.base - 1] if position > self.base else self._start)
