"""Writes to a projection: the guard that each carries, the verdict on it, and what it leads to.

A backend loads the marks, asks for the verdict and stores the effects, all in one atomic act. Refused means that
nothing was written. A backend that cannot call Python inside its act (a script in the store) repeats these few
comparisons in the same order, and the conformance suite holds it to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from playhead.core.cursor import Cursor, check_tag
from playhead.core.event import Entry, Event, Fact
from playhead.core.ids import Feed, check_whole, published_place
from playhead.core.run import Status
from playhead.core.snapshot import EMPTY, Snapshot


@dataclass(frozen=True, slots=True)
class Marks:
    """Where a projection stands: all that a guard is compared with."""

    epoch: int
    rev: int  # of the last fact applied
    token: int  # set by `attempt_started` or a rebuild, and by nothing else
    final: bool
    position: int  # of the newest entry; 0 when the timeline is empty
    tag: str  # of the newest entry; of the opening when the timeline is empty
    floor: int = 0  # the position before the oldest retained entry
    archived: int = 0  # every entry up to this position is in the archive
    n: int = 0  # of the token's last publish that was applied
    state_version: int = 0  # of the token's last state that was applied
    version: int = 0  # applied writes in this epoch

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.epoch, self.position, self.tag)


@dataclass(frozen=True, slots=True)
class Guard:
    """What an attempt claims to know with every write (law 5)."""

    epoch: int
    token: int
    rev: int  # highest rev the attempt knows of its run
    acked_n: int = 0  # highest n and state version acknowledged to it in this epoch: a projection that has less
    acked_state: int = 0  # went back

    def __post_init__(self) -> None:
        check_whole(self.epoch, self.token, self.rev, self.acked_n, self.acked_state)


@dataclass(frozen=True, slots=True)
class Publish:
    """One write of an attempt: events with consecutive n, and the state they lead to; either may be absent."""

    feed: Feed
    guard: Guard
    first_n: int
    events: tuple[Event, ...]
    tags: tuple[str, ...]  # one new tag for each event, new for every send
    state: bytes | None
    state_version: int
    at: int  # wall ms at the server

    def __post_init__(self) -> None:
        check_whole(self.first_n, self.state_version, self.at)
        check_whole(self.last_n)
        for tag in self.tags:
            check_tag(tag)
        if len(self.tags) != len(self.events):
            raise ValueError("not one tag for each event")
        if self.state is not None and type(self.state) is not bytes:
            raise ValueError("the state is not encoded")

    @property
    def last_n(self) -> int:
        return self.first_n + len(self.events) - 1


@dataclass(frozen=True, slots=True)
class Opening:
    """A rebuilt projection: a new epoch whose timeline is empty and whose snapshot is the record's."""

    feed: Feed
    seen: int  # the epoch that the rebuilder saw, 0 for none: opened only if that still holds
    epoch: int
    tag: str
    rev: int
    token: int
    status: Status
    started_at: int | None
    state: bytes | None
    at: int
    seen_tag: str | None = None  # the tag that its newest entry had: opened only if it is still the newest

    def __post_init__(self) -> None:
        check_whole(self.seen, self.epoch, self.rev, self.token, self.at)
        check_tag(self.tag)


@dataclass(frozen=True, slots=True)
class Applied:
    cursor: Cursor
    version: int


@dataclass(frozen=True, slots=True)
class Already:
    """The write was applied before. `cursor` is its place, while that is retained."""

    cursor: Cursor | None = None


@dataclass(frozen=True, slots=True)
class WrongEpoch:
    """The projection was rebuilt since; `epoch` is the one to write under."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Stale:
    """A newer attempt owns the run: stop."""

    token: int


@dataclass(frozen=True, slots=True)
class StaleVersion:
    """A state that is as new as this one, or newer, was applied before."""

    state_version: int


@dataclass(frozen=True, slots=True)
class Behind:
    """The projection lacks facts that the writer knows: project them first."""

    rev: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A fact before this one is not applied yet."""

    rev: int


@dataclass(frozen=True, slots=True)
class Final:
    """The run has ended."""


@dataclass(frozen=True, slots=True)
class NeedsRebuild:
    """The projection is missing, of an older epoch, or went back; `seen` is the epoch it has, 0 for none."""

    seen: int


Reply = Applied | Already | WrongEpoch | Stale | StaleVersion | Behind | Gap | Final | NeedsRebuild


def carried(fact: Fact, marks: Marks, tags: Sequence[str]) -> Publish:
    """What an ended attempt published before this fact, to be sent for it to a projection that stands here.

    What came before is in the projection, or the store went back; unless nothing of the attempt is, as after a rebuild.
    """
    token, first_n = published_place(fact.lacking[0].id)
    rebuilt = marks.token == token and marks.n == 0
    guard = Guard(marks.epoch, token, fact.rev - 1, acked_n=0 if rebuilt else first_n - 1)
    return Publish(fact.feed, guard, first_n, fact.lacking, tuple(tags), None, 0, fact.at)


