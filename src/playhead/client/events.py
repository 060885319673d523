"""The events that are shown: in the order of the timeline, each once, within a bound."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from playhead.client.view import Document, Timeline

TIP = ""  # no event has this id
REMEMBERED = 10_000  # ids that were let go, so that none is taken for new when it is repeated


class Events:
    """Knows nothing but ids: an event that is new goes behind the one that the stream had told before it."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._shown: list[Document] = []
        self._ids: set[str] = set()
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._at: str | None = None  # what the stream told last; None: it is before the first, TIP: behind the last
        self._complete = self._has_older = self._placed = False

    @property
    def shown(self) -> tuple[Document, ...]:
        return tuple(self._shown)

    @property
    def last(self) -> Document | None:
        return self._shown[-1] if self._shown else None

    @property
    def timeline(self) -> Timeline:
        return Timeline(self._complete, self._has_older, self._shown[0]["id"] if self._shown else None)

    def rewind(self) -> None:
        """The stream begins at the oldest event that there is."""
        self._at = None

    def add(self, event: Document) -> bool:
        """Take an event that the stream told. False: it is known."""
        name = event["id"]
        if name in self._ids:
            # One that is repeated by itself says nothing about where the stream is.
            if self._at != TIP and self._index(name) > self._index(self._at):
                self._at = name
            return False
        if name in self._gone:
            return False
        last = self.last
        if last is None or self._at in (last["id"], TIP):
            self._shown.append(event)
        else:
            self._shown.insert(self._index(self._at) + 1, event)
        self._ids.add(name)
        self._at = name
        self._trim()
        return True

    def merge(self, told: Sequence[Document], timeline: Document, *, fresh: bool) -> list[Document]:
        """Take those of a bootstrap, in their places; the ones that are new.

        Where the two have nothing in common there may be a hole between, and what is shown must not look whole. A
        fresh one says where the stream goes on, so it is right then.
        """
        told = list({event["id"]: event for event in told}.values())
        common = any(event["id"] in self._ids for event in told)
        has_older = bool(timeline.get("has_older"))
        new = [event for event in told if event["id"] not in self._ids and (fresh or event["id"] not in self._gone)]
        if common or not told:
            self._shown = _woven(self._shown, told, new)
        elif not fresh:
            return []
        else:
            self._shown = [*([] if has_older else self._shown), *new]
        self._ids = {event["id"] for event in self._shown}
        if fresh:
            for event in new:
                self._gone.pop(event["id"], None)
            self._at = told[-1]["id"] if told else TIP
        if fresh or told:
            self._complete = bool(timeline.get("complete"))
        if not self._placed or (told and self.timeline.oldest == told[0]["id"]):
            self._has_older = has_older
        self._placed = True
        self._trim()
        return new

    def prepend(self, told: Sequence[Document], timeline: Document) -> None:
        """Take a page of older events. The bound grows by them: they were asked for."""
        new = [event for event in told if event["id"] not in self._ids]
        self._shown[:0] = new
        self._ids.update(event["id"] for event in new)
        self._bound += len(new)
        self._complete = self._complete and bool(timeline.get("complete"))
        self._has_older = bool(timeline.get("has_older"))

    def _index(self, name: str | None) -> int:
        for index in range(len(self._shown) - 1, -1, -1):
            if self._shown[index]["id"] == name:
                return index
        return -1

    def _trim(self) -> None:
        while len(self._shown) > self._bound:
            # One at a time is as good as always: a stream brings them so.
            gone = self._shown.pop(0)["id"]
            self._ids.discard(gone)
            self._gone[gone] = None
            self._has_older = True
        while len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)


def _woven(shown: list[Document], told: Sequence[Document], new: list[Document]) -> list[Document]:
    """Both, in the order that those known to both give them; between two of those, what was shown comes first.

    Of what both know it is as it is told: a record that lost an end has another event in its place.
    """
    fresh = {event["id"] for event in new}
    anchors = {event["id"]: event for event in told if event["id"] not in fresh}
    behind: dict[str | None, list[Document]] = {None: []}
    place = None
    for event in shown:
        if event["id"] in anchors:
            place = event["id"]
            behind[place] = [anchors[place]]
        else:
            behind[place].append(event)
    out = behind.pop(None)
    for event in told:
        out += [event] if event["id"] in fresh else behind.get(event["id"], [])
    return out
