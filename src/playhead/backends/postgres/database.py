"""One PostgreSQL database: transactions with a deadline, over a bounded pool of connections.

    database = Database(dsn, max_size=10, deadline=5.0)
    run = await database.act(lambda session: …)
    rows, more = await database.read(("SELECT …", {}), ("SELECT …", {"id": 1}))

A transaction is begun, bounded and ended by what is sent with its first and its last statement. Nothing is a property
of the session, so that a transaction pooler may stand between.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from typing import Any, TypeVar

import psycopg

from playhead.backends.postgres.faults import connection_lost, rolled_back, typed
from playhead.backends.postgres.pool import Connection, Lent, Pool
from playhead.errors import StoreUnavailable

T = TypeVar("T")
Row = tuple[Any, ...]
Asked = tuple[str, Mapping[str, Any]]  # a statement and its values

_PAUSE_S = 0.05  # between two tries, more or less

_WRITES = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_READS = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# Of this transaction alone. A client that vanished holds its locks no longer than it would have waited for an answer.
_BOUNDS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")


class Session:
    """One transaction. Values are named, `%(name)s`; a text with U+0000 is in no text column, so it finds no row."""

    def __init__(self, connection: Connection, opening: Sequence[str]) -> None:
        self._connection = connection
        self._cursor = psycopg.AsyncClientCursor(connection)
        self._pending = list(opening)
        self.ending = False  # the end was sent: if its answer is lost, the transaction may have taken place

    def write(self, statement: str, **values: Any) -> None:
        """Have a statement done before the next read or the end, whichever comes first."""
        self._pending.append(self._literal(statement, values))

    async def rows(self, statement: str, **values: Any) -> list[Row]:
        (found,) = await self.read((statement, values))
        return found

    async def row(self, statement: str, **values: Any) -> Row | None:
        found = await self.rows(statement, **values)
        return found[0] if found else None

    async def read(self, *asked: Asked, last: bool = False) -> list[list[Row]]:
        """Several statements at once, each seeing what was committed before it began. `last`: commit with them."""
        found: list[list[Row]] = [[] for _ in asked]
        places: dict[int, int] = {}
        batch, self._pending = self._pending, []
        for place, (statement, values) in enumerate(asked):
            if not any(isinstance(value, str) and "\0" in value for value in values.values()):
                places[len(batch)] = place
                batch.append(self._literal(statement, values))
        if last:
            self.ending = True
            batch.append("COMMIT")
        await self._cursor.execute(_joined(batch))
        for number in range(len(batch)):
            if number in places:
                found[places[number]] = await self._cursor.fetchall()
            self._cursor.nextset()
        return found

    async def commit(self) -> None:
        if self.ending:
            return
        self.ending = True
        await self._cursor.execute(_joined([*self._pending, "COMMIT"]))

    async def roll_back(self) -> None:
        """Give up what was done so far. A connection that is gone has done so."""
        if not self._connection.closed and not self._between:
            try:
                await self._cursor.execute("ROLLBACK")
            except psycopg.Error:
                pass  # the pool closes what is not between two transactions

    @property
    def _between(self) -> bool:
        return self._connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE

    def _literal(self, statement: str, values: Mapping[str, Any]) -> str:
        return self._cursor.mogrify(statement.encode(), values) if values else statement


class _Failed(Exception):
    """One try failed. `again`: another may succeed, and harms nothing."""

    def __init__(self, error: Exception, *, again: bool) -> None:
        self.error, self.again = error, again


class Database:
    """Usable from the loops of several threads. Every call ends within the deadline, or raises StoreUnavailable."""

    def __init__(
        self,
        dsn: str,
        *,
        max_size: int,
        deadline: float,
        first: Callable[[Database], Awaitable[None]] | None = None,
    ) -> None:
        """Nothing is connected yet. `deadline` in seconds. `first` is done before anything else is asked of the
        database, again and again until it raises nothing. Raises ValueError for a DSN that is none."""
        self._pool = Pool(dsn, max_size=max_size)
        self._first = first
        self._deadline = deadline
        bounds = [f"SET LOCAL {name} = {max(1, int(deadline * 1000))}" for name in _BOUNDS]
        self._writes, self._reads = [_WRITES, *bounds], [_READS, *bounds]

    @property
    def where(self) -> str:
        """The database, as messages name it."""
        return self._pool.where

    async def act(self, work: Callable[[Session], Awaitable[T]], *, repeatable: bool = True) -> T:
        """Do a work in a transaction of its own and commit it.

        The work may run twice: it changes nothing but the database. A work that is not `repeatable` is not done again
        when it may have taken place. Raises StoreUnavailable, StoreFull, StoreCorrupt, and what the work raises.
        """

        async def whole(session: Session) -> T:
            value = await work(session)
            await session.commit()
            return value

        return await self._twice(whole, self._writes, repeatable)

    async def read(self, *asked: Asked) -> list[list[Row]]:
        """The rows of each of these, all as of one moment."""
        return await self._twice(lambda session: session.read(*asked, last=True), self._reads, True)

    async def close(self) -> None:
        """Return when the calls under way have ended. May be called twice."""
        await self._pool.close(time.monotonic() + self._deadline)

    async def _twice(self, work: Callable[[Session], Awaitable[T]], opening: Sequence[str], repeatable: bool) -> T:
        if self._first is not None:
            behind = copy(self)  # what it asks itself is asked as ever
            behind._first = None
            await self._first(behind)
            self._first = None
        until = time.monotonic() + self._deadline
        try:
            return await self._once(work, opening, repeatable, until)
        except _Failed as failed:
            if not failed.again:
                raise failed.error from failed.__cause__
        # Whoever stood in the way goes on now; at once, or after one and the same time, both could meet again.
        await asyncio.sleep(_PAUSE_S * random.uniform(0.5, 1.5))
        try:
            return await self._once(work, opening, repeatable, until)
        except _Failed as failed:
            raise failed.error from failed.__cause__

    async def _once(
        self, work: Callable[[Session], Awaitable[T]], opening: Sequence[str], repeatable: bool, until: float
    ) -> T:
        try:
            lent = await self._pool.lend(until)
        except psycopg.Error as error:
            raise _Failed(typed(error, self.where), again=False) from error
        session = Session(lent.connection, opening)
        try:
            return await self._bounded(lent, session, work, until)
        except psycopg.Error as error:
            if lent.cut_off:
                late = f"{self.where} did not answer within {self._deadline:g} s."
                raise _Failed(StoreUnavailable(late, database=self.where), again=False) from error
            known = rolled_back(error) or not session.ending
            again = (rolled_back(error) or connection_lost(error)) and (repeatable or known)
            raise _Failed(typed(error, self.where), again=again) from error
        finally:
            self._pool.back(lent)

    async def _bounded(self, lent: Lent, session: Session, work: Callable[[Session], Awaitable[T]], until: float) -> T:
        """Run the work in a task that nobody cancels: the driver would wait for the server to agree.

        In place of that the line is cut, at the deadline or when the caller is cancelled.
        """

        async def run() -> T:
            try:
                return await work(session)
            except BaseException:
                await session.roll_back()
                raise

        doing = asyncio.ensure_future(run())
        doing.add_done_callback(_noted)
        timer = asyncio.get_running_loop().call_later(max(0.0, until - time.monotonic()), lent.cut)
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            lent.cut()
            await asyncio.wait([doing])
            raise
        finally:
            timer.cancel()


def _noted(done: asyncio.Future[T]) -> None:
    """Of a work whose caller was cancelled nobody asks any more how it ended."""
    if not done.cancelled():
        done.exception()


def _joined(statements: list[str]) -> bytes:
    return ";\n".join(statements).encode()
