"""Transactions that meet: one is given up for another and done again, and none that is slow is passed over."""

import asyncio
from contextlib import asynccontextmanager, contextmanager

import psycopg
import pytest

from playhead.backends.postgres import PostgresRecord
from playhead.backends.postgres.database import Session
from playhead.core import event
from playhead.core.ids import run_feed
from playhead.core.run import Status
from playhead.errors import StoreUnavailable
from playhead.testing.check import RecordBench, eventually
from playhead.testing.clock import FakeClock
from playhead.testing.ports.given import AGENT, DONE, TENANT, TTL_MS, YES, asked, get, new_run, queued, running, types

pytestmark = pytest.mark.anyio

ALWAYS = 1_000


@pytest.fixture
def opened(postgres_dsn):
    """The records of several processes."""

    @asynccontextmanager
    async def several(count=2):
        clock, made = FakeClock(), []
        try:
            for _ in range(count):
                made.append(
                    await PostgresRecord.open(postgres_dsn, clock=clock, deadline=30.0, wall=lambda _: clock.wall_ms())
                )
            yield [RecordBench(record, record, clock) for record in made]
        finally:
            for record in made:
                await record.close()

    return several


FAILING = """
CREATE SEQUENCE tries;
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('tries') <= {times} THEN RAISE EXCEPTION 'could not serialize' USING ERRCODE = '{state}'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER fail BEFORE INSERT ON playhead.fact FOR EACH STATEMENT EXECUTE FUNCTION fail();
"""


@contextmanager
def given_up(sql, state, times):
    """The server gives up the next transactions that tell a fact. What a sequence counts is not taken back."""
    sql(FAILING.format(state=state, times=times))
    try:
        yield lambda: sql("SELECT last_value FROM tries")[0][0]
    finally:
        sql("DROP TRIGGER fail ON playhead.fact; DROP FUNCTION fail; DROP SEQUENCE tries")


@pytest.mark.row("F43")
@pytest.mark.parametrize("state", ["40001", "40P01"], ids=["serialization", "deadlock"])
async def test_what_the_server_gives_up_is_done_again_and_once(opened, sql, state):
    async with opened(1) as (b,):
        new = new_run(b.clock, dedupe="k1")
        with given_up(sql, state, 1) as tries:
            run, is_new = await b.store.create(new)
            assert (is_new, tries()) == (True, 2)
        assert await types(b, run) == [event.RUN_QUEUED]
        assert (await b.store.create(new_run(b.clock, dedupe="k1")))[0].id == run.id
        await b.store.beat("p1", TTL_MS, ())
        with given_up(sql, state, 1):
            [run] = await b.store.acquire("p1", [AGENT], 5)
        with given_up(sql, state, 1):
            one = await asked(b, run)
        with given_up(sql, state, 1):
            await b.store.decide(TENANT, run.id, one.id, YES, "ann")
        with given_up(sql, state, 1):
            await b.store.finish(run.id, 1, DONE)
        wanted = [event.RUN_QUEUED, event.RUN_STARTED, event.ATTEMPT_STARTED]
        wanted += [event.APPROVAL_REQUIRED, event.APPROVAL_DECIDED, event.RUN_SUCCEEDED]
        assert await types(b, run) == wanted
        assert sql("SELECT count(*) FROM playhead.attempt") == [(1,)]
        assert sql("SELECT count(*) FROM playhead.interrupt") == [(1,)]


@pytest.mark.row("F43")
@pytest.mark.parametrize("state", ["40001", "40P01"], ids=["serialization", "deadlock"])
async def test_what_is_given_up_again_and_again_is_told_and_left_undone(opened, sql, state):
    async with opened(1) as (b,):
        run = await running(b)
        with given_up(sql, state, ALWAYS) as tries:
            for act in (
                lambda: b.store.create(new_run(b.clock, dedupe="k1")),
                lambda: b.store.finish(run.id, 1, DONE),
            ):
                before = tries()
                with pytest.raises(StoreUnavailable):
                    await act()
                assert tries() - before <= 2
        assert await get(b, run) == run
        assert await b.store.find_dedupe(TENANT, "", "k1") is None
        # The same call made later is the first one that counts.
        made, is_new = await b.store.create(new_run(b.clock, dedupe="k1"))
        assert (is_new, await types(b, made)) == (True, [event.RUN_QUEUED])
        assert (await b.store.finish(run.id, 1, DONE)).status is Status.SUCCEEDED


