"""When a run is cancelled because nobody watches it any more (law 9).

For each process at which such a run has had viewers the record keeps until when it waits on behalf of them: None while
they are there, and from then on the policy's time after the last of them left.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from playhead.core import lifecycle
from playhead.core.ids import LIMIT
from playhead.core.interrupt import Interrupt
from playhead.core.run import Change, Run

BY = "disconnect_policy"
REASON = "the last viewer left"


def counts(run: Run) -> bool:
    """Whether it matters who watches this run."""
    return run.policy.cancel_after is not None and not run.status.final and run.cancel_requested_at is None


def due_at(cancel_after: float | None, at: int, grace_ms: int = 0) -> int:
    """Until when a run of this policy waits whose viewers left a process at this time. `grace_ms` is for those that
    did not want to leave: their process is gone, and they come to another one."""
    return min(at + grace_ms + math.ceil(min((cancel_after or 0.0) * 1000, LIMIT)), LIMIT - 1)


def deserted(dues: Collection[int | None], at: int) -> bool:
    """Whether nobody watches on any process, nor did within the policy's time. A run that nobody watched is not."""
    return bool(dues) and all(due is not None and due <= at for due in dues)


def desert(run: Run, dues: Collection[int | None], asked: Iterable[Interrupt], at: int) -> Change | None:
    """Request the cancel of a deserted run; None for any other."""
    if not counts(run) or not deserted(dues, at):
        return None
    return lifecycle.cancel(run, asked, BY, REASON, at)
