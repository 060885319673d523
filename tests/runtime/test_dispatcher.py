"""Listeners: each fact at least once, and no fault of one fact, or of the record, is felt by others."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

import playhead
from playhead.backends.memory import MemoryRecord
from playhead.core.event import RUN_QUEUED, Fact
from playhead.core.ids import uuid7
from playhead.core.run import NewRun, Policy
from playhead.errors import PlayheadError, StoreFull
from playhead.runtime import dispatcher as module
from playhead.runtime.clock import SystemClock
from playhead.runtime.dispatcher import Dispatcher
from playhead.testing.clock import FakeClock
from tests.runtime.whole import Faulty, eventually, plant

pytestmark = pytest.mark.anyio


class Bench:
    def __init__(self) -> None:
        self.clock = SystemClock()
        self.record = MemoryRecord(self.clock)
        self.heard: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.dispatcher = Dispatcher(self.record, self.clock, {RUN_QUEUED: [self.listen]}, "here", every=0.01)

    async def listen(self, event: dict[str, Any]) -> None:
        self.heard.append(event["run_id"])
        await self.gate.wait()

    async def run(self) -> str:
        new = NewRun(uuid7(self.clock.wall_ms(), self.clock.random(10)), "acme", "echo", b"{}", Policy(), {})
        run, _ = await self.record.create(new)
        return run.id

    async def unheard(self) -> list[Fact]:
        return await self.record.unheard([RUN_QUEUED], 10_000, "here")

    async def idle(self) -> None:
        await eventually(lambda: not self.dispatcher._telling)


async def test_a_fact_that_cannot_be_read_holds_nobody_up_and_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    b = Bench()
    bad, good = await b.run(), await b.run()
    file = b.record._files[bad]
    order, fact = file.facts[1]
    file.facts[1] = (order, replace(fact, event=replace(fact.event, body=b'{"id":')))
    for _ in range(3):
        await b.dispatcher.round()
        await b.idle()
    assert b.heard == [good]
    assert await b.unheard() == []
    assert caplog.text.count("cannot be read") == 1


@pytest.mark.parametrize("error", [StoreFull(), PlayheadError("of another kind"), RuntimeError("?")])
async def test_what_cannot_be_noted_is_not_told_again_and_again(error: Exception) -> None:
    """A full disk can be read: the fact stays unheard there for hours, and whoever heard it would hear it for hours."""
    b = Bench()
    run = await b.run()
    noting = Faulty(b.record, "heard", *[error] * 5)
    for _ in range(7):
        await b.dispatcher.round()
        await b.idle()
    assert (b.heard, noting.calls) == ([run], 6)
    assert await b.unheard() == []
    assert not b.dispatcher._told


async def test_listeners_that_hang_hold_up_no_more_than_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUSY", 5)
    monkeypatch.setattr(module, "_MOST", 2)
    b = Bench()
    b.gate.clear()
    runs = [await b.run() for _ in range(8)]
    for _ in range(8):
        await b.dispatcher.round()
        await asyncio.sleep(0)
    assert b.heard == runs[:5]
    b.gate.set()
    await b.idle()
    for _ in range(2):
        await b.dispatcher.round()
        await b.idle()
    assert b.heard == runs


async def test_a_drain_leaves_no_listener_behind() -> None:
    b = Bench()
    b.gate.clear()
    await b.run()
    await b.dispatcher.drain(0.05)
    assert not b.dispatcher._telling
    assert len(await b.unheard()) == 1  # told again after the next start


async def test_a_wake_up_that_comes_during_a_round_is_not_lost() -> None:
    b = Bench()
    b.dispatcher._every = 3_600.0
    unheard = b.record.unheard

    async def late(*args: Any) -> Any:
        found = await unheard(*args)
        if not b.heard and not found:
            await b.run()  # after the look, before the wait
            b.dispatcher.wake()
        return found

    plant(b.record, "unheard", late)
    loop = asyncio.create_task(b.dispatcher.keep_dispatching())
    await eventually(lambda: b.heard)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)


async def test_two_processes_tell_each_fact_once() -> None:
    b = Bench()
    other = Dispatcher(b.record, b.clock, {RUN_QUEUED: [b.listen]}, "there")
    runs = [await b.run() for _ in range(20)]
    b.gate.clear()
    await asyncio.gather(b.dispatcher.round(), other.round())
    await asyncio.sleep(0)
    for _ in range(3):
        await b.dispatcher.round()
        await other.round()
        await asyncio.sleep(0)
    assert sorted(b.heard) == sorted(runs)
    b.gate.set()
    await eventually(lambda: not b.dispatcher._telling and not other._telling)
    assert await b.unheard() == []


async def test_what_a_process_that_died_was_telling_is_told_by_another() -> None:
    b = Bench()
    clock = FakeClock()
    b.clock = b.record._clock = b.dispatcher._clock = clock  # type: ignore[assignment]  # in place of the system's
    other = Dispatcher(b.record, clock, {RUN_QUEUED: [b.listen]}, "there")
    run = await b.run()
    b.gate.clear()
    await b.dispatcher.round()
    await clock.advance(9.0)
    await b.dispatcher.round()  # it lives, and prolongs what it holds
    await clock.advance(9.0)
    await other.round()
    await asyncio.sleep(0)
    assert b.heard == [run]
    await clock.advance(2.0)
    await other.round()
    await eventually(lambda: b.heard == [run, run])


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("raised", [asyncio.CancelledError, SystemExit])
async def test_what_a_listener_raises_is_its_own(
    raised: type[BaseException], plain: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told three times, as after any error, and the process goes on."""
    monkeypatch.setattr(SystemClock, "sleep", lambda self, seconds: asyncio.sleep(0))
    b = Bench()

    @playhead.on(RUN_QUEUED)
    async def hear(event: dict[str, Any]) -> None:
        b.heard.append(event["run_id"])
        raise raised

    @playhead.on(RUN_QUEUED)
    def hear_plainly(event: dict[str, Any]) -> None:
        b.heard.append(event["run_id"])
        raise raised

    b.dispatcher._listeners = {RUN_QUEUED: [hear_plainly if plain else hear]}
    run_id = await b.run()
    for _ in range(2):
        await b.dispatcher.round()
        await b.idle()
    assert b.heard == [run_id] * 3
    assert not await b.unheard()
    assert caplog.text.count("a listener for run_queued failed") == 3


async def test_a_plain_listener_that_hangs_is_left_behind() -> None:
    b, gate, begun = Bench(), threading.Event(), threading.Event()

    @playhead.on(RUN_QUEUED)
    def hang(event: dict[str, Any]) -> None:
        begun.set()
        gate.wait(60)

    b.dispatcher._listeners = {RUN_QUEUED: [hang]}
    await b.run()
    await b.dispatcher.round()
    await asyncio.to_thread(begun.wait)
    await b.dispatcher.drain(0.05)
    assert not b.dispatcher._telling
    assert len(await b.unheard()) == 1
    gate.set()
