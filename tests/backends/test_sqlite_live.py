"""What is peculiar to the embedded live store. That it keeps the ports' laws is in test_conformance."""

import asyncio
import json
import logging
import sqlite3
import threading
from contextlib import asynccontextmanager, closing
from dataclasses import replace

import pytest

from playhead.backends.sqlite import SqliteLive
from playhead.backends.sqlite.live import KEPT_ASIDE, set_aside
from playhead.backends.sqlite.live_rows import SQL, Cache, Held
from playhead.backends.sqlite.live_writes import EXPIRED_AT_ONCE
from playhead.core import event
from playhead.core.ids import run_feed
from playhead.core.retention import Retention
from playhead.core.run import Status
from playhead.core.snapshot import Snapshot, State
from playhead.core.text import TextApplied, TextFrom
from playhead.core.transition import Already, Applied, Marks, NeedsRebuild
from playhead.errors import StoreCorrupt, StoreFull, StoreUnavailable
from playhead.testing.check import LiveBench, eventually
from playhead.testing.clock import FakeClock
from playhead.testing.ports.given import applied, positions, project, publish, view
from playhead.testing.ports.given import live as started

pytestmark = pytest.mark.anyio


class Ear:
    def __init__(self):
        self.hints = []

    def on_hints(self, hints):
        self.hints += hints

    def on_gap(self, feed):
        raise AssertionError(feed)


@asynccontextmanager
async def bench(folder, clock=None, **options):
    clock = clock or FakeClock()
    store = await SqliteLive.at(folder / "live.db", clock=clock, **options)
    try:
        yield LiveBench(store, store, store.signal, clock)
    finally:
        await store.close()


@pytest.fixture
async def b(tmp_path):
    async with bench(tmp_path) as one:
        yield one


def plant(b, statement, *values):
    """Change the file behind the store's back."""
    with closing(sqlite3.connect(b.store.path)) as db, db:
        assert db.execute(statement, values).rowcount > 0


async def paused(b):
    """Hold the writer until the returned event is set, so that what comes meanwhile is one batch."""
    begun, go_on = threading.Event(), threading.Event()

    def work(db):
        begun.set()
        assert go_on.wait(10)

    task = asyncio.ensure_future(b.store._write(work))
    await eventually(begun.is_set)
    return task, go_on


# A file that cannot be used is a lost projection.


def spoil_header(path):
    path.write_bytes(b"this is not a database, whatever its name says" * 100)


def spoil_pages(path):
    data = bytearray(path.read_bytes())
    for page in range(4096, len(data), 4096):
        data[page : page + 64] = b"\xff" * 64
    path.write_bytes(data)


def cut_short(path):
    path.write_bytes(path.read_bytes()[: 4096 + 100])


def lose_a_table(path):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP TABLE piece")


def be_of_a_later_version(path):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA user_version = 99")


def be_of_another_program(path):
    path.unlink()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE recipe (name)")


def leave_a_log_alone(path):
    path.unlink()
    path.with_name("live.db-wal").write_bytes(b"x" * 5000)


SPOILERS = [
    spoil_header,
    spoil_pages,
    cut_short,
    lose_a_table,
    be_of_a_later_version,
    be_of_another_program,
    leave_a_log_alone,
]


@pytest.mark.parametrize("spoil", SPOILERS)
async def test_an_unusable_file_is_set_aside_and_a_new_one_made(tmp_path, caplog, spoil):
    async with bench(tmp_path) as b:
        scribe = await started(b)
        await publish(b, scribe, 50)
    spoil(tmp_path / "live.db")
    caplog.clear()
    async with bench(tmp_path, b.clock) as b:
        (warning,) = [each for each in caplog.records if each.name == "playhead.backends.sqlite.live"]
        assert warning.levelno == logging.WARNING
        assert f"live.db.damaged-{b.clock.wall_ms()}" in warning.getMessage()
        assert list(tmp_path.glob("live.db.damaged-*"))
        assert await b.store.stand([scribe.feed]) == {}
        assert await b.store.publish(scribe.write()) == NeedsRebuild(0)
        await publish(b, await started(b), 1)
    caplog.clear()
    async with bench(tmp_path, b.clock):
        assert [each for each in caplog.records if each.name == "playhead.backends.sqlite.live"] == []


