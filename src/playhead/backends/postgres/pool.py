"""Connections to PostgreSQL: a bounded number, made when needed, lent to one call at a time.

A connection is lent to any event loop of the process: beats come from a loop of their own and wait for no other.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sys
import threading
import time
import traceback
from collections import deque
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from playhead.errors import StoreUnavailable

# Of every connection, where the DSN does not say otherwise: a peer that vanished without a word is noticed.
_DEFAULTS = {
    "application_name": "playhead",
    "client_encoding": "UTF8",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    # Of several hosts the one that can be written to, for reads too: a standby tells of an earlier moment.
    "target_session_attrs": "primary",
}
IDLE_S = 120.0  # after which a connection that nobody used is closed
AGE_S = 1_800.0  # after which any is, so that a fail-over or a new server gets its share

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


class _Waiter:
    """A call that waits in its loop, for its turn or for the last call to end."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.woken = self.loop.create_future()
        self.granted = False  # its turn came; set under the pool's gate, before the loop learns of it

    def wake(self) -> bool:
        """Whether the loop is there to be told."""

        def tell() -> None:
            if not self.woken.done():
                self.woken.set_result(None)

        try:
            self.loop.call_soon_threadsafe(tell)
        except RuntimeError:  # the loop has ended, and its calls with it
            return False
        return True

    async def wait(self, until: float) -> None:
        """Raises TimeoutError at this time of `time.monotonic`."""
        async with asyncio.timeout(max(0.0, until - time.monotonic())):
            await self.woken


class Lent:
    """A connection while one call has it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.made = self.used = time.monotonic()
        self.cut_off = False

    def cut(self) -> None:
        """Break the line: whoever waits for the server learns at once that it is gone. The server is not asked."""
        self.cut_off = True
        try:
            with socket.socket(fileno=os.dup(self.connection.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)
        except (OSError, psycopg.Error):
            pass  # it is gone already

    def close(self) -> None:
        self.connection.pgconn.finish()

    @property
    def reusable(self) -> bool:
        return not self.cut_off and self.connection.pgconn.transaction_status == TransactionStatus.IDLE

    @property
    def stale(self) -> bool:
        """Whether it is old, or the server has something to say that nobody asked for: that it ends the session."""
        now = time.monotonic()
        if now - self.used > IDLE_S or now - self.made > AGE_S:
            return True
        line = select.poll()
        line.register(self.connection.fileno(), select.POLLIN)
        return bool(line.poll(0))


class Pool:
    def __init__(self, dsn: str, *, max_size: int) -> None:
        """Nothing is connected yet. Raises ValueError for a DSN that is none."""
        if max_size < 1:
            raise ValueError("a pool needs at least one connection")
        try:
            given = conninfo_to_dict(dsn)
        except psycopg.Error:  # which tells the text itself, with a password perhaps
            raise ValueError("This is no address of a PostgreSQL database.") from None
        self._conninfo = make_conninfo("", **{**_DEFAULTS, **given})
        self.where = "PostgreSQL {host}:{port}/{dbname}".format_map({"host": "", "port": 5432, "dbname": ""} | given)
        self._max_size = max_size
        self._gate = threading.Lock()
        self._free = max_size
        self._idle: list[Lent] = []
        self._waiting: deque[_Waiter] = deque()
        self._closing: list[_Waiter] = []
        self._closed = False

    async def lend(self, until: float) -> Lent:
        """A connection by this time of `time.monotonic`; hand it back with `back`.

        Raises StoreUnavailable, or the driver's error if connecting failed.
        """
        await self._turn(until)
        try:
            while (idle := self._pop()) is not None:
                if not idle.stale:
                    return idle
                idle.close()
            return Lent(await self._connect(until))
        except BaseException:
            self._next()
            raise

    def back(self, lent: Lent) -> None:
        """Take a connection back. One that is not between two transactions is closed."""
        lent.used = time.monotonic()
        old: list[Lent] = []
        with self._gate:
            if self._closed or not lent.reusable:
                old.append(lent)
            else:
                self._idle.append(lent)
            while self._idle and lent.used - self._idle[0].used > IDLE_S:
                old.append(self._idle.pop(0))
        for each in old:
            each.close()
        self._next()

    async def close(self, until: float) -> None:
        """Refuse new calls, and return when those under way have ended, or at this time."""
        with self._gate:
            self._closed = True
            idle, self._idle = self._idle, []
            waiting, self._waiting = self._waiting, deque()
            last = None if self._free == self._max_size else _Waiter()
            if last is not None:
                self._closing.append(last)
        for each in idle:
            each.close()
        for waiter in waiting:
            waiter.wake()
        if last is not None:
            try:
                await last.wait(until)
            except TimeoutError:
                pass  # what still goes on ends by its own deadline, and its connection is closed then

    async def _turn(self, until: float) -> None:
        with self._gate:
            if self._closed:
                raise self._no_more()
            if self._free and not self._waiting:
                self._free -= 1
                return
            waiter = _Waiter()
            self._waiting.append(waiter)
        try:
            await waiter.wait(until)
        except BaseException as error:
            with self._gate:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
            if waiter.granted:
                self._next()  # its turn came when nobody was left to take it
            if isinstance(error, TimeoutError):
                message = f"All {self._max_size} connections to {self.where} are busy."
                raise StoreUnavailable(message, database=self.where) from None
            raise
        if not waiter.granted:
            raise self._no_more()

    def _next(self) -> None:
        """One call is over: it is the turn of the next."""
        with self._gate:
            while self._waiting:
                waiter = self._waiting.popleft()
                waiter.granted = True
                if waiter.wake():
                    return
            self._free += 1
            if self._closed and self._free == self._max_size:
                for waiter in self._closing:
                    waiter.wake()
                self._closing.clear()

    def _pop(self) -> Lent | None:
        with self._gate:
            if self._closed:
                raise self._no_more()
            return self._idle.pop() if self._idle else None

    def _no_more(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self.where} is closed.", database=self.where)

    async def _connect(self, until: float) -> Connection:
        handled = sys.exception()  # by the caller, or a caller of his
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                return await psycopg.AsyncConnection.connect(
                    self._conninfo,
                    autocommit=True,
                    # A statement prepared on the server is of a session, and a pooler lends another one each time.
                    prepare_threshold=None,
                    cursor_factory=psycopg.AsyncClientCursor,
                )
        except BaseException as error:
            _let_go(error, handled)
            if isinstance(error, TimeoutError):
                message = f"{self.where} did not take a connection in time."
                raise StoreUnavailable(message, database=self.where) from None
            raise


def _let_go(error: BaseException, handled: BaseException | None) -> None:
    """The driver has no handle for a connection that is not made yet: it lives in frames that this error names, so
    whoever kept the error would keep the connection open.

    What was `handled` before the attempt, and any frame but the driver's, is of others, who may go on with it: to
    clear the frame of a coroutine that waits is to end it.
    """
    named: BaseException | None = error
    while named is not None and named is not handled:
        for frame, _ in traceback.walk_tb(named.__traceback__):
            if frame.f_globals.get("__name__", "").partition(".")[0] == "psycopg":
                try:
                    frame.clear()
                except RuntimeError:
                    pass  # it is being executed
        named = named.__context__
