"""The ports. Backends implement them, loops and routes use them, and the laws they keep are written here.

Each method is one atomic act: refused or failed means that nothing was written. Every method may raise
StoreUnavailable (StoreFull when the disk is full); then the caller does not know whether the act took place and asks
again: every act here can be repeated. No method hands out or accepts a connection, a row or a driver's exception.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from playhead.core.event import Entry, Event, Fact
from playhead.core.ids import Feed
from playhead.core.interrupt import Interrupt, Question
from playhead.core.retention import Retention
from playhead.core.run import NewRun, Outcome, Run, Status
from playhead.core.snapshot import Snapshot
from playhead.core.text import TextPart, TextReply, TextWrite
from playhead.core.transition import Marks, Opening, Publish, Reply


class Clock(Protocol):
    """Time and chance, passed in wherever either is needed."""

    def wall_ms(self) -> int:
        """Time of day, milliseconds since 1970; may step. For people, deadlines and epochs."""

    def steady(self) -> float:
        """Seconds that never step. For leases, timers and rates."""

    async def sleep(self, seconds: float) -> None: ...

    def random(self, size: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Beat:
    """A lease renewed. `lost` are attempts that are no longer the process's own: each must stop at once. `left` are its
    own as the record has it, and were not named: begun a moment ago, or left by whoever worked on them."""

    lost: frozenset[tuple[str, int]]
    cancelled: Mapping[str, str | None]  # run id → reason, of the runs that were asked to stop
    left: frozenset[tuple[str, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class FactPage:
    """Facts of one feed, in order, read in one act with the run."""

    run: Run
    facts: tuple[Fact, ...]
    oldest_rev: int | None  # of the facts still kept; None if there are none


@dataclass(frozen=True, slots=True)
class AuditEntry:
    run_id: str
    at: int
    kind: str
    actor: str
    data: bytes  # JSON


class Presence(Protocol):
    """Who watches the runs whose policy asks for that (law 9), by process. The decisions are in core (`disconnect`).

    Viewers are told of once for a run and a process, not one by one. They count while the process holds its lease.
    Runs that go on without viewers, that were asked to stop or that have ended are passed over in every call.
    """

    async def watch(self, process: str, runs: Collection[str]) -> None:
        """These runs have viewers at this process, however often it is told. What is known is not written again."""

    async def unwatch(self, process: str, runs: Collection[str]) -> None:
        """The last viewers of these runs have left this process: the time of their policy begins. Told again, it
        begins again."""

    async def unwatch_expired(self, grace_ms: int, limit: int) -> int:
        """The viewers at processes without a lease have left now, and have `grace_ms` in addition to come to another
        process. Of up to `limit` runs; how many it were."""

    async def deserted(self, limit: int) -> list[str]:
        """Runs of which a process waited its time for viewers, longest over first. Others may watch them."""

    async def desert(self, run_id: str) -> Run | None:
        """Request the cancel of a run that nobody on any process watches, or watched within the policy's time.

        None if it is not deserted (any more). It is not among the `deserted` then until somebody leaves again.
        """


class RunStore(Presence, Protocol):
    """The record: it decides existence, ownership, status and outcome (law 1).

    A fact is numbered under its feed's row and written in the transaction of the change it tells of (law 2). The
    decisions are in core (`lifecycle`, `decision`, `lease`, `repair`); an implementation loads rows, asks, stores.
    `tenant` narrows every read and every call on behalf of a person; `EVERY_TENANT` is for the server's own loops.
    """

    async def create(self, new: NewRun) -> tuple[Run, bool]:
        """Store a run as queued, with its first epoch; True if it is new.

        The same `dedupe` key of the same tenant and scope gives the run it made before. Raises KeyConflict when that
        was made from another digest. Safe against concurrent calls: one run, one `run_queued`.
        """

    async def find_dedupe(self, tenant: str, scope: str, dedupe: str) -> Run | None:
        """The run made under this key, so that a repeated request can be answered before its input is validated."""

    async def get(self, tenant: str, run_id: str) -> Run | None: ...

    async def list_runs(
        self,
        tenant: str,
        *,
        status: Collection[Status] = (),
        agent: str | None = None,
        labels: Mapping[str, str] | None = None,
        key: str | None = None,
        before_seq: int | None = None,
        limit: int = 50,
        most_bytes: int | None = None,
    ) -> list[Run]:
        """Newest first by `seq`; all filters must hold. It ends with the run with which their `weight` comes to
        `most_bytes`, and what is behind that is not read."""

    async def acquire(self, process: str, agents: Collection[str], limit: int) -> list[Run]:
        """Give up to `limit` free runs of these agents to new attempts of this process, oldest first.

        Each gets the next token. No run is given to two callers. The process must hold a lease.
        """

    async def claim(self, tenant: str, run_id: str, process: str) -> Run:
        """Give this one run to a new attempt. Raises NotFound, RunFinal, RunNotFree."""

    async def beat(self, process: str, ttl_ms: int, held: Collection[tuple[str, int]]) -> Beat:
        """Renew the process's lease for `ttl_ms`, and say which of the held attempts are not its own any more.

        A late beat succeeds: an expired lease makes runs eligible for others, no more.
        """

    async def leave(self, process: str) -> None:
        """End the lease now. Attempts still held become expired."""

    async def finish(self, run_id: str, token: int, outcome: Outcome) -> Run:
        """End the attempt, see `lifecycle.finish`. Raises AttemptLost, RunFinal. Repeatable."""

    async def request_cancel(self, tenant: str, run_id: str, by: str, reason: str | None) -> Run:
        """Record the wish to stop, see `lifecycle.cancel`. Raises NotFound. Repeatable."""

    async def expired(self, limit: int) -> list[Run]:
        """Runs that have an owner whose lease is over (or who has none)."""

    async def lose(self, run_id: str, token: int, partial: bytes | None, by: str | None = None) -> Run | None:
        """Reap one expired attempt, see `lifecycle.lose`; None if it is not expired (any more) or not the latest.

        One of the process `by` need not be expired: a process may give up its own.
        """

    async def ask(
        self, run_id: str, token: int, question: Question, new_id: str, state: bytes | None, published: int = 0
    ) -> Interrupt:
        """Ask, or find the same question of an earlier attempt, see `decision.ask`. Raises AttemptLost, RunFinal.

        `published` is how many events the attempt has published so far: should it be lost, the record knows of those.
        """

    async def decide(self, tenant: str, run_id: str, interrupt_id: str, decision: bytes, by: str) -> Interrupt:
        """Record the first decision, see `decision.decide` for what it raises. Repeatable."""

    async def lapse(self, limit: int) -> list[str]:
        """Close open interrupts whose deadline has passed; the ids of their runs."""

    async def interrupts(
        self, tenant: str, run_id: str | None = None, *, open_only: bool = True, limit: int = 200
    ) -> list[Interrupt]:
        """Oldest first."""

    async def interrupt(self, tenant: str, interrupt_id: str) -> Interrupt | None:
        """One question, open or closed."""

    async def mint_epoch(self, feed: Feed, seen: int) -> Run | None:
        """Mint an epoch for a rebuilder that sees epoch `seen` (0: none) and return the run as of that moment.

        None: the run does not exist, is final, or another epoch is still to be opened (`repair.may_mint`).
        """

    async def facts(self, feed: Feed, after_rev: int, limit: int = 500) -> FactPage | None:
        """The facts after this rev; None if the run does not exist."""

    async def outbox(self, limit: int) -> list[Feed]:
        """Feeds with a fact that is not settled under the record's current epoch, longest waiting first."""

    async def settle(self, feed: Feed, epoch: int, rev: int) -> None:
        """Note that the facts up to `rev` are projected. Without effect unless `epoch` is still the current one."""

    async def unheard(self, types: Collection[str], limit: int, holder: str = "", hold_ms: int = 0) -> list[Fact]:
        """Facts of these types that no listener took yet and nobody else holds, in the order of their writing.

        They are this holder's for `hold_ms` from now; asking again prolongs it. 0: only look.
        """

    async def heard(self, facts: Collection[tuple[Feed, int]]) -> None: ...

    async def note(self, tenant: str, run_id: str, token: int | None, kind: str, actor: str, data: bytes) -> None:
        """Append to the audit trail. With a token, raises AttemptLost unless it is the latest."""

    async def audit(self, tenant: str, run_id: str, limit: int = 200) -> list[AuditEntry]: ...

    async def prune(self, before_ms: int) -> int:
        """Remove settled facts older than this; how many went."""

    async def delete(self, tenant: str, run_id: str) -> bool:
        """Erase a final run with all that the record holds of it, the archive too. Raises RunFinal never;
        RunNotFree while the run goes on."""

    async def close(self) -> None: ...