async def test_a_missing_file_needs_no_warning(tmp_path, caplog):
    async with bench(tmp_path) as b:
        scribe = await started(b)
    (tmp_path / "live.db").unlink()
    caplog.clear()
    async with bench(tmp_path) as b:
        assert await b.store.stand([scribe.feed]) == {}
    assert [each for each in caplog.records if each.name == "playhead.backends.sqlite.live"] == []


async def test_a_good_file_is_kept(tmp_path):
    async with bench(tmp_path) as b:
        scribe = await started(b)
        await b.text.append(scribe.text(0, "grüß".encode()))
        before = await view(b, scribe.feed)
    async with bench(tmp_path) as b:
        assert await view(b, scribe.feed) == before
        assert [part.data for part in await b.text.read_text(scribe.feed)] == ["grüß".encode()]


def test_only_the_last_few_damaged_files_are_kept(tmp_path):
    path = tmp_path / "live.db"
    for at in range(1_000, 1_000 + KEPT_ASIDE + 4):
        for ending in ("", "-wal", "-shm"):
            path.with_name(path.name + ending).write_text("x")
        set_aside(path, at)
    assert len(list(tmp_path.iterdir())) == 3 * KEPT_ASIDE
    assert (tmp_path / f"live.db.damaged-{1_000 + KEPT_ASIDE + 3}-wal").exists()


@pytest.mark.parametrize("act", ["write", "read"])
async def test_damage_found_in_use_replaces_the_file(b, caplog, act):
    scribe = await started(b)

    def damaged(db):
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error

    with pytest.raises(StoreUnavailable):
        await (b.store._write if act == "write" else b.store._read)(damaged)
    assert list(b.store.path.parent.glob("live.db.damaged-*"))
    assert len([each for each in caplog.records if each.name == "playhead.backends.sqlite.live"]) == 1
    assert await b.store.publish(scribe.write()) == NeedsRebuild(0)
    await publish(b, await started(b), 3)


async def test_a_file_that_cannot_be_replaced_yet_is_replaced_later(b, monkeypatch):
    opened, broken = b.store._open, b.store._file

    async def full():
        raise StoreFull

    monkeypatch.setattr(b.store, "_open", full)
    assert isinstance(await b.store._lost(broken), StoreFull)
    with pytest.raises(StoreFull):
        await b.store.stand([])
    assert b.store.statistics() == {}
    monkeypatch.setattr(b.store, "_open", opened)
    await publish(b, await started(b), 1)


async def test_a_damaged_file_that_cannot_be_moved_is_a_store_that_is_away(tmp_path, monkeypatch):
    """And no raw error of the system, which no loop above would know."""

    def refuse(path, at):
        raise PermissionError(13, "Permission denied")

    async with bench(tmp_path) as b:
        with monkeypatch.context() as patched:
            patched.setattr("playhead.backends.sqlite.live.set_aside", refuse)
            await b.store._file.close()
            spoil_header(b.store.path)
            assert isinstance(await b.store._lost(b.store._file), StoreUnavailable)
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    await b.store.stand([])
        await publish(b, await started(b), 1)


async def test_after_close_nothing_is_replaced(tmp_path):
    async with bench(tmp_path) as b:
        pass
    with pytest.raises(StoreUnavailable):
        await b.store.stand([])
    assert isinstance(await b.store._lost(b.store._file), StoreUnavailable)
    assert not list(tmp_path.glob("*damaged*"))


# Rows that are not as they were written count as missing.

GARBAGE = ["x", b"\x00\xff", 1.5, -1, 2**60, "9" * 100]
COLUMNS = [
    "epoch",
    "rev",
    "token",
    "status",
    "position",
    "tag",
    "floor",
    "archived",
    "n",
    "state_version",
    "version",
    "started_at",
    "heartbeat_at",
    "updated_at",
    "weight",
    "floor_weight",
    "state",
]


