"""Waiting to be woken: no wake-up is lost, and no cancellation either."""

from __future__ import annotations

import asyncio

import pytest

from playhead.runtime.waiters import Waiters, woken

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancellation_that_comes_with_the_wake_up_is_not_swallowed(turns: int) -> None:
    """However many turns of the loop lie between the two; a loop that swallowed it would never end."""
    event = asyncio.Event()

    async def loop() -> None:
        while True:
            await woken(event, 3_600.0)
            event.clear()

    task = asyncio.create_task(loop())
    await asyncio.sleep(0.01)
    event.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=5.0)
    assert task.cancelled()


async def test_who_is_not_woken_looks_again() -> None:
    await woken(asyncio.Event(), 0.01)


async def test_a_wake_up_reaches_all_of_its_run_and_nobody_else() -> None:
    waiters = Waiters()
    with waiters.listening("a") as one, waiters.listening("a") as other, waiters.listening("b") as stranger:
        waiters.wake("a")
        assert [event.is_set() for event in (one, other, stranger)] == [True, True, False]
        one.clear()
        waiters.wake("a")
        assert one.is_set()
    waiters.wake("a")
    assert not waiters._waiting