class Archive(Protocol):
    """Events for the long run, in an order of their own per feed, unique by event id. Survives the projection."""

    async def append(self, feed: Feed, entries: Sequence[tuple[Event, int]], after: str | None) -> str | None:
        """Add (event, version) pairs in this order; events that are there already are passed over.

        Only while `after` is the id of the newest event (None: there is none): who read what to add before somebody
        else added more may not put it behind that. Returns the id of the newest event then; None: nothing was written,
        read again. Nothing is written for a run that the record does not have: what was erased stays so.
        """

    async def read(self, feed: Feed, before: str | None, limit: int) -> list[tuple[Event, int]]:
        """The newest `limit` before the event of this id (None: of all), oldest first; empty if the id is unknown."""

    async def forget(self, feed: Feed) -> None: ...

    @property
    def unreadable(self) -> int:
        """How often a stored event that cannot be read any more was told as a placeholder (`event_unreadable`)."""


@dataclass(frozen=True, slots=True)
class View:
    """A projection read in one act. `entries` are contiguous, in order."""

    marks: Marks
    snapshot: Snapshot
    entries: tuple[Entry, ...]


class ProjectionStore(Protocol):
    """The disposable hot view: per feed a snapshot and a bounded timeline (laws 4 to 7).

    The verdict on a write is core's (`transition.judge_*`), taken in the act that writes. Hints go out after commit.
    """

    async def open(self, opening: Opening) -> Reply:
        """Replace what is there by an empty timeline and this snapshot, and drop the feed's text.

        Applied, or WrongEpoch when the projection is no longer what the rebuilder saw: of another epoch, or with
        another newest entry than the one that the opening names.
        """

    async def fact(self, epoch: int, fact: Fact, tag: str) -> Reply:
        """Apply a fact: anyone may, any number of times. `attempt_started` drops the text of earlier attempts."""

    async def publish(self, write: Publish) -> Reply:
        """Apply an attempt's write whole, or say why not. `Already` carries the cursor while it is retained."""

    async def read(
        self, feed: Feed, *, after: int | None = None, before: int | None = None, limit: int = 100
    ) -> View | None:
        """The first `limit` entries after a position, or the newest (before a position); None: no projection."""

    async def find(self, feed: Feed, event_id: str) -> int | None:
        """The position of a retained event."""

    async def stand(self, feeds: Collection[Feed]) -> dict[Feed, Marks]:
        """Where these projections stand; missing ones are left out."""

    async def archived(self, feed: Feed, epoch: int, position: int) -> None:
        """Note that entries up to `position` are archived, and trim what that sets free."""

    async def unarchived(self, limit: int) -> list[Feed]:
        """Feeds with entries that are not archived yet."""

    async def trim(self, feed: Feed) -> None:
        """Apply the retention of the store's settings now."""

    async def aged(self, limit: int) -> list[Feed]:
        """Feeds with entries older than the retention's age, where one is set."""

    async def drop(self, feed: Feed, epoch: int | None = None) -> None:
        """Remove the projection with its text; with an epoch, only if it is still that one."""

    async def watched(self, feeds: Collection[Feed]) -> None:
        """Note that these have viewers now; of those that end by being left alone (`retention.idles`), others are
        passed over."""

    async def expire(self) -> int:
        """Drop what outlived its time (`retention.Lifetimes`); how many timelines and projections went."""

    @property
    def retention(self) -> Retention: ...

    @property
    def unreadable(self) -> int:
        """As in `Archive`."""

    async def close(self) -> None: ...


