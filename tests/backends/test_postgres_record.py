"""What the record in PostgreSQL promises beyond the port: many processes, their clocks, and answers that are lost."""

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager

import psycopg
import pytest

from playhead.backends.postgres import PostgresRecord
from playhead.backends.postgres import record as module
from playhead.backends.postgres.database import Session
from playhead.backends.postgres.rows import SQL
from playhead.core import event
from playhead.core.ids import EVERY_TENANT, run_feed
from playhead.core.run import Status
from playhead.errors import KeyConflict, RunNotFree, StoreUnavailable
from playhead.runtime.clock import SystemClock
from playhead.testing.check import RecordBench, eventually
from playhead.testing.clock import FakeClock
from playhead.testing.ports.given import (
    AGENT,
    DONE,
    TENANT,
    TTL_MS,
    asked,
    new_run,
    queued,
    resumable,
    running,
    types,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def opened(postgres_dsn):
    """Records of several processes on one database; each with the given clock, or with this machine's."""

    @asynccontextmanager
    async def several(count=2, clock=None, **options):
        if clock is not None:
            options["wall"] = lambda _: clock.wall_ms()
        made = []
        try:
            for _ in range(count):
                made.append(
                    await PostgresRecord.open(
                        postgres_dsn, clock=clock or SystemClock(), **{"deadline": 30.0} | options
                    )
                )
            yield made
        finally:
            for record in made:
                await record.close()

    return several


@contextmanager
def answers_lost(monkeypatch, count, on_loss=lambda: None):
    """The next ends of transactions take place, and their answers are lost."""
    real = Session.commit
    lost: list[int] = []

    async def commit(self):
        await real(self)
        if len(lost) < count:
            lost.append(1)
            self._connection.pgconn.finish()
            on_loss()
            raise psycopg.OperationalError("the server closed the connection unexpectedly")

    with monkeypatch.context() as patch:
        patch.setattr(Session, "commit", commit)
        yield
    assert len(lost) == count


async def test_processes_with_one_key_make_one_run(opened):
    clock = FakeClock()
    async with opened(3, clock) as records:
        for turn in range(5):
            made = await asyncio.gather(
                *(record.create(new_run(clock, dedupe=f"k{turn}")) for record in records for _ in range(5))
            )
            assert len({run.id for run, _ in made}) == 1
            assert [is_new for _, is_new in made].count(True) == 1
            others = await asyncio.gather(
                *(record.create(new_run(clock, dedupe=f"k{turn}", digest="d2")) for record in records),
                return_exceptions=True,
            )
            assert [type(one) for one in others] == [KeyConflict] * 3
        assert len(await records[0].list_runs(TENANT)) == 5


async def test_processes_never_get_the_same_run(opened):
    clock = FakeClock()
    async with opened(4, clock) as records:
        b = RecordBench(records[0], records[0], clock)
        runs = [await queued(b) for _ in range(40)]

        async def take(number, record):
            mine = []
            await record.beat(f"p{number}", TTL_MS, ())
            while got := await record.acquire(f"p{number}", [AGENT], 3):
                mine += [(run.id, run.token, run.owner) for run in got]
            return mine

        taken = [one for some in await asyncio.gather(*(take(i, one) for i, one in enumerate(records))) for one in some]
        assert sorted(run_id for run_id, _, _ in taken) == sorted(run.id for run in runs)
        for run_id, token, owner in taken:
            found = await records[0].get(EVERY_TENANT, run_id)
            assert (found.owner, found.token, token) == (owner, 1, 1)


async def test_who_holds_a_run_keeps_nobody_from_the_others(opened, postgres_dsn):
    clock = FakeClock()
    async with opened(1, clock) as (record,):
        b = RecordBench(record, record, clock)
        first, second = await queued(b), await queued(b)
        await record.beat("p1", TTL_MS, ())
        with psycopg.connect(postgres_dsn) as other:
            other.execute("SELECT 1 FROM playhead.run WHERE id = %s FOR UPDATE", (first.id,))
            assert [run.id for run in await record.acquire("p1", [AGENT], 5)] == [second.id]
        assert [run.id for run in await record.acquire("p1", [AGENT], 5)] == [first.id]


async def test_runs_that_wait_for_their_next_attempt_hide_no_other(opened, sql, monkeypatch):
    clock = FakeClock()
    async with opened(1, clock) as (record,):
        b = RecordBench(record, record, clock)
        for _ in range(5):
            await queued(b)
        # More of them than one look goes through.
        sql(
            "INSERT INTO playhead.run SELECT 1000 + n, 'copy' || n, tenant, agent, status, resumable, max_attempts,"
            " cancel_after, labels, key, scope, dedupe, digest, created_at, updated_at, started_at, ended_at, token,"
            " crashes, owner, not_before, cancel_requested_at, cancel_by, cancel_reason, failure_code,"
            " failure_message, state, rev, epoch, minted_at FROM playhead.run, generate_series(1, 400) n WHERE seq = 1"
        )
        sql("INSERT INTO playhead.run_input SELECT 1000 + n, '{}' FROM generate_series(1, 400) n")
        sql("UPDATE playhead.run SET not_before = %s WHERE id LIKE 'copy%%'", clock.wall_ms() + 5_000)
        sql("UPDATE playhead.run SET seq = seq + 5000 WHERE id NOT LIKE 'copy%%'")
        sql("UPDATE playhead.run_input SET seq = seq + 5000 WHERE seq < 1000")
        await record.beat("p1", TTL_MS, ())
        looks = []
        real = module._free

        async def look(*given):
            looks.append(given)
            return await real(*given)

        monkeypatch.setattr(module, "_free", look)
        assert len(await record.acquire("p1", [AGENT], 3)) == 3
        assert len(looks) == 1  # and not one look after the other, until they are passed
        # A clock that went back is not sat out.
        clock.step_wall(-3_600)
        assert len(await record.acquire("p1", [AGENT], 100)) == 100


async def test_rebuilders_of_many_processes_get_one_epoch(opened):
    clock = FakeClock()
    async with opened(3, clock) as records:
        run = await queued(RecordBench(records[0], records[0], clock))
        asking = (record.mint_epoch(run_feed(run.id), run.epoch) for record in records for _ in range(4))
        got = await asyncio.gather(*asking)
        assert len([one for one in got if one is not None]) == 1


async def test_nothing_is_settled_under_an_epoch_that_ends_in_the_same_moment(opened, postgres_dsn):
    clock = FakeClock()
    async with opened(1, clock) as (record,):
        run = await queued(RecordBench(record, record, clock))
        with psycopg.connect(postgres_dsn) as minter:
            minter.execute("SELECT 1 FROM playhead.run WHERE id = %s FOR UPDATE", (run.id,))
            settling = asyncio.create_task(record.settle(run_feed(run.id), run.epoch, 1))
            await waits_for_lock(postgres_dsn)
            minter.execute("UPDATE playhead.run SET epoch = epoch + 1 WHERE id = %s", (run.id,))
        await settling
        assert await record.outbox(10) == [run_feed(run.id)]


async def test_nothing_is_noted_for_an_attempt_that_ends_in_the_same_moment(opened, postgres_dsn):
    clock = FakeClock()
    async with opened(1, clock) as (record,):
        run = await running(RecordBench(record, record, clock))
        with psycopg.connect(postgres_dsn) as taker:
            taker.execute("SELECT 1 FROM playhead.run WHERE id = %s FOR UPDATE", (run.id,))
            noting = asyncio.create_task(record.note(TENANT, run.id, 1, "tool_called", "agent", b"{}"))
            await waits_for_lock(postgres_dsn)
            taker.execute("UPDATE playhead.run SET token = 2 WHERE id = %s", (run.id,))
        with pytest.raises(Exception, match="no longer owns"):
            await noting
        assert await record.audit(TENANT, run.id) == []


async def test_what_is_decided_is_what_the_lock_showed(opened, postgres_dsn):
    """Whoever waited for a run sees it as it was left, with its end, and not as it was when the waiting began."""
    clock = FakeClock()
    async with opened(2, clock) as (here, there):
        run = await running(RecordBench(here, here, clock))
        with psycopg.connect(postgres_dsn) as other:
            other.execute("SELECT 1 FROM playhead.run WHERE id = %s FOR UPDATE", (run.id,))
            first = asyncio.create_task(here.finish(run.id, 1, DONE))
            await waits_for_lock(postgres_dsn, 1)
            second = asyncio.create_task(there.finish(run.id, 1, DONE))
            await waits_for_lock(postgres_dsn, 2)
        assert await first == await second
        assert (await second).result == DONE.result
        assert (await types(RecordBench(here, here, clock), run)).count(event.RUN_SUCCEEDED) == 1


async def waits_for_lock(dsn, count=1):
    def look():
        with psycopg.connect(dsn, autocommit=True) as connection:
            waiting = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            ).fetchall()
        return waiting[0][0] >= count

    await eventually(look, 30.0)


