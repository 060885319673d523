"""A small model of a server with one run: what it would tell a client at each moment, kept in step with its truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from playhead.client.frames import Frame
from tests.client.scripted import RUN


@dataclass
class World:
    """Writes happen here; `opening` and `bootstrap` are what a client is told that comes now."""

    epoch: int = 1
    version: int = 0
    rev: int = 1
    attempt: int = 1
    status: str = "running"
    progress: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    placed: int = 0  # events that were there when the epoch began
    texts: dict[tuple[int, str], str] = field(default_factory=dict)
    questions: dict[str, dict[str, Any]] = field(default_factory=dict)
    numbers: int = 0

    def cursor(self, position: int | None = None) -> str:
        return f"{self.epoch}-{len(self.events) if position is None else position}.aa"

    @property
    def snapshot(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "version": self.version,
            "rev": self.rev,
            "attempt": self.attempt,
            "progress": self.progress,
        }

    def state(self) -> Frame:
        return Frame("state", None, {"snapshot": self.snapshot, "degraded": None})

    # What happens.

    def publish(self, kind: str = "counted", payload: dict[str, Any] | None = None) -> list[Frame]:
        self.version += 1
        self.progress = self.version % 100
        id = f"e{len(self.events) + 1}"
        self.events.append({"id": id, "type": kind, "version": self.version, "payload": payload or {}})
        return [self.state(), Frame("event", self.cursor(), self.events[-1])]

    def update(self) -> list[Frame]:
        self.version += 1
        self.progress = self.version % 100
        return [self.state()]

    def say(self, words: str, part: str = "answer") -> list[Frame]:
        key = (self.attempt, part)
        held = self.texts.get(key, "")
        self.texts[key] = held + words
        return [Frame("text", None, piece(key, held, words))]

    def restart(self) -> list[Frame]:
        self.attempt += 1
        self.rev += 1
        self.texts = {}
        return self.publish("attempt_started", {"attempt": self.attempt, "voids_attempts_before": self.attempt})

    def ask(self) -> list[Frame]:
        self.numbers += 1
        self.rev += 1
        id = f"q{self.numbers}"
        self.questions[id] = {"id": id, "kind": "approval", "status": "open", "payload": {"title": id, "why": "so"}}
        return self.publish("approval_required", {"interrupt_id": id, "kind": "approval", "title": id})

    def decide(self) -> list[Frame]:
        if not self.questions:
            return []
        self.rev += 1
        id = next(iter(self.questions))
        del self.questions[id]
        return self.publish("approval_decided", {"interrupt_id": id, "kind": "approval"})

    def rebuild(self) -> None:
        self.epoch += 1
        self.version = 1
        self.placed = len(self.events)

    def end(self) -> list[Frame]:
        self.status = "succeeded"
        self.rev += 1
        frames = self.publish("run_succeeded")
        return [*frames, Frame("end", None, {"run_id": RUN, "status": "succeeded"})]

    # What is told of it.

    def bootstrap(self, limit: int = 50) -> dict[str, Any]:
        shown = self.events[-limit:] if limit else []
        run = {"id": RUN, "status": self.status, "rev": self.rev, "result": None}
        if self.status == "succeeded":
            run["result"] = {"said": list(self.texts.values())}
        return {
            "run": run,
            "snapshot": self.snapshot,
            "events": list(shown),
            "cursor": self.cursor(),
            "timeline": {
                "complete": True,
                "has_older": len(shown) < len(self.events),
                "oldest": shown[0]["id"] if shown else None,
            },
            "text": [piece(key, "", words) for key, words in self.texts.items()],
            "interrupts": list(self.questions.values()),
            "degraded": None,
        }

    def resync(self, reason: str = "epoch", limit: int = 50) -> Frame:
        return Frame("resync_required", self.cursor(), {"reason": reason, "bootstrap": self.bootstrap(limit)})

    def opening(self, cursor: str | None, ends: dict[tuple[int, str], int], limit: int = 50) -> list[Frame]:
        """What a new connection says at once."""
        epoch, _, rest = (cursor or self.cursor(0)).partition("-")
        if int(epoch) != self.epoch:
            return [self.resync(limit=limit)]
        after = int(rest.partition(".")[0])
        if cursor is None:
            after = 0
        texts = []
        for key, words in self.texts.items():
            data = words.encode()
            start = ends.get(key, 0) if ends.get(key, 0) <= len(data) else 0
            texts.append(Frame("text", None, piece(key, data[:start].decode(), data[start:].decode())))
        told = [Frame("event", self.cursor(n + 1), one) for n, one in enumerate(self.events) if n >= after]
        return [self.state(), *texts, *told]


def piece(key: tuple[int, str], held: str, words: str) -> dict[str, Any]:
    offset = len(held.encode())
    return {
        "attempt": key[0],
        "part": key[1],
        "offset": offset,
        "end": offset + len(words.encode()),
        "text": words,
        "final": False,
    }
