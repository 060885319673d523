import asyncio
import contextlib
import hashlib
import logging
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from playhead.backends.sqlite import file as module
from playhead.backends.sqlite.faults import Complaints
from playhead.backends.sqlite.file import SqliteFile, has_wal_reset_fault
from playhead.errors import (
    InvalidState,
    PlayheadError,
    StoreCorrupt,
    StoreFull,
    StoreTooNew,
    StoreUnavailable,
)

pytestmark = pytest.mark.anyio

FIRST = """-- A comment; with a semicolon.
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, data BLOB);
CREATE TRIGGER no_blank BEFORE INSERT ON item WHEN NEW.name = ''
BEGIN
    SELECT RAISE(ABORT, 'blank');
END;
"""
INSERT = "INSERT INTO item (name, data) VALUES (?, ?)"


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    folder = tmp_path / "schema"
    folder.mkdir()
    (folder / "001_first.sql").write_text(FIRST)
    return folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.sqlite"


@contextlib.asynccontextmanager
async def opened(path: Path, schema: Path, **options: Any) -> AsyncIterator[SqliteFile]:
    file = await SqliteFile.open(path, schema=schema, **options)
    try:
        yield file
    finally:
        await file.close()


def insert(name: str, data: bytes = b"") -> Callable[[sqlite3.Connection], int | None]:
    return lambda db: db.execute(INSERT, (name, data)).lastrowid