async def test_a_lease_is_over_when_no_beat_was_seen_for_its_time(opened):
    clock = FakeClock()
    async with opened(2, clock) as (here, there):
        run = await running(RecordBench(here, here, clock))
        await clock.advance(TTL_MS / 1000 - 1)
        # Seen for the first time now: how old the beat is, nobody can tell without trusting a clock that steps.
        assert await there.expired(10) == []
        await clock.advance(2)
        assert [one.id for one in await here.expired(10)] == [run.id]
        assert await there.expired(10) == []
        assert await there.lose(run.id, 1, None) is None
        await clock.advance(TTL_MS / 1000)
        assert [one.id for one in await there.expired(10)] == [run.id]
        await here.beat("p1", TTL_MS, [(run.id, 1)])
        assert await there.expired(10) == []
        assert await there.lose(run.id, 1, None) is None
        await clock.advance(TTL_MS / 1000)
        assert (await there.lose(run.id, 1, None)).status is Status.INTERRUPTED
        assert (await here.beat("p1", TTL_MS, [(run.id, 1)])).lost == {(run.id, 1)}


async def test_a_database_whose_clock_steps_ends_no_lease(opened, sql):
    """After a fail-over the time of day is another machine's."""
    clock = FakeClock()
    async with opened(2, clock) as (here, there):
        run = await running(RecordBench(here, here, clock))
        assert await there.expired(10) == []
        clock.step_wall(30 * 86_400)
        assert await there.expired(10) == []
        clock.step_wall(-60 * 86_400)
        await clock.advance(TTL_MS / 1000 - 1)
        assert await there.expired(10) == []
        await clock.advance(1)
        assert [one.id for one in await there.expired(10)] == [run.id]


