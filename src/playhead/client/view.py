"""What a client shows of one run: a value, replaced by another one whenever something changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from playhead.client.text import TextPart
from playhead.core.run import Status
from playhead.errors import PlayheadError

Document = Mapping[str, Any]
Connection = Literal["connecting", "live", "reconnecting", "resyncing", "degraded", "ended", "refused"]

FINALS = frozenset(status.value for status in Status if status.final)
FINAL_EVENTS = frozenset(f"run_{status}" for status in FINALS)


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is known of the events shown.

    `complete` says that none is known to be missing up to the newest. With `has_older` there are some before
    `oldest`, the id of the first one shown.
    """

    complete: bool = False
    has_older: bool = False
    oldest: str | None = None


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as it is to be shown now. It never changes; documents in it are JSON as the wire has it.

    `run` is the record's word, None as long as only the stream has spoken. `snapshot` is the newest state. `events`
    are the timeline, oldest first, each id once. `text` is what is being said, empty once the record has the result.
    `interrupts` are the questions that are open. `degraded` is a code while the hot view cannot be read. `connection`
    tells of the connection alone: a run is never shown as failed because of it. `problem` says why it is `refused`.
    """

    id: str
    run: Document | None = None
    snapshot: Document | None = None
    events: tuple[Document, ...] = ()
    timeline: Timeline = Timeline()
    text: tuple[TextPart, ...] = ()
    interrupts: tuple[Document, ...] = ()
    cursor: str | None = None
    degraded: str | None = None
    connection: Connection = "connecting"
    problem: PlayheadError | None = None
    _outcome: str | None = field(default=None, repr=False)  # as the end of the stream told it

    @property
    def status(self) -> str | None:
        """The run's status: the record's where it is final, else the snapshot's. None: nothing is known yet."""
        if self.run is not None and (self.run["status"] in FINALS or self.snapshot is None):
            return str(self.run["status"])
        if self._outcome is not None:
            return self._outcome
        return None if self.snapshot is None else str(self.snapshot["status"])

    @property
    def ended(self) -> bool:
        """Whether the run has a final status."""
        return self.status in FINALS
