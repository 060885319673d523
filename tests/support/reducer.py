"""What a client shows: a pure reduction of bootstraps and frames to a screen, strict about what must never happen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.wire import Frame

FINALS = {f"run_{status}": status for status in ("succeeded", "failed", "cancelled", "interrupted")}


@dataclass
class Text:
    end: int = 0
    text: str = ""
    final: bool = False


@dataclass
class Screen:
    """Feed it `bootstrap`, `opened` for each connection, and `frame`.

    `faults` is what a server may never do to a viewer, as long as its live store did not go back.
    """

    snapshot: dict[str, Any] = field(default_factory=dict)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)  # by id, in order
    text: dict[tuple[int, str], Text] = field(default_factory=dict)
    interrupts: dict[str, Any] = field(default_factory=dict)  # None: open, and not read yet
    run: dict[str, Any] | None = None  # as the last bootstrap had it
    cursor: str | None = None
    epoch: str | None = None  # of the snapshot, where it is known
    complete: bool = True
    degraded: str | None = None
    began_degraded: bool = False
    needs_bootstrap: bool = False
    over: bool = False
    void_before: int = 0  # text of attempts below this is void
    faults: list[str] = field(default_factory=list)

    @property
    def status(self) -> str | None:
        """The record's word where it is final, else the snapshot's."""
        recorded = self.run["status"] if self.run else None
        return recorded if recorded in FINALS.values() else self.snapshot.get("status")

    @property
    def finals(self) -> list[str]:
        return [event["type"] for event in self.events.values() if event["type"] in FINALS]

    def shown_text(self, part: str = "answer") -> dict[int, str]:
        """By attempt; what is void is not there."""
        return {attempt: held.text for (attempt, name), held in self.text.items() if name == part}

    def bootstrap(self, shown: dict[str, Any]) -> None:
        """Replace snapshot, text and questions, and merge the events by id."""
        self.needs_bootstrap = False
        self.run = shown["run"]
        self.degraded = shown["degraded"]
        if self.degraded is None:
            self.began_degraded = False
            self._merge(shown)
            self.snapshot = shown["snapshot"]
            self.cursor, self.epoch = shown["cursor"], _epoch(shown["cursor"])
            self.complete = shown["timeline"]["complete"]
        texts = {(one["attempt"], one["part"]): Text(one["end"], one["text"], one["final"]) for one in shown["text"]}
        if self.degraded is None:
            self.text = texts
        self.interrupts = {one["id"]: one["payload"] for one in shown["interrupts"]}

    def opened(self) -> None:
        """A connection was opened with `cursor`: parts are told from their beginning again."""
        self.degraded = None

    def frame(self, frame: Frame) -> None:
        match frame.event:
            case "message":
                self._event(frame.data, frame.id)
            case "state":
                self._state(frame.data)
            case "text":
                self._piece(frame.data)
            case "resync_required":
                self.needs_bootstrap = True
                self.cursor = None
            case "end":
                self.over = True
                if FINALS.get(next(reversed(self.events.values()))["type"]) != frame.data["status"]:
                    self.faults.append(f"end says {frame.data['status']}, the last event is another one")

    def _event(self, event: dict[str, Any], cursor: str | None) -> None:
        if event["id"] in self.events:
            self.faults.append(f"{event['id']} came twice")
            return
        if self.finals:
            self.faults.append(f"{event['type']} came after {self.finals}")
        self.events[event["id"]] = event
        if cursor is not None:
            if self.cursor is not None and _place(cursor) <= _place(self.cursor):
                self.faults.append(f"{cursor} came after {self.cursor}")
            self.cursor, self.epoch = cursor, _epoch(cursor)
        payload = event["payload"]
        match event["type"]:
            case "attempt_started":
                first = self.void_before = payload["voids_attempts_before"]
                self.text = {key: held for key, held in self.text.items() if key[0] >= first}
            case "approval_required":
                self.interrupts.setdefault(payload["interrupt_id"], None)
            case "approval_decided" | "approval_expired" | "approval_cancelled":
                self.interrupts.pop(payload["interrupt_id"], None)

    def _state(self, data: dict[str, Any]) -> None:
        new, old = data["snapshot"], self.snapshot
        self.degraded = data["degraded"]
        self.began_degraded |= self.degraded is not None and self.cursor is None
        # What was recorded meanwhile need not be on a rebuilt timeline.
        self.needs_bootstrap |= self.began_degraded and self.degraded is None
        if self.degraded is not None and old:
            return  # what the record alone knows is less than what is shown
        # A stream that takes this cursor is in its epoch: it would have been refused otherwise.
        if old and new["version"] < old["version"] and self.epoch is not None and self.epoch == _epoch(self.cursor):
            self.faults.append(f"the state went from version {old['version']} to {new['version']}")
            return
        if old and old["status"] in FINALS.values() and new["status"] != old["status"]:
            self.faults.append(f"the status went from {old['status']} to {new['status']}")
        self.snapshot = new
        self.epoch = _epoch(self.cursor)

    def _piece(self, piece: dict[str, Any]) -> None:
        key = (piece["attempt"], piece["part"])
        held = self.text.get(key, Text())
        if piece["attempt"] < self.void_before or any(attempt > piece["attempt"] for attempt, _ in self.text):
            self.faults.append(f"text of attempt {piece['attempt']} came when it was void")
        elif piece["offset"] == 0:
            if not piece["text"].startswith(held.text):
                self.faults.append(f"{key} was {held.text!r} and is {piece['text']!r}")
            self.text[key] = Text(piece["end"], piece["text"], piece["final"])
        elif piece["offset"] == held.end:
            self.text[key] = Text(piece["end"], held.text + piece["text"], piece["final"])
        else:
            self.faults.append(f"{key} has {held.end} bytes, and a piece came for {piece['offset']}")

    def _merge(self, shown: dict[str, Any]) -> None:
        told = {event["id"]: event for event in shown["events"]}
        if not shown["timeline"]["complete"]:  # what was seen and is missing there stays
            self.events = {name: event for name, event in self.events.items() if name not in told} | told
            return
        before: dict[str, dict[str, Any]] = {}
        if shown["timeline"]["has_older"]:
            for name, event in self.events.items():
                if name in told:
                    break
                before[name] = event
        if lost := self.events.keys() - before.keys() - told.keys():
            self.faults.append(f"a bootstrap does not have {sorted(lost)}")
        self.events = {**before, **told}


def _epoch(cursor: str | None) -> str | None:
    """A client may not look into a cursor; a test that judges the server may."""
    return None if cursor is None else cursor.partition("-")[0]


def _place(cursor: str) -> tuple[int, int]:
    epoch, _, rest = cursor.partition("-")
    return int(epoch), int(rest.partition(".")[0])