async def test_a_lease_that_was_given_back_is_over_for_everybody(opened):
    clock = FakeClock()
    async with opened(2, clock) as (here, there):
        run = await running(RecordBench(here, here, clock))
        assert await there.expired(10) == []
        await here.leave("p1")
        (gone,) = await there.expired(10)
        assert (gone.id, gone.heartbeat_at) == (run.id, None)
        assert await there.acquire("p1", [AGENT], 1) == []


async def test_late_beats_and_reapers_of_other_processes_agree(opened):
    clock = FakeClock()
    async with opened(2, clock) as (here, there):
        b = RecordBench(here, here, clock)
        for leaves in (False, True) * 10:
            run = await running(b)
            await there.expired(10)
            await clock.advance(60)
            if leaves:
                await here.leave("p1")
            lost, beat = await asyncio.gather(there.lose(run.id, 1, None), here.beat("p1", TTL_MS, [(run.id, 1)]))
            found = await here.get(TENANT, run.id)
            assert found.status.final == (lost is not None)
            if lost is None:
                assert beat.lost == frozenset()
                await here.finish(run.id, 1, DONE)


async def test_a_reaper_holds_off_the_beat_that_it_did_not_see(opened, postgres_dsn):
    """From the moment in which the reaper has judged a lease, a beat waits, and then learns of the loss."""
    clock = FakeClock()
    async with opened(2, clock) as (here, there):
        run = await running(RecordBench(here, here, clock))
        await there.expired(10)
        for how in (60.0, None):
            if how is None:
                run = await running(RecordBench(here, here, clock))
                await here.leave("p1")
            else:
                await clock.advance(how)
            met, go = asyncio.Event(), asyncio.Event()
            real = Session.commit

            async def commit(self, met=met, go=go, real=real):
                if not met.is_set():
                    met.set()
                    await go.wait()
                await real(self)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Session, "commit", commit)
                losing = asyncio.create_task(there.lose(run.id, 1, None))
                await met.wait()
                beating = asyncio.create_task(here.beat("p1", TTL_MS, [(run.id, 1)]))
                await waits_for_lock(postgres_dsn)
                go.set()
                assert await losing is not None
                assert (await beating).lost == {(run.id, 1)}