@pytest.mark.row("A22")
@pytest.mark.parametrize("column", COLUMNS)
async def test_a_projection_of_garbage_is_missing(tmp_path, column):
    clock = FakeClock()
    for value in GARBAGE:
        async with bench(tmp_path, clock) as b:
            scribe, other = await started(b), await started(b)
            await publish(b, scribe, 2, state=State(title="x"))
            await b.text.append(scribe.text(0, b"text"))
        with closing(sqlite3.connect(tmp_path / "live.db")) as db, db:
            db.execute(f"UPDATE projection SET {column} = ? WHERE feed = ?", (value, scribe.feed.key))
        async with bench(tmp_path, clock) as b:
            assert set(await b.store.stand([scribe.feed, other.feed])) == {other.feed}
            assert await b.store.read(scribe.feed) is None
            assert await b.store.find(scribe.feed, f"{scribe.run_id}:1:1") is None
            assert await b.text.read_text(scribe.feed) == []
            assert await b.store.publish(scribe.write()) == NeedsRebuild(0)
            assert await b.text.append(scribe.text(4, b"more")) == NeedsRebuild(0)
            await b.store.trim(scribe.feed)
            await b.store.archived(scribe.feed, scribe.epoch, 1)
            await b.store.expire()
            applied(await b.store.open(scribe.opening(0, epoch=scribe.epoch + 1)))
            seen = await view(b, scribe.feed)
            assert (seen.entries, seen.marks.position) == ((), 0)
            assert await b.text.read_text(scribe.feed) == []


@pytest.mark.row("A16", "A4")
@pytest.mark.parametrize(
    "garbage",
    [
        "DELETE FROM entry WHERE position = 5",
        "DELETE FROM entry WHERE position = 8",
        "DELETE FROM entry WHERE slot = 1",
        "UPDATE entry SET tag = 'ffffffffffff' WHERE position = 5",
        "UPDATE entry SET tag = 'ffffffffffff' WHERE position = 8",
        "UPDATE entry SET tag = 7 WHERE position = 8",
        "UPDATE entry SET tag = x'00' WHERE position = 5",
        "UPDATE entry SET prev = x'00' WHERE position = 5",
        "UPDATE entry SET event_id = x'00' WHERE position = 5",
        "UPDATE entry SET type = x'00' WHERE position = 5",
        "UPDATE entry SET version = 'x' WHERE position = 5",
        "UPDATE entry SET position = 'x' WHERE position = 5",
        "INSERT INTO entry SELECT NULL, slot, position, tag, prev, version, event_id, type, at, weight, body"
        " FROM entry WHERE position = 5",
    ],
)
async def test_a_timeline_with_garbage_in_it_is_missing(b, caplog, garbage):
    scribe = await started(b)
    await publish(b, scribe, 5)
    await b.text.append(scribe.text(0, b"text"))
    plant(b, garbage)
    caplog.clear()
    assert await b.store.read(scribe.feed) is None
    assert len(caplog.records) == 1
    # Every later look agrees, so whoever repairs it sees what the reader saw.
    assert await b.store.read(scribe.feed) is None
    assert await b.store.stand([scribe.feed]) == {}
    assert await b.text.read_text(scribe.feed) == []
    assert await b.store.publish(scribe.write()) == NeedsRebuild(0)
    assert len(caplog.records) == 1
    applied(await b.store.open(scribe.opening(0, epoch=scribe.epoch + 1)))
    assert positions(await view(b, scribe.feed)) == []


@pytest.mark.row("A26", "A27")
@pytest.mark.parametrize(
    "body", ["'text'", "x'5b5d'", "x'7b0a7d'", "x'7b7d'", "17", "x'7b787d'", "x'7b2261223a4e614e7d'"]
)
async def test_an_event_that_cannot_be_read_is_passed_over_and_counted(b, caplog, body):
    scribe = await started(b)
    await publish(b, scribe, 5)
    before = await view(b, scribe.feed)
    plant(b, f"UPDATE entry SET body = {body} WHERE position = 5")
    seen = await view(b, scribe.feed)
    assert positions(seen) == positions(before)
    assert [entry.event.id for entry in seen.entries] == [entry.event.id for entry in before.entries]
    for entry, known in zip(seen.entries, before.entries, strict=True):
        if entry.position != 5:
            assert entry == known
            continue
        told = json.loads(entry.data, parse_constant=pytest.fail)
        assert (told["type"], told["payload"]) == (event.UNREADABLE, {"type": "step_done"})
        assert (told["run_id"], told["attempt"]) == (scribe.run_id, 1)
        assert told.keys() == json.loads(known.data).keys()
    assert b.store.statistics()["unreadable"] == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    applied(await b.store.publish(scribe.write()))


