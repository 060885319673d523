import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from playhead.backends.sqlite.record import SqliteRecord
from playhead.backends.sqlite.rows import SQL
from playhead.core import event
from playhead.core.ids import EVERY_TENANT, run_feed, uuid7
from playhead.core.interrupt import Question
from playhead.core.run import Failure, NewRun, Outcome, Policy, Run, Status
from playhead.errors import StoreCorrupt, StoreFull, StoreTooNew, StoreUnavailable
from playhead.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

TTL_MS = 10_000
DONE = Outcome(Status.SUCCEEDED, result=b'{"answer":42}')


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.sqlite"


@contextlib.asynccontextmanager
async def opened(path: Path, clock: FakeClock, **options: Any) -> AsyncIterator[SqliteRecord]:
    record = await SqliteRecord.open(path, clock=clock, **options)
    try:
        yield record
    finally:
        await record.close()


def new(clock: FakeClock, **fields: Any) -> NewRun:
    plain = NewRun(uuid7(clock.wall_ms(), clock.random(10)), "acme", "echo", b'{"q":1}', Policy(), {}, digest="d")
    return replace(plain, **fields)


async def running(record: SqliteRecord, clock: FakeClock, process: str = "p1", **fields: Any) -> Run:
    run, _ = await record.create(new(clock, **fields))
    await record.beat(process, TTL_MS, ())
    return await record.claim("acme", run.id, process)


async def types(record: SqliteRecord, run: Run) -> list[str]:
    page = await record.facts(run_feed(run.id), 0)
    assert page is not None
    return [fact.event.type for fact in page.facts]


async def test_everything_is_there_after_opening_again(path, clock):
    async with opened(path, clock) as record:
        run = await running(record, clock, policy=Policy(True, 7, 1.5), labels={"a": "b\x00"}, scope="s", dedupe="k")
        question = Question("ship", "approval", b'{"title":"Ship?"}', 60_000)
        one = await record.ask(run.id, 1, question, "0190163d-8694-739b-aea5-966c26f8ad91", b'{"title":"T"}')
        await record.decide("acme", run.id, one.id, b'{"approved":true}', "ann")
        await record.note("acme", run.id, 1, "tool_called", "agent", b'{"x":1}')
        await record.append(run_feed(run.id), [(event.published(run.id, 1, 1, "step_done", {}, 0), 3)], None)
        await record.finish(run.id, 1, Outcome(Status.FAILED, failure=Failure("boom", "It broke."), partial=b"[1]"))
        feed = run_feed(run.id)
        before = (
            await record.get("acme", run.id),
            await record.find_dedupe("acme", "s", "k"),
            await record.facts(feed, 0),
            await record.interrupts("acme", open_only=False),
            await record.audit("acme", run.id),
            await record.read(feed, None, 10),
            await record.outbox(10),
        )
    async with opened(path, clock) as record:
        assert before == (
            await record.get("acme", run.id),
            await record.find_dedupe("acme", "s", "k"),
            await record.facts(feed, 0),
            await record.interrupts("acme", open_only=False),
            await record.audit("acme", run.id),
            await record.read(feed, None, 10),
            await record.outbox(10),
        )
        rows = await record.file.read(
            lambda db: db.execute("SELECT token, process, outcome, ended_at IS NULL FROM attempt").fetchall()
        )
        assert rows == [(1, "p1", "finished", 0)]