async def test_times_are_the_databases(opened, sql):
    async with opened(1, clock=None) as (record,):
        before = sql(SQL["now"])[0][0]
        behind = FakeClock(wall_ms=1_000)  # what this process believes is of no account
        record._leases._clock = behind
        run, _ = await record.create(new_run(behind))
        await record.beat("p1", TTL_MS, ())
        started = await record.claim(TENANT, run.id, "p1")
        after = sql(SQL["now"])[0][0]
        assert before <= run.created_at <= started.started_at <= after
        assert before <= run.epoch <= after
        assert before <= started.heartbeat_at <= after
        (fact, *_) = (await record.facts(run_feed(run.id), 0)).facts
        assert before <= fact.at <= after


async def test_an_acquisition_whose_answer_is_lost_is_found_again(opened, monkeypatch):
    clock = FakeClock()
    async with opened(1, clock) as (record,):
        b = RecordBench(record, record, clock)
        first, second = await queued(b), await queued(b)
        await record.beat("p1", TTL_MS, ())
        with answers_lost(monkeypatch, 1):
            assert [run.id for run in await record.acquire("p1", [AGENT], 1)] == [first.id]
        with answers_lost(monkeypatch, 2), pytest.raises(StoreUnavailable):
            await record.acquire("p1", [AGENT], 1)
        (again,) = await record.acquire("p1", [AGENT], 5)
        assert (again.id, again.token, again.owner) == (second.id, 1, "p1")
        assert await record.acquire("p1", [AGENT], 5) == []
        assert (await types(b, second)).count(event.ATTEMPT_STARTED) == 1


async def test_what_was_found_again_is_not_another_attempts(opened, monkeypatch):
    clock = FakeClock()
    async with opened(2, clock) as (here, there):
        run = await queued(RecordBench(here, here, clock), policy=resumable())
        await here.beat("p1", TTL_MS, ())
        with answers_lost(monkeypatch, 2), pytest.raises(StoreUnavailable):
            await here.acquire("p1", [AGENT], 1)
        await here.leave("p1")
        assert (await there.lose(run.id, 1, None)) is not None
        await clock.advance(60)
        await there.beat("p2", TTL_MS, ())
        # Even of a process by the same name.
        await there.beat("p1", TTL_MS, ())
        assert (await there.claim(TENANT, run.id, "p1")).token == 2
        assert await here.acquire("p1", [AGENT], 5) == []
        assert here._unsure == {}


