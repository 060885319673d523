"""The record in PostgreSQL: runs, attempts, leases, facts, interrupts, audit and the archive, for many processes."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from playhead.backends.postgres import migrate
from playhead.backends.postgres.acts import Locked
from playhead.backends.postgres.archive import PostgresArchive
from playhead.backends.postgres.database import Asked, Database, Row, Session
from playhead.backends.postgres.presence import PostgresPresence
from playhead.backends.postgres.rows import SQL, insert_run, interrupt_of, run_of, store, stored, told
from playhead.backends.rows import fact_of, first_of, no_such_run
from playhead.core import decision as decisions
from playhead.core import lease as leases
from playhead.core import lifecycle, repair
from playhead.core.event import Fact
from playhead.core.ids import EVERY_TENANT, LIMIT, Feed, parse_feed, run_feed
from playhead.core.interrupt import Interrupt, Question
from playhead.core.run import NewRun, Outcome, Run, Status
from playhead.errors import AttemptLost, KeyConflict, RunNotFree, StoreUnavailable
from playhead.interfaces import AuditEntry, Beat, Clock, FactPage

SCHEMA = migrate.load(Path(__file__).with_name("schema"))

_LOOK_FURTHER = 100  # free runs beyond those wanted, since others may be taking the first ones
_PRUNED_AT_ONCE = 5_000  # facts of one transaction
_FEEDS_AT_ONCE = 1_000  # facts of one look at the outbox
_AGAIN_S = 0.5  # between two tries to open

log = logging.getLogger(__name__)


class PostgresRecord(PostgresPresence, PostgresArchive):
    """RunStore and Archive in PostgreSQL. What a write answered is committed there.

    Usable from the loops of several threads, and beside any number of other processes. Every call ends within the
    deadline or raises StoreUnavailable; none holds a connection while nothing is asked.
    """

    def __init__(self, database: Database, clock: Clock, wall: Callable[[int], int] = int) -> None:
        """See `open`."""
        PostgresPresence.__init__(self, database, clock, wall)
        PostgresArchive.__init__(self, database)
        # Process → run → token of attempts that may have begun although nobody was told.
        self._unsure: dict[str, dict[str, int]] = {}

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        clock: Clock,
        wait: bool = False,
        max_size: int = 10,
        deadline: float = 5.0,
        wall: Callable[[int], int] = int,
    ) -> PostgresRecord:
        """Open the record of a database whose schema is there.

        `max_size` bounds the connections, `deadline` in seconds every call. Leases go by the steady time of `clock`,
        all else by the time of the database: `wall` is asked for every one that was read there, so that a test can put
        another in its place. With `wait` a database that does not answer is tried until it does.

        Raises StoreUnavailable, StoreTooOld when the database has to be upgraded first, StoreTooNew, and ValueError for
        a DSN that is none.
        """
        database = Database(dsn, max_size=max_size, deadline=deadline)
        try:
            waits = False
            while True:
                try:
                    await migrate.check(database, SCHEMA)
                    return cls(database, clock, wall)
                except StoreUnavailable as error:
                    if not wait:
                        raise
                    if not waits:
                        log.warning("Waiting for the record: %s", error.message)
                    waits = True
                await asyncio.sleep(_AGAIN_S)
        except BaseException:
            await database.close()
            raise

    @classmethod
    def at(
        cls,
        dsn: str,
        *,
        clock: Clock,
        max_size: int = 10,
        deadline: float = 5.0,
        wall: Callable[[int], int] = int,
    ) -> PostgresRecord:
        """As `open`, of a database that need not be there yet: until it is, every call raises StoreUnavailable, and
        StoreTooOld or StoreTooNew while its schema is not the one of this code. Raises ValueError for a DSN that is
        none."""

        async def first(database: Database) -> None:
            await migrate.check(database, SCHEMA)

        return cls(Database(dsn, max_size=max_size, deadline=deadline, first=first), clock, wall)

    async def close(self) -> None:
        await self._database.close()

    async def _load(self, session: Session, run_id: str, tenant: str) -> Locked:
        found = await self._find(session, run_id, tenant)
        if found is None:
            raise no_such_run(run_id)
        return found

    async def _load_of_attempt(self, session: Session, run_id: str, token: int) -> Locked:
        found = await self._find(session, run_id)
        if found is None:  # erased: nothing is left to own
            raise AttemptLost(run_id=run_id[:80], token=token, latest=None)
        return found

    async def create(self, new: NewRun) -> tuple[Run, bool]:
        def made(rows: Sequence[list[Row]]) -> tuple[Run, bool] | None:
            row = next((found[0] for found in rows if found), None)
            if row is None:
                return None
            run = run_of(row)
            if run.digest != new.digest:
                raise KeyConflict(run_id=run.id)
            return run, False

        same: list[Asked] = [(SQL["get_run"], {"id": new.id, "tenant": new.tenant})]
        if new.dedupe is not None:
            same.insert(0, _deduped(new.tenant, new.scope, new.dedupe))

        async def act(session: Session) -> tuple[Run, bool]:
            *before, now = await session.read(*same, (SQL["now"], {}))
            if (known := made(before)) is not None:
                return known
            at = self._wall(now[0][0])
            run = await insert_run(session, new, lifecycle.create(new, 0, at), at)
            if run is not None:
                return run, True
            # Another call with the same key waited less: its run is committed now.
            if (known := made(await session.read(*same))) is not None:
                return known
            raise StoreUnavailable("The run of this key was erased in this moment.")

        return await self._database.act(act)

    async def find_dedupe(self, tenant: str, scope: str, dedupe: str) -> Run | None:
        (rows,) = await self._database.read(_deduped(tenant, scope, dedupe))
        return run_of(rows[0]) if rows else None

    async def get(self, tenant: str, run_id: str) -> Run | None:
        (rows,) = await self._database.read((SQL["get_run"], {"id": run_id, "tenant": tenant}))
        return run_of(rows[0]) if rows else None

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
        values: dict[str, Any] = {"before": LIMIT if before_seq is None else before_seq, "limit": limit}
        conditions = [SQL["list_runs" if most_bytes is None else "weigh_runs"]]
        if tenant != EVERY_TENANT:
            conditions.append(SQL["of_tenant"])
            values["tenant"] = tenant
        if agent is not None:
            conditions.append(SQL["of_agent"])
            values["agent"] = agent
        if key is not None:
            conditions.append(SQL["of_key"])
            values["key"] = key
        for number, (name, value) in enumerate((labels or {}).items()):
            conditions.append(
                SQL["of_label"].replace("name)s", f"name{number})s").replace("value)s", f"value{number})s")
            )
            values |= {f"name{number}": name, f"value{number}": stored(value)}
        # One ordered walk per status, merged: each is an index of its own, and a union would be sorted whole.
        walks = [
            (_select([*conditions, SQL["of_status"]], "newest_first"), values | {"status": one.value})
            for one in sorted(set(status))
        ] or [(_select(conditions, "newest_first"), values)]
        if most_bytes is not None:
            walks = [
                (SQL["lightest_runs"].replace("WEIGHED", walk), named | {"most_bytes": most_bytes})
                for walk, named in walks
            ]
        found = await self._database.read(*walks)
        newest = heapq.merge(*found, key=lambda row: -row[0])
        return first_of(map(run_of, newest), limit, most_bytes)

    async def acquire(self, process: str, agents: Collection[str], limit: int) -> list[Run]:
        names = sorted(set(agents))
        if limit <= 0 or not names:
            return []
        with self._beginning(process) as begun:

            async def act(session: Session) -> list[Run]:
                lease, now = await session.read((SQL["share_lease"], {"process": process}), (SQL["now"], {}))
                if not lease or not self._leases.held(lease[0]):
                    return []
                at, beat_at = self._wall(now[0][0]), lease[0][3]
                taken = await _begun(session, process, begun, names, limit)
                after = 0
                while len(taken) < limit:
                    runs = await _free(session, names, after, at, limit - len(taken))
                    may = [run for run in runs if leases.may_start(run, at)]
                    for run in may:
                        change = lifecycle.start(run, process, at)
                        begun[run.id] = change.run.token
                        taken.append(store(session, run, change, at, beat_at))
                    if len(may) == len(runs):
                        break
                    after = runs[-1].seq
                return taken

            taken = await self._database.act(act)
            for run in taken:
                begun.pop(run.id, None)
            return taken

    async def claim(self, tenant: str, run_id: str, process: str) -> Run:
        with self._beginning(process) as begun:

            async def act(session: Session) -> Run:
                found = await self._load(session, run_id, tenant)
                run, at = found.run, found.at
                if run.owner == process and begun.get(run.id) == run.token:
                    return run
                lifecycle.claim(run, leases.may_start(run, at))
                lease = await session.row(SQL["share_lease"], process=process)
                if lease is None or not self._leases.held(lease):
                    message = "A process without a lease cannot start an attempt."
                    raise RunNotFree(message, run_id=run_id, process=process)
                change = lifecycle.start(run, process, at)
                begun[run.id] = change.run.token
                return store(session, run, change, at, lease[3])

            run = await self._database.act(act)
            begun.pop(run.id, None)
            return run

    @contextmanager
    def _beginning(self, process: str) -> Iterator[dict[str, int]]:
        """Attempts that this process may have begun and was not told of, run → token; what is left counts next time.

        Without it they would be kept alive by a process that does not know of them.
        """
        begun = self._unsure.pop(process, {})
        try:
            yield begun
        finally:
            if begun:
                self._unsure.setdefault(process, {}).update(begun)

    async def beat(self, process: str, ttl_ms: int, held: Collection[tuple[str, int]]) -> Beat:
        since = self._leases.now()

        async def act(session: Session) -> tuple[int, list[Row]]:
            lease = {"process": process, "at": await self._now(session), "ttl": ttl_ms}
            ((number,),), rows = await session.read(
                (SQL["put_lease"], lease), (SQL["owned_by"], {"process": process}), last=True
            )
            return number, rows

        number, rows = await self._database.act(act)
        self._leases.note(process, number, since)
        owned = {(row[0], row[1]): row for row in rows}
        kept = [owned[one] for one in held if one in owned]
        return Beat(
            frozenset(one for one in held if one not in owned),
            {run_id: told(reason) for run_id, _, cancelled, reason in kept if cancelled},
            frozenset(owned.keys() - set(held)),
        )

    async def leave(self, process: str) -> None:
        async def act(session: Session) -> None:
            # The row stays: whoever reaps holds it, against a beat in the same moment.
            session.write(SQL["end_lease"], process=process)

        await self._database.act(act)

    async def finish(self, run_id: str, token: int, outcome: Outcome) -> Run:
        async def act(session: Session) -> Run:
            found = await self._load_of_attempt(session, run_id, token)
            change = lifecycle.finish(found.run, token, outcome, found.asked, found.at)
            return store(session, found.run, change, found.at)

        return await self._database.act(act)

    async def request_cancel(self, tenant: str, run_id: str, by: str, reason: str | None) -> Run:
        async def act(session: Session) -> Run:
            found = await self._load(session, run_id, tenant)
            change = lifecycle.cancel(found.run, found.asked, by, reason, found.at)
            return store(session, found.run, change, found.at)

        return await self._database.act(act)

    async def expired(self, limit: int) -> list[Run]:
        (rows,) = await self._database.read((SQL["leases"], {}))
        self._leases.keep([row[0] for row in rows])
        held = [row[0] for row in rows if self._leases.held(row)]
        (found,) = await self._database.read((SQL["runs_without_lease"], {"held": held, "limit": limit}))
        return [run_of(row) for row in found]

    async def lose(self, run_id: str, token: int, partial: bytes | None, by: str | None = None) -> Run | None:
        async def act(session: Session) -> Run | None:
            found = await self._find(session, run_id)
            if found is None or found.run.token != token or found.run.owner is None or found.run.status.final:
                return None
            lease = await session.row(SQL["share_lease"], process=found.run.owner)
            if found.run.owner != by and self._leases.held(lease):
                return None
            return store(session, found.run, lifecycle.lose(found.run, found.asked, found.at, partial), found.at)

        return await self._database.act(act)

    async def ask(
        self, run_id: str, token: int, question: Question, new_id: str, state: bytes | None, published: int = 0
    ) -> Interrupt:
        async def act(session: Session) -> Interrupt:
            found = await self._load_of_attempt(session, run_id, token)
            run, at = found.run, found.at
            change, interrupt = decisions.ask(run, token, question, found.asked, new_id, state, at, published)
            store(session, run, change, at)
            return interrupt

        return await self._database.act(act)

    async def decide(self, tenant: str, run_id: str, interrupt_id: str, decision: bytes, by: str) -> Interrupt:
        async def act(session: Session) -> Interrupt:
            found = await self._load(session, run_id, tenant)
            change, interrupt = decisions.decide(found.run, found.asked, interrupt_id, decision, by, found.at)
            store(session, found.run, change, found.at)
            return interrupt

        return await self._database.act(act)

    async def lapse(self, limit: int) -> list[str]:
        async def act(session: Session) -> list[str]:
            lapsed = []
            due = await session.rows(SQL["runs_due"], at=await self._now(session), limit=limit)
            for run_id, _ in due:
                # What another process has in hand is looked at next time: who waits while holding may wait for ever.
                found = await self._find(session, run_id, how="lock_run_if_free")
                if found is None:
                    continue
                run = found.run
                changes = decisions.lapse(run, found.asked, found.at)
                for change in changes:
                    run = store(session, run, change, found.at)
                if changes:
                    lapsed.append(run_id)
            return lapsed

        return await self._database.act(act)

    async def interrupts(
        self, tenant: str, run_id: str | None = None, *, open_only: bool = True, limit: int = 200
    ) -> list[Interrupt]:
        values: dict[str, Any] = {"limit": limit}
        conditions = [SQL["list_interrupts"]]
        if tenant != EVERY_TENANT:
            conditions.append(SQL["interrupt_of_tenant"])
            values["tenant"] = tenant
        if run_id is not None:
            conditions.append(SQL["interrupt_of_run"])
            values["run_id"] = run_id
        if open_only:
            conditions.append(SQL["interrupt_is_open"])
        (rows,) = await self._database.read((_select(conditions, "oldest_first"), values))
        return [interrupt_of(row) for row in rows]

    async def interrupt(self, tenant: str, interrupt_id: str) -> Interrupt | None:
        (rows,) = await self._database.read((SQL["get_interrupt"], {"id": interrupt_id, "tenant": tenant}))
        return interrupt_of(rows[0]) if rows else None

    async def mint_epoch(self, feed: Feed, seen: int) -> Run | None:
        async def act(session: Session) -> Run | None:
            found = await self._find(session, feed.id)
            minted = repair.mint(found.run, seen, found.at) if found is not None else None
            if minted is None:
                return None
            session.write(SQL["update_run_epoch"], epoch=minted.epoch, minted_at=minted.minted_at, seq=minted.seq)
            # What was projected under the old epoch is in a projection that is about to be replaced.
            session.write(SQL["unsettle"], feed=feed.key)
            return minted

        return await self._database.act(act) if feed.kind == "run" else None

    async def facts(self, feed: Feed, after_rev: int, limit: int = 500) -> FactPage | None:
        if feed.kind != "run":
            return None
        runs, rows, oldest = await self._database.read(
            (SQL["get_run"], {"id": feed.id, "tenant": EVERY_TENANT}),
            (SQL["facts_after"], {"feed": feed.key, "rev": after_rev, "limit": limit}),
            (SQL["oldest_rev"], {"feed": feed.key}),
        )
        return FactPage(run_of(runs[0]), tuple(map(fact_of, rows)), oldest[0][0]) if runs else None

    async def outbox(self, limit: int) -> list[Feed]:
        keys: dict[str, None] = {}
        after = 0
        while len(keys) < limit:
            (rows,) = await self._database.read((SQL["unsettled"], {"after": after, "limit": _FEEDS_AT_ONCE}))
            keys |= dict.fromkeys(key for _, key in rows)
            if len(rows) < _FEEDS_AT_ONCE:
                break
            after = rows[-1][0]
        return [parse_feed(key) for key in islice(keys, max(0, limit))]

    async def settle(self, feed: Feed, epoch: int, rev: int) -> None:
        async def act(session: Session) -> None:
            # Held against a new epoch: what was settled a moment before it would be settled for ever.
            if await session.row(SQL["share_run"], id=feed.id, tenant=EVERY_TENANT) is not None:
                session.write(SQL["settle"], feed=feed.key, rev=rev, id=feed.id, epoch=epoch)

        await self._database.act(act)

    async def unheard(self, types: Collection[str], limit: int, holder: str = "", hold_ms: int = 0) -> list[Fact]:
        async def act(session: Session) -> list[Fact]:
            now = await self._now(session)
            asked = {"types": sorted(set(types)), "limit": limit, "holder": holder, "now": now}
            found = [fact_of(row) for row in await session.rows(SQL["unheard"], **asked)]
            if not found or not hold_ms:
                return found
            places = {"feeds": [fact.feed.key for fact in found], "revs": [fact.rev for fact in found]}
            held = await session.rows(SQL["hold"], holder=holder, now=now, until=now + hold_ms, **places)
            ours = {(str(feed), rev) for feed, rev in held}
            return [fact for fact in found if (fact.feed.key, fact.rev) in ours]

        return await self._database.act(act)

    async def heard(self, facts: Collection[tuple[Feed, int]]) -> None:
        async def act(session: Session) -> None:
            session.write(SQL["heard"], feeds=[feed.key for feed, _ in facts], revs=[rev for _, rev in facts])

        if facts:
            await self._database.act(act)

    async def note(self, tenant: str, run_id: str, token: int | None, kind: str, actor: str, data: bytes) -> None:
        async def act(session: Session) -> None:
            row = await session.row(SQL["share_run"], id=run_id, tenant=tenant)
            if row is None and token is None:
                raise no_such_run(run_id)
            owner, latest = row or (None, None)
            if token is not None and latest != token:
                raise AttemptLost(run_id=run_id, token=token, latest=latest)
            at = await self._now(session)
            session.write(
                SQL["insert_audit"], tenant=owner, run_id=run_id, at=at, kind=kind, actor=stored(actor), data=data
            )

        await self._database.act(act, repeatable=False)  # a second entry would tell of a second deed

    async def audit(self, tenant: str, run_id: str, limit: int = 200) -> list[AuditEntry]:
        (rows,) = await self._database.read((SQL["audit_of_run"], {"run_id": run_id, "tenant": tenant, "limit": limit}))
        return [AuditEntry(who, at, kind, actor.decode(), data) for who, at, kind, actor, data in rows]

    async def prune(self, before_ms: int) -> int:
        async def act(session: Session) -> int:
            ((count,),) = await session.rows(SQL["prune_facts"], before=before_ms, limit=_PRUNED_AT_ONCE)
            return int(count)

        async def tidy(session: Session) -> None:
            session.write(SQL["forget_leases"], before=before_ms)

        gone = 0
        while True:
            count = await self._database.act(act)
            gone += count
            if count < _PRUNED_AT_ONCE:
                await self._database.act(tidy)
                return gone

    async def delete(self, tenant: str, run_id: str) -> bool:
        feed = run_feed(run_id).key

        async def act(session: Session) -> bool:
            found = await self._find(session, run_id, tenant)
            if found is None:
                return False
            run = found.run
            if not run.status.final:
                raise RunNotFree("A run that goes on cannot be erased.", run_id=run_id, status=run.status)
            # Who is archiving it is done before, or finds it erased.
            session.write(SQL["lock_archive"], feed=feed)
            for name in ("delete_run", "delete_input", "delete_end", "delete_labels"):
                session.write(SQL[name], seq=run.seq)
            for name in ("delete_attempts", "delete_interrupts", "delete_audit", "delete_presence"):
                session.write(SQL[name], id=run_id)
            for name in ("delete_facts", "delete_archived"):
                session.write(SQL[name], feed=feed)
            return True

        return await self._database.act(act)


async def _begun(session: Session, process: str, begun: dict[str, int], agents: list[str], limit: int) -> list[Run]:
    """Of the attempts that may have begun those that did, for these agents; what did not begin is forgotten."""
    if not begun:
        return []
    rows = await session.rows(SQL["started_before"], ids=list(begun), process=process)
    owned = {run.id: run for run in map(run_of, rows) if run.token == begun[run.id]}
    for run_id in begun.keys() - owned.keys():
        del begun[run_id]
    return [run for run in owned.values() if run.agent in agents][:limit]


async def _free(session: Session, agents: list[str], after: int, at: int, limit: int) -> list[Run]:
    """Lock the oldest free runs of these agents that nobody else has in hand, and read them."""
    low, high = leases.resting(at)
    look = limit + _LOOK_FURTHER
    values = {"agents": agents, "after": after, "low": low, "high": high, "look": look, "limit": limit}
    seqs = [row[0] for row in await session.rows(SQL["free_runs"], **values)]
    return [run_of(row) for row in await session.rows(SQL["runs_of"], seqs=seqs)] if seqs else []


def _deduped(tenant: str, scope: str, dedupe: str) -> Asked:
    return SQL["get_deduped"], {"tenant": tenant, "scope": stored(scope), "dedupe": dedupe}


def _select(conditions: Sequence[str], end: str) -> str:
    return f"{' AND '.join(conditions)} {SQL[end]}"
