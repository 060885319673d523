"""The snapshot: what is true of a run now, small, absolute, overwritten.

It has three writers and each owns its fields: the record's facts (`status`, `attempt`, `rev`, `started_at`), the
attempt's state (what an agent author sets) and the projection (`version`, `heartbeat_at`, `updated_at`, server time).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from playhead.core import payload as payloads
from playhead.core.ids import iso, iso_or_none
from playhead.core.run import Status
from playhead.errors import BadJson, InvalidState

MAX_TEXT = 2_000  # characters of one text field; a screen shows one line of it


@dataclass(frozen=True, slots=True)
class State:
    """An attempt's own part of the snapshot, always sent whole."""

    title: str | None = None
    subtitle: str | None = None
    current_step: str | None = None
    step_started_at: str | None = None  # follows current_step by itself
    progress: float | None = None  # 0 to 100; None: not known
    done: int | None = None
    total: int | None = None
    detail: str | None = None
    scope: str | None = None
    as_of: str | None = None
    next_action: str | None = None

    def changed(self, changes: Mapping[str, Any], at: int) -> State:
        """This state with these fields replaced. Raises InvalidState naming the field; texts are cut at MAX_TEXT."""
        clean = {name: _checked(name, value) for name, value in changes.items()}
        if "current_step" in clean and clean["current_step"] != self.current_step:
            clean.setdefault("step_started_at", None if clean["current_step"] is None else iso(at))
        new = replace(self, **clean)
        if new.done is not None and new.total is not None and new.done > new.total:
            raise InvalidState("done is more than total.", field="done")
        return new

    def encode(self) -> bytes:
        return payloads.encode(asdict(self))


STATE_FIELDS = tuple(field.name for field in fields(State))
EMPTY = State().encode()


def decode_state(data: bytes | None) -> State:
    """Read back what `State.encode` wrote; fields that a newer version added are left out, and what cannot be read."""
    try:
        stored = payloads.parse(data) if data else {}
    except BadJson:
        stored = {}
    known = stored if isinstance(stored, dict) else {}
    return State(**{name: known[name] for name in STATE_FIELDS if name in known})


def _checked(name: str, value: Any) -> Any:
    if name not in STATE_FIELDS:
        raise InvalidState(f"There is no snapshot field {name}.", field=name)
    if value is None:
        return None
    if name == "progress":
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
            raise InvalidState("progress is a number from 0 to 100, or None.", field=name)
        return value
    if name in ("done", "total"):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
            raise InvalidState(f"{name} is a whole number from 0, or None.", field=name)
        return value
    if not isinstance(value, str):
        raise InvalidState(f"{name} is text, or None.", field=name)
    return payloads.well_formed(value)[:MAX_TEXT]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run's snapshot as a projection holds it; `state` is passed through as it was encoded."""

    status: Status
    attempt: int
    version: int
    rev: int
    started_at: int | None
    heartbeat_at: int | None
    updated_at: int
    state: bytes = EMPTY

    def encode(self) -> bytes:
        """The snapshot as it goes over the wire: one JSON object in one line."""
        owned = payloads.encode(
            {
                "status": self.status.value,
                "attempt": self.attempt,
                "version": self.version,
                "rev": self.rev,
                "started_at": iso_or_none(self.started_at),
                "heartbeat_at": iso_or_none(self.heartbeat_at),
                "updated_at": iso(self.updated_at),
            }
        )
        return owned[:-1] + b"," + (self.state or EMPTY)[1:]