async def test_a_claim_whose_answer_is_lost_is_found_again(opened, monkeypatch):
    clock = FakeClock()
    async with opened(1, clock) as (record,):
        b = RecordBench(record, record, clock)
        run, other = await queued(b, agent="external"), await queued(b, agent="external")
        await record.beat("p1", TTL_MS, ())
        with answers_lost(monkeypatch, 1):
            assert (await record.claim(TENANT, run.id, "p1")).token == 1
        with pytest.raises(RunNotFree):
            await record.claim(TENANT, run.id, "p1")
        with answers_lost(monkeypatch, 2), pytest.raises(StoreUnavailable):
            await record.claim(TENANT, other.id, "p1")
        assert await record.acquire("p1", [AGENT], 5) == []
        assert (await record.claim(TENANT, other.id, "p1")).token == 1
        with pytest.raises(RunNotFree):
            await record.claim(TENANT, other.id, "p1")


async def test_an_acquisition_that_was_cancelled_is_found_again(opened, monkeypatch):
    clock = FakeClock()
    async with opened(1, clock) as (record,):
        run = await queued(RecordBench(record, record, clock))
        await record.beat("p1", TTL_MS, ())
        committed = asyncio.Event()
        real = Session.commit

        async def commit(self):
            await real(self)
            committed.set()
            await asyncio.sleep(0.05)

        with monkeypatch.context() as patch:
            patch.setattr(Session, "commit", commit)
            acquiring = asyncio.create_task(record.acquire("p1", [AGENT], 1))
            await committed.wait()
            acquiring.cancel()
            with pytest.raises(asyncio.CancelledError):
                await acquiring
        assert [one.id for one in await record.acquire("p1", [AGENT], 1)] == [run.id]


async def test_everything_else_is_the_same_when_its_answer_is_lost(opened, monkeypatch):
    clock = FakeClock()
    async with opened(1, clock) as (record,):
        b = RecordBench(record, record, clock)
        new = new_run(clock)
        with answers_lost(monkeypatch, 1):
            run, _ = await record.create(new)
        assert await types(b, run) == [event.RUN_QUEUED]
        with answers_lost(monkeypatch, 1):
            await record.beat("p1", TTL_MS, ())
        run = await record.claim(TENANT, run.id, "p1")
        with answers_lost(monkeypatch, 1):
            one = await asked(b, run)
        assert await record.interrupts(TENANT, run.id) == [one]
        with answers_lost(monkeypatch, 1):
            decided = await record.decide(TENANT, run.id, one.id, b'{"approved":true}', "ann")
        assert await record.interrupts(TENANT, run.id, open_only=False) == [decided]
        with answers_lost(monkeypatch, 1):
            ended = await record.finish(run.id, 1, DONE)
        assert ended.result == DONE.result
        assert len(await types(b, run)) == 6
        with answers_lost(monkeypatch, 1), pytest.raises(StoreUnavailable):
            await record.note(TENANT, run.id, 1, "tool_called", "agent", b"{}")
        assert len(await record.audit(TENANT, run.id)) == 1
        entry = (event.published(run.id, 1, 1, "step_done", {}, 0), 3)
        with answers_lost(monkeypatch, 1):
            await record.append(run_feed(run.id), [entry], None)
        assert await record.read(run_feed(run.id), None, 5) == [entry]


async def test_lapsing_waits_for_nobody(opened, postgres_dsn):
    clock = FakeClock()
    async with opened(1, clock) as (record,):
        b = RecordBench(record, record, clock)
        runs = [await running(b) for _ in range(2)]
        for run in runs:
            await asked(b, run, within=1_000)
        await clock.advance(1)
        with psycopg.connect(postgres_dsn) as other:
            other.execute("SELECT 1 FROM playhead.run WHERE id = %s FOR UPDATE", (runs[0].id,))
            assert await record.lapse(10) == [runs[1].id]
        assert await record.lapse(10) == [runs[0].id]