def names(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM item ORDER BY id")]


def run_statement(text: str, db: sqlite3.Connection) -> list[Any]:
    return db.execute(text).fetchall()


class Gate:
    """A work that holds the writer until it is let go, so that what comes meanwhile is one batch."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def __call__(self, db: sqlite3.Connection) -> None:
        self.entered.set()
        assert self.open.wait(30)

    async def hold(self, file: SqliteFile) -> "asyncio.Task[None]":
        task = asyncio.create_task(file.write(self))
        await asyncio.to_thread(self.entered.wait, 30)
        return task


async def test_what_was_written_is_read(path, schema):
    async with opened(path, schema) as file:
        assert await file.write(insert("a")) == 1
        assert await file.read(names) == ["a"]
        counts = file.statistics()
        assert (counts["works"], counts["waiting_writes"], counts["reopened"]) == (2, 0, 0)
    async with opened(path, schema) as file:
        assert await file.read(names) == ["a"]
    assert not path.with_name("data.sqlite-wal").exists()


@pytest.mark.parametrize(("durable", "level"), [(True, 2), (False, 1)])
async def test_the_writer_syncs_as_asked(path, schema, durable, level):
    async with opened(path, schema, durable=durable) as file:
        assert await file.write(lambda db: db.execute("PRAGMA synchronous").fetchone()) == (level,)
        assert await file.write(lambda db: db.execute("PRAGMA journal_mode").fetchone()) == ("wal",)


async def test_works_that_come_during_a_commit_share_the_next_one(path, schema):
    async with opened(path, schema) as file:
        gate = Gate()
        held = await gate.hold(file)
        before = file.statistics()["commits"]
        tasks = [asyncio.create_task(file.write(insert(f"n{i}"))) for i in range(100)]
        await asyncio.sleep(0)
        gate.open.set()
        assert await asyncio.gather(*tasks) == list(range(1, 101))
        await held
        assert file.statistics()["commits"] == before + 2
        assert file.statistics()["largest_batch"] == 100
        assert await file.read(names) == [f"n{i}" for i in range(100)]


async def test_a_work_that_raises_undoes_itself_alone(path, schema):
    def half(db: sqlite3.Connection) -> None:
        db.execute(INSERT, ("half", b""))
        raise InvalidState("no")

    def early(db: sqlite3.Connection) -> None:
        raise KeyError("early")

    async with opened(path, schema) as file:
        gate = Gate()
        held = await gate.hold(file)
        works = [insert("a"), half, insert("b"), insert("a"), early, insert(""), insert("c")]
        tasks = [asyncio.create_task(file.write(work)) for work in works]
        await asyncio.sleep(0)
        gate.open.set()
        got = await asyncio.gather(*tasks, return_exceptions=True)
        await held
        assert [type(one) for one in got] == [int, InvalidState, int, PlayheadError, KeyError, PlayheadError, int]
        assert await file.read(names) == ["a", "b", "c"]
        # Alone in its transaction it is no different.
        with pytest.raises(InvalidState):
            await file.write(half)
        with pytest.raises(PlayheadError, match="UNIQUE"):
            await file.write(insert("a"))
        assert await file.read(names) == ["a", "b", "c"]


async def test_no_driver_exception_gets_out(path, schema):
    async with opened(path, schema) as file:
        for call in (file.write, file.read):
            for text in ("SELECT * FROM absent", "SELEC", "SELECT ?", "DELETE FROM item; DELETE FROM item"):
                with pytest.raises(PlayheadError):
                    await call(partial(run_statement, text))
        with pytest.raises(PlayheadError):
            await file.read(insert("x"))
        assert await file.read(names) == []


async def test_a_cancelled_caller_does_not_stop_its_work(path, schema):
    async with opened(path, schema) as file:
        gate = Gate()
        held = await gate.hold(file)
        tasks = [asyncio.create_task(file.write(insert(f"n{i}"))) for i in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        held.cancel()
        gate.open.set()
        assert (await tasks[0], await tasks[2]) == (1, 3)
        assert tasks[1].cancelled()
        assert await file.read(names) == ["n0", "n1", "n2"]


async def test_many_loops_in_many_threads(path, schema):
    async with opened(path, schema) as file:

        async def some(number: int) -> None:
            await asyncio.gather(*(file.write(insert(f"{number}-{i}")) for i in range(50)))
            assert len(await file.read(names)) >= 50

        threads = [threading.Thread(target=lambda n=n: asyncio.run(some(n))) for n in range(4)]
        for thread in threads:
            thread.start()
        await some(9)
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert len(await file.read(names)) == 250


async def test_a_loop_that_is_gone_harms_nobody(path, schema):
    async with opened(path, schema) as file:
        gate = Gate()
        held = await gate.hold(file)

        async def walk_away() -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(file.write(insert("left")), 0.01)

        await asyncio.to_thread(lambda: asyncio.run(walk_away()))
        gate.open.set()
        await held
        await file.write(insert("stayed"))
        assert await file.read(names) == ["left", "stayed"]


async def test_results_come_back_in_one_call_per_loop(path, schema, monkeypatch):
    async with opened(path, schema) as file:
        gate = Gate()
        held = await gate.hold(file)
        tasks = [asyncio.create_task(file.write(insert(f"n{i}"))) for i in range(50)]
        await asyncio.sleep(0)
        calls: list[int] = []
        loop = asyncio.get_running_loop()
        real = loop.call_soon_threadsafe

        def counted(callback: Any, *args: Any, **kwargs: Any) -> Any:
            if callback is module._resolve:
                calls.append(len(args[0]))
            return real(callback, *args, **kwargs)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        gate.open.set()
        await asyncio.gather(held, *tasks)
        assert calls == [1, 50]


async def test_the_hook_sees_each_commit_before_its_callers_go_on(path, schema):
    seen: list[list[Any]] = []
    order: list[str] = []

    def hook(results: Any) -> None:
        seen.append(list(results))
        order.append("hook")
        if results == ["boom"]:
            raise RuntimeError

    async with opened(path, schema, after_commit=hook) as file:
        gate = Gate()
        held = await gate.hold(file)

        async def call(work: Any) -> None:
            with contextlib.suppress(InvalidState):
                await file.write(work)
            order.append("caller")

        def refuse(db: sqlite3.Connection) -> None:
            raise InvalidState

        seen.clear()
        order.clear()
        tasks = [asyncio.create_task(call(work)) for work in (lambda db: "one", refuse, lambda db: "two")]
        await asyncio.sleep(0)
        gate.open.set()
        await asyncio.gather(held, *tasks)
        assert seen == [[None], ["one", "two"]]
        assert order == ["hook", "hook", "caller", "caller", "caller"] or order[1:].count("caller") == 3
        assert await file.write(lambda db: "boom") == "boom"
        with pytest.raises(InvalidState):
            await file.write(refuse)
        assert seen[-1] == ["boom"]


async def test_closing_commits_what_was_submitted_and_refuses_what_comes(path, schema):
    file = await SqliteFile.open(path, schema=schema)
    gate = Gate()
    held = await gate.hold(file)
    task = asyncio.create_task(file.write(insert("late")))
    await asyncio.sleep(0)
    closing = asyncio.create_task(file.close())
    await asyncio.sleep(0.01)
    gate.open.set()
    assert await task == 1
    await held
    await closing
    await file.close()
    for call in (file.write(insert("x")), file.read(names)):
        with pytest.raises(StoreUnavailable, match="closed"):
            await call
    async with opened(path, schema) as again:
        assert await again.read(names) == ["late"]


async def test_closing_needs_no_thread_of_the_loop(path, schema):
    loop, let_go = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    hung = loop.run_in_executor(None, let_go.wait)
    try:
        file = await SqliteFile.open(path, schema=schema)
        writing = asyncio.create_task(file.write(insert("last")))
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await file.close()
        assert await writing == 1
        assert not path.with_name(f"{path.name}-wal").exists()
    finally:
        let_go.set()
        await hung


@pytest.mark.row("BR-60")
async def test_every_character_is_kept(path, schema):
    odd = "a\x00b \U0001f600 \\u0000 \u2028"
    async with opened(path, schema) as file:
        await file.write(insert(odd, odd.encode()))
        rows = await file.read(lambda db: db.execute("SELECT name, data FROM item WHERE name = ?", (odd,)).fetchall())
        assert rows == [(odd, odd.encode())]


@pytest.mark.row("F47")
async def test_a_full_disk_refuses_and_reading_goes_on_and_space_heals_it(path, schema):
    async with opened(path, schema, max_page_count=60) as file:
        count = 0
        with pytest.raises(StoreFull) as caught:
            for count in range(1000):
                await file.write(insert(f"n{count}", bytes(4000)))
        assert caught.value.retryable
        assert count > 10
        assert len(await file.read(names)) == count
        # Of a batch that does not fit, what needs no room is done all the same, and the caller of each learns which.
        gate = Gate()
        held = await gate.hold(file)
        works = [insert("big", bytes(9000)), lambda db: db.execute("DELETE FROM item WHERE id <= 5").rowcount]
        tasks = [asyncio.create_task(file.write(work)) for work in works]
        await asyncio.sleep(0)
        gate.open.set()
        refused, deleted = await asyncio.gather(*tasks, return_exceptions=True)
        await held
        assert isinstance(refused, StoreFull)
        assert deleted == 5
        await file.write(insert("fits", bytes(9000)))
        assert (await file.read(names))[-1] == "fits"
        assert await file.check() is None


class FullUntilReserveGoes(sqlite3.Connection):
    """Says that the disk is full for as long as the reserve takes its room."""

    reserve = Path()

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql.startswith(("DELETE", "INSERT INTO item")) and self.reserve.exists():
            raise failure(sqlite3.SQLITE_FULL, "database or disk is full")
        return super().execute(sql, *args)


def failure(code: int, text: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


@pytest.mark.row("F47")
async def test_the_reserve_is_given_up_for_a_work_that_frees(path, schema, monkeypatch):
    reserve = path.with_name("data.sqlite.reserve")
    monkeypatch.setattr(FullUntilReserveGoes, "reserve", reserve)
    async with opened(path, schema, factory=FullUntilReserveGoes) as file:
        assert reserve.stat().st_size == module.RESERVE_BYTES
        with pytest.raises(StoreFull):
            await file.write(insert("a"))
        assert reserve.exists()
        assert await file.write(lambda db: db.execute("DELETE FROM item").rowcount, frees=True) == 0
        assert not reserve.exists()
        await file.write(insert("a"))
        file._housekept = -1000.0
        await file.write(lambda db: None)
        await file.write(lambda db: None)
        assert reserve.exists()


@pytest.mark.row("F47")
async def test_with_little_space_left_the_log_is_kept_empty(path, schema, monkeypatch):
    """Else it would be what fills the disk, and nothing could be copied out of it or erased any more."""
    monkeypatch.setattr(module, "SHORT_BYTES", 1 << 62)
    async with opened(path, schema, reserve_bytes=0) as file:
        for i in range(20):
            await file.write(insert(f"n{i}", bytes(4000)))
            assert file.statistics()["log_bytes"] < 50_000
        assert len(await file.read(names)) == 20


class Failing(sqlite3.Connection):
    """Fails as many commits as it is told to, after they took place: what a failed sync looks like."""

    commits = 0
    made = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        type(self).made += 1

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" and type(self).commits and threading.current_thread().name.endswith("writer"):
            type(self).commits -= 1
            raise failure(sqlite3.SQLITE_IOERR | (4 << 8), "disk I/O error")
        return super().execute(sql, *args)


@pytest.mark.row("F48")
async def test_a_failed_sync_is_no_success_and_the_file_is_opened_anew(path, schema, monkeypatch):
    monkeypatch.setattr(Failing, "commits", 0)
    monkeypatch.setattr(Failing, "made", 0)
    async with opened(path, schema, factory=Failing) as file:
        await file.write(insert("before"))
        await file.read(names)
        made, Failing.commits = Failing.made, 1
        with pytest.raises(StoreUnavailable, match="disk I/O error") as caught:
            await file.write(insert("lost"))
        assert type(caught.value) is StoreUnavailable
        # Not one more try of the same: the connection is gone.
        assert file.statistics()["reopened"] == 0
        assert await file.read(names) == ["before"]
        await file.write(insert("after"))
        assert file.statistics()["reopened"] == 1
        assert Failing.made > made
        assert await file.read(names) == ["before", "after"]
        Failing.commits = 3
        gate = Gate()
        held = await gate.hold(file)
        tasks = [asyncio.create_task(file.write(insert(f"n{i}"))) for i in range(5)]
        await asyncio.sleep(0)
        gate.open.set()
        got = await asyncio.gather(held, *tasks, return_exceptions=True)
        assert [type(one) for one in got] == [StoreUnavailable] * 6
        assert len({id(one) for one in got}) == 6
        Failing.commits = 0
        await file.write(insert("end"))
        assert await file.read(names) == ["before", "after", "end"]


@pytest.mark.row("F48")
async def test_a_file_found_damaged_after_a_failure_is_not_used_again(path, schema, monkeypatch):
    monkeypatch.setattr(Failing, "commits", 0)
    async with opened(path, schema, factory=Failing) as file:
        await file.write(insert("kept"))
        Failing.commits = 1
        with pytest.raises(StoreUnavailable):
            await file.write(insert("lost"))
        path.unlink()
        path.write_bytes(b"")
        for _ in range(2):
            with pytest.raises(StoreCorrupt):
                await file.write(insert("again"))
        assert path.read_bytes() == b""


LIMITED = """
import asyncio, pathlib, resource, sys
from playhead.backends.sqlite.file import SqliteFile
from playhead.errors import StoreUnavailable

async def main(path, schema):
    file = await SqliteFile.open(path, schema=schema, reserve_bytes=0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    acked = []
    try:
        for i in range(1000):
            row = (f"n{i}", bytes(4000))
            await file.write(lambda db: db.execute("INSERT INTO item (name, data) VALUES (?, ?)", row))
            acked.append(i)
    except StoreUnavailable as error:
        print(type(error).__name__)
    count = await file.read(lambda db: db.execute("SELECT count(*) FROM item").fetchone()[0])
    assert count == len(acked), (count, len(acked))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await file.write(lambda db: db.execute("INSERT INTO item (name) VALUES ('healed')"))
    print(len(acked), file.statistics()["reopened"])
    await file.close()

asyncio.run(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
"""


@pytest.mark.row("F48")
async def test_an_error_of_the_operating_system_is_typed_and_heals(path, schema):
    """The kernel itself refuses to write, in a process that may not make larger files."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), str(schema)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    kind, counts = done.stdout.splitlines()
    assert kind == "StoreUnavailable"
    acked, reopened = map(int, counts.split())
    assert reopened == 1
    async with opened(path, schema) as file:
        assert len(await file.read(names)) == acked + 1


async def fill(path: Path, schema: Path, count: int = 200) -> None:
    async with opened(path, schema) as file:
        await asyncio.gather(*(file.write(insert(f"n{i}", os.urandom(3000))) for i in range(count)))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def overwrite(path: Path, start: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)


@pytest.mark.row("F49")
@pytest.mark.parametrize("damage", ["header", "page", "pages", "text", "short", "empty"])
async def test_a_damaged_file_stops_the_opening_and_stays_as_it_is(path, schema, damage):
    await fill(path, schema)
    size = path.stat().st_size
    match damage:
        case "header":
            overwrite(path, 0, os.urandom(100))
        case "page":
            overwrite(path, 4096 * 2, b"\xff" * 4096)
        case "pages":
            overwrite(path, 4096, b"\x00" * (size - 8192))
        case "text":
            path.write_text("this is not a database\n" * 1000)
        case "short":
            path.write_text("x")
        case "empty":
            path.write_text("")
    before = digest(path)
    path.with_name("data.sqlite.backup-20260101").write_bytes(b"older")
    path.with_name("data.sqlite.backup-20260102").write_bytes(b"newer")
    os.utime(path.with_name("data.sqlite.backup-20260101"), (1, 1))
    for _ in range(2):
        with pytest.raises(StoreCorrupt) as caught:
            await SqliteFile.open(path, schema=schema)
        assert str(path) in caught.value.message
        assert "data.sqlite.backup-20260102" in caught.value.message
        assert digest(path) == before


@pytest.mark.row("F49")
async def test_damage_in_a_large_file_is_found_at_the_first_touch(path, schema, monkeypatch):
    await fill(path, schema)
    monkeypatch.setattr(module, "CHECKED_BYTES", 0)
    overwrite(path, 4096 * 100, b"\xff" * 4096 * 50)
    async with opened(path, schema) as file:
        with pytest.raises(StoreCorrupt, match="There is no backup"):
            await file.read(lambda db: db.execute("SELECT sum(length(data)), group_concat(data) FROM item").fetchall())
        with pytest.raises(StoreCorrupt):
            await file.write(lambda db: db.execute("UPDATE item SET data = zeroblob(4000)").rowcount)
        # What is sound is served on.
        assert await file.read(lambda db: db.execute("SELECT name FROM item WHERE id = 1").fetchone()) == ("n0",)
        assert await file.check() is not None


@pytest.mark.row("F49")
@pytest.mark.parametrize("gone", [True, False])
async def test_a_database_that_is_gone_while_its_log_is_there_is_not_made_anew(path, schema, gone):
    log = path.with_name("data.sqlite-wal")
    log.write_bytes(b"\x37\x7f\x06\x82" + bytes(5000))
    if not gone:
        path.write_bytes(b"")
    with pytest.raises(StoreCorrupt, match="empty or gone"):
        await SqliteFile.open(path, schema=schema)
    assert log.stat().st_size == 5004


async def test_an_empty_file_is_a_new_one(path, schema):
    path.write_bytes(b"")
    async with opened(path, schema) as file:
        assert await file.read(names) == []


async def test_another_programs_database_is_refused(path, schema):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    with pytest.raises(StoreCorrupt, match="not playhead's"):
        await SqliteFile.open(path, schema=schema)


async def test_a_newer_schema_is_refused_and_left(path, schema):
    (schema / "002_second.sql").write_text("ALTER TABLE item ADD COLUMN more TEXT;\n")
    await fill(path, schema, 1)
    before = digest(path)
    (schema / "002_second.sql").unlink()
    for read_only in (False, True):
        with pytest.raises(StoreTooNew, match="has schema 2"):
            await SqliteFile.open(path, schema=schema, read_only=read_only)
    assert digest(path) == before


async def test_a_step_that_was_changed_after_it_was_applied_is_refused(path, schema):
    await fill(path, schema, 1)
    (schema / "001_first.sql").write_text(FIRST + "-- changed\n")
    with pytest.raises(StoreTooNew, match="001_first"):
        await SqliteFile.open(path, schema=schema)


async def test_missing_steps_are_applied_in_order_and_once(path, schema):
    await fill(path, schema, 3)
    (schema / "002_second.sql").write_text("ALTER TABLE item ADD COLUMN more TEXT;\nUPDATE item SET more = name;\n")
    (schema / "003_third.sql").write_text("CREATE INDEX item_more ON item (more);\n")
    with pytest.raises(StoreUnavailable, match="upgrades"):
        await SqliteFile.open(path, schema=schema, read_only=True)
    for _ in range(2):
        async with opened(path, schema) as file:
            more = await file.read(lambda db: db.execute("SELECT more FROM item INDEXED BY item_more").fetchall())
            assert more == [("n0",), ("n1",), ("n2",)]
            assert await file.read(lambda db: db.execute("SELECT max(version) FROM schema_step").fetchone()) == (3,)


async def test_a_step_that_fails_leaves_the_step_before(path, schema):
    await fill(path, schema, 1)
    (schema / "002_second.sql").write_text("CREATE TABLE fine (x);\nINSERT INTO absent VALUES (1);\n")
    with pytest.raises(PlayheadError):
        await SqliteFile.open(path, schema=schema)
    (schema / "002_second.sql").unlink()
    async with opened(path, schema) as file:
        assert (
            await file.read(lambda db: db.execute("SELECT 1 FROM sqlite_master WHERE name = 'fine'").fetchall()) == []
        )


MIGRATE = """
import asyncio, pathlib, sys
from playhead.backends.sqlite.file import SqliteFile
async def main():
    print("go", flush=True)
    file = await SqliteFile.open(pathlib.Path(sys.argv[1]), schema=pathlib.Path(sys.argv[2]))
    await file.close()
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.row("F51")
async def test_killed_during_migration_the_file_is_at_a_whole_step(path, schema):
    await fill(path, schema, 1)
    for number in range(2, 6):
        (schema / f"{number:03d}_fill.sql").write_text(
            f"CREATE TABLE t{number} (x INTEGER PRIMARY KEY, y TEXT);\n"
            f"INSERT INTO t{number} WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 40000)"
            " SELECT x, hex(randomblob(20)) FROM c;\n"
            f"CREATE INDEX i{number} ON t{number} (y);\n"
        )
    for attempt in range(12):
        child = subprocess.Popen([sys.executable, "-c", MIGRATE, str(path), str(schema)], stdout=subprocess.PIPE)
        with child:
            assert child.stdout is not None
            child.stdout.readline()
            await asyncio.sleep(0.02 + attempt * 0.02)
            child.kill()
        found = sqlite3.connect(path)
        (version,) = found.execute("PRAGMA user_version").fetchone()
        tables = [
            name for (name,) in found.execute("SELECT name FROM sqlite_master WHERE name LIKE 't_' ORDER BY name")
        ]
        assert tables == [f"t{number}" for number in range(2, version + 1)]
        for name in tables:
            assert found.execute(f"SELECT count(*) FROM {name}").fetchone() == (40000,)
        assert found.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found.close()
    async with opened(path, schema) as file:
        assert await file.read(lambda db: db.execute("PRAGMA user_version").fetchone()) == (5,)
        assert await file.read(names) == ["n0"]


WRITE = """
import asyncio, pathlib, sys
from playhead.backends.sqlite import file as module
from playhead.backends.sqlite.faults import Complaints
module.LOG_PAGES = 20  # so that many of the kills hit the copying back
module._IDLE_WORKS = 30
async def main():
    file = await module.SqliteFile.open(pathlib.Path(sys.argv[1]), schema=pathlib.Path(sys.argv[2]))
    async def some(writer):
        for i in range(100000):
            name = f"{sys.argv[3]}-{writer}-{i}"
            await file.write(lambda db: db.execute("INSERT INTO item (name, data) VALUES (?, zeroblob(500))", (name,)))
            print(name, flush=True)
    await asyncio.gather(*(some(n) for n in range(8)))
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.row("F51")
async def test_killed_at_any_moment_the_file_opens_whole_with_all_that_was_acknowledged(path, schema):
    chance = random.Random(51)
    acked: set[str] = set()
    for attempt in range(38):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITE, str(path), str(schema), str(attempt)], stdout=subprocess.PIPE, text=True
        )
        with child:
            assert child.stdout is not None
            said = [child.stdout.readline()]
            killer = threading.Timer(chance.uniform(0.0, 0.25), child.send_signal, [signal.SIGKILL])
            killer.start()
            said += child.stdout.readlines()
            killer.join()
        assert child.returncode == -signal.SIGKILL
        acked |= {line.strip() for line in said if line.endswith("\n")}
        async with opened(path, schema) as file:
            assert await file.check() is None
            assert acked <= set(await file.read(names))
    assert len(acked) > 100
    found = sqlite3.connect(path)
    assert found.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found.close()


@pytest.mark.row("F52")
async def test_a_long_reader_blocks_no_writer_and_the_growing_log_is_told_once(path, schema, monkeypatch, caplog):
    monkeypatch.setattr(module, "LOG_ALARM_BYTES", 200_000)
    monkeypatch.setattr(module, "_HOUSEKEEPING_S", 0.0)
    monkeypatch.setattr(module, "LOG_PAGES", 20)
    caplog.set_level(logging.WARNING, module.__name__)
    async with opened(path, schema) as file:
        await file.write(insert("first"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN")
        assert names(other) == ["first"]
        for i in range(12):
            await file.write(insert(f"n{i}", bytes(40_000)))
        assert file.statistics()["log_bytes"] > 200_000
        assert names(other) == ["first"]
        assert len(await file.read(names)) == 13
        other.execute("COMMIT")
        other.close()
        for i in range(3):
            await file.write(insert(f"after{i}"))
        assert file.statistics()["log_bytes"] <= 200_000
        assert caplog.text.count("a reader holds it") == 1


@pytest.mark.row("F52")
async def test_a_read_that_takes_too_long_is_ended(path, schema):
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    async with opened(path, schema, read_seconds=0.1, readers=1) as file:
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match="longer than a read may take"):
            await file.read(lambda db: db.execute(endless).fetchall())
        assert time.monotonic() - started < 10
        assert await file.read(names) == []


async def test_a_read_sees_one_moment(path, schema):
    async with opened(path, schema) as file:
        entered, go = threading.Event(), threading.Event()

        def twice(db: sqlite3.Connection) -> tuple[list[str], list[str]]:
            first = names(db)
            entered.set()
            assert go.wait(30)
            return first, names(db)

        reading = asyncio.create_task(file.read(twice))
        await asyncio.to_thread(entered.wait, 30)
        await file.write(insert("meanwhile"))
        go.set()
        assert await reading == ([], [])
        assert await file.read(names) == ["meanwhile"]


SHARE = """
import asyncio, pathlib, sys
from playhead.backends.sqlite.file import SqliteFile
async def main():
    file = await SqliteFile.open(pathlib.Path(sys.argv[1]), schema=pathlib.Path(sys.argv[2]))
    async def run(number):
        for i in range(100):
            name = f"{sys.argv[3]}-{number}-{i}"
            await file.write(lambda db: db.execute("INSERT INTO item (name) VALUES (?)", (name,)))
    await asyncio.gather(*(run(n) for n in range(10)))
    await file.close()
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.row("BR-79")
async def test_two_processes_lose_nothing_and_see_no_lock(path, schema):
    """Two processes, twenty runs, a hundred events each, readers attached."""
    async with opened(path, schema) as file:
        children = [
            subprocess.Popen(
                [sys.executable, "-c", SHARE, str(path), str(schema), str(number)], stderr=subprocess.PIPE, text=True
            )
            for number in range(2)
        ]
        last = 0
        while any(child.poll() is None for child in children):
            count = len(await file.read(names))
            assert count >= last
            last = count
            await asyncio.sleep(0.01)
        for child in children:
            with child:
                assert child.stderr is not None
                assert (child.wait(), child.stderr.read().replace(WARNING, "")) == (0, "")
        found = [tuple(map(int, name.split("-"))) for name in await file.read(names)]
        assert len(found) == 2000
        for process in range(2):
            for run in range(10):
                assert [item[2] for item in found if item[:2] == (process, run)] == list(range(100))


WARNING = f"SQLite {sqlite3.sqlite_version} has the WAL reset fault; 3.51.3 and later do not.\n"


async def test_reading_only_works_beside_a_writer_and_writes_nothing(path, schema):
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await SqliteFile.open(path, schema=schema, read_only=True)
    assert not path.exists()
    async with opened(path, schema) as writer:
        await writer.write(insert("a"))
        async with opened(path, schema, read_only=True) as reader:
            assert await reader.read(names) == ["a"]
            await writer.write(insert("b"))
            assert await reader.read(names) == ["a", "b"]
            with pytest.raises(StoreUnavailable, match="reading only"):
                await reader.write(insert("c"))
            with pytest.raises(StoreUnavailable):
                await reader.read(insert("c"))
        await writer.write(insert("d"))
    async with opened(path, schema, read_only=True) as reader:
        assert await reader.read(names) == ["a", "b", "d"]


@pytest.mark.row("F49")
async def test_reading_only_finds_damage_too(path, schema):
    path.write_text("nonsense" * 1000)
    with pytest.raises(StoreCorrupt):
        await SqliteFile.open(path, schema=schema, read_only=True)


async def test_names_that_an_address_would_misread(tmp_path, schema):
    folder = tmp_path / "a b?mode=memory#%41"
    folder.mkdir()
    async with opened(folder / "x?y.sqlite", schema) as file:
        await file.write(insert("a"))
    assert (folder / "x?y.sqlite").stat().st_size > 0


async def test_a_folder_that_is_not_there_is_unavailable(tmp_path, schema):
    with pytest.raises(StoreUnavailable):
        await SqliteFile.open(tmp_path / "absent" / "x.sqlite", schema=schema)


def test_the_fault_of_old_libraries_is_known():
    assert has_wal_reset_fault((3, 7, 0))
    assert has_wal_reset_fault((3, 51, 2))
    assert not has_wal_reset_fault((3, 51, 3))
    assert not has_wal_reset_fault((3, 6, 23))


async def test_a_folder_that_vanished_is_told_of_once_and_so_is_its_return(tmp_path, schema, caplog):
    folder = tmp_path / "data"
    folder.mkdir()
    async with opened(folder / "data.sqlite", schema) as file:
        folder.rename(tmp_path / "elsewhere")
        for round in range(2):
            for n in range(20):
                await file.write(insert(f"{round} {n}"))  # the file is open, wherever it is
            await file.write(lambda db: None)
        told = [record for record in caplog.records if "housekeeping" in record.message]
        assert [(record.levelname, record.exc_info) for record in told] == [("ERROR", None)]
        (tmp_path / "elsewhere").rename(folder)
        for _ in range(3):
            await file.write(lambda db: None)
        (tmp_path / "gone").mkdir()
    told = [record.message for record in caplog.records if "housekeeping" in record.message]
    assert len(told) == 2
    assert told[1] == "data.sqlite: housekeeping works again."


def test_each_kind_of_failure_is_told_once_until_it_works_again(caplog):
    complaints = Complaints(logging.getLogger("playhead.test"), "x.db")
    for _ in range(3):
        complaints.failed("writing", OSError("gone"))
        complaints.failed("writing", OSError("full"))
        complaints.failed("closing", OSError("gone"))
    complaints.works("copying")
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
    complaints.works("writing")
    complaints.works("writing")
    complaints.failed("writing", OSError("gone"))
    complaints.failed("closing", OSError("gone"))
    complaints.failed("closing", AssertionError("a fault of ours"))
    assert [record.levelname for record in caplog.records[3:]] == ["WARNING", "ERROR", "ERROR"]
    assert [record.exc_info is not None for record in caplog.records] == [False] * 5 + [True]


class Counted(sqlite3.Connection):
    """Counts the transactions of readers."""

    reads = 0

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        Counted.reads += sql == "BEGIN"
        return super().execute(sql, *values)


async def test_quick_reads_that_wait_share_a_transaction_and_one_that_fails_fails_alone(path, schema):
    async with opened(path, schema, readers=1, factory=Counted) as file:
        await file.write(insert("a"))
        began, held = threading.Event(), threading.Event()

        def hold(db: sqlite3.Connection) -> None:
            began.set()
            held.wait(10)

        holding = asyncio.create_task(file.read(hold))
        await asyncio.to_thread(began.wait, 10)
        before = Counted.reads
        quick = [asyncio.create_task(file.read(names, quick=True)) for _ in range(20)]
        await asyncio.sleep(0)
        slow = asyncio.create_task(file.read(names))
        await asyncio.sleep(0)
        held.set()
        assert await asyncio.gather(*quick, slow) == [["a"]] * 21
        assert Counted.reads - before == 2  # one for all that are quick, one for the other
        await holding

        began.clear()
        held.clear()
        holding = asyncio.create_task(file.read(hold))
        await asyncio.to_thread(began.wait, 10)
        works: list[Callable[[sqlite3.Connection], Any]] = [names, partial(run_statement, "SELECT nothing"), names]
        reads = [asyncio.create_task(file.read(work, quick=True)) for work in works]
        await asyncio.sleep(0)
        held.set()
        first, failed, last = await asyncio.gather(*reads, return_exceptions=True)
        assert first == last == ["a"]
        assert isinstance(failed, PlayheadError | sqlite3.Error)
        await holding


async def test_closing_answers_the_quick_reads_that_wait(path, schema):
    async with opened(path, schema, readers=2) as file:
        reads = [asyncio.create_task(file.read(names, quick=True)) for _ in range(600)]
        await asyncio.sleep(0)
        await file.close()
        assert await asyncio.gather(*reads) == [[]] * 600


async def test_the_writer_wakes_for_every_write_however_it_slept(path, schema, monkeypatch):
    monkeypatch.setattr(module, "_IDLE_WORKS", 1)
    monkeypatch.setattr(module, "_IDLE_S", 0.001)
    async with opened(path, schema) as file:
        for n in range(200):
            async with asyncio.timeout(10):
                await file.write(insert(f"n{n}"))
            await asyncio.sleep(0.0005 * (n % 5))
        assert len(await file.read(names)) == 200
