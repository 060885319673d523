"""The model: plain lists of what really happened to one run, and what the live store has to answer to each write.

It never looks at the store. It derives everything anew from its lists, counts nothing in passing, and keeps every
entry that a timeline ever had: so it knows what a reader must hold at each place, also on branches of a timeline
that a store left when it went back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from playhead.core import event as events
from playhead.core.cursor import Cursor
from playhead.core.event import Event, Fact
from playhead.core.ids import Feed
from playhead.core.replay import Reason
from playhead.core.retention import Retention
from playhead.core.run import Run, Status
from playhead.core.snapshot import EMPTY, decode_state
from playhead.core.text import TextAlready, TextApplied, TextFrom, TextReply, TextWrite
from playhead.core.transition import (
    Already,
    Applied,
    Behind,
    Final,
    Gap,
    Guard,
    Marks,
    NeedsRebuild,
    Opening,
    Publish,
    Reply,
    Stale,
    StaleVersion,
    WrongEpoch,
)
from playhead.interfaces import View

Part = tuple[int, str]  # token and name


@dataclass(frozen=True)
class Told:
    """One entry. A fact has a rev and no n, a published event an n and no rev."""

    position: int
    tag: str
    version: int
    event: Event
    token: int
    rev: int = 0
    n: int = 0


@dataclass
class Line:
    """What the projection holds: how it was opened, and all that was written since, trimmed or not."""

    opening: Opening
    status: Status
    started_at: int | None
    state: bytes
    told: list[Told] = field(default_factory=list)
    writes: int = 1
    state_version: int = 0
    floor: int = 0
    archived: int = 0
    texts: dict[Part, tuple[bytes, bool]] = field(default_factory=dict)
    ended_at: int | None = None
    swept: bool = False

    def copy(self) -> Line:
        return replace(self, told=list(self.told), texts=dict(self.texts))

    @property
    def epoch(self) -> int:
        return self.opening.epoch

    @property
    def tags(self) -> list[str]:
        """By position, the opening's first."""
        return [self.opening.tag, *(one.tag for one in self.told)]

    @property
    def position(self) -> int:
        return len(self.told)

    @property
    def rev(self) -> int:
        return max((one.rev for one in self.told), default=0) or self.opening.rev

    @property
    def token(self) -> int:
        started = [one.token for one in self.told if one.event.type == events.ATTEMPT_STARTED]
        return max([self.opening.token, *started])

    @property
    def n(self) -> int:
        return max((one.n for one in self.told if one.token == self.token), default=0)

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.epoch, self.position, self.tags[-1])

    @property
    def marks(self) -> Marks:
        return Marks(
            epoch=self.epoch,
            rev=self.rev,
            token=self.token,
            final=self.status.final,
            position=self.position,
            tag=self.tags[-1],
            floor=self.floor,
            archived=self.archived,
            n=self.n,
            state_version=self.state_version,
            version=self.writes,
        )

    def retained(self) -> list[Told]:
        return self.told[self.floor :]