class TextChannel(Protocol):
    """Growing text parts, addressed by offset; fenced like publishes, never in the timeline, gone when durable."""

    async def append(self, write: TextWrite) -> TextReply: ...

    async def read_text(self, feed: Feed) -> list[TextPart]:
        """All parts of the feed whole, in the order in which they began."""

    async def lengths(self, feeds: Collection[Feed]) -> dict[Feed, dict[tuple[int, str], int]]:
        """Per feed and (token, part) the length; for the sweep."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    part: str
    token: int
    offset: int
    data: bytes
    final: bool
    truncated: bool


@dataclass(frozen=True, slots=True)
class Hint:
    """A wake-up for one feed. It may carry what was written, so that a reader who is at the tip needs no read."""

    feed: Feed
    marks: Marks
    snapshot: Snapshot | None = None
    entries: tuple[Entry, ...] = ()
    text: tuple[TextPiece, ...] = ()
    voids_before: int = 0  # text parts of attempts below this token are void


class Listener(Protocol):
    """Called in the event loop in which it was added; must not block and must not raise."""

    def on_hints(self, hints: Sequence[Hint]) -> None: ...

    def on_gap(self, feed: Feed) -> None:
        """Hints of this feed were lost: read."""


class Signal(Protocol):
    """Lossy wake-ups (law 10)."""

    async def add(self, feed: Feed, listener: Listener) -> None:
        """From the return of this on, hints of the feed reach the listener, or get lost."""

    async def remove(self, feed: Feed, listener: Listener) -> None: ...

    def notify(self, hints: Sequence[Hint]) -> None:
        """Pass hints on, from any thread, after their commit."""

    async def ring(self, feed: Feed) -> None:
        """Have every listener of this feed look (`on_gap`), in every process; or it gets lost."""
