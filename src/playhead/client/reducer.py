"""From bootstraps and frames to a view: pure, and indifferent to overlap, repetition and order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from playhead.client.events import Events
from playhead.client.frames import Frame
from playhead.client.text import TextPart
from playhead.client.view import FINAL_EVENTS, FINALS, Connection, Document, RunView
from playhead.errors import PlayheadError

MAX_EVENTS = 2_000
CLOSING = frozenset({"approval_decided", "approval_expired", "approval_cancelled"})


class Reducer:
    """Give it what arrives, as it arrives; `view` is what is to be shown then.

    `over`: nothing will follow. `reopen`: this connection is of no more use, and another one can be opened at once.
    `wants`: a bootstrap is needed before the next connection, or to show the whole of a question. `partial`: the last
    one was degraded while the stream went on, and another is wanted beside it. `epoch` grows whenever what is shown
    starts again: a bootstrap that was asked for before that is of no use.
    """

    def __init__(self, run_id: str, *, max_events: int = MAX_EVENTS) -> None:
        self.over = self.reopen = self.wants = self.partial = False
        self.epoch = 0
        self.cursor: str | None = None
        self._id = run_id
        self._events = Events(max_events)
        self._run: Document | None = None
        self._recorded = False
        self._outcome: str | None = None  # as `end` told it
        self._snapshot: Document | None = None
        self._version = -1  # the highest one seen in this epoch
        self._open_epoch = True  # the next state is taken, whatever its version
        self._lost = True  # the next bootstrap is taken, whatever its version
        self._texts: dict[tuple[int, str], TextPart] = {}
        self._torn: set[tuple[int, str]] = set()
        self._void_before = 0
        self._asked: dict[str, Document] = {}
        self._answered: set[str] = set()
        self._degraded: str | None = None
        self._connection: Connection = "connecting"
        self._problem: PlayheadError | None = None
        self._view: RunView | None = None

    @property
    def view(self) -> RunView:
        if self._view is None:
            connection = self._connection
            if connection == "live" and self._degraded is not None:
                connection = "degraded"
            self._view = RunView(
                self._id,
                self._run,
                self._snapshot,
                self._events.shown,
                self._events.timeline,
                tuple(sorted(self._texts.values(), key=lambda part: part.attempt)),
                tuple(self._asked.values()),
                self.cursor,
                self._degraded,
                connection,
                self._problem,
                self._outcome,
            )
        return self._view

    @property
    def recorded(self) -> bool:
        """Whether the record has told how the run ended."""
        return self._recorded

    @property
    def finished(self) -> bool:
        """Whether a connection would bring nothing any more."""
        if self.over or not self._recorded or self._degraded is not None:
            return self.over
        last = self._events.last
        return self.cursor is None or (last is not None and last["type"] in FINAL_EVENTS)

    @property
    def ends(self) -> Mapping[tuple[int, str], int]:
        """How much of each part of text is held, for the next connection to go on from; not of one that was torn."""
        return {key: part.end for key, part in self._texts.items() if key not in self._torn}

    def connection(self, now: Connection, problem: PlayheadError | None = None) -> None:
        """Show this of the connection. Once it has ended or was refused, nothing else is shown of it."""
        if self._connection not in ("ended", "refused") and (self._connection, self._problem) != (now, problem):
            self._connection, self._problem, self._view = now, problem, None

    def opened(self) -> None:
        """A connection was opened, with `cursor` and the `ends` of text."""
        self.reopen = False
        if self.cursor is None:
            self._events.rewind()
            self._open_epoch = True
        self.connection("live")

    def nothing_follows(self) -> None:
        """A connection was answered 204."""
        self.over, self.wants = True, not self._recorded
        self.connection("ended")

    def older(self, page: Document) -> None:
        """Take a page of events from before those shown."""
        self._view = None
        self._events.prepend(page["events"], page["timeline"])

    def bootstrap(self, told: Document, asked: int | None = None) -> list[Frame]:
        """Take a bootstrap that was asked for in epoch `asked`; what it brings that is new, as frames."""
        if asked is not None and asked != self.epoch:
            return []
        self._view = None
        final = told["run"]["status"] in FINALS
        self.wants = self.wants and self.over and not final
        self.partial = told["degraded"] is not None and not self._lost
        if told["degraded"] is not None:
            new = self._degraded_screen(told)
        elif self._lost or (self.over and final):
            new = self._screen(told)
        else:
            new = self._late_screen(told)
        if self.finished:
            self.connection("ended")
        return new

    def frame(self, frame: Frame) -> list[Frame]:
        """Take a frame; it, or what it brings, unless nothing of that is new."""
        self._view = None
        match frame.name:
            case "event":
                return self._event(frame)
            case "state":
                self._state(frame.data["snapshot"], frame.data["degraded"])
            case "text":
                return [frame] if self._piece(frame.data) else []
            case "resync_required":
                return [frame, *self._resync(frame)]
            case "end":
                self._outcome = frame.data["status"]
                self.over, self.wants = True, not self._recorded
                self._follow_status()
                self.connection("ended")
        return [frame]

    def _event(self, frame: Frame) -> list[Frame]:
        if frame.cursor is not None:
            self.cursor = frame.cursor
        event = frame.data
        if not self._events.add(event):
            return []
        self._version = max(self._version, _number(event.get("version")))
        self._note(event)
        self._ask(event)
        return [frame]

    def _ask(self, event: Document) -> None:
        payload = event.get("payload")
        if event["type"] != "approval_required" or not isinstance(payload, dict):
            return
        name = payload.get("interrupt_id")
        if isinstance(name, str) and name not in self._answered and name not in self._asked:
            self._asked[name] = _question(event, payload)
            self.wants = True

    def _note(self, event: Document) -> None:
        """What an event closes or voids, wherever it was told."""
        payload = event.get("payload")
        if not isinstance(payload, dict):
            return
        name, before = payload.get("interrupt_id"), payload.get("voids_attempts_before")
        if event["type"] in CLOSING and isinstance(name, str):
            self._answered.add(name)
            self._asked.pop(name, None)
        elif event["type"] == "attempt_started" and isinstance(before, int):
            self._void_before = max(self._void_before, before)
            self._texts = {key: part for key, part in self._texts.items() if key[0] >= self._void_before}

    def _state(self, snapshot: Document, degraded: str | None) -> None:
        self._degraded = degraded
        known = self._snapshot
        if known is not None and degraded is not None:
            return  # what the record alone knows is less than what is shown
        if known is not None and not self._open_epoch and snapshot["version"] < known["version"]:
            return
        if self._open_epoch:
            self._version = -1
        self._snapshot = snapshot
        self._version = max(self._version, snapshot["version"])
        if degraded is None:
            # A first bootstrap that was degraded: what the record took down meanwhile need not be on the timeline.
            self.wants = self.wants or (self._lost and self._run is not None)
            self._open_epoch = self._lost = False
        self._follow_status()

    def _piece(self, piece: Document) -> bool:
        key = (piece["attempt"], piece["part"])
        if key[0] < self._void_before or self._recorded:
            return False
        held = self._texts.get(key)
        final, truncated = piece.get("final") is True, piece.get("truncated") is True
        if piece["offset"] == 0:
            self._torn.discard(key)
            self._texts[key] = TextPart.begun(
                piece["part"], piece["attempt"], piece["end"], piece["text"], final=final, truncated=truncated
            )
        elif held is not None and held.end == piece["offset"]:
            self._texts[key] = held.grown(piece["end"], piece["text"], final=final, truncated=truncated)
        else:
            self._torn.add(key)
            self.reopen = True
            return False
        return True

    def _resync(self, frame: Frame) -> list[Frame]:
        self.epoch += 1
        self._lost = self._open_epoch = True
        self.cursor = None
        told = frame.data.get("bootstrap")
        if told is None:
            self.wants = self.reopen = True
            self.connection("resyncing")
            return []
        return self._screen(told)

    # Bootstraps.

    def _screen(self, told: Document) -> list[Frame]:
        """One that replaces what is shown."""
        self._lost = self._open_epoch = False
        self._degraded = told["degraded"]
        self._snapshot, self.cursor = told["snapshot"], told["cursor"]
        self._version = told["snapshot"]["version"]
        self._take_run(told["run"])
        new = self._events.merge(told["events"], told["timeline"], fresh=True)
        self._note_all(told["events"])
        self._texts = {}
        for piece in told["text"]:
            self._piece(piece)
        self._asked = {one["id"]: one for one in told["interrupts"] if one["id"] not in self._answered}
        events = [Frame("event", None, dict(event)) for event in new]
        state = Frame("state", None, {"snapshot": told["snapshot"], "degraded": told["degraded"]})
        return [*events, state, *(Frame("text", None, piece) for piece in told["text"] if not self._recorded)]

    def _late_screen(self, told: Document) -> list[Frame]:
        """One that may be older than what the stream has told since."""
        newer = told["snapshot"]["version"] >= self._version
        if told["snapshot"]["version"] >= (self._snapshot or told["snapshot"])["version"]:
            self._snapshot = told["snapshot"]
        self._version = max(self._version, told["snapshot"]["version"])
        new = self._events.merge(told["events"], told["timeline"], fresh=False)
        self._note_all(told["events"])
        for piece in told["text"]:
            if (piece["attempt"], piece["part"]) not in self._texts:
                self._piece(piece)
        self._take_questions(told["interrupts"], newer)
        self._take_run(told["run"])
        return [Frame("event", None, dict(event)) for event in new]

    def _degraded_screen(self, told: Document) -> list[Frame]:
        """One that knows what the record knows, and no more."""
        if self._snapshot is None:
            frames = self._screen(told)
            self._lost = self._open_epoch = True
            return frames
        if self._lost:  # otherwise the stream tells
            self._degraded = told["degraded"]
        known = max(_number(document.get("rev")) for document in (self._run or {}, self._snapshot))
        self._take_questions(told["interrupts"], _number(told["run"].get("rev")) >= known)
        self._take_run(told["run"])
        return []

    def _take_run(self, run: Document) -> None:
        """The newer one of two of the record's words; they are never both final and different."""
        if self._run is None or (not self._recorded and _number(run.get("rev")) >= _number(self._run.get("rev"))):
            self._run = run
            self._recorded = run["status"] in FINALS
        self._follow_status()
        if self._recorded:
            self._texts = {}

    def _follow_status(self) -> None:
        """Keep the status of the run up to date between two words of the record."""
        if self._run is None or self._recorded:
            return
        status = self._outcome
        if status is None and self._snapshot is not None:
            newer = _number(self._snapshot.get("rev")) > _number(self._run.get("rev"))
            status = self._snapshot["status"] if newer else None
        if status is not None and status != self._run["status"]:
            self._run = {**self._run, "status": status}

    def _take_questions(self, told: list[Document], newer: bool) -> None:
        open_now = {one["id"]: one for one in told if one["id"] not in self._answered}
        self._asked = open_now if newer else {**open_now, **self._asked, **open_now}

    def _note_all(self, events: list[Document]) -> None:
        for event in events:
            self._note(event)


def _question(event: Document, payload: dict[str, Any]) -> Document:
    """An interrupt as far as the event that opens it tells of it."""
    return {
        "id": payload["interrupt_id"],
        "run_id": event.get("run_id"),
        "key": payload.get("key"),
        "kind": payload.get("kind"),
        "status": "open",
        "attempt": event.get("attempt"),
        "digest": payload.get("digest"),
        "created_at": event.get("occurred_at"),
        "deadline": payload.get("deadline"),
        "closed_at": None,
        "decided_by": None,
        "payload": {"title": payload.get("title")},
        "decision": None,
    }


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