class Truth:
    """Each method named like one of the ports' does to the lists what the store has to do, and returns its answer."""

    def __init__(self, feed: Feed, keep: Retention, ttl_ms: tuple[int, int]) -> None:
        self.feed, self.keep, self.ttl_ms = feed, keep, ttl_ms
        self.run: Run | None = None
        self.stored: set[bytes | None] = set()  # every state that the record had
        self.facts: list[Fact] = []
        self.line: Line | None = None
        self.opened: set[int] = set()  # epochs
        self.history: dict[str, tuple[str, ...]] = {}  # tag → the ids of its epoch up to and with that entry
        self.written: dict[str, int] = {}  # tag → the first of the lines so far that has it
        self.bodies: dict[str, bytes] = {}  # of every event that was ever written anywhere
        self.cursors: list[Cursor] = []  # every place there ever was
        self.snapshots: set[tuple[object, ...]] = set()
        self.archive: list[str] = []
        self.acked: set[str] = set()
        self.carried: list[str] = []  # by facts, for attempts that ended while the store was away
        self.parted: set[str] = set()  # of those, whose fact came to a store that had lost what was to go before it
        self.excused: set[str] = set()  # lost with the live store, or behind a hole that the marks show
        self.said: dict[Part, bytes] = {}
        self.before: list[Line | None] = []  # the lines so far, for readers that are judged later

    # The record.

    def committed(self, run: Run, facts: Sequence[Fact]) -> None:
        """Note what the record has now; `facts` are those after the last one known."""
        known = self.run
        for fact in facts:
            assert fact.rev == len(self.facts) + 1, "facts are numbered without a gap"
            assert not (self.facts and self.facts[-1].final), "nothing follows the final fact"
            assert not self.facts or fact.token >= self.facts[-1].token, "tokens only grow"
            self._know(fact.event)
            for event in fact.lacking:
                self._know(event)
                self.carried.append(event.id)
            self.facts.append(fact)
        assert run.rev == len(self.facts), "the run counts its facts"
        assert self.facts[-1].status == run.status, "the last fact tells the run's status"
        assert known is None or run.epoch >= known.epoch, "epochs only grow"
        assert known is None or not known.status.final or run.status == known.status, "final statuses absorb"
        self.run = run
        self.stored.add(run.state)

    def _know(self, event: Event) -> None:
        assert self.bodies.setdefault(event.id, event.body) == event.body, f"{event.id} has two contents"

    # The projection.

    def open(self, opening: Opening) -> Reply:
        standing = self.line.epoch if self.line else 0
        moved = self.line is not None and opening.seen_tag not in (None, self.line.tags[-1])
        if standing != opening.seen or standing >= opening.epoch or moved:
            return WrongEpoch(standing)
        assert opening.epoch not in self.opened, "an epoch is opened once"
        self.opened.add(opening.epoch)
        self._check_opening(opening)
        lost = self.line
        self.line = Line(opening, opening.status, opening.started_at, opening.state or EMPTY)
        self._written(opening.tag, ())
        self._check_emptied(lost)
        return self._applied(self.line)

    def _check_opening(self, opening: Opening) -> None:
        """An opening tells the record as it was at one moment, and no state but the record's or its own attempt's."""
        assert opening.rev <= len(self.facts)
        last = self.facts[opening.rev - 1] if opening.rev else None
        assert opening.token == (last.token if last else 0), "an opening has the token of its rev"
        assert not last or (opening.status, opening.started_at) == (last.status, last.started_at)
        if opening.state is not None:
            spoke = decode_state(opening.state).title == f"attempt {opening.token}"
            assert spoke or opening.state in self.stored, "a stale attempt's state was shown"

    def fact(self, epoch: int, fact: Fact, tag: str, at: int) -> Reply:
        line = self.line
        if line is None or line.epoch < epoch:
            return NeedsRebuild(line.epoch if line else 0)
        if line.epoch > epoch:
            return WrongEpoch(line.epoch)
        if fact.rev <= line.rev:
            return Already(self._place_of(line, fact.event.id))
        if fact.rev > line.rev + 1:
            return Gap(line.rev)
        assert fact == self.facts[fact.rev - 1], "what is projected is what was committed"
        assert not line.status.final, "one final event"
        line.writes += 1
        if fact.starts_attempt:
            line.state_version = 0
            line.texts = {key: text for key, text in line.texts.items() if key[0] >= fact.token}
        line.status, line.started_at, line.state = fact.status, fact.started_at, fact.state or line.state
        line.ended_at = at if fact.final else None
        self._append(line, Told(line.position + 1, tag, line.writes, fact.event, fact.token, rev=fact.rev))
        return self._applied(line)

    def publish(self, write: Publish) -> Reply:
        line = self.line
        refused = self._guarded(write.guard)
        if refused is not None or line is None:
            return refused or NeedsRebuild(0)
        known = {one.n for one in line.told if one.token == write.guard.token}
        # What is retained no more, or was lost with an older epoch, is known by its number.
        fresh = [pair for pair in enumerate(write.events) if write.first_n + pair[0] > max(known, default=0)]
        newer = write.state is not None and write.state_version > line.state_version
        if not fresh and not newer:
            if not write.events:
                return StaleVersion(line.state_version)
            return Already(self._place_of(line, write.events[-1].id))
        if write.state is not None and not newer:
            return StaleVersion(line.state_version)
        assert write.guard.token == line.token, "a stale write was accepted"
        for index, event in fresh:
            line.writes += 1
            self._know(event)
            n = write.first_n + index
            told = Told(line.position + 1, write.tags[index], line.writes, event, write.guard.token, n=n)
            assert line.n in (0, n - 1), "a silent hole"
            self._append(line, told)
        if not fresh:
            line.writes += 1
        if write.state is not None:
            line.state, line.state_version = write.state, write.state_version
        self._trim(line)
        return self._applied(line)

    def acknowledge(self, write: Publish, reply: Reply) -> None:
        """The writer learnt that this is in the projection."""
        if isinstance(reply, Applied | Already):
            self.acked.update(event.id for event in write.events)

    def _guarded(self, guard: Guard) -> Reply | None:
        line = self.line
        if line is None or line.epoch < guard.epoch:
            return NeedsRebuild(line.epoch if line else 0)
        if line.epoch > guard.epoch:
            return WrongEpoch(line.epoch)
        if guard.token == line.token and (guard.acked_n > line.n or guard.acked_state > line.state_version):
            return NeedsRebuild(line.epoch)
        if line.status.final:
            return Final()
        if guard.token < line.token:
            return Stale(line.token)
        if guard.token > line.token or guard.rev > line.rev:
            return Behind(line.rev)
        return None

    def append(self, write: TextWrite) -> TextReply:
        refused = self._guarded(write.guard)
        if refused is not None or self.line is None:
            return refused or NeedsRebuild(0)
        key = write.guard.token, write.part
        data, final = self.line.texts.get(key, (b"", False))
        if len(data) >= write.end and (final or not write.final):
            return TextAlready(len(data))
        if final or len(data) != write.offset:
            return TextFrom(len(data))
        assert self.said.get(key, b"").startswith(data + write.data), "text is what its attempt said"
        self.line.texts[key] = data + write.data, write.final
        self._remember()
        return TextApplied(write.end)

    def archived(self, epoch: int, position: int) -> None:
        if self.line is not None and self.line.epoch == epoch:
            self.line.archived = max(self.line.archived, min(position, self.line.position))
            self.trim()

    def trim(self) -> None:
        if self.line is not None:
            self._trim(self.line)
            self._remember()

    def drop(self, epoch: int | None) -> None:
        if self.line is not None and epoch in (None, self.line.epoch):
            self._check_emptied(self.line)
            self.restore(None)

    def expire(self, now: int) -> None:
        line = self.line
        if line is None or line.ended_at is None:
            return
        if line.ended_at + self.ttl_ms[1] <= now:
            self.restore(None)
        elif line.ended_at + self.ttl_ms[0] <= now and not line.swept:
            self._excuse(line)
            line.floor, line.swept = line.position, True
            self._remember()

    def restore(self, earlier: Line | None) -> None:
        """The store is what it was then, or empty."""
        lost = self.line
        self.line = earlier.copy() if earlier else None
        self._excuse(lost)
        self._remember()

    def keep_for_good(self, names: Sequence[tuple[Event, int]]) -> None:
        """The archive took these."""
        for event, _ in names:
            assert self.bodies.get(event.id) == event.body, "the archive holds true events only"
            if event.id not in self.archive:
                self.archive.append(event.id)

    def _too_late(self, name: str) -> bool:
        """It was lost, and the store went back to before that when the archive had the end: nothing may follow that."""
        ended = bool(self.archive) and any(fact.final and fact.event.id == self.archive[-1] for fact in self.facts)
        return ended and name in self.excused

    def _check_emptied(self, line: Line | None) -> None:
        """A timeline that is emptied on purpose is in the archive, where there is one."""
        left = {one.event.id for one in line.retained()} - set(self.archive) if line and self.keep.archive else set()
        assert all(map(self._too_late, left)), f"emptied before they were archived: {sorted(left)}"

    def _remember(self) -> None:
        self.before.append(self.line.copy() if self.line else None)
        if self.line is not None:
            now = self.line
            self.snapshots.add((now.epoch, now.writes, now.status, now.token, now.rev, now.started_at, now.state))

    def _append(self, line: Line, told: Told) -> None:
        last = line.told[-1] if line.told else None
        assert last is None or told.token >= last.token, "tokens never decrease along a timeline"
        ids = *self.history[line.tags[-1]], told.event.id
        assert len(set(ids)) == len(ids), f"{told.event.id} is twice on one timeline"
        line.told.append(told)
        self._written(told.tag, ids)
        if told.rev:
            self._trim(line)

    def _written(self, tag: str, ids: tuple[str, ...]) -> None:
        assert tag not in self.history, "every send has a new tag"
        self.history[tag] = ids
        self.written[tag] = len(self.before)
        assert self.line is not None
        self.cursors.append(self.line.cursor)

    def _applied(self, line: Line) -> Applied:
        self._remember()
        return Applied(line.cursor, line.writes)

    def _place_of(self, line: Line, name: str) -> Cursor | None:
        places = (Cursor(line.epoch, one.position, one.tag) for one in line.retained() if one.event.id == name)
        return next(places, None)

    def _trim(self, line: Line) -> None:
        beyond = line.position - self.keep.count
        if self.keep.archive:
            floor = max(min(beyond, line.archived), line.position - self.keep.hard_count)
        else:
            floor = beyond if line.status.final else 0
        for one in line.told[line.floor : max(line.floor, floor)]:
            if self.keep.archive and one.event.id not in self.archive:
                assert self._too_late(one.event.id) or one.position <= line.position - self.keep.hard_count, (
                    f"{one.event.id} was trimmed unarchived"
                )
                self.excused.add(one.event.id)
        line.floor = max(line.floor, floor)

    def pruned(self) -> None:
        """The record has forgotten settled facts, and with them what they took along: the archive comes too late."""
        held = {one.event.id for one in self.line.retained()} if self.line else set()
        self.excused |= self.parted - held - set(self.archive)

    def _excuse(self, lost: Line | None) -> None:
        held = {one.event.id for one in self.line.retained()} if self.line and self.line is not lost else set()
        gone = {one.event.id for one in lost.told} if lost else set()
        self.excused |= gone - held - set(self.archive)

    # What readers are told.

    def reason(self, cursor: Cursor) -> Reason | None:
        """The one right answer to a cursor now; there must be a projection."""
        assert self.line is not None
        return reason_at(self.line, cursor)

    def check_view(self, view: View | None, *, after: int | None = None, before: int | None = None, limit: int) -> None:
        """A read in one act is exactly this."""
        if self.line is None or view is None:
            assert (view is None) == (self.line is None), "a projection is there or it is not"
            return
        line, shown = self.line, view.snapshot
        assert view.marks == line.marks
        assert (line.status, line.token, line.writes, line.rev, line.started_at, line.state) == (
            shown.status,
            shown.attempt,
            shown.version,
            shown.rev,
            shown.started_at,
            shown.state,
        )
        if after is not None:
            wanted = [one for one in line.retained() if one.position > after][:limit]
        else:
            held = [one for one in line.retained() if before is None or one.position < before]
            wanted = held[max(0, len(held) - limit) :]
        found = [(one.epoch, one.position, one.tag, one.prev, one.version, one.event) for one in view.entries]
        tags = line.tags
        assert found == [
            (line.epoch, one.position, one.tag, tags[one.position - 1], one.version, one.event) for one in wanted
        ]

    def check_text(self, parts: dict[Part, tuple[bytes, bool]]) -> None:
        assert parts == (self.line.texts if self.line else {}), "the channel holds what was accepted"
        for key, (data, _) in parts.items():
            assert self.said[key].startswith(data), "a part is a beginning of what its attempt said"

    def check_kept(self) -> None:
        """Archive and timeline together hold every event that its writer was promised."""
        if self.keep.archive:
            held = {one.event.id for one in self.line.retained()} if self.line else set()
            missing = self.acked - held - set(self.archive) - self.excused
            assert not missing, f"acknowledged, and neither retained nor archived: {sorted(missing)}"

    def check_carried(self) -> None:
        """What facts took along is where they are, in its order."""
        if self.keep.archive:
            line = [one.event.id for one in self.line.retained()] if self.line else []
            found = [*self.archive, *(name for name in line if name not in self.archive)]
            kept = [name for name in found if name in self.carried]
            assert kept == [name for name in self.carried if name in kept]
            assert set(self.carried) - set(kept) <= self.excused


def reason_at(line: Line, cursor: Cursor) -> Reason | None:
    if cursor.epoch != line.epoch:
        return Reason.EPOCH
    if cursor.position > line.position:
        return Reason.AHEAD
    if cursor.position < line.floor:
        return Reason.EXPIRED
    if line.tags[cursor.position] != cursor.tag:
        return Reason.FOREIGN
    return None
