"""The record and the archive in memory."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock

from playhead.backends.rows import first_of
from playhead.core import decision as decisions
from playhead.core import disconnect, lifecycle, repair
from playhead.core import lease as leases
from playhead.core.event import Event, Fact, numbered
from playhead.core.ids import EVERY_TENANT, Feed, run_feed
from playhead.core.interrupt import Interrupt, Question
from playhead.core.lease import Lease
from playhead.core.run import Attempt, Change, NewRun, Outcome, Run, Status
from playhead.errors import AttemptLost, KeyConflict, NotFound, RunNotFree
from playhead.interfaces import AuditEntry, Beat, Clock, FactPage


@dataclass(slots=True)
class _File:
    """All that the record holds of one run."""

    run: Run
    scope: str
    dedupe: str | None
    attempts: dict[int, Attempt] = field(default_factory=dict)
    interrupts: dict[str, Interrupt] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)  # interrupt → place in the order of asking
    facts: dict[int, tuple[int, Fact]] = field(default_factory=dict)  # rev → place in the order of writing, fact
    heard: set[int] = field(default_factory=set)
    holds: dict[int, tuple[str, int]] = field(default_factory=dict)  # rev → who tells its listeners, until when
    settled: tuple[int, int] = (0, 0)  # epoch, rev
    audit: list[AuditEntry] = field(default_factory=list)
    dues: dict[str, int | None] = field(default_factory=dict)  # process → until when it waits, see `disconnect`

    @property
    def settled_rev(self) -> int:
        epoch, rev = self.settled
        return rev if epoch == self.run.epoch else 0

    @property
    def unsettled(self) -> list[int]:
        return [order for rev, (order, _) in self.facts.items() if rev > self.settled_rev]


class MemoryRecord:
    """RunStore and Archive. Its methods never wait, so that it can be used from the loops of several threads."""

    unreadable = 0  # it decodes nothing

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._files: dict[str, _File] = {}
        self._keys: dict[tuple[str, str, str], str] = {}
        self._leases: dict[str, Lease] = {}
        self._archive: dict[Feed, dict[str, tuple[Event, int]]] = {}
        self._seq = itertools.count(1)
        self._order = itertools.count(1)

    @contextmanager
    def _act(self) -> Iterator[int]:
        with self._lock:
            yield self._clock.wall_ms()

    def _held(self, process: str | None) -> bool:
        lease = self._leases.get(process) if process is not None else None
        return leases.held(lease, self._steady())

    def _steady(self) -> int:
        return int(self._clock.steady() * 1000)

    def _find(self, tenant: str, run_id: str) -> _File | None:
        file = self._files.get(run_id)
        return file if file is not None and tenant in (file.run.tenant, EVERY_TENANT) else None

    def _must_find(self, tenant: str, run_id: str) -> _File:
        file = self._find(tenant, run_id)
        if file is None:
            raise NotFound("There is no such run.")
        return file

    def _owned(self, run_id: str, token: int) -> _File:
        """What an attempt writes to. A run that is gone is lost to it, as one that another attempt has."""
        file = self._files.get(run_id)
        if file is None:
            raise AttemptLost(run_id=run_id, token=token)
        return file

    def _shown(self, file: _File) -> Run:
        lease = self._leases.get(file.run.owner) if file.run.owner is not None else None
        return replace(file.run, heartbeat_at=lease.beat_at if lease else None)

    def _apply(self, file: _File, change: Change, at: int) -> Run:
        before, run = file.run, change.run
        for rev, draft in enumerate(change.facts, before.rev + 1):
            fact = numbered(draft, run_feed(run.id), rev, started_at=run.started_at, at=at)
            file.facts[rev] = (next(self._order), fact)
        for one in change.interrupts:
            file.interrupts[one.id] = one
            file.asked.setdefault(one.id, next(self._order))
        if change.started is not None:
            file.attempts[change.started.token] = change.started
        if change.ended is not None:
            token, outcome = change.ended
            file.attempts[token] = replace(file.attempts[token], ended_at=at, outcome=outcome)
        file.run = run
        return self._shown(file)

    async def create(self, new: NewRun) -> tuple[Run, bool]:
        with self._act() as at:
            key = (new.tenant, new.scope, new.dedupe) if new.dedupe is not None else None
            known = self._files.get(new.id) or (self._files.get(self._keys.get(key, "")) if key else None)
            if known is not None:
                if known.run.digest != new.digest:
                    raise KeyConflict(run_id=known.run.id)
                return self._shown(known), False
            change = lifecycle.create(new, next(self._seq), at)
            # Numbered from nothing: `change.run` counts the facts that are about to be written.
            file = _File(replace(change.run, rev=0), new.scope, new.dedupe)
            run = self._apply(file, change, at)
            self._files[new.id] = file
            if key is not None:
                self._keys[key] = new.id
            return run, True

    async def find_dedupe(self, tenant: str, scope: str, dedupe: str) -> Run | None:
        with self._act():
            file = self._files.get(self._keys.get((tenant, scope, dedupe), ""))
            return self._shown(file) if file else None

    async def get(self, tenant: str, run_id: str) -> Run | None:
        with self._act():
            file = self._find(tenant, run_id)
            return self._shown(file) if file else None

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
        def wanted(run: Run) -> bool:
            return (
                tenant in (run.tenant, EVERY_TENANT)
                and (not status or run.status in status)
                and (agent is None or run.agent == agent)
                and all(run.labels.get(name) == value for name, value in (labels or {}).items())
                and (key is None or run.key == key)
                and (before_seq is None or run.seq < before_seq)
            )

        with self._act():
            found = [self._shown(file) for file in self._files.values() if wanted(file.run)]
            return first_of(sorted(found, key=lambda run: -run.seq), limit, most_bytes)

    async def acquire(self, process: str, agents: Collection[str], limit: int) -> list[Run]:
        with self._act() as at:
            if not self._held(process):
                return []
            free = [one for one in self._files.values() if one.run.agent in agents and leases.may_start(one.run, at)]
            free.sort(key=lambda file: file.run.seq)
            return [self._apply(file, lifecycle.start(file.run, process, at), at) for file in free[:limit]]

    async def claim(self, tenant: str, run_id: str, process: str) -> Run:
        with self._act() as at:
            file = self._must_find(tenant, run_id)
            lifecycle.claim(file.run, leases.may_start(file.run, at) and self._held(process))
            return self._apply(file, lifecycle.start(file.run, process, at), at)

    async def beat(self, process: str, ttl_ms: int, held: Collection[tuple[str, int]]) -> Beat:
        with self._act() as at:
            self._leases[process] = Lease(process, self._steady() + ttl_ms, at)
            lost: set[tuple[str, int]] = set()
            cancelled: dict[str, str | None] = {}
            for run_id, token in held:
                file = self._files.get(run_id)
                if file is None or file.run.token != token or file.run.owner != process:
                    lost.add((run_id, token))
                elif file.run.cancel_requested_at is not None:
                    cancelled[run_id] = file.run.cancel_reason
            own = {(file.run.id, file.run.token) for file in self._files.values() if file.run.owner == process}
            return Beat(frozenset(lost), cancelled, frozenset(own.difference(held)))

    async def leave(self, process: str) -> None:
        with self._act():
            self._leases.pop(process, None)

    async def finish(self, run_id: str, token: int, outcome: Outcome) -> Run:
        with self._act() as at:
            file = self._owned(run_id, token)
            return self._apply(file, lifecycle.finish(file.run, token, outcome, file.interrupts.values(), at), at)

    async def request_cancel(self, tenant: str, run_id: str, by: str, reason: str | None) -> Run:
        with self._act() as at:
            file = self._must_find(tenant, run_id)
            return self._apply(file, lifecycle.cancel(file.run, file.interrupts.values(), by, reason, at), at)

    def _expired(self, run: Run) -> bool:
        return run.owner is not None and not self._held(run.owner)

    async def expired(self, limit: int) -> list[Run]:
        with self._act():
            return [self._shown(file) for file in self._files.values() if self._expired(file.run)][:limit]

    async def lose(self, run_id: str, token: int, partial: bytes | None, by: str | None = None) -> Run | None:
        with self._act() as at:
            file = self._files.get(run_id)
            if file is None or file.run.token != token or file.run.owner is None:
                return None
            if file.run.owner != by and not self._expired(file.run):
                return None
            return self._apply(file, lifecycle.lose(file.run, file.interrupts.values(), at, partial), at)

    async def watch(self, process: str, runs: Collection[str]) -> None:
        with self._act():
            for file in map(self._files.get, runs):
                if file is not None and disconnect.counts(file.run):
                    file.dues[process] = None

    async def unwatch(self, process: str, runs: Collection[str]) -> None:
        with self._act() as at:
            for file in map(self._files.get, runs):
                if file is not None:
                    self._left(file, process, at)

    def _left(self, file: _File, process: str, at: int, grace_ms: int = 0) -> None:
        if disconnect.counts(file.run):
            file.dues[process] = disconnect.due_at(file.run.policy.cancel_after, at, grace_ms)
        else:
            file.dues.pop(process, None)

    async def unwatch_expired(self, grace_ms: int, limit: int) -> int:
        with self._act() as at:
            gone = [
                (file, process)
                for file in self._files.values()
                for process, due in file.dues.items()
                if due is None and not self._held(process)
            ][:limit]
            for file, process in gone:
                self._left(file, process, at, grace_ms)
            return len(gone)

    async def deserted(self, limit: int) -> list[str]:
        with self._act() as at:
            first = [
                (min(due), file.run.id)
                for file in self._files.values()
                if (due := [one for one in file.dues.values() if one is not None and one <= at])
            ]
            return [run_id for _, run_id in sorted(first)[:limit]]

    async def desert(self, run_id: str) -> Run | None:
        with self._act() as at:
            file = self._files.get(run_id)
            if file is None:
                return None
            dues = list(file.dues.values())
            file.dues = {process: due for process, due in file.dues.items() if due is None or due > at}
            change = disconnect.desert(file.run, dues, file.interrupts.values(), at)
            return self._apply(file, change, at) if change else None

    async def ask(
        self, run_id: str, token: int, question: Question, new_id: str, state: bytes | None, published: int = 0
    ) -> Interrupt:
        with self._act() as at:
            file = self._owned(run_id, token)
            asked = file.interrupts.values()
            change, interrupt = decisions.ask(file.run, token, question, asked, new_id, state, at, published)
            self._apply(file, change, at)
            return interrupt

    async def decide(self, tenant: str, run_id: str, interrupt_id: str, decision: bytes, by: str) -> Interrupt:
        with self._act() as at:
            file = self._must_find(tenant, run_id)
            asked = file.interrupts.values()
            change, interrupt = decisions.decide(file.run, asked, interrupt_id, decision, by, at)
            self._apply(file, change, at)
            return interrupt

    async def lapse(self, limit: int) -> list[str]:
        with self._act() as at:
            closed: list[str] = []
            for file in self._files.values():
                if len(closed) == limit:
                    break
                changes = decisions.lapse(file.run, file.interrupts.values(), at)
                for change in changes:
                    self._apply(file, change, at)
                if changes:
                    closed.append(file.run.id)
            return closed

    async def interrupts(
        self, tenant: str, run_id: str | None = None, *, open_only: bool = True, limit: int = 200
    ) -> list[Interrupt]:
        with self._act():
            found = [
                (file.asked[one.id], one)
                for file in self._files.values()
                if tenant in (file.run.tenant, EVERY_TENANT) and run_id in (file.run.id, None)
                for one in file.interrupts.values()
                if one.open or not open_only
            ]
            return [one for _, one in sorted(found, key=lambda pair: pair[0])[:limit]]

    async def interrupt(self, tenant: str, interrupt_id: str) -> Interrupt | None:
        with self._act():
            found = (file.interrupts.get(interrupt_id) for file in self._files.values())
            return next((one for one in found if one is not None and tenant in (one.tenant, EVERY_TENANT)), None)

    async def mint_epoch(self, feed: Feed, seen: int) -> Run | None:
        with self._act() as at:
            file = self._file_of(feed)
            minted = repair.mint(file.run, seen, at) if file else None
            if file is None or minted is None:
                return None
            file.run = minted
            return self._shown(file)

    def _file_of(self, feed: Feed) -> _File | None:
        return self._files.get(feed.id) if feed.kind == "run" else None

    async def facts(self, feed: Feed, after_rev: int, limit: int = 500) -> FactPage | None:
        with self._act():
            file = self._file_of(feed)
            if file is None:
                return None
            kept = [fact for rev, (_, fact) in sorted(file.facts.items()) if rev > after_rev]
            return FactPage(self._shown(file), tuple(kept[:limit]), min(file.facts, default=None))

    async def outbox(self, limit: int) -> list[Feed]:
        with self._act():
            waiting = [
                (min(file.unsettled), run_feed(run_id)) for run_id, file in self._files.items() if file.unsettled
            ]
            return [feed for _, feed in sorted(waiting, key=lambda pair: pair[0])[:limit]]

    async def settle(self, feed: Feed, epoch: int, rev: int) -> None:
        with self._act():
            file = self._file_of(feed)
            if file is not None and file.run.epoch == epoch:
                file.settled = (epoch, max(rev, file.settled_rev))

    async def unheard(self, types: Collection[str], limit: int, holder: str = "", hold_ms: int = 0) -> list[Fact]:
        with self._act() as at:
            found = [
                (order, file, fact)
                for file in self._files.values()
                for rev, (order, fact) in file.facts.items()
                if rev not in file.heard
                and fact.event.type in types
                and leases.may_hold(file.holds.get(rev), holder, at)
            ]
            given = sorted(found, key=lambda one: one[0])[:limit]
            for _, file, fact in given if hold_ms else ():
                file.holds[fact.rev] = (holder, at + hold_ms)
            return [fact for _, _, fact in given]

    async def heard(self, facts: Collection[tuple[Feed, int]]) -> None:
        with self._act():
            for feed, rev in facts:
                if file := self._file_of(feed):
                    file.heard.add(rev)

    async def note(self, tenant: str, run_id: str, token: int | None, kind: str, actor: str, data: bytes) -> None:
        with self._act() as at:
            file = self._must_find(tenant, run_id)
            if token is not None and file.run.token != token:
                raise AttemptLost(run_id=run_id, token=token, latest=file.run.token)
            file.audit.append(AuditEntry(run_id, at, kind, actor, data))

    async def audit(self, tenant: str, run_id: str, limit: int = 200) -> list[AuditEntry]:
        with self._act():
            file = self._find(tenant, run_id)
            return file.audit[:limit] if file else []

    async def prune(self, before_ms: int) -> int:
        with self._act():
            gone = 0
            for file in self._files.values():
                done = file.settled_rev
                old = [rev for rev, (_, fact) in file.facts.items() if rev <= done and fact.at < before_ms]
                for rev in old:
                    del file.facts[rev]
                gone += len(old)
            return gone

    async def delete(self, tenant: str, run_id: str) -> bool:
        with self._act():
            file = self._find(tenant, run_id)
            if file is None:
                return False
            if not file.run.status.final:
                raise RunNotFree(run_id=run_id, status=file.run.status)
            del self._files[run_id]
            if file.dedupe is not None:
                del self._keys[file.run.tenant, file.scope, file.dedupe]
            self._archive.pop(run_feed(run_id), None)
            return True

    async def append(self, feed: Feed, entries: Sequence[tuple[Event, int]], after: str | None) -> str | None:
        with self._act():
            kept = self._archive.get(feed, {})
            erased = feed.kind == "run" and feed.id not in self._files
            if erased or next(reversed(kept), None) != after:
                return None
            self._archive[feed] = kept
            for event, version in entries:
                kept.setdefault(event.id, (event, version))
            return next(reversed(kept), None)

    async def read(self, feed: Feed, before: str | None, limit: int) -> list[tuple[Event, int]]:
        with self._act():
            kept = self._archive.get(feed, {})
            if before is not None and before not in kept:
                return []
            ids = list(kept)
            end = len(ids) if before is None else ids.index(before)
            return [kept[name] for name in ids[max(0, end - limit) : end]]

    async def forget(self, feed: Feed) -> None:
        with self._act():
            self._archive.pop(feed, None)

    async def close(self) -> None:
        """Keeps everything, so that a test can look at it afterwards."""
