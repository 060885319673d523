"""The embedded record: runs, attempts, leases, facts, interrupts, audit and the archive, in one SQLite file."""

from __future__ import annotations

import heapq
import logging
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from playhead.backends.rows import Row, fact_of, first_of, interrupt_of, no_such_run, run_of
from playhead.backends.sqlite import presence
from playhead.backends.sqlite.file import SqliteFile
from playhead.backends.sqlite.rows import (
    SQL,
    find_lease,
    find_run,
    insert_run,
    interrupts_of_run,
    load_run,
    store,
)
from playhead.core import decision as decisions
from playhead.core import lease as leases
from playhead.core import lifecycle, repair
from playhead.core.event import UNREADABLE, Event, Fact, readable
from playhead.core.ids import EVERY_TENANT, LIMIT, Feed, parse_feed, run_feed
from playhead.core.interrupt import Interrupt, Question
from playhead.core.run import NewRun, Outcome, Run, Status
from playhead.errors import AttemptLost, KeyConflict, RunNotFree
from playhead.interfaces import AuditEntry, Beat, Clock, FactPage

T = TypeVar("T")

_SCHEMA = Path(__file__).with_name("schema") / "record"
_MAX_KNOWN = 256  # runs, of
_KNOWN_BYTES = 8_192  # at most
_PRUNED_AT_ONCE = 5_000  # facts of one transaction, so that other writers get their turn

log = logging.getLogger(__name__)


