"""What the memory backend has beyond its ports: going back in time, and use from the loops of several threads."""

import asyncio

import pytest

from playhead.backends.memory import MemoryLive, MemoryRecord
from playhead.core import replay
from playhead.core.retention import Retention
from playhead.core.snapshot import State
from playhead.core.transition import NeedsRebuild
from playhead.testing.check import LiveBench, RecordBench
from playhead.testing.clock import FakeClock
from playhead.testing.ports.given import applied, facts, live, new_run, publish, queued, running, view

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def bench(clock):
    store = MemoryLive(clock, Retention(), 3_600.0, 86_400.0)
    return LiveBench(store, store, store.signal, clock)


async def test_a_store_goes_back_and_stays_apart_from_the_copy(bench):
    scribe = await live(bench)
    await publish(bench, scribe, 2, state=State(title="kept"))
    await bench.text.append(scribe.text(0, b"kept"))
    before, text = await view(bench, scribe.feed), await bench.text.read_text(scribe.feed)
    earlier = bench.store.copy()
    for _ in range(2):
        ahead = scribe.write(1, state=State(title="lost"))
        tip = applied(await bench.store.publish(ahead)).cursor
        await bench.text.append(scribe.text(4, b" lost"))
        other = await live(bench)
        bench.store.restore(earlier)
        assert await view(bench, scribe.feed) == before
        assert await bench.text.read_text(scribe.feed) == text
        assert await bench.store.read(other.feed) is None
        assert replay.refusal(tip, before.marks, ()) is replay.Reason.AHEAD
        guard = scribe.guard(acked_n=scribe.n)
        assert await bench.store.publish(scribe.write(1, guard=guard)) == NeedsRebuild(scribe.epoch)


async def test_the_tip_of_the_lost_time_is_foreign(bench):
    scribe = await live(bench)
    earlier = bench.store.copy()
    write = scribe.write(1)
    tip = applied(await bench.store.publish(write)).cursor
    bench.store.restore(earlier)
    applied(await bench.store.publish(scribe.again(write)))
    seen = await view(bench, scribe.feed, after=tip.position)
    assert replay.refusal(tip, seen.marks, seen.entries) is replay.Reason.FOREIGN


async def test_a_store_loses_everything(bench):
    scribe = await live(bench)
    bench.store.lose()
    assert await bench.store.read(scribe.feed) is None
    assert await bench.store.stand([scribe.feed]) == {}


async def test_loops_of_several_threads_use_one_record(clock):
    store = MemoryRecord(clock)
    bench = RecordBench(store, store, clock)
    run = await running(bench)

    async def beat():
        for _ in range(100):
            assert (await store.beat("p1", 10_000, [(run.id, 1)])).lost == frozenset()

    async def create():
        for _ in range(100):
            await store.create(new_run(clock, dedupe=f"k{clock.random(1)[0] % 8}"))

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, work()) for work in (beat, create, create, create)))
    runs = await store.list_runs("acme", limit=100)
    assert len(runs) == 9
    for one in runs:
        await facts(bench, one)
    assert (await queued(bench)).seq == 10
