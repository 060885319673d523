"""The text parts of one attempt, kept whole while it lives: a rebuilt projection gets them again from here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from playhead.core.ids import is_name
from playhead.core.payload import TextJoiner
from playhead.core.redaction import Redactor, TextRedactor
from playhead.core.text import MAX_PART, MAX_PARTS
from playhead.errors import InvalidPart


@dataclass(slots=True)
class Part:
    name: str
    redactor: TextRedactor
    joiner: TextJoiner = field(default_factory=TextJoiner)
    data: bytearray = field(default_factory=bytearray)
    sent: int = 0
    final: bool = False
    final_sent: bool = False
    truncated: bool = False
    at: float = float("-inf")  # loop time of the last write

    @property
    def owed(self) -> bool:
        return self.sent < len(self.data) or (self.final and not self.final_sent)

    def wait(self, now: float, window: float, many: int) -> float:
        """Seconds until this part is to be sent: the first piece at once, then what gathers in a window, or is
        long, or is the end."""
        if self.final or len(self.data) - self.sent >= many:
            return 0.0
        return max(0.0, self.at + window - now)

    def add(self, piece: str) -> None:
        if self.final:
            raise InvalidPart(f"The text part {self.name} is closed.", part=self.name)
        self._grow(self.redactor.feed(self.joiner.feed(piece)))

    def close(self) -> None:
        if not self.final:
            self._grow(self.redactor.feed(self.joiner.flush()) + self.redactor.flush())
            self.final = True

    def _grow(self, text: str) -> None:
        data = text.encode()
        room = MAX_PART - len(self.data)
        if len(data) > room:
            data = data[: max(0, room)].decode(errors="ignore").encode()
            self.truncated = True
        self.data += data


class Parts:
    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._parts: dict[str, Part] = {}

    def __iter__(self) -> Iterator[Part]:
        return iter(list(self._parts.values()))

    def get(self, name: str) -> Part:
        """The part of this name, begun if it is new. Raises InvalidPart."""
        part = self._parts.get(name)
        if part is None:
            if not is_name(name):
                raise InvalidPart(part=name[:80])
            if len(self._parts) >= MAX_PARTS:
                raise InvalidPart(f"An attempt has at most {MAX_PARTS} text parts.", part=name)
            part = self._parts[name] = Part(name, TextRedactor(self._redactor))
        return part

    def owed(self) -> list[Part]:
        return [part for part in self._parts.values() if part.owed]

    def unsent(self) -> int:
        return sum(len(part.data) - part.sent for part in self._parts.values())

    def said(self) -> dict[str, str]:
        """The text of each part: all that viewers were shown, or will be."""
        return {part.name: part.data.decode() for part in self._parts.values() if part.data}

    def send_again(self) -> None:
        for part in self._parts.values():
            part.sent, part.final_sent = 0, False
