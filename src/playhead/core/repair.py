"""What to do about a projection that does not agree with the record (law 6)."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from playhead.core.ids import check_whole
from playhead.core.run import Run, Status
from playhead.core.transition import Marks

MINT_GUARD_MS = 2_000  # an epoch that nobody opened blocks the next mint for this long


class Repair(Enum):
    NONE = "none"
    PROJECT = "project"  # facts are missing, and still kept
    REBUILD = "rebuild"
    DROP = "drop"  # of a final run: never rebuilt


def needed(run: Run, marks: Marks | None, oldest_kept_rev: int | None = None, *, shown: Status | None = None) -> Repair:
    """Compare a projection with its record, and the status that it shows, where the caller knows that.

    `oldest_kept_rev` is of the outbox, likewise.
    """
    if marks is None:
        return Repair.NONE if run.status.final else Repair.REBUILD
    lacks = marks.rev < run.rev
    # The record may have lost an end that it had committed, in a fail-over, and have committed other facts since.
    not_its_end = marks.final and (lacks or not run.status.final or shown not in (None, run.status))
    wrong = marks.epoch != run.epoch or marks.rev > run.rev or not_its_end
    unkept = lacks and oldest_kept_rev is not None and oldest_kept_rev > marks.rev + 1
    if wrong or unkept:
        return Repair.DROP if run.status.final else Repair.REBUILD
    return Repair.PROJECT if lacks else Repair.NONE


def mint(run: Run, seen: int, at: int) -> Run | None:
    """The run with a new epoch for a rebuilder that sees epoch `seen`, or None if it may not have one now."""
    if run.status.final or not may_mint(run.epoch, run.minted_at, seen, at):
        return None
    # A record that was restored from a backup may know less than the projection: the new epoch passes both.
    return replace(run, epoch=next_epoch(max(run.epoch, seen), at), minted_at=at)


def may_mint(last_epoch: int, minted_at: int, seen: int, at: int) -> bool:
    """Whether a rebuilder that sees `seen` in the projection may have a new epoch.

    Not while another's epoch is young and not opened yet. A negative age means that the clock went back.
    """
    return seen == last_epoch or not 0 <= at - minted_at < MINT_GUARD_MS


def next_epoch(last_epoch: int, at: int) -> int:
    """Epochs only grow, whatever the clock does."""
    epoch = max(last_epoch + 1, at)
    check_whole(epoch)
    return epoch