@pytest.mark.row("F43")
async def test_of_two_that_lock_in_another_order_ours_is_done_again(opened, sql, postgres_dsn, monkeypatch):
    """A stranger has the lease and wants the run; our reaper has the run and wants the lease."""
    async with opened(2) as (b, other):
        run = await running(b)
        await other.store.expired(10)
        await b.clock.advance(60)
        has_run, go, tries = asyncio.Event(), asyncio.Event(), []
        real = Session.row

        async def row(self, statement, **values):
            if "FOR SHARE" in statement:
                tries.append(statement)
                has_run.set()
                await go.wait()
            return await real(self, statement, **values)

        monkeypatch.setattr(Session, "row", row)
        async with await psycopg.AsyncConnection.connect(postgres_dsn) as stranger:
            await stranger.execute("SET LOCAL deadlock_timeout = '10min'")  # so that it is ours that is given up
            await stranger.execute("SELECT 1 FROM playhead.process FOR UPDATE")
            losing = asyncio.create_task(other.store.lose(run.id, 1, None))
            await has_run.wait()
            wanting = asyncio.create_task(stranger.execute("SELECT 1 FROM playhead.run FOR UPDATE"))
            await eventually(lambda: sql("SELECT count(*) FROM pg_locks WHERE NOT granted") == [(1,)], 30.0)
            go.set()
            await wanting
            await stranger.commit()
        assert (await losing).status is Status.INTERRUPTED
        assert len(tries) == 2
        assert (await types(b, run)).count(event.RUN_INTERRUPTED) == 1


@asynccontextmanager
async def held_before_its_end(b, call):
    """A call of this record whose transaction has written everything and is not committed, in this block."""
    met, go = asyncio.Event(), asyncio.Event()
    real = Session.commit

    async def commit(self):
        if not met.is_set():
            await self.rows("SELECT 1")  # what it wrote is written
            met.set()
            await go.wait()
        await real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "commit", commit)
        calling = asyncio.create_task(call)
        await met.wait()
        try:
            yield calling
        finally:
            go.set()
            await calling


@pytest.mark.row("F53", "E15")
async def test_a_slower_transaction_with_a_lower_number_is_passed_over_by_nobody(opened, sql):
    """Whoever looks has seen a higher number, and dealt with it, before the lower one is there."""
    async with opened(3) as (slow, fast, onlooker):
        heard = [event.RUN_QUEUED]
        async with held_before_its_end(slow, slow.store.create(new_run(slow.clock))) as creating:
            second = await queued(fast)
            await onlooker.store.beat("p1", TTL_MS, ())
            assert await onlooker.store.outbox(10) == [run_feed(second.id)]
            assert [fact.feed.id for fact in await onlooker.store.unheard(heard, 10, "p1", 60_000)] == [second.id]
            assert [run.id for run in await onlooker.store.list_runs(TENANT)] == [second.id]
            assert [run.id for run in await onlooker.store.acquire("p1", [AGENT], 10)] == [second.id]
            await onlooker.store.settle(run_feed(second.id), second.epoch, 3)
            await onlooker.store.heard([(run_feed(second.id), 1)])
        first, _ = await creating
        assert first.seq < second.seq
        assert sql("SELECT feed FROM playhead.fact ORDER BY id LIMIT 1") == [(run_feed(first.id).key,)]
        assert await onlooker.store.outbox(10) == [run_feed(first.id)]
        assert [fact.feed.id for fact in await onlooker.store.unheard(heard, 10, "p1", 60_000)] == [first.id]
        assert [run.id for run in await onlooker.store.list_runs(TENANT)] == [second.id, first.id]
        assert [run.id for run in await onlooker.store.list_runs(TENANT, before_seq=second.seq)] == [first.id]
        assert [run.id for run in await onlooker.store.acquire("p1", [AGENT], 10)] == [first.id]


@pytest.mark.row("F53", "E15")
async def test_of_one_run_nothing_is_numbered_before_what_came_first_is_there(opened, sql):
    async with opened(3) as (slow, fast, onlooker):
        run = await running(slow)
        asking = slow.store.request_cancel(TENANT, run.id, "ann", None)
        async with held_before_its_end(slow, asking):
            ending = asyncio.create_task(fast.store.finish(run.id, 1, DONE))
            await eventually(lambda: sql("SELECT count(*) FROM pg_locks WHERE NOT granted") == [(1,)], 30.0)
            assert (await onlooker.store.facts(run_feed(run.id), run.rev)).facts == ()
        await ending
        seen = (await onlooker.store.facts(run_feed(run.id), run.rev)).facts
        assert [(fact.rev - run.rev, fact.event.type) for fact in seen] == [
            (1, event.CANCEL_REQUESTED),
            (2, event.RUN_CANCELLED),
        ]
