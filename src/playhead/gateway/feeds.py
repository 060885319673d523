"""What a request for a multiplexed stream says: which runs, and where the client is in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from playhead.core.composite import MAX_FEEDS, Held, decode
from playhead.core.cursor import END, STOP
from playhead.core.ids import Feed, run_feed
from playhead.errors import InvalidRequest
from playhead.gateway import wire
from playhead.gateway.follow import Asked, named_text

MAX_QUERY = 8_000  # bytes: 32 runs with a cursor each, a composite cursor, and some text of each

_UNREADABLE = "?"  # in the place of a cursor that the composite should have held

Places = Mapping[Feed, Held]


@dataclass(frozen=True, slots=True)
class AskedFeeds:
    """`runs` holds what is asked of each run, under its id as it was sent: it may be none."""

    runs: Mapping[str, Asked]
    over: frozenset[str]  # those of which the client has seen the end
    finished: bool  # it was told that nothing follows at all
    ours: bool

    @classmethod
    def read(cls, request: HTTPConnection) -> AskedFeeds:
        """Raises InvalidRequest. A cursor that cannot be read is none of its cases: its feeds are told so.

        The composite cursor in the header beats a feed's own cursor, which beats the composite in the query.
        """
        wire.query(request, "run", "cursor", "text", limit=MAX_QUERY)
        query = request.query_params
        own: dict[str, str] = {}
        for run_id, _, cursor in (value.partition("@") for value in query.getlist("run")):
            own[run_id] = cursor or own.get(run_id, "")
        if not 0 < len(own) <= MAX_FEEDS:
            raise InvalidRequest(f"A stream is of 1 to {MAX_FEEDS} runs.", fields=["run"])
        last = _last(request.headers.getlist("last-event-id"))
        address = _last(query.getlist("cursor"))
        composites = [decode(text) if text else {} for text in (last, address)]
        places = {run_id: _place(run_feed(run_id), cursor, *composites) for run_id, cursor in own.items()}
        text = query.getlist("text")
        return cls(
            runs={
                run_id: Asked(cursor, inline=True, text=_text(run_feed(run_id), text))
                for run_id, (cursor, _) in places.items()
            },
            over=frozenset(run_id for run_id, (_, over) in places.items() if over),
            finished=(last or address) in (END, STOP),
            ours=Asked.read(request.scope).ours,
        )


def _place(feed: Feed, own: str, header: Places | None, address: Places | None) -> tuple[str | None, bool]:
    """The cursor of one feed, and whether the client has seen the feed's end."""
    held = header.get(feed) if header else None
    if held is None and own:
        return own, False
    if held is None and (header is None or address is None):
        return _UNREADABLE, False
    held = held or (address.get(feed) if address else None)
    if held is None:
        return None, False
    return (None, True) if held.cursor is None else (str(held.cursor), False)


def _text(feed: Feed, given: Sequence[str]) -> dict[tuple[int, str], int]:
    start = f"{feed.key}."
    return named_text(value.removeprefix(start) for value in given if value.startswith(start))


def _last(values: Sequence[str]) -> str:
    return values[-1] if values else ""
