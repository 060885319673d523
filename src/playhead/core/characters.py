"""Whole characters: text from outside may hold halves of UTF-16 surrogate pairs, which no valid UTF-8 can carry."""

from __future__ import annotations


def well_formed(text: str) -> str:
    """The text with neighbouring surrogate halves joined to their character, and U+FFFD for a half that is alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class TextJoiner:
    """Repairs text that comes in pieces: a high half waits for the low half at the beginning of the next piece.

    Whatever the pieces, the outputs of `feed` and `flush` together are `well_formed` of the whole text. At most one
    half is held back, and nothing else waits.
    """

    __slots__ = ("_half",)

    def __init__(self) -> None:
        self._half = ""

    def feed(self, piece: str) -> str:
        text = self._half + piece
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._half = text[-1]
            text = text[:-1]
        return well_formed(text)

    def flush(self) -> str:
        """Return what is still held, as nothing follows."""
        half, self._half = self._half, ""
        return well_formed(half)