async def test_garbage_beyond_the_tip_harms_nobody_for_long(b):
    scribe = await started(b)
    plant(
        b,
        "INSERT INTO entry SELECT NULL, slot, position + 1, 'x', 'y', 1, 'z', 'z', at, weight, x'00'"
        " FROM entry WHERE position = 3",
    )
    assert positions(await view(b, scribe.feed)) == [1, 2, 3]
    await publish(b, scribe, 1)
    assert await b.store.read(scribe.feed) is None
    assert await b.store.stand([scribe.feed]) == {}


@pytest.mark.parametrize(
    "garbage",
    [
        "DELETE FROM piece WHERE offset = 4",
        "DELETE FROM piece WHERE offset = 0",
        "UPDATE piece SET data = 'text' WHERE offset = 4",
        "UPDATE piece SET data = x'00' WHERE offset = 4",
        "UPDATE piece SET offset = 'x' WHERE offset = 4",
        "UPDATE part SET length = 'x'",
        "UPDATE part SET length = 3",
        "UPDATE part SET length = -1",
        "UPDATE part SET name = x'00'",
        "UPDATE part SET token = 'x'",
    ],
)
async def test_text_of_garbage_makes_the_projection_missing(b, garbage):
    scribe = await started(b)
    for offset in (0, 4, 8):
        await b.text.append(scribe.text(offset, b"text"))
    plant(b, garbage)
    assert await b.text.read_text(scribe.feed) == []
    assert await b.store.read(scribe.feed) is None
    with closing(sqlite3.connect(b.store.path)) as db:
        assert [db.execute(f"SELECT count(*) FROM {table}").fetchone() for table in ("part", "piece")] == [(0,)] * 2


async def test_a_damaged_part_begins_again(b):
    scribe = await started(b)
    await b.text.append(scribe.text(0, b"text"))
    plant(b, "UPDATE part SET length = 'x'")
    assert await b.text.append(scribe.text(4, b"more")) == TextFrom(0)
    assert await b.text.append(scribe.text(0, b"textmore")) == TextApplied(8)
    assert [part.data for part in await b.text.read_text(scribe.feed)] == [b"textmore"]


async def test_feeds_of_garbage_are_not_listed(b):
    scribe = await started(b)
    plant(b, "UPDATE projection SET feed = x'ff00'")
    assert await b.store.unarchived(10) == []
    assert await b.store.read(scribe.feed) is None


# The store that lost everything, or went back in time.


async def test_flush_loses_every_projection(b):
    scribe, other = await started(b), await started(b)
    await b.text.append(scribe.text(0, b"text"))
    await b.store.flush()
    assert await b.store.stand([scribe.feed, other.feed]) == {}
    assert await b.text.read_text(scribe.feed) == []
    assert await b.store.publish(scribe.write()) == NeedsRebuild(0)
    applied(await b.store.open(scribe.opening(0, epoch=scribe.epoch + 1)))
    with closing(sqlite3.connect(b.store.path)) as db:
        assert db.execute("SELECT count(*) FROM entry").fetchone() == (0,)


async def test_a_restored_copy_is_the_store_gone_back(b, tmp_path):
    scribe = await started(b)
    await publish(b, scribe, 2)
    await b.text.append(scribe.text(0, b"one"))
    before = await view(b, scribe.feed)
    await b.store.copy(tmp_path / "earlier.db")
    await publish(b, scribe, 3)
    await b.text.append(scribe.text(3, b"two"))
    late = await started(b)
    await b.store.restore(tmp_path / "earlier.db")

    assert await view(b, scribe.feed) == before
    assert [part.data for part in await b.text.read_text(scribe.feed)] == [b"one"]
    assert await b.store.stand([late.feed]) == {}
    # The writer whose writes are gone is told so; one that was not answered yet may just send again.
    lost = scribe.write(guard=scribe.guard(acked_n=5))
    assert await b.store.publish(lost) == NeedsRebuild(scribe.epoch)
    again = replace(lost, guard=scribe.guard(acked_n=2))
    assert isinstance(await b.store.publish(again), Applied)
    assert positions(await view(b, scribe.feed)) == [1, 2, 3, 4, 5, 6]


async def test_a_row_that_another_process_changed_is_not_taken_from_memory(b):
    scribe = await started(b)
    await publish(b, scribe, 1)
    plant(b, "UPDATE projection SET token = 9, stamp = stamp + 1000")
    reply = await b.store.publish(scribe.write())
    assert reply.token == 9


