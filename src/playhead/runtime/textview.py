"""The text of one feed as this process knows it: whole parts, grown by hints, and what each viewer still lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from playhead.core.text import TextPart
from playhead.interfaces import TextPiece

Key = tuple[int, str]  # token and name of a part
End = tuple[int, bool]  # the length that was shown, and whether nothing follows


class Ends:
    """How much of each part a viewer was given. Compared by identity: viewers in step share one."""

    __slots__ = ("of",)

    def __init__(self, of: Mapping[Key, End]) -> None:
        self.of = of


NOTHING = Ends({})


@dataclass(slots=True)
class Part:
    data: bytearray
    final: bool
    truncated: bool


class TextView:
    """`ends` says where every part ends now. What cannot be fitted in is to be read again from the channel, which
    bounds how much a part and an attempt can hold."""

    __slots__ = ("_ends", "_parts")

    def __init__(self) -> None:
        self._parts: dict[Key, Part] = {}
        self._ends: Ends | None = NOTHING

    @property
    def ends(self) -> Ends:
        if self._ends is None:
            self._ends = Ends({key: (len(part.data), part.final) for key, part in self._parts.items()})
        return self._ends

    def load(self, parts: Sequence[TextPart]) -> None:
        """Take what the channel holds, whole. A part that was known to be longer there is taken as it is now."""
        self._parts = {
            (part.token, part.part): Part(bytearray(part.data), part.final, part.truncated) for part in parts
        }
        self._ends = None

    def add(self, piece: TextPiece) -> bool:
        """Add a piece, or what of it is new; False if the part is not known up to its offset."""
        key = (piece.token, piece.part)
        part = self._parts.get(key)
        length = len(part.data) if part else 0
        if piece.offset > length:
            return False
        fresh = piece.data[length - piece.offset :]
        if part is None:
            part = self._parts[key] = Part(bytearray(), False, False)
        elif not fresh and part.final >= piece.final:
            return True
        part.data += fresh
        part.final = part.final or piece.final
        part.truncated = part.truncated or piece.truncated
        self._ends = None
        return True

    def void(self, before: int) -> None:
        """Forget the parts of attempts below this token: nobody is to see them again."""
        if any(token < before for token, _ in self._parts):
            self._parts = {key: part for key, part in self._parts.items() if key[0] >= before}
            self._ends = None

    def since(self, ends: Ends) -> Iterator[tuple[Key, int, bytes, bool, bool]]:
        """What this viewer lacks, merged: a part each, with offset, text, final and truncated."""
        if ends is self._ends:
            return
        for key, part in self._parts.items():
            shown, final = ends.of.get(key, (-1, False))
            if shown == len(part.data) and final == part.final:
                continue
            # Shown more than there is: the channel went back, and the part is told from its beginning.
            start = shown if 0 <= shown <= len(part.data) else 0
            yield key, start, bytes(part.data[start:]), part.final, part.truncated

    def lag(self, ends: Ends) -> int:
        """The bytes that this viewer lacks."""
        if ends is self._ends:
            return 0
        return sum(len(part.data) - min(ends.of.get(key, (0,))[0], len(part.data)) for key, part in self._parts.items())

    def length(self, key: Key) -> int:
        part = self._parts.get(key)
        return len(part.data) if part else -1

    def is_place(self, key: Key, offset: int) -> bool:
        """Whether a reader may go on in this part from this offset: it lies between two characters."""
        part = self._parts.get(key)
        if part is None or not 0 <= offset <= len(part.data):
            return False
        return offset == len(part.data) or part.data[offset] & 0xC0 != 0x80