@pytest.mark.row("F11", "BR-33")
async def test_opening_ends_every_lease_and_what_was_held_can_be_reaped_once(path, clock):
    async with opened(path, clock) as record:
        run = await running(record, clock)
        again = await running(record, clock, policy=Policy(resumable=True))
        queued, _ = await record.create(new(clock))
        ended = await running(record, clock)
        await record.finish(ended.id, 1, DONE)
        assert await record.expired(10) == []
    async with opened(path, clock) as record:
        assert {each.id for each in await record.expired(10)} == {run.id, again.id}
        for _ in range(2):
            for each in (run, again, ended, queued):
                await record.lose(each.id, 1, None)
        assert (await types(record, run)).count(event.RUN_INTERRUPTED) == 1
        assert (await types(record, ended))[-1] == event.RUN_SUCCEEDED
        assert (await types(record, queued)) == [event.RUN_QUEUED]
        assert await record.expired(10) == []
        # Its attempts are gone, and the runs that can go on do.
        await record.beat("p2", TTL_MS, [(run.id, 1)])
        await clock.advance(60)
        await record.beat("p2", TTL_MS, ())
        assert [each.id for each in await record.acquire("p2", ["echo"], 10)] == [again.id, queued.id]


@pytest.mark.row("BR-90")
async def test_a_clock_that_steps_back_moves_no_lease_and_no_order(path, clock):
    async with opened(path, clock) as record:
        run = await running(record, clock)
        epoch = run.epoch
        clock.step_wall(-3600)
        later = await running(record, clock, "p2")
        assert later.seq > run.seq
        assert await record.expired(10) == []
        assert (await record.beat("p1", TTL_MS, [(run.id, 1)])).lost == frozenset()
        minted = await record.mint_epoch(run_feed(run.id), epoch)
        assert minted is not None
        assert minted.epoch == epoch + 1
        assert [each.id for each in await record.list_runs("acme")] == [later.id, run.id]
        await record.finish(run.id, 1, DONE)
        page = await record.facts(run_feed(run.id), 0)
        assert page is not None
        assert [fact.rev for fact in page.facts] == list(range(1, page.run.rev + 1))
        assert page.facts[-1].at < page.facts[0].at
        await clock.advance(TTL_MS / 1000)
        assert [each.id for each in await record.expired(10)] == [later.id]


@pytest.mark.row("F47")
async def test_a_full_disk_refuses_new_runs_and_erasing_makes_room(path, clock):
    async with opened(path, clock, max_page_count=150) as record:
        runs = []
        with pytest.raises(StoreFull):
            for _ in range(1000):
                runs.append(await running(record, clock, input=bytes(3000)))
                await record.finish(runs[-1].id, 1, DONE)
        assert len(runs) > 10
        with pytest.raises(StoreFull):
            await record.create(new(clock, input=bytes(40_000)))
        assert len(await record.list_runs("acme", limit=1000)) >= len(runs)
        assert await record.get("acme", runs[0].id) is not None
        for run in runs[:10]:
            assert await record.delete("acme", run.id)
        fresh = await running(record, clock, input=bytes(3000))
        assert (await record.finish(fresh.id, 1, DONE)).status is Status.SUCCEEDED
        assert await record.file.check() is None


@pytest.mark.row("F47")
async def test_pruning_runs_on_a_full_disk(path, clock):
    async with opened(path, clock, max_page_count=100) as record:
        with pytest.raises(StoreFull):
            for _ in range(1000):
                run, _ = await record.create(new(clock))
                await record.settle(run_feed(run.id), run.epoch, run.rev)
        assert await record.prune(clock.wall_ms() + 1) > 10
        await record.create(new(clock))


@pytest.mark.row("F49")
async def test_a_damaged_record_is_refused_and_names_its_backup(path, clock):
    async with opened(path, clock) as record:
        await running(record, clock)
    path.with_name("record.sqlite.backup-1").write_bytes(path.read_bytes())
    path.write_bytes(b"\x00" * 100 + path.read_bytes()[100:])
    before = path.read_bytes()
    for call in (SqliteRecord.open, SqliteRecord.open_read_only):
        with pytest.raises(StoreCorrupt, match=r"record\.sqlite\.backup-1"):
            await call(path, clock=clock)
    assert path.read_bytes() == before


async def test_a_record_of_a_newer_version_is_refused(path, clock):
    async with opened(path, clock):
        pass
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(StoreTooNew, match="99"):
        await SqliteRecord.open(path, clock=clock)


