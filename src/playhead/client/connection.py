"""What a client does about its connection: decisions, without a clock, a socket or chance of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, urlencode

RETRY = 3.0  # seconds; what a client waits for about, as long as no server has told it otherwise
LONGEST = 30.0  # to which the waits grow
MAX_TOLD = 3_600.0  # a server cannot send a client away for longer
KEEPALIVE = 15.0
LIVENESS = 2.5  # keep-alives without a byte, after which a connection is taken for dead
MAX_FAULTS = 8  # answers in a row that tell of a mistake in the server
LATER = (408, 429, 502, 503, 504)  # the server is busy or not there, as it says or who stands before it
MAX_RUNS = 32  # of one connection
MAX_QUERY = 4_000  # bytes of an address, so that every server takes it
MAX_JOINED_QUERY = 7_900

Verdict = Literal["good", "over", "later", "refused"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to stay away. `told` is the time that the server told last, `failures` how often in a row it failed."""

    told: float | None = None
    failures: int = 0

    def wait(self, chance: float) -> float:
        """Never less than was told, plus a random part (`chance` is from 0 to 1) of a time that grows up to 30 s."""
        base = RETRY if self.told is None else max(self.told, 0.01)
        spread = max(min(LONGEST, base * 2.0 ** min(self.failures, 16)), self.told or 0.0)
        return (self.told or 0.0) + chance * spread

    def failed(self, told: float | None = None) -> Pace:
        return Pace(self.told if told is None else told, self.failures + 1)

    def heard(self, told: float | None = None) -> Pace:
        """Something came, and with it perhaps another time to wait."""
        return Pace(self.told if told is None else min(told, MAX_TOLD), 0)


def verdict(status: int, failures: int) -> Verdict:
    """What the answer to a request means to one that follows."""
    if status in (200, 204):
        return "good" if status == 200 else "over"
    return "later" if status in LATER or (status >= 500 and failures < MAX_FAULTS) else "refused"


def is_stream(headers: Mapping[str, str]) -> bool:
    """Whether this is the stream that was asked for: something on the way may answer in the server's place."""
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of a Retry-After header, if there is one that can be read."""
    given = headers.get("retry-after", "").strip()
    return min(float(given), MAX_TOLD) if given.isascii() and given.isdigit() else None


Ends = Mapping[tuple[int, str], int]


def address(run_id: str, cursor: str | None, ends: Ends) -> str:
    """Where the stream of one run is, for a client with this cursor and this much of each part of text."""
    path = f"/runs/{quote(run_id, safe='')}/stream?"
    query = [("resync", "inline"), *([("cursor", cursor)] if cursor is not None else [])]
    return path + _bounded(query, (f"{attempt}.{part}:{end}" for (attempt, part), end in ends.items()), MAX_QUERY)


def joined_address(places: Mapping[str, str | None], ends: Mapping[str, Ends]) -> str:
    """Where the one stream of these runs is, each with its cursor."""
    query = [("run", run_id if cursor is None else f"{run_id}@{cursor}") for run_id, cursor in places.items()]
    texts = (f"run:{run_id}.{attempt}.{part}:{end}" for run_id in ends for (attempt, part), end in ends[run_id].items())
    return "/stream?" + _bounded(query, texts, MAX_JOINED_QUERY)


def _bounded(query: list[tuple[str, str]], texts: Iterable[str], limit: int) -> str:
    """With as many parts of text as there is room for: one that is not named comes again whole."""
    encoded = urlencode(query)
    for text in texts:
        more = f"{encoded}&{urlencode({'text': text})}"
        if len(more) > limit:
            break
        encoded = more
    return encoded