def judge_publish(marks: Marks | None, write: Publish) -> Reply | None:
    """The first reason not to apply this write, or None to apply it. `Already` here lacks the cursor."""
    refused = judge_guard(marks, write.guard)
    if refused is not None or marks is None:
        return refused
    fresh_events = bool(write.events) and write.last_n > marks.n
    fresh_state = write.state is not None and write.state_version > marks.state_version
    if not fresh_events and not fresh_state:
        return Already() if write.events else StaleVersion(marks.state_version)
    if write.state is not None and not fresh_state:
        return StaleVersion(marks.state_version)
    return None


def judge_guard(marks: Marks | None, guard: Guard) -> Reply | None:
    """The part of the verdict that publishes and text share."""
    if marks is None or marks.epoch < guard.epoch:
        return NeedsRebuild(marks.epoch if marks else 0)
    if marks.epoch > guard.epoch:
        return WrongEpoch(marks.epoch)
    if guard.token == marks.token and (guard.acked_n > marks.n or guard.acked_state > marks.state_version):
        return NeedsRebuild(marks.epoch)
    if marks.final:
        return Final()
    if guard.token < marks.token:
        return Stale(marks.token)
    if guard.token > marks.token or guard.rev > marks.rev:
        return Behind(marks.rev)
    return None


def judge_fact(marks: Marks | None, epoch: int, fact: Fact) -> Reply | None:
    """The first reason not to apply this fact under this epoch of the record, or None to apply it."""
    check_whole(epoch)
    if marks is None or marks.epoch < epoch:
        return NeedsRebuild(marks.epoch if marks else 0)
    if marks.epoch > epoch:
        return WrongEpoch(marks.epoch)
    if fact.rev <= marks.rev:
        return Already()
    if fact.rev > marks.rev + 1:
        return Gap(marks.rev)
    if marks.final:  # the record never writes a fact after a final one; if it did, the latch holds
        return Final()
    return None


def judge_opening(marks: Marks | None, opening: Opening) -> Reply | None:
    """None to open: what the rebuilder saw still stands, and its epoch is a newer one."""
    standing = marks.epoch if marks else 0
    moved = marks is not None and opening.seen_tag not in (marks.tag, None)
    if standing != opening.seen or standing >= opening.epoch or moved:
        return WrongEpoch(standing)
    return None


def after_publish(marks: Marks, write: Publish) -> tuple[Marks, tuple[Entry, ...]]:
    """The marks and the new entries once an accepted publish is applied."""
    known = max(0, marks.n - write.first_n + 1)  # events that an earlier send already brought
    entries = _following(marks, write.events[known:], write.tags[known:])
    moved = replace(
        marks,
        position=marks.position + len(entries),
        tag=entries[-1].tag if entries else marks.tag,
        version=marks.version + (len(entries) or 1),
        n=max(marks.n, write.last_n) if write.events else marks.n,
        state_version=marks.state_version if write.state is None else write.state_version,
    )
    return moved, entries


def after_fact(marks: Marks, fact: Fact, tag: str) -> tuple[Marks, Entry]:
    """The marks and the new entry once an accepted fact is applied."""
    check_tag(tag)
    (entry,) = _following(marks, (fact.event,), (tag,))
    moved = replace(
        marks,
        rev=fact.rev,
        final=fact.final,
        position=entry.position,
        tag=tag,
        version=entry.version,
    )
    if fact.starts_attempt and fact.token > marks.token:
        moved = replace(moved, token=fact.token, n=0, state_version=0)
    return moved, entry


def after_opening(opening: Opening) -> Marks:
    return Marks(
        epoch=opening.epoch,
        rev=opening.rev,
        token=opening.token,
        final=opening.status.final,
        position=0,
        tag=opening.tag,
        version=1,
    )


def opening_snapshot(opening: Opening) -> Snapshot:
    """The snapshot that a rebuilt projection begins with: the record's, and nothing heard of the attempt yet."""
    return Snapshot(
        status=opening.status,
        attempt=opening.token,
        version=1,
        rev=opening.rev,
        started_at=opening.started_at,
        heartbeat_at=None,
        updated_at=opening.at,
        state=opening.state or EMPTY,
    )


def fact_snapshot(snapshot: Snapshot, moved: Marks, fact: Fact, at: int) -> Snapshot:
    """The snapshot once a fact is applied at this wall time; `moved` are the marks that it led to."""
    return replace(
        snapshot,
        status=fact.status,
        attempt=moved.token,
        version=moved.version,
        rev=moved.rev,
        started_at=fact.started_at,
        updated_at=at,
        state=fact.state or snapshot.state,
    )


def publish_snapshot(snapshot: Snapshot, moved: Marks, write: Publish) -> Snapshot:
    """The snapshot once an attempt's write is applied; that it came at all is the attempt's sign of life."""
    return replace(
        snapshot,
        version=moved.version,
        heartbeat_at=write.at,
        updated_at=write.at,
        state=write.state or snapshot.state,
    )


def _following(marks: Marks, events: Sequence[Event], tags: Sequence[str]) -> tuple[Entry, ...]:
    """The events as the next entries of the timeline, each with the tag that it is sent with."""
    entries: list[Entry] = []
    position, prev, version = marks.position, marks.tag, marks.version
    for event, tag in zip(events, tags, strict=True):
        position, version = position + 1, version + 1
        entries.append(Entry(marks.epoch, position, tag, prev, version, event))
        prev = tag
    return tuple(entries)