@pytest.mark.row("F50")
async def test_a_second_process_may_read_while_the_first_writes(path, clock):
    async with opened(path, clock) as record:
        run = await running(record, clock)
        beside = await SqliteRecord.open_read_only(path, clock=clock)
        assert await beside.get("acme", run.id) == run
        now = await record.finish(run.id, 1, DONE)
        assert await beside.get("acme", run.id) == now
        assert await beside.facts(run_feed(run.id), 0) == await record.facts(run_feed(run.id), 0)
        with pytest.raises(StoreUnavailable, match="reading only"):
            await beside.create(new(clock))
        await beside.close()
        # Looking on ended nobody's lease.
        other = await running(record, clock)
        assert await record.expired(10) == []
        assert other.heartbeat_at is not None
    alone = await SqliteRecord.open_read_only(path, clock=clock)
    assert await alone.get("acme", run.id) == now
    await alone.close()


async def test_erasing_leaves_no_row(path, clock):
    async with opened(path, clock) as record:
        watched = Policy(cancel_after=5.0)
        run = await running(record, clock, labels={"a": "b"}, scope="s", dedupe="k", policy=watched)
        await record.watch("p2", [run.id])
        asked = Question("ship", "approval", b"{}", None)
        await record.ask(run.id, 1, asked, "0190163d-8694-739b-aea5-966c26f8ad91", b"{}")
        await record.note("acme", run.id, 1, "tool_called", "agent", b"{}")
        await record.append(run_feed(run.id), [(event.published(run.id, 1, 1, "step_done", {}, 0), 3)], None)
        await record.finish(run.id, 1, DONE)
        await record.leave("p1")

        def rows(db: sqlite3.Connection) -> dict[str, int]:
            tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}

        before = await record.file.read(rows)
        kept = {"sqlite_sequence", "schema_step"}
        assert {name for name, count in before.items() if count == 0} == {"process"}
        await record.delete("acme", run.id)
        after = await record.file.read(rows)
        assert {name for name, count in after.items() if count} == kept
        # A number is never used again, so that a page of a list never shows a newer run in an older one's place.
        later, _ = await record.create(new(clock))
        assert later.seq > run.seq


async def test_no_question_of_the_loops_walks_a_whole_table(path, clock):
    async with opened(path, clock) as record:
        plans = await record.file.read(
            lambda db: {
                name: [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", ["x"] * parameters(SQL[name]))]
                for name in SQL
                if SQL[name].startswith(("SELECT", "UPDATE", "DELETE FROM fact"))
                and name not in ("run", "fact", "interrupt", "list_runs", "list_interrupts", "next_seq")
            }
        )
        walks = {name: step for name, steps in plans.items() for step in steps if step.startswith("SCAN")}
        assert walks == {"unsettled": "SCAN fact USING INDEX fact_unsettled"}
        assert "run_free" in str(plans["free_runs"])
        assert "interrupt_due" in str(plans["runs_due"])


def parameters(text: str) -> int:
    return max(9 * ("?9" in text), *(int(n) for n in "12345678" if f"?{n}" in text), 0) or text.count("?")


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        (("of_tenant",), "run_by_tenant"),
        (("of_tenant", "of_status"), "run_by_status"),
        (("of_tenant", "of_agent"), "run_by_agent"),
        (("of_tenant", "of_key"), "run_by_key"),
        (("of_status",), "run_by_status"),
        (("of_tenant", "of_label"), "PRIMARY KEY (name=? AND value=?)"),
    ],
)
async def test_lists_use_an_index(path, clock, filters, index):
    async with opened(path, clock) as record:
        text = " AND ".join([SQL["list_runs"], *(SQL[name] for name in filters)]) + " " + SQL["newest_first"]
        rows = await record.file.read(
            lambda db: db.execute(f"EXPLAIN QUERY PLAN {text}", ["x"] * text.count("?")).fetchall()
        )
        assert index in str(rows)