async def test_pruners_of_many_processes_count_each_fact_once(opened, sql):
    clock = FakeClock()
    async with opened(3, clock) as records:
        b = RecordBench(records[0], records[0], clock)
        for run in [await queued(b) for _ in range(20)]:
            await records[0].settle(run_feed(run.id), run.epoch, 1)
        await clock.advance(10)
        assert sum(await asyncio.gather(*(record.prune(clock.wall_ms()) for record in records))) == 20


async def test_pruning_waits_for_nobody(opened, postgres_dsn):
    clock = FakeClock()
    async with opened(1, clock) as (record,):
        b = RecordBench(record, record, clock)
        runs = [await queued(b) for _ in range(3)]
        for run in runs:
            await record.settle(run_feed(run.id), run.epoch, 1)
        await clock.advance(10)
        with psycopg.connect(postgres_dsn) as other:
            other.execute("SELECT 1 FROM playhead.fact WHERE feed = %s FOR UPDATE", (run_feed(runs[0].id).key,))
            assert await record.prune(clock.wall_ms()) == 2
        assert await record.prune(clock.wall_ms()) == 1


async def test_processes_that_are_long_gone_are_forgotten(opened, sql):
    clock = FakeClock()
    async with opened(1, clock) as (record,):
        await running(RecordBench(record, record, clock), "owner")
        await record.beat("gone", TTL_MS, ())
        await clock.advance(100)
        await record.beat("fresh", TTL_MS, ())
        await record.prune(clock.wall_ms() - 50_000)
        assert sorted(sql("SELECT process FROM playhead.process")) == [("fresh",), ("owner",)]
        await record.expired(10)
        assert record._leases._seen.keys() == {"fresh", "owner"}


async def test_the_outbox_is_looked_through_to_its_end(opened, sql):
    clock = FakeClock()
    async with opened(1, clock) as (record,):
        b = RecordBench(record, record, clock)
        first = await queued(b)
        # One feed with more facts than one look takes.
        sql(
            "INSERT INTO playhead.fact (feed, rev, tenant, type, status, token, at, body)"
            " SELECT feed, n, tenant, type, status, token, at, body FROM playhead.fact, generate_series(2, 2500) n"
        )
        second = await queued(b)
        assert await record.outbox(10) == [run_feed(first.id), run_feed(second.id)]
        assert await record.outbox(1) == [run_feed(first.id)]


async def test_beats_of_another_loop_are_answered_while_ours_stands_still(opened):
    clock = FakeClock()
    async with opened(1, clock) as (record,):
        run = await running(RecordBench(record, record, clock))
        found = []
        thread = threading.Thread(
            target=lambda: found.append(asyncio.run(record.beat("p1", TTL_MS, [(run.id, 1), (run.id, 2)])))
        )
        thread.start()
        thread.join(30)  # this loop stands still
        assert found[0].lost == {(run.id, 2)}


async def test_nothing_is_held_while_nothing_is_asked(opened, sql):
    clock = FakeClock()
    async with opened(2, clock) as records:
        await running(RecordBench(records[0], records[0], clock))
        busy = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'playhead' AND state <> 'idle'"
        await eventually(lambda: sql(busy) == [(0,)])


async def test_an_archived_event_that_cannot_be_read_is_told_as_such(opened, sql, caplog):
    clock = FakeClock()
    async with opened(1, clock) as (record,):
        feed = run_feed((await queued(RecordBench(record, record, clock))).id)
        await record.append(feed, [(event.published(feed.id, 1, n, "step_done", {}, 0), n) for n in (1, 2)], None)
        sql("UPDATE playhead.archive SET body = '{broken' WHERE version = 1")
        found = await record.read(feed, None, 10)
        assert [one.type for one, _ in found] == [event.UNREADABLE, "step_done"]
        assert record.unreadable == 1
        assert "cannot be read" in caplog.text


async def test_order_and_names_do_not_depend_on_a_language(sql):
    odd = sql(
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = 'playhead' AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'"
        " AND table_name <> 'schema_step'"
    )
    assert odd == []