def test_the_cache_is_bounded():
    marks = Marks(epoch=1, rev=0, token=0, final=False, position=0, tag="0" * 12)
    held = Held(1, marks, Snapshot(Status.QUEUED, 0, 1, 0, None, None, 0), 0, 0)
    cache = Cache(1, most=3)
    for number in range(9):
        cache.keep(run_feed(str(number)), held)
    cache.keep(run_feed("8"), held)
    assert [feed.id for feed in cache._kept] == ["6", "7", "8"]


# Hints.


class Failing(sqlite3.Connection):
    """Fails the next commits that change something, as a full disk would."""

    failures = 0

    def execute(self, statement, *values):
        if statement == "BEGIN IMMEDIATE":
            self.before = self.total_changes
        if statement == "COMMIT" and Failing.failures and self.total_changes > self.before:
            Failing.failures -= 1
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return super().execute(statement, *values)


@pytest.mark.row("A13")
async def test_a_final_fact_that_failed_left_no_entry_and_no_expiry(tmp_path):
    """The entry, the snapshot and the time to live are one act: what is sent again is stored once."""
    async with bench(tmp_path, factory=Failing, timeline_ttl=60.0) as b:
        scribe = await started(b)
        before = await view(b, scribe.feed)
        final = scribe.final()
        Failing.failures = 1
        with pytest.raises(StoreFull):
            await project(b, scribe, final)
        assert await view(b, scribe.feed) == before
        await b.clock.advance(3_600)
        assert await b.store.expire() == 0
        applied(await project(b, scribe, final))
        assert isinstance(await project(b, scribe, final), Already)
        assert positions(await view(b, scribe.feed)) == [1, 2, 3, 4]
        await b.clock.advance(61)
        assert await b.store.expire() == 1


async def test_a_write_that_was_rolled_back_is_not_hinted_and_leaves_no_trace(tmp_path):
    async with bench(tmp_path, factory=Failing) as b:
        scribe = await started(b)
        ear = Ear()
        await b.signal.add(scribe.feed, ear)
        await publish(b, scribe, 1)
        await eventually(lambda: ear.hints)
        before = await view(b, scribe.feed)
        Failing.failures = 1
        lost = scribe.write(state=State(title="lost"))
        with pytest.raises(StoreFull):
            await b.store.publish(lost)
        assert await view(b, scribe.feed) == before
        assert len(ear.hints) == 1
        reply = applied(await b.store.publish(scribe.again(lost)))
        assert reply.cursor.position == 5
        assert (await view(b, scribe.feed)).marks.n == 2
        await eventually(lambda: len(ear.hints) == 2)


async def test_a_batch_that_failed_is_written_again_write_by_write(tmp_path):
    async with bench(tmp_path, factory=Failing) as b:
        scribe = await started(b)
        ear = Ear()
        await b.signal.add(scribe.feed, ear)
        task, go_on = await paused(b)
        writes = [asyncio.ensure_future(b.store.publish(scribe.write())) for _ in range(5)]
        await asyncio.sleep(0.01)
        Failing.failures = 1
        go_on.set()
        await task
        replies = await asyncio.gather(*writes)
        assert [applied(reply).cursor.position for reply in replies] == [4, 5, 6, 7, 8]
        assert positions(await view(b, scribe.feed)) == list(range(1, 9))
        await eventually(lambda: sum(len(hint.entries) for hint in ear.hints) == 5)


async def test_the_writes_of_one_commit_make_one_hint_per_feed(b):
    scribe, other = await started(b), await started(b)
    ear = Ear()
    await b.signal.add(scribe.feed, ear)
    await b.signal.add(other.feed, ear)
    task, go_on = await paused(b)
    writes = [
        b.store.publish(scribe.write(2, state=State(done=1))),
        b.text.append(scribe.text(0, b"of the first attempt")),
        b.store.publish(other.write()),
        b.store.publish(scribe.write(0, state=State(done=2))),
        project(b, scribe, scribe.fact(event.ATTEMPT_STARTED)),
        b.text.append(scribe.text(0, b"one ")),
        b.text.append(scribe.text(4, b"two")),
    ]
    done = [asyncio.ensure_future(write) for write in writes]
    await asyncio.sleep(0.01)
    go_on.set()
    await asyncio.gather(task, *done)
    await eventually(lambda: len(ear.hints) >= 2)
    first, second = ear.hints
    seen = await view(b, scribe.feed)
    assert (first.feed, second.feed) == (scribe.feed, other.feed)
    assert (first.marks, first.snapshot) == (seen.marks, seen.snapshot)
    assert first.entries == seen.entries[3:]
    assert [(piece.token, piece.offset, piece.data) for piece in first.text] == [(2, 0, b"one "), (2, 4, b"two")]
    assert first.voids_before == 2
    assert len(second.entries) == 1


