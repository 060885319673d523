"""Server-sent events: the frame encoder, and a parser that follows the WHATWG event-stream rules exactly.

The encoder joins bytes that were encoded once; it adds framing and nothing else. Whatever the data bytes are, one
call gives one frame: every line break in them becomes a `data:` line of its own. Text that must arrive unchanged
travels as JSON from `playhead.core.payload`, which holds no line break of any kind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from playhead.errors import PayloadTooLarge

CONTROL_NAMES = frozenset({"state", "text", "resync_required", "end", "refused", "draining"})

MAX_LINE = 16 << 20  # bytes; an inline resync carries a whole bootstrap on one line
MAX_RETRY = 2**31 - 1  # ms; browsers clamp there too

_BOM = b"\xef\xbb\xbf"
_BREAK = re.compile(rb"\r\n|\r|\n")


def event_frame(cursor: str, data: bytes) -> bytes:
    """Frame one timeline event, unnamed so that every client sees every type. Raises ValueError on an unsafe cursor."""
    return b"".join((_id(cursor), _data(data), b"\n\n"))


def named_frame(name: str, data: bytes, id: str | None = None) -> bytes:
    """Frame one control message. Raises ValueError for a name that is not a control name, or an unsafe id."""
    if name not in CONTROL_NAMES:
        raise ValueError(f"not a control name: {name!r:.80}")
    return b"".join((b"" if id is None else _id(id), b"event: ", name.encode(), b"\n", _data(data), b"\n\n"))


def id_block(cursor: str) -> bytes:
    """Move the reader's last event id without an event: a block that only has an id."""
    return _id(cursor) + b"\n"


def comment(text: bytes = b"") -> bytes:
    """Frame a comment; readers ignore it, and it moves no id."""
    return b":" + _BREAK.sub(b"\n:", text) + b"\n\n"


def retry(ms: int) -> bytes:
    """Tell the reader how long to wait before it connects again."""
    if not 0 <= ms <= MAX_RETRY:
        raise ValueError(f"not a retry time in milliseconds: {ms}")
    return b"retry: %d\n\n" % ms


def _id(value: str) -> bytes:
    # Stricter than the format asks: the id comes back in a header, and clients split on more than CR and LF.
    if not (value.isascii() and value.isprintable() and value):
        raise ValueError(f"not a safe event id: {value!r:.80}")
    return b"id: %b\n" % value.encode()


def _data(data: bytes) -> bytes:
    if b"\n" in data or b"\r" in data:
        data = _BREAK.sub(b"\ndata: ", data)
    return b"data: " + data


@dataclass(frozen=True, slots=True)
class Frame:
    """One dispatched event. `id` and `retry` are those in force at this event, whichever earlier block set them."""

    event: str
    data: str
    id: str | None
    retry: int | None


class Parser:
    """An incremental reader of an event stream: feed it bytes cut anywhere, a character or a CR LF pair included.

    `last_event_id` is what a reconnect would send; it starts as the one given, and None means no id. Blocks without
    data dispatch no frame but may change `last_event_id` and `retry`. What the stream leaves unfinished at its end is
    not an event: forget the parser, and start the next connection with a new one.
    """

    def __init__(self, *, last_event_id: str | None = None, max_line: int = MAX_LINE) -> None:
        self.retry: int | None = None
        self._last_id = self._id = last_event_id or ""
        self._max = max_line
        self._line = bytearray()  # the unfinished line
        self._data: list[str] = []
        self._size = 0  # bytes in the data lines of the unfinished block
        self._event = ""
        self._start = True
        self._skip_lf = False
        self._failed = False

    @property
    def last_event_id(self) -> str | None:
        return self._last_id or None

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames that these bytes complete, in order.

        Raises:
            PayloadTooLarge: a line, or the data of one event, is longer than `max_line` bytes. Frames before it are
                returned first; from then on every call raises.
        """
        frames: list[Frame] = []
        if self._skip_lf and chunk:
            # A CR ends its line at once, so that nothing waits for a LF that may never come.
            chunk = chunk[1:] if chunk[:1] == b"\n" else chunk
            self._skip_lf = False
        if not self._failed and chunk:
            lines = chunk.splitlines()  # of bytes: at CR, LF and CR LF only
            rest = b"" if chunk[-1:] in (b"\r", b"\n") else lines.pop()
            self._skip_lf = chunk[-1:] == b"\r"
            for line in lines:
                if self._line:
                    line = bytes(self._line) + line
                    self._line.clear()
                self._take(line, frames)
                if self._failed:
                    break
            self._line += rest
            self._failed = self._failed or len(self._line) > self._max
        if self._failed and not frames:
            raise PayloadTooLarge("A line of the event stream is longer than its bound.", limit=self._max)
        return frames

    def _take(self, line: bytes, frames: list[Frame]) -> None:
        if self._start:
            self._start = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(frames)
            return
        # Whole lines only: no byte of a character is CR or LF, so a cut character is never decoded alone.
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        self._failed = len(line) > self._max
        if name == b"data":
            self._size += len(value) + 1
            self._failed = self._failed or self._size > self._max + 1
            self._data.append(value.decode("utf-8", "replace"))
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():  # of bytes: ASCII digits only
            digits = value.lstrip(b"0")
            self.retry = min(int(digits or b"0"), MAX_RETRY) if len(digits) < 11 else MAX_RETRY

    def _dispatch(self, frames: list[Frame]) -> None:
        self._last_id = self._id
        if self._data:
            frames.append(Frame(self._event or "message", "\n".join(self._data), self.last_event_id, self.retry))
        self._data.clear()
        self._size = 0
        self._event = ""