async def test_waiting_facts_come_longest_first(path, clock):
    async with opened(path, clock) as record:
        runs = [(await record.create(new(clock)))[0] for _ in range(3)]
        await record.beat("p1", TTL_MS, ())
        for run in runs[:2]:
            await record.settle(run_feed(run.id), run.epoch, 1)
        await record.claim("acme", runs[1].id, "p1")
        await record.claim("acme", runs[0].id, "p1")
        assert await record.outbox(10) == [run_feed(runs[index].id) for index in (2, 1, 0)]
        assert await record.outbox(2) == [run_feed(runs[index].id) for index in (2, 1)]


WRITE = """
import asyncio, pathlib, sys
from playhead.backends.sqlite.record import SqliteRecord
from playhead.core import event
from playhead.core.ids import run_feed
from playhead.testing.clock import FakeClock

async def main():
    record = await SqliteRecord.open(pathlib.Path(sys.argv[1]), clock=FakeClock())
    async def one(run_id):
        newest = None
        for n in range(1, 101):
            entry = event.published(run_id, 1, n, "step_done", {"n": n}, 0)
            newest = await record.append(run_feed(run_id), [(entry, n)], newest)
            await record.note("acme", run_id, None, "step", "agent", b"{}")
    await asyncio.gather(*map(one, sys.argv[2:]))
    await record.close()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.row("BR-79")
async def test_two_processes_on_one_record_lose_no_event(path, clock):
    async with opened(path, clock) as record:
        runs = [(await record.create(new(clock)))[0] for _ in range(20)]
        children = [
            subprocess.Popen([sys.executable, "-c", WRITE, str(path), *(run.id for run in some)])
            for some in (runs[:10], runs[10:])
        ]
        while any(child.poll() is None for child in children):
            for run in runs[::7]:
                await record.read(run_feed(run.id), None, 50)
            await asyncio.sleep(0.01)
        assert [child.wait() for child in children] == [0, 0]
        for run in runs:
            archived = await record.read(run_feed(run.id), None, 1000)
            assert [version for _, version in archived] == list(range(1, 101))
            assert len(await record.audit("acme", run.id)) == 100


async def test_many_tenants_in_one_record(path, clock):
    async with opened(path, clock) as record:
        for tenant in ("a", "b"):
            for _ in range(3):
                await record.create(new(clock, tenant=tenant))
        await record.beat("p1", TTL_MS, ())
        for run in await record.acquire("p1", ["echo"], 10):
            await record.ask(run.id, 1, Question("q", "approval", b"{}", None), f"i-{run.id}", None)
        assert len(await record.interrupts(EVERY_TENANT)) == 6
        assert {one.tenant for one in await record.interrupts("a")} == {"a"}
        assert len(await record.list_runs("b", status=[Status.WAITING, Status.QUEUED])) == 3
        assert len(await record.list_runs(EVERY_TENANT, status=[Status.WAITING], limit=4)) == 4


async def test_a_run_is_read_each_time_and_made_anew_only_when_its_row_changed(path, clock):
    async with opened(path, clock) as record:
        run = await running(record, clock)
        first = await record.get("acme", run.id)
        assert await record.get("acme", run.id) is first
        assert await record.get("other", run.id) is None
        await record.request_cancel("acme", run.id, by="me", reason=None)
        changed = await record.get("acme", run.id)
        assert changed is not None
        assert changed.cancel_requested_at is not None
        await record.finish(run.id, 1, DONE)
        await record.delete("acme", run.id)
        assert await record.get("acme", run.id) is None
        assert record._known == {}  # what was erased is not kept in memory either
        large = await running(record, clock, input=b'"%b"' % (b"x" * 10_000))
        assert await record.get("acme", large.id) == await record.get("acme", large.id)
        assert record._known == {}