class SqliteRecord:
    """RunStore and Archive in a SQLite file. What a write answered is on the disk."""

    def __init__(self, file: SqliteFile, clock: Clock) -> None:
        """See `open` and `open_read_only`."""
        self.file = file
        self.unreadable = 0
        self._clock = clock
        self._known: dict[str, tuple[Row, Run]] = {}

    @classmethod
    async def open(cls, path: Path, *, clock: Clock, **options: Any) -> SqliteRecord:
        """Open the record for writing, make or upgrade it if need be, and end every lease in it.

        The caller holds the lock of the data folder: whoever had a lease is gone, and what it held is expired now.
        Options and errors are those of `SqliteFile.open`.
        """
        file = await SqliteFile.open(path, schema=_SCHEMA, **options)
        try:
            await file.write(lambda db: db.execute(SQL["delete_leases"]))
        except BaseException:
            await file.close()
            raise
        return cls(file, clock)

    @classmethod
    async def open_read_only(cls, path: Path, *, clock: Clock) -> SqliteRecord:
        """Open the record beside a server that writes it, or without one. Writes raise StoreUnavailable."""
        return cls(await SqliteFile.open(path, schema=_SCHEMA, read_only=True, readers=1), clock)

    async def close(self) -> None:
        await self.file.close()

    async def _act(self, decide: Callable[[sqlite3.Connection, int], T], *, frees: bool = False) -> T:
        """One write transaction; the time is read inside it, so that it is the time at which the record decides."""
        return await self.file.write(lambda db: decide(db, self._clock.wall_ms()), frees=frees)

    def _steady_ms(self) -> int:
        return round(self._clock.steady() * 1000)

    async def create(self, new: NewRun) -> tuple[Run, bool]:
        def act(db: sqlite3.Connection, at: int) -> tuple[Run, bool]:
            made = _deduped(db, new.tenant, new.scope, new.dedupe) or find_run(db, new.id, new.tenant)
            if made is not None:
                if made.digest != new.digest:
                    raise KeyConflict(run_id=made.id)
                return made, False
            (seq,) = db.execute(SQL["next_seq"]).fetchone()
            return insert_run(db, new, lifecycle.create(new, seq, at), at), True

        return await self._act(act)

    async def find_dedupe(self, tenant: str, scope: str, dedupe: str) -> Run | None:
        return await self.file.read(lambda db: _deduped(db, tenant, scope, dedupe))

    async def get(self, tenant: str, run_id: str) -> Run | None:
        return await self.file.read(lambda db: self._find(db, tenant, run_id), quick=True)

    def _find(self, db: sqlite3.Connection, tenant: str, run_id: str) -> Run | None:
        """The row is always read; what is kept is the value that the very same row was made into before.

        Many ask for one run at once, and each holds what it was given as long as its stream.
        """
        row = db.execute(SQL["get_run"], (run_id, tenant)).fetchone()
        if row is None:
            return None
        known = self._known.get(run_id)
        if known is not None and known[0] == row:
            return known[1]
        run = run_of(row)
        if sum(len(value) for value in row if isinstance(value, str | bytes)) <= _KNOWN_BYTES:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[run_id] = row, run
        return run

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
        conditions: list[tuple[str, Sequence[Any]]] = []
        if tenant != EVERY_TENANT:
            conditions.append((SQL["of_tenant"], (tenant,)))
        if agent is not None:
            conditions.append((SQL["of_agent"], (agent,)))
        if key is not None:
            conditions.append((SQL["of_key"], (key,)))
        conditions += [(SQL["of_label"], pair) for pair in (labels or {}).items()]
        before = LIMIT if before_seq is None else before_seq

        def act(db: sqlite3.Connection) -> list[Run]:
            # One ordered walk per status, merged: each is an index of its own, and a union would be sorted whole.
            walks = [
                _select(
                    db, SQL["list_runs"], (before,), [*conditions, (SQL["of_status"], (one,))], "newest_first", limit
                )
                for one in sorted({each.value for each in status})
            ] or [_select(db, SQL["list_runs"], (before,), conditions, "newest_first", limit)]
            newest = heapq.merge(*walks, key=lambda row: -row[0])
            found = first_of(map(run_of, newest), limit, most_bytes)
            for walk in walks:
                walk.close()
            return found

        return await self.file.read(act)

    async def acquire(self, process: str, agents: Collection[str], limit: int) -> list[Run]:
        def act(db: sqlite3.Connection, at: int) -> list[Run]:
            if limit <= 0 or not leases.held(find_lease(db, process), self._steady_ms()):
                return []
            walks = [db.execute(SQL["free_runs"], (agent,)) for agent in sorted(set(agents))]
            oldest = (run_of(row) for row in heapq.merge(*walks, key=lambda row: row[0]))
            free = list(islice((run for run in oldest if leases.may_start(run, at)), limit))
            for walk in walks:
                walk.close()
            return [store(db, run, lifecycle.start(run, process, at), at) for run in free]

        return await self._act(act)

    async def claim(self, tenant: str, run_id: str, process: str) -> Run:
        def act(db: sqlite3.Connection, at: int) -> Run:
            run = load_run(db, run_id, tenant)
            lifecycle.claim(run, leases.may_start(run, at))
            if not leases.held(find_lease(db, process), self._steady_ms()):
                raise RunNotFree("A process without a lease cannot start an attempt.", run_id=run_id, process=process)
            return store(db, run, lifecycle.start(run, process, at), at)

        return await self._act(act)

    async def beat(self, process: str, ttl_ms: int, held: Collection[tuple[str, int]]) -> Beat:
        def act(db: sqlite3.Connection, at: int) -> Beat:
            db.execute(SQL["put_lease"], (process, self._steady_ms() + ttl_ms, at))
            owned = {(row[0], row[1]): row for row in db.execute(SQL["owned_by"], (process,))}
            kept = [owned[one] for one in held if one in owned]
            return Beat(
                frozenset(one for one in held if one not in owned),
                {run_id: reason for run_id, _, cancelled, reason in kept if cancelled},
                frozenset(owned.keys() - set(held)),
            )

        return await self._act(act)

    async def leave(self, process: str) -> None:
        await self.file.write(lambda db: db.execute(SQL["delete_lease"], (process,)).rowcount)

    async def finish(self, run_id: str, token: int, outcome: Outcome) -> Run:
        def act(db: sqlite3.Connection, at: int) -> Run:
            run = _run_of_attempt(db, run_id, token)
            return store(db, run, lifecycle.finish(run, token, outcome, interrupts_of_run(db, run_id), at), at)

        return await self._act(act)

    async def request_cancel(self, tenant: str, run_id: str, by: str, reason: str | None) -> Run:
        def act(db: sqlite3.Connection, at: int) -> Run:
            run = load_run(db, run_id, tenant)
            return store(db, run, lifecycle.cancel(run, interrupts_of_run(db, run_id), by, reason, at), at)

        return await self._act(act)

    async def expired(self, limit: int) -> list[Run]:
        def act(db: sqlite3.Connection) -> list[Run]:
            owners = [row[0] for row in db.execute(SQL["owners"])]
            gone = [each for each in owners if not leases.held(find_lease(db, each), self._steady_ms())]
            rows = (row for owner in gone for row in db.execute(SQL["runs_owned_by"], (owner,)))
            return [run_of(row) for row in islice(rows, limit)]

        return await self.file.read(act)

    async def lose(self, run_id: str, token: int, partial: bytes | None, by: str | None = None) -> Run | None:
        def act(db: sqlite3.Connection, at: int) -> Run | None:
            run = find_run(db, run_id)
            if run is None or run.token != token or run.owner is None or run.status.final:
                return None
            if run.owner != by and leases.held(find_lease(db, run.owner), self._steady_ms()):
                return None
            return store(db, run, lifecycle.lose(run, interrupts_of_run(db, run_id), at, partial), at)

        return await self._act(act)

    async def watch(self, process: str, runs: Collection[str]) -> None:
        if runs:
            await self._act(lambda db, at: presence.watch(db, process, runs))

    async def unwatch(self, process: str, runs: Collection[str]) -> None:
        if runs:
            await self._act(lambda db, at: presence.unwatch(db, [(run_id, process) for run_id in runs], at))

    async def unwatch_expired(self, grace_ms: int, limit: int) -> int:
        def act(db: sqlite3.Connection, at: int) -> int:
            gone = presence.expired(db, self._steady_ms(), limit)
            presence.unwatch(db, gone, at, grace_ms)
            return len(gone)

        gone = await self.file.read(lambda db: presence.expired(db, self._steady_ms(), 1))
        return await self._act(act) if gone else 0

    async def deserted(self, limit: int) -> list[str]:
        return await self.file.read(lambda db: presence.deserted(db, self._clock.wall_ms(), limit))

    async def desert(self, run_id: str) -> Run | None:
        return await self._act(lambda db, at: presence.desert(db, run_id, at))

    async def ask(
        self, run_id: str, token: int, question: Question, new_id: str, state: bytes | None, published: int = 0
    ) -> Interrupt:
        def act(db: sqlite3.Connection, at: int) -> Interrupt:
            run = _run_of_attempt(db, run_id, token)
            asked = interrupts_of_run(db, run_id)
            change, interrupt = decisions.ask(run, token, question, asked, new_id, state, at, published)
            store(db, run, change, at)
            return interrupt

        return await self._act(act)

    async def decide(self, tenant: str, run_id: str, interrupt_id: str, decision: bytes, by: str) -> Interrupt:
        def act(db: sqlite3.Connection, at: int) -> Interrupt:
            run = load_run(db, run_id, tenant)
            asked = interrupts_of_run(db, run_id)
            change, interrupt = decisions.decide(run, asked, interrupt_id, decision, by, at)
            store(db, run, change, at)
            return interrupt

        return await self._act(act)

    async def lapse(self, limit: int) -> list[str]:
        def act(db: sqlite3.Connection, at: int) -> list[str]:
            lapsed = []
            for (run_id,) in db.execute(SQL["runs_due"], (at, limit)).fetchall():
                run = load_run(db, run_id)
                changes = decisions.lapse(run, interrupts_of_run(db, run_id), at)
                for change in changes:
                    run = store(db, run, change, at)
                if changes:
                    lapsed.append(run_id)
            return lapsed

        return await self._act(act)

    async def interrupts(
        self, tenant: str, run_id: str | None = None, *, open_only: bool = True, limit: int = 200
    ) -> list[Interrupt]:
        conditions: list[tuple[str, Sequence[Any]]] = []
        if tenant != EVERY_TENANT:
            conditions.append((SQL["interrupt_of_tenant"], (tenant,)))
        if run_id is not None:
            conditions.append((SQL["interrupt_of_run"], (run_id,)))
        if open_only:
            conditions.append((SQL["interrupt_is_open"], ()))

        def act(db: sqlite3.Connection) -> list[Interrupt]:
            rows = _select(db, SQL["list_interrupts"], (), conditions, "oldest_first", limit)
            return [interrupt_of(row) for row in rows]

        return await self.file.read(act)

    async def interrupt(self, tenant: str, interrupt_id: str) -> Interrupt | None:
        def act(db: sqlite3.Connection) -> Interrupt | None:
            row = db.execute(SQL["get_interrupt"], (interrupt_id, tenant)).fetchone()
            return None if row is None else interrupt_of(row)

        return await self.file.read(act)

    async def mint_epoch(self, feed: Feed, seen: int) -> Run | None:
        def act(db: sqlite3.Connection, at: int) -> Run | None:
            run = _run_of_feed(db, feed)
            minted = repair.mint(run, seen, at) if run is not None else None
            if minted is None:
                return None
            db.execute(SQL["update_run_epoch"], (minted.epoch, minted.minted_at, minted.seq))
            # What was projected under the old epoch is in a projection that is about to be replaced.
            db.execute(SQL["unsettle"], (feed.key,))
            return minted

        return await self._act(act)

    async def facts(self, feed: Feed, after_rev: int, limit: int = 500) -> FactPage | None:
        def act(db: sqlite3.Connection) -> FactPage | None:
            run = _run_of_feed(db, feed)
            if run is None:
                return None
            rows = db.execute(SQL["facts_after"], (feed.key, after_rev, limit))
            (oldest,) = db.execute(SQL["oldest_rev"], (feed.key,)).fetchone()
            return FactPage(run, tuple(fact_of(row) for row in rows), oldest)

        return await self.file.read(act)

    async def outbox(self, limit: int) -> list[Feed]:
        def act(db: sqlite3.Connection) -> list[Feed]:
            keys: dict[str, None] = {}
            for (key,) in db.execute(SQL["unsettled"]):
                if len(keys) >= limit:
                    break
                keys[key] = None
            return [parse_feed(key) for key in keys]

        return await self.file.read(act)

    async def settle(self, feed: Feed, epoch: int, rev: int) -> None:
        await self.file.write(lambda db: db.execute(SQL["settle"], (feed.key, rev, feed.id, epoch)).rowcount)

    async def unheard(self, types: Collection[str], limit: int, holder: str = "", hold_ms: int = 0) -> list[Fact]:
        def look(db: sqlite3.Connection, at: int) -> list[Fact]:
            walks = [db.execute(SQL["unheard"], (name, holder, at, limit)) for name in sorted(set(types))]
            oldest = heapq.merge(*walks, key=lambda row: row[-1])
            return [fact_of(row) for row in islice(oldest, limit)]

        def hold(db: sqlite3.Connection, at: int) -> list[Fact]:
            found = look(db, at)
            db.executemany(SQL["hold"], [(holder, at + hold_ms, fact.feed.key, fact.rev) for fact in found])
            return found

        if hold_ms:
            return await self._act(hold)
        return await self.file.read(lambda db: look(db, self._clock.wall_ms()))

    async def heard(self, facts: Collection[tuple[Feed, int]]) -> None:
        pairs = [(feed.key, rev) for feed, rev in facts]
        await self.file.write(lambda db: db.executemany(SQL["heard"], pairs).rowcount)

    async def note(self, tenant: str, run_id: str, token: int | None, kind: str, actor: str, data: bytes) -> None:
        def act(db: sqlite3.Connection, at: int) -> None:
            row = db.execute(SQL["tenant_and_token"], (run_id, tenant)).fetchone()
            if row is None and token is None:
                raise no_such_run(run_id)
            owner, latest = row or (None, None)
            if token is not None and latest != token:
                raise AttemptLost(run_id=run_id, token=token, latest=latest)
            db.execute(SQL["insert_audit"], (owner, run_id, at, kind, actor, data))

        await self._act(act)

    async def audit(self, tenant: str, run_id: str, limit: int = 200) -> list[AuditEntry]:
        def act(db: sqlite3.Connection) -> list[AuditEntry]:
            return [AuditEntry(*row) for row in db.execute(SQL["audit_of_run"], (run_id, tenant, limit))]

        return await self.file.read(act)

    async def prune(self, before_ms: int) -> int:
        gone = 0
        while True:
            count = await self.file.write(
                lambda db: db.execute(SQL["prune_facts"], (before_ms, _PRUNED_AT_ONCE)).rowcount, frees=True
            )
            gone += count
            if count < _PRUNED_AT_ONCE:
                return gone

    async def delete(self, tenant: str, run_id: str) -> bool:
        def act(db: sqlite3.Connection, at: int) -> bool:
            run = find_run(db, run_id, tenant)
            if run is None:
                return False
            if not run.status.final:
                raise RunNotFree("A run that goes on cannot be erased.", run_id=run_id, status=run.status)
            for name in ("delete_run", "delete_input", "delete_end", "delete_labels"):
                db.execute(SQL[name], (run.seq,))
            for name in ("delete_attempts", "delete_interrupts", "delete_audit", "delete_presence"):
                db.execute(SQL[name], (run_id,))
            for name in ("delete_facts", "delete_archived"):
                db.execute(SQL[name], (run_feed(run_id).key,))
            return True

        erased = await self._act(act, frees=True)
        self._known.pop(run_id, None)
        return erased

    async def append(self, feed: Feed, entries: Sequence[tuple[Event, int]], after: str | None) -> str | None:
        rows = [(feed.key, event.id, event.type, version, event.body) for event, version in entries]

        def newest(db: sqlite3.Connection) -> str | None:
            row = db.execute(SQL["newest_archived"], (feed.key,)).fetchone()
            return None if row is None else row[0]

        def act(db: sqlite3.Connection) -> str | None:
            erased = feed.kind == "run" and db.execute(SQL["has_run"], (feed.id,)).fetchone() is None
            if erased or newest(db) != after:
                return None
            db.executemany(SQL["insert_archived"], rows)
            return newest(db)

        return await self.file.write(act)

    async def read(self, feed: Feed, before: str | None, limit: int) -> list[tuple[Event, int]]:
        def act(db: sqlite3.Connection) -> list[tuple[Event, int]]:
            number = LIMIT
            if before is not None:
                row = db.execute(SQL["archived_number"], (feed.key, before)).fetchone()
                if row is None:
                    return []
                number = row[0]
            rows = db.execute(SQL["archived_before"], (feed.key, number, limit)).fetchall()
            return [
                (readable(feed, Event(event_id, name, body)), version)
                for event_id, name, body, version in reversed(rows)
            ]

        found = await self.file.read(act)
        unreadable = sum(event.type == UNREADABLE for event, _ in found)
        if unreadable:
            self.unreadable += unreadable
            log.warning("%d archived events of %s cannot be read.", unreadable, feed.key)
        return found

    async def forget(self, feed: Feed) -> None:
        await self.file.write(lambda db: db.execute(SQL["delete_archived"], (feed.key,)).rowcount, frees=True)


def _deduped(db: sqlite3.Connection, tenant: str, scope: str, dedupe: str | None) -> Run | None:
    if dedupe is None:
        return None
    row = db.execute(SQL["get_deduped"], (tenant, scope, dedupe)).fetchone()
    return None if row is None else run_of(row)


def _run_of_attempt(db: sqlite3.Connection, run_id: str, token: int) -> Run:
    run = find_run(db, run_id)
    if run is None:  # erased: nothing is left to own
        raise AttemptLost(run_id=run_id[:80], token=token, latest=None)
    return run


def _run_of_feed(db: sqlite3.Connection, feed: Feed) -> Run | None:
    return find_run(db, feed.id) if feed.kind == "run" else None


def _select(
    db: sqlite3.Connection,
    start: str,
    first: Sequence[Any],
    conditions: Sequence[tuple[str, Sequence[Any]]],
    end: str,
    limit: int,
) -> sqlite3.Cursor:
    """Rows for which all conditions hold; each is read when it is asked for."""
    texts = [start, *(text for text, _ in conditions)]
    values = [*first, *(value for _, given in conditions for value in given), limit]
    return db.execute(f"{' AND '.join(texts)} {SQL[end]}", values)
