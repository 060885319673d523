"""Interrupts: durable questions to a person, and the one answer that counts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class InterruptStatus(StrEnum):
    OPEN = "open"
    DECIDED = "decided"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Question:
    """What an attempt asks. `key` names the question within its run, so that a later attempt that comes to the same
    point, with the same content, finds the answer instead of asking again."""

    key: str
    kind: str  # `approval`, or another snake_case name
    payload: bytes  # JSON, bounded; what the person is shown
    within: int | None  # ms from when it is asked, by the record's clock; None: no deadline


@dataclass(frozen=True, slots=True)
class Interrupt:
    """A question as the record holds it. `digest` binds the decision to what was shown."""

    id: str
    run_id: str
    tenant: str
    key: str
    kind: str
    payload: bytes
    digest: str
    token: int  # of the attempt that asked last
    created_at: int
    deadline: int | None = None  # wall ms
    status: InterruptStatus = InterruptStatus.OPEN
    decision: bytes | None = None  # JSON: {"approved": bool, "note": str|None, ...}
    decided_by: str | None = None
    closed_at: int | None = None

    @property
    def open(self) -> bool:
        return self.status is InterruptStatus.OPEN

    def brief(self) -> dict[str, Any]:
        """What the timeline says of it: who is meant and until when; the whole question is one read away."""
        return {"interrupt_id": self.id, "kind": self.kind, "key": self.key, "digest": self.digest}

    def decided_alike(self, decision: bytes) -> bool:
        return self.decision == decision


def digest(kind: str, payload: bytes) -> str:
    return hashlib.sha256(kind.encode() + b"\0" + payload).hexdigest()
