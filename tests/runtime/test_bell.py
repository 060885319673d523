"""The bell: a run that one process queues is taken by another one's worker at once."""

from __future__ import annotations

import asyncio

import pytest

import playhead
from playhead.backends.local_signal import LocalSignal
from playhead.core.ids import Feed
from playhead.errors import StoreUnavailable
from playhead.interfaces import Listener
from playhead.runtime import bell
from playhead.runtime.bell import QUEUE, Bell
from playhead.testing.clock import FakeClock
from tests.runtime.whole import ended, engine, eventually, start

pytestmark = pytest.mark.anyio

SLOW = {"reconcile": 1_000.0}  # nobody looks by himself


@playhead.agent
async def quick(run: playhead.RunContext) -> str:
    return "done"


async def test_a_run_that_another_process_queued_is_taken_without_a_look() -> None:
    async with engine([quick], **SLOW) as one:
        async with engine([quick], ports=one.ports, worker=False, **SLOW) as other:
            await eventually(lambda: one.ports.signal._listeners.get(QUEUE))  # type: ignore[attr-defined]  # of the local one
            run = await ended(one, await start(other, "quick"))
    assert run.result == b'"done"'


class Away(LocalSignal):
    """A signal that is away the first time, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.rung, self.added = 0, 0
        self.held = asyncio.Event()

    async def add(self, feed: Feed, listener: Listener) -> None:
        self.added += 1
        if self.added == 1:
            raise StoreUnavailable
        await super().add(feed, listener)

    async def ring(self, feed: Feed) -> None:
        self.rung += 1
        await self.held.wait()
        if self.rung == 2:
            raise StoreUnavailable
        await super().ring(feed)


async def test_a_signal_that_is_away_is_tried_again_and_asked_for_one_call_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bell, "_REST", 0.0)
    clock, signal, heard = FakeClock(), Away(), list[str]()
    one = Bell(signal, clock, lambda: heard.append("look"))
    listening = asyncio.create_task(one.listen())
    await eventually(lambda: signal.added)
    await clock.advance(1.0)
    await listening
    for _ in range(5):
        one.ring()
    await eventually(lambda: signal.rung)
    one.ring()
    signal.held.set()
    await eventually(lambda: signal.rung == 2 and heard)  # the second was refused, and nobody minds
    one.ring()
    await eventually(lambda: signal.rung == 3 and len(heard) >= 2)
    await one.close()
    one.ring()
    await eventually(lambda: signal.rung == 4)
    assert len(heard) == 2


async def test_looks_are_joined() -> None:
    """What rings while it rests is answered by one look, and by one at least."""
    signal, looks = LocalSignal(), list[int]()
    one = Bell(signal, FakeClock(), lambda: looks.append(1))
    await one.listen()
    for _ in range(100):
        await signal.ring(QUEUE)
    await eventually(lambda: len(looks) >= 2)
    assert len(looks) == 2
    await one.close()
