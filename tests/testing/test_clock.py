"""The clock of the tests, and the real one."""

import asyncio
import threading
import time

import pytest

from playhead.runtime.clock import SystemClock
from playhead.testing.check import eventually
from playhead.testing.clock import FakeClock

pytestmark = pytest.mark.anyio


async def test_time_stands_still():
    clock = FakeClock(wall_ms=1_000)
    before = clock.wall_ms(), clock.steady()
    await asyncio.sleep(0.01)
    assert (clock.wall_ms(), clock.steady()) == before == (1_000, 0.0)


async def test_both_times_advance_and_only_one_steps():
    clock = FakeClock(wall_ms=1_000)
    await clock.advance(2.5)
    assert (clock.wall_ms(), clock.steady()) == (3_500, 2.5)
    clock.step_wall(-10)
    assert (clock.wall_ms(), clock.steady()) == (-6_500, 2.5)


async def test_milliseconds_add_up_exactly():
    clock = FakeClock()
    start = clock.wall_ms()
    for i in range(1, 2_000):
        await clock.advance(0.001) if i % 50 == 0 else setattr(clock, "_steady", clock.steady() + 0.001)
        assert clock.wall_ms() == start + i


async def test_sleepers_wake_in_order_each_at_its_time():
    clock = FakeClock()
    woken = []

    async def sleep(*times):
        for seconds in times:
            await clock.sleep(seconds)
            woken.append((seconds, clock.steady()))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleep(3))
        group.create_task(sleep(1, 1.5))
        group.create_task(sleep(0))
        await clock.advance(0.5)
        assert woken == [(0, 0.0)]
        await clock.advance(10)
    assert woken == [(0, 0.0), (1, 1.0), (1.5, 2.5), (3, 3.0)]
    assert clock.steady() == 10.5


async def test_a_cancelled_sleeper_is_forgotten():
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(1))
    await asyncio.sleep(0)
    task.cancel()
    await clock.advance(2)
    assert task.cancelled()


async def test_sleepers_in_other_threads_wake_too():
    clock = FakeClock()
    woken = []

    async def sleep():
        await clock.sleep(1)
        woken.append(clock.steady())
        await clock.sleep(1)
        woken.append(clock.steady())

    thread = threading.Thread(target=asyncio.run, args=(sleep(),))
    thread.start()
    await eventually(lambda: clock._sleepers)
    await clock.advance(5)
    await asyncio.to_thread(thread.join, 10)
    assert woken == [1.0, 2.0]


async def test_chance_is_a_matter_of_the_seed():
    first, second, other = FakeClock(seed=1), FakeClock(seed=1), FakeClock(seed=2)
    assert [first.random(6) for _ in range(3)] == [second.random(6) for _ in range(3)]
    assert first.random(6) != other.random(6)


async def test_the_real_clock_is_this_machines():
    clock = SystemClock()
    assert abs(clock.wall_ms() - time.time() * 1000) < 5_000
    before = clock.steady()
    await clock.sleep(0.001)
    assert clock.steady() > before
    assert len(clock.random(6)) == 6
    assert clock.random(16) != clock.random(16)