async def test_a_feed_that_is_opened_on_the_way_has_the_hint_of_its_last_epoch(b):
    scribe = await started(b)
    ear = Ear()
    await b.signal.add(scribe.feed, ear)
    task, go_on = await paused(b)
    writes = [b.store.publish(scribe.write())]
    old, scribe.epoch = scribe.epoch, scribe.epoch + 1
    writes += [b.store.open(scribe.opening(old)), b.store.publish(scribe.write())]
    done = [asyncio.ensure_future(write) for write in writes]
    await asyncio.sleep(0.01)
    go_on.set()
    await asyncio.gather(task, *done)
    await eventually(lambda: ear.hints)
    (hint,) = ear.hints
    assert {entry.epoch for entry in hint.entries} == {scribe.epoch}
    assert hint.marks == (await view(b, scribe.feed)).marks


async def test_many_publishers_at_once_leave_whole_chains(b):
    scribes = [await started(b) for _ in range(20)]

    async def life(scribe):
        offset = 0
        for step in range(30):
            applied(await b.store.publish(scribe.write(1 + step % 2, state=State(done=step))))
            reply = await b.text.append(scribe.text(offset, b"piece"))
            offset = reply.end

    await asyncio.gather(*(life(scribe) for scribe in scribes))
    for scribe in scribes:
        assert (await view(b, scribe.feed)).marks.position == 48
        assert [part.length for part in await b.text.read_text(scribe.feed)] == [150]


# Costs, counted and not timed.


class Counting(sqlite3.Connection):
    statements = 0
    written = 0

    def execute(self, statement, values=()):
        Counting.statements += 1
        if statement in (SQL["append"], SQL["add_piece"], SQL["published"]):
            Counting.written += sum(len(value) for value in values if type(value) is bytes)
        return super().execute(statement, values)


@pytest.fixture
def counted():
    Counting.statements = Counting.written = 0

    def since():
        found = Counting.statements, Counting.written
        Counting.statements = Counting.written = 0
        return found

    return since


async def test_a_long_text_costs_as_much_per_piece_as_a_short_one(tmp_path, counted):
    async with bench(tmp_path, factory=Counting) as b:
        scribe = await started(b)
        piece = b"some twenty words, as a model writes them in a moment; ten thousand of them are a long answer "
        costs = []
        offset = 0
        for _ in range(10):
            counted()
            writes = []
            for _ in range(1_000):
                writes.append(b.text.append(scribe.text(offset, piece)))
                offset += len(piece)
            await asyncio.gather(*writes)
            costs.append(counted())
        statements, written = zip(*costs, strict=True)
        assert set(written) == {1_000 * len(piece)}
        assert max(statements) <= 9 * 1_000
        assert max(statements) <= 1.2 * min(statements)
        (part,) = await b.text.read_text(scribe.feed)
        assert part.data == piece * 10_000
        with closing(sqlite3.connect(b.store.path)) as db:
            assert db.execute("SELECT sum(length(data)) FROM piece").fetchone() == (offset,)


async def test_a_publish_costs_the_same_on_a_long_timeline(tmp_path, counted):
    async with bench(tmp_path, retention=Retention(count=50), factory=Counting) as b:
        scribe = await started(b)
        costs = []
        for _ in range(5):
            counted()
            await publish(b, scribe, 100, state=State(title="t" * 1_000))
            costs.append(counted())
            await b.store.archived(scribe.feed, scribe.epoch, 10_000)
        statements = [each for each, _ in costs]
        assert max(statements[1:]) <= 12 * 100
        assert max(statements[1:]) <= 1.05 * min(statements[1:])
        assert (await view(b, scribe.feed)).marks.floor == 453


