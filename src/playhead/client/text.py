"""A growing text that costs as much per piece as the piece is long, however long the whole is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


class Growing:
    """Characters that are only ever appended. Several versions of a part share one, each up to its own length."""

    __slots__ = ("_pieces", "length")

    def __init__(self, text: str) -> None:
        self._pieces = [text]
        self.length = len(text)

    def append(self, text: str) -> None:
        self._pieces.append(text)
        self.length += len(text)

    def read(self, length: int) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        whole = self._pieces[0]
        return whole if length == self.length else whole[:length]


@dataclass(frozen=True, slots=True, eq=False)
class TextPart:
    """One growing piece of partial output, as far as it has come.

    `end` is opaque: it says where the next piece has to begin. `final` says that nothing follows in this part, and
    `truncated` that text beyond its bound was left out.
    """

    part: str
    attempt: int
    end: int
    final: bool = False
    truncated: bool = False
    _held: Growing = field(default_factory=lambda: Growing(""), repr=False)
    _length: int = field(default=0, repr=False)

    @classmethod
    def begun(
        cls, part: str, attempt: int, end: int, text: str, *, final: bool = False, truncated: bool = False
    ) -> TextPart:
        """The part with this text from its beginning on."""
        return cls(part, attempt, end, final, truncated, Growing(text), len(text))

    @property
    def text(self) -> str:
        """What it says. Put together when it is asked for, and kept."""
        return self._held.read(self._length)

    def grown(self, end: int, text: str, *, final: bool = False, truncated: bool = False) -> TextPart:
        """The part with another piece; this one stays as it is."""
        held = self._held if self._length == self._held.length else Growing(self.text)
        held.append(text)
        return replace(
            self,
            end=end,
            final=self.final or final,
            truncated=self.truncated or truncated,
            _held=held,
            _length=held.length,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TextPart):
            return NotImplemented
        mine = (self.part, self.attempt, self.end, self.final, self.truncated, self._length)
        theirs = (other.part, other.attempt, other.end, other.final, other.truncated, other._length)
        return mine == theirs and self.text == other.text

    def __hash__(self) -> int:
        return hash((self.part, self.attempt, self.end))
