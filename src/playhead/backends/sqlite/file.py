"""One SQLite file in WAL mode: a writer thread with group commit and a small pool of reader threads.

    file = await SqliteFile.open(path, schema=folder)
    count = await file.write(lambda db: db.execute("UPDATE …").rowcount)
    rows = await file.read(lambda db: db.execute("SELECT …").fetchall())
    await file.close()

A *work* is a plain function of a connection. It runs on a thread of the file, within a transaction that the file
begins and ends; it must not begin, commit or wait, and must not keep the connection. It may run again when its first
run was rolled back, so it changes nothing but the database.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from playhead.backends.sqlite import migrate
from playhead.backends.sqlite.faults import Complaints, corrupt, primary_code, spoils_transaction, typed
from playhead.errors import StoreCorrupt, StoreFull, StoreUnavailable

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

BUSY_MS = 10_000
MAX_BATCH = 4_096  # works of one transaction
MAX_QUICK = 256  # quick reads of one transaction
RESERVE_BYTES = 256 * 1024
CHECKED_BYTES = 64 << 20  # a file up to this size is checked whole at every opening: a quarter of a second
LOG_PAGES = 4_000  # after so many pages the log is copied back into the database
LOG_ALARM_BYTES = 64 << 20  # a log of this size means that a reader holds it
SHORT_BYTES = 32 << 20  # with less free space than twice a full log, the log is kept empty

_IDLE_S = 0.05
_IDLE_WORKS = 500  # copying back costs two syncs: a quiet moment is used for it only after so many works
_HOUSEKEEPING_S = 5.0
_STEPS_BETWEEN_LOOKS = 10_000  # of SQLite's machine, before a read looks at the time again

log = logging.getLogger(__name__)
_fault_told = threading.Event()


def has_wal_reset_fault(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    """Whether this SQLite can lose a commit when two connections copy the log back in the same moment."""
    return (3, 7, 0) <= version < (3, 51, 3)


class _Job(Generic[T]):
    """A work on its way, and the loop that waits for it."""

    __slots__ = ("error", "frees", "future", "loop", "quick", "result", "work")

    def __init__(self, work: Work[T], frees: bool = False, quick: bool = False) -> None:
        self.work = work
        self.frees = frees
        self.quick = quick
        self.loop = loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = loop.create_future()
        self.result: T | None = None
        self.error: BaseException | None = None


class SqliteFile:
    """A database file that any number of event loops and threads share.

    Promises of `write`: what it returned is committed (and on the disk, if the file is `durable`); what it raised
    from is not there, except that after StoreUnavailable it may be. Works run in the order in which they came, one at
    a time; those that came while the last commit ran share the next one, and one that raises undoes itself alone.
    Cancelling the caller does not stop the work. No exception of the driver gets out: StoreFull (reading goes on),
    StoreUnavailable (also after `close`), StoreCorrupt, StoreTooNew.

    `after_commit` is called on the writer thread once per commit with the results of the works that were committed,
    in order, before any of their callers goes on. It must be quick and must not raise.
    """

    def __init__(
        self,
        path: Path,
        *,
        schema: Path,
        durable: bool = True,
        read_only: bool = False,
        after_commit: Callable[[Sequence[Any]], None] | None = None,
        readers: int = 3,
        read_seconds: float = 5.0,
        reserve_bytes: int = RESERVE_BYTES,
        max_page_count: int | None = None,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> None:
        """See `open`, which also opens the file."""
        self.path = path
        self.read_only = read_only
        self._steps = migrate.load(schema)
        self._durable = durable
        self._after_commit = after_commit
        self._read_seconds = read_seconds
        self._reserve_bytes = reserve_bytes
        self._reserve = path.with_name(path.name + ".reserve")
        self._log = path.with_name(path.name + "-wal")
        self._max_page_count = max_page_count
        self._factory = factory
        self._writes: list[_Job[Any]] = []
        self._bell = threading.Lock()  # held, but for the moment in which the writer is woken
        self._bell.acquire()
        self._asleep = False  # the writer waits for the bell
        self._reads: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._gate = threading.Lock()  # nothing enters once the file is closed
        self._closed = False
        self._connection: sqlite3.Connection | None = None  # the writer's; None: to be opened anew
        self._refused: StoreCorrupt | None = None  # why it is never opened again
        self._generation = 0  # grows when connections are no longer trusted
        self._works_since_copy = 0
        self._housekept = 0.0
        self._alarmed = False
        self._complaints = Complaints(log, path.name)
        self._counts = dict.fromkeys(("commits", "works", "refused", "failures", "reopened", "largest_batch"), 0)
        self._writer = threading.Thread(target=self._write_on, name=f"playhead-{path.stem}-writer", daemon=True)
        self._readers = [
            threading.Thread(target=self._read_on, name=f"playhead-{path.stem}-reader-{number}", daemon=True)
            for number in range(readers)
        ]

    @classmethod
    async def open(cls, path: Path, *, schema: Path, **options: Any) -> SqliteFile:
        """Open the file, make it if it is missing, and bring it to the schema in this folder.

        Options: `durable` (sync at every commit; else a power loss may take the last ones), `read_only` (beside
        another process that writes; nothing is made or upgraded), `after_commit`, `readers`, `read_seconds` (a read
        that takes longer is ended with StoreUnavailable), `reserve_bytes` (space set aside so that works that free
        space still run on a full disk), `max_page_count` and `factory` (for tests).

        Raises StoreCorrupt, StoreTooNew, StoreFull, StoreUnavailable. A damaged file is never replaced.
        """
        file = cls(path, schema=schema, **options)
        if has_wal_reset_fault() and not _fault_told.is_set():
            _fault_told.set()
            log.info("SQLite %s has the WAL reset fault; 3.51.3 and later do not.", sqlite3.sqlite_version)
        for thread in file._readers:
            thread.start()
        try:
            if read_only := file.read_only:
                await file.read(lambda db: migrate.check_current(db, file._steps, path))
            file._writer.start()
            if not read_only:
                await file.write(lambda db: None)
        except BaseException:
            await asyncio.shield(file.close())
            raise
        return file

    async def write(self, work: Work[T], *, frees: bool = False) -> T:
        """Run a work in a write transaction. `frees` says that it makes room, so it may use the reserve."""
        job = _Job(work, frees)
        with self._gate:
            if self._closed:
                raise self._no_more()
            self._writes.append(job)
            self._ring()
        return await job.future

    async def read(self, work: Work[T], *, quick: bool = False) -> T:
        """Run a work in a read transaction; it sees every write that was answered before.

        `quick` says that it looks at a few rows by their keys, so that it may share its transaction with others.
        """
        job = _Job(work, quick=quick)
        with self._gate:
            if self._closed:
                raise self._no_more()
            self._reads.put(job)
        return await job.future

    async def check(self) -> str | None:
        """Look at every page; the first damage found, or None. Takes seconds per gigabyte."""

        def look(connection: sqlite3.Connection) -> str | None:
            connection.set_progress_handler(None, 0)
            return _damage(connection)

        return await self.read(look)

    async def close(self) -> None:
        """Commit what was submitted before, then close. Safe to call twice and from any loop."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._ring()
                for _ in self._readers:
                    self._reads.put(None)
        over = concurrent.futures.Future[None]()
        over.set_running_or_notify_cancel()  # from now on it is not cancelled with who waits for it
        # Not in the loop's executor, which may be full of calls that never end.
        threading.Thread(target=self._join, args=(over,), name=f"playhead-{self.path.stem}-end", daemon=True).start()
        await asyncio.wrap_future(over)

    def _join(self, over: concurrent.futures.Future[None]) -> None:
        for thread in (*self._readers, self._writer):
            if thread.ident is not None:
                thread.join()
        over.set_result(None)

    def statistics(self) -> dict[str, int]:
        """Counts since the opening, and how much waits now."""
        return {
            **self._counts,
            "waiting_writes": len(self._writes),
            "waiting_reads": self._reads.qsize(),
            "bytes": _size(self.path),
            "log_bytes": _size(self._log),
        }

    def _no_more(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self.path.name} is closed.", file=self.path.name)

    def _connect(self, *, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            isolation_level=None,
            cached_statements=512,
            timeout=BUSY_MS / 1000,
            factory=self._factory,
        )
        # What rows and texts come back as is said here once, and by nobody's defaults.
        connection.row_factory, connection.text_factory = None, str
        try:
            connection.execute("PRAGMA temp_store = MEMORY")  # the savepoints' undo pages stay off the disk
            connection.execute("PRAGMA foreign_keys = OFF")
        except BaseException:
            connection.close()
            raise
        return connection

    # The writer thread.

    def _write_on(self) -> None:
        while True:
            batch, ended = self._take()
            if batch:
                try:
                    self._commit(batch)
                except BaseException as error:  # the thread must live on, and no caller may wait for ever
                    self._complaints.failed("the writer", error)
                    for job in batch:
                        job.error = job.error or typed(error, self.path)
                _hand_back(batch)
                try:
                    self._keep_house()
                    self._complaints.works("housekeeping")
                except Exception as error:  # the thread must live on
                    self._complaints.failed("housekeeping", error)
            if ended:
                break
        for thread in self._readers:
            thread.join()  # so that this connection is the last one, which copies the log back and removes it
        self._discard()

    def _ring(self) -> None:
        """Wake the writer; the gate is held."""
        if self._asleep:
            self._asleep = False
            self._bell.release()

    def _take(self) -> tuple[list[_Job[Any]], bool]:
        """Everything that came since the last commit began, and whether nothing more will come."""
        while True:
            with self._gate:
                batch = self._writes[:MAX_BATCH]
                del self._writes[:MAX_BATCH]
                if batch or self._closed:
                    return batch, self._closed and not self._writes
                self._asleep = True
            if self._bell.acquire(timeout=_IDLE_S if self._works_since_copy >= _IDLE_WORKS else -1):
                continue
            with self._gate:
                if not self._asleep:
                    self._bell.acquire()  # it was rung just now
                self._asleep = False
            self._copy_back("PASSIVE")

    def _commit(self, batch: list[_Job[Any]]) -> None:
        """Run the batch in one transaction; every job has a result or an error afterwards."""
        try:
            connection = self._writable()
            try:
                self._transact(connection, batch)
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except BaseException as error:
            self._after_failure(batch, error)
            return
        self._complaints.works("writing")
        done = [job.result for job in batch if job.error is None]
        self._counts["commits"] += 1
        self._counts["works"] += len(done)
        self._counts["refused"] += len(batch) - len(done)
        self._counts["largest_batch"] = max(self._counts["largest_batch"], len(batch))
        self._works_since_copy += len(done)
        if done and self._after_commit is not None:
            try:
                self._after_commit(done)
            except Exception as error:  # what is committed stays committed
                self._complaints.failed("the hook after a commit", error)

    def _transact(self, connection: sqlite3.Connection, batch: list[_Job[Any]]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        if not self._run(connection, batch, savepoints=False):
            connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            self._run(connection, batch, savepoints=True)
        connection.execute("COMMIT")

    def _run(self, connection: sqlite3.Connection, batch: list[_Job[Any]], *, savepoints: bool) -> bool:
        """Run the works; False when one without a savepoint failed and left something behind.

        Savepoints cost as much as a small work, and a work that fails has rarely written anything before: so the
        first run does without.
        """
        execute = connection.execute
        for job in batch:
            job.error = None
            if savepoints:
                execute("SAVEPOINT work")
            changes = connection.total_changes
            try:
                job.result = job.work(connection)
            except BaseException as error:
                if isinstance(error, sqlite3.Error):
                    if spoils_transaction(error) or not connection.in_transaction:
                        raise
                    error = typed(error, self.path)
                if savepoints:
                    execute("ROLLBACK TO work")
                elif connection.total_changes != changes:
                    return False
                job.error = error
            if savepoints:
                execute("RELEASE work")
        return True

    def _after_failure(self, batch: list[_Job[Any]], error: BaseException) -> None:
        """Nothing of the batch is known to be written. Save what can be saved, and say so to the others."""
        if not isinstance(error, sqlite3.Error) and len(batch) == 1:
            batch[0].error = error
            self._counts["refused"] += 1
            return
        self._counts["failures"] += 1
        code = primary_code(error)
        fault = typed(error, self.path)
        if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM):
            # After a failed sync the system may call the lost pages clean, so a second try would succeed with
            # nothing written: this connection is over, and the file is looked at before it is used again.
            self._complaints.failed("writing", fault)
            self._discard()
        elif code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            if len(batch) > 1:  # a work that needs no room, or touches sound pages only, need not suffer
                for job in batch:
                    self._commit([job])
                return
            if isinstance(fault, StoreFull) and batch[0].frees and self._make_room():
                self._commit(batch)
                return
        for job in batch:
            # An exception object per caller: each gets a traceback of its own.
            job.error = type(fault)(fault.message, **fault.details)

    def _writable(self) -> sqlite3.Connection:
        """The writer's connection, opened anew if the last one was given up."""
        if self.read_only:
            raise StoreUnavailable(f"{self.path.name} is open for reading only.", file=self.path.name)
        if self._connection is not None:
            return self._connection
        if self._refused is not None:
            raise StoreCorrupt(self._refused.message, **self._refused.details)
        first = self._generation == 0
        try:
            self._connection = self._open_for_writing(first=first)
        except (sqlite3.Error, OSError) as error:
            raise typed(error, self.path) from error
        except StoreCorrupt as error:
            self._refused = error
            raise
        self._generation += 1
        self._counts["reopened"] += not first
        self._set_aside()
        return self._connection

    def _open_for_writing(self, *, first: bool) -> sqlite3.Connection:
        size = _size(self.path)
        if size == 0 and _size(self._log) > 0:
            raise corrupt(self.path, "it is empty or gone, and its log is not")
        # The reserve is made after the schema, so beside it a file is never empty. SQLite takes a stub for a new file.
        if (size == 0 and (not first or (self.path.exists() and self._reserve.exists()))) or 0 < size < 512:
            raise corrupt(self.path, "it was cut off")
        connection = self._connect(mode="rwc" if first else "rw")
        try:
            # Before anything that writes: SQLite sees here what is not a database.
            migrate.check(connection, self._steps, self.path)
            if (size <= CHECKED_BYTES or not first) and (damage := _damage(connection)):
                raise corrupt(self.path, damage)
            if self._max_page_count is not None:
                connection.execute(f"PRAGMA max_page_count = {self._max_page_count}")
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StoreUnavailable(
                    f"{self.path} is on a file system that cannot share memory.", file=self.path.name
                )
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {LOG_ALARM_BYTES}")
            migrate.apply(connection, self._steps, self.path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _discard(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._generation += 1
            try:
                connection.close()
            except sqlite3.Error as error:
                self._complaints.failed("closing", error)

    def _set_aside(self) -> None:
        """Have the reserve. Without room for it there is none, until there is room."""
        if self._reserve_bytes and _size(self._reserve) < self._reserve_bytes:
            try:
                if self._free_bytes() >= 2 * self._reserve_bytes:  # else it would take the last room itself
                    self._reserve.write_bytes(bytes(self._reserve_bytes))
            except OSError:
                with contextlib.suppress(OSError):
                    self._reserve.unlink(missing_ok=True)

    def _make_room(self) -> bool:
        """Give up the reserve for a work that frees space; False when there was none to give."""
        if _size(self._reserve) == 0:
            return False
        self._reserve.unlink(missing_ok=True)
        self._copy_back("TRUNCATE")
        return True

    def _keep_house(self) -> None:
        now = time.monotonic()
        if self._connection is None:
            return
        if self._free_bytes() < SHORT_BYTES:
            # A full disk could not take the log in, and a log that is not taken in can only grow: then nothing could
            # be erased any more. What the log holds beyond the database now is what the reserve can take in later.
            self._copy_back("TRUNCATE")
        if now - self._housekept < _HOUSEKEEPING_S:
            return
        self._housekept = now
        self._set_aside()
        held = _size(self._log) > LOG_ALARM_BYTES and not self._copy_back("TRUNCATE")
        if held and not self._alarmed:
            log.warning("The log of %s has %d bytes: a reader holds it.", self.path.name, _size(self._log))
        self._alarmed = held

    def _copy_back(self, how: str) -> bool:
        """Copy the log into the database; False if readers hold a part of it."""
        self._works_since_copy = 0
        connection = self._connection
        if connection is None:
            return True
        try:
            connection.execute("PRAGMA busy_timeout = 100")  # writers wait behind this
            try:
                busy, pages, copied = connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        except sqlite3.Error as error:
            if primary_code(error) != sqlite3.SQLITE_FULL:  # the next write says so itself
                self._complaints.failed("copying the log back", error)
            if primary_code(error) == sqlite3.SQLITE_IOERR:
                self._discard()
            return False
        self._complaints.works("copying the log back")
        return not busy and pages == copied

    def _free_bytes(self) -> int:
        disk = os.statvfs(self.path.parent)
        return disk.f_bavail * disk.f_frsize

    # The reader threads.

    def _take_reads(self, alone: deque[_Job[Any]]) -> list[_Job[Any]] | None:
        """What to read in one transaction, or None at the end mark: quick reads that wait already go together."""
        if alone:
            return [alone.popleft()]
        if (job := self._reads.get()) is None:
            return None
        batch = [job]
        while job.quick and len(batch) < MAX_QUICK:
            try:
                job = self._reads.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._reads.put(None)  # to be met again, once this batch is read
                break
            (batch if job.quick else alone).append(job)
        return batch

    def _read_on(self) -> None:
        connection: sqlite3.Connection | None = None
        generation = -1
        until = 0.0

        def late() -> bool:
            return time.monotonic() > until

        alone: deque[_Job[Any]] = deque()
        while (batch := self._take_reads(alone)) is not None:
            try:
                if connection is not None and generation != self._generation:
                    connection.close()
                    connection = None
                if connection is None:
                    generation = self._generation
                    connection = self._connect(mode="ro" if self.read_only else "rw")
                    connection.execute("PRAGMA query_only = ON")
                connection.set_progress_handler(late, _STEPS_BETWEEN_LOOKS)
                connection.execute("BEGIN")
                for job in batch:
                    until = time.monotonic() + self._read_seconds
                    job.result = job.work(connection)
                connection.execute("COMMIT")
            except BaseException as error:
                connection = self._clear(connection, error)
                if len(batch) > 1:  # each by itself, so that one that fails fails alone
                    alone.extend(batch)
                    continue
                batch[0].error = typed(error, self.path) if isinstance(error, sqlite3.Error | OSError) else error
            _hand_back(batch)
        if connection is not None:
            connection.close()

    def _clear(self, connection: sqlite3.Connection | None, error: BaseException) -> sqlite3.Connection | None:
        """End the failed read; the connection if it can be used again."""
        if connection is None:
            return None
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if primary_code(error) not in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_NOTADB):
                return connection
        except sqlite3.Error:
            pass  # given up below
        connection.close()
        return None


def _hand_back(batch: Sequence[_Job[Any]]) -> None:
    """Give each loop its results, in one call per loop."""
    loops = {job.loop for job in batch}
    for loop in loops:
        try:
            loop.call_soon_threadsafe(
                _resolve, batch if len(loops) == 1 else [job for job in batch if job.loop is loop]
            )
        except RuntimeError:
            pass  # the loop is closed, so nobody waits


def _resolve(jobs: Sequence[_Job[Any]]) -> None:
    for job in jobs:
        future = job.future
        if future.done():
            continue  # the caller was cancelled; the work took place all the same
        if job.error is None:
            future.set_result(job.result)
        else:
            future.set_exception(job.error)


def _damage(connection: sqlite3.Connection) -> str | None:
    found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    return None if found == "ok" else found.replace("\n", " ")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