async def test_nothing_that_stays_is_looked_at_for_its_age(tmp_path):
    """With an archive that lags, old entries are not looked through again at every write."""
    clock = FakeClock()
    async with bench(tmp_path, clock, retention=Retention(count=10_000, age=1.0)) as b:
        scribe = await started(b)
        for _ in range(20):
            applied(await b.store.publish(scribe.write(100)))
        await clock.advance(10)
        steps = 0

        def step():
            nonlocal steps
            steps += 1
            return 0

        await b.store._write(lambda db: db.set_progress_handler(step, 1))
        applied(await b.store.publish(scribe.write()))
        await b.store._write(lambda db: db.set_progress_handler(None, 0))
        assert steps < 1_000


@pytest.mark.parametrize("name", sorted(SQL))
async def test_no_statement_scans_a_table(b, name):
    def plan(db):
        text = SQL[name] + (" WHERE feed IN (?, ?)" if name in ("projections", "lengths") else "")
        values = (None,) * (2 if "?2" in text else text.count("?"))
        return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {text}", values)]

    steps = await b.store._read(plan)
    allowed = {
        "aged": {"SCAN projection"},  # the feeds, not their entries
        "unarchived": {"SCAN projection USING INDEX projection_unarchived"},
    }
    scans = {step for step in steps if step.startswith("SCAN") and "CONSTANT" not in step}
    assert scans <= allowed.get(name, set()), steps


# What outlives its run.


async def test_expiry_goes_by_portions_and_spares_what_goes_on(tmp_path):
    count = 2 * EXPIRED_AT_ONCE + 3
    async with bench(tmp_path, timeline_ttl=60.0, snapshot_ttl=600.0) as b:
        going = await started(b)
        ended = [await started(b) for _ in range(count)]
        for scribe in ended:
            applied(await project(b, scribe, scribe.final()))
        b.clock.step_wall(-3_600)
        assert await b.store.expire() == 0
        b.clock.step_wall(3_600 + 61)
        assert await b.store.expire() == count
        assert await b.store.expire() == 0
        b.clock.step_wall(10_000_000)
        assert await b.store.expire() == count
        assert set(await b.store.stand([scribe.feed for scribe in [going, *ended]])) == {going.feed}
        await publish(b, going, 1)


async def test_a_timeline_that_expired_takes_its_place_in_memory_too(tmp_path):
    async with bench(tmp_path, timeline_ttl=60.0, snapshot_ttl=600.0) as b:
        scribe = await started(b)
        last = scribe.final()
        applied(await project(b, scribe, last))
        await b.clock.advance(61)
        await b.store.expire()
        assert await project(b, scribe, last) == Already(None)
        await b.store.archived(scribe.feed, scribe.epoch, 4)
        assert (await view(b, scribe.feed)).marks.floor == 4


async def test_loops_in_other_threads_may_use_it(b):
    scribe = await started(b)
    await asyncio.to_thread(lambda: asyncio.run(publish(b, scribe, 3)))
    assert positions(await view(b, scribe.feed)) == [1, 2, 3, 4, 5, 6]


def test_a_corrupt_file_is_another_error_than_a_lost_one():
    assert not issubclass(StoreCorrupt, StoreUnavailable)


class Foreign(sqlite3.Connection):
    """Gives rows and texts in another form than the usual one, as a program's own defaults might."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.row_factory, self.text_factory = sqlite3.Row, bytes


@pytest.mark.row("A22", "A23")
async def test_the_form_of_the_answers_is_the_stores_own_affair(tmp_path):
    async with bench(tmp_path, factory=Foreign) as b:
        scribe = await started(b)
        await publish(b, scribe, 3, state=State(title="Grüße"))
        await b.text.append(scribe.text(0, "é".encode()))
        seen = await view(b, scribe.feed)
        assert positions(seen) == [1, 2, 3, 4, 5, 6]
        assert seen.marks.cursor == (await b.store.stand([scribe.feed]))[scribe.feed].cursor
        assert type(seen.marks.tag) is str
        assert [part.data for part in await b.text.read_text(scribe.feed)] == ["é".encode()]
        assert await b.store.find(scribe.feed, seen.entries[-1].event.id) == 6
    async with bench(tmp_path, clock=b.clock) as usual:
        assert await view(usual, scribe.feed) == seen


@pytest.mark.row("A23")
def test_every_statement_names_what_it_reads():
    """Else the place of a value in its row would be up to whoever made the table."""
    for name, statement in SQL.items():
        assert "*" not in statement.replace("count(*)", ""), name
