"""The engine's own life: its drain is one, whoever asks for it, and no step of it keeps the next from its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

import playhead
from playhead.backends.memory import MemoryLive, MemoryRecord
from playhead.core.retention import Retention
from playhead.core.run import Status
from playhead.errors import PlayheadError, StoreUnavailable
from playhead.runtime.clock import SystemClock
from playhead.runtime.engine import Engine
from playhead.runtime.setup import EngineOptions, Ports
from tests.runtime.whole import QUICK, Faulty, engine, eventually, start

pytestmark = pytest.mark.anyio


def holding() -> Sequence[playhead.Agent]:
    @playhead.agent
    async def holder(run: playhead.RunContext) -> None:
        await run.event("held")
        await asyncio.sleep(3_600)

    return [holder]


async def test_a_second_drain_returns_when_the_first_is_done() -> None:
    """Whoever closes the stores after it closes none under the runs that are being recorded."""
    async with engine(holding(), drain_grace=0.3) as e:
        run_id = await start(e, "holder")
        await eventually(lambda: e.attempts.all())
        first = asyncio.create_task(e.drain())
        await eventually(lambda: e.draining)
        await e.drain()
        assert (await e.run("acme", run_id)).status is Status.INTERRUPTED
        assert first.done()
        assert e.heartbeat._thread is not None
        assert not e.heartbeat._thread.is_alive()


async def test_a_drain_goes_on_when_whoever_asked_for_it_is_cancelled() -> None:
    async with engine(holding()) as e:
        run_id = await start(e, "holder")
        await eventually(lambda: e.attempts.all())
        asked = asyncio.create_task(e.drain())
        await eventually(lambda: e.draining)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await e.drain()
        assert (await e.run("acme", run_id)).status is Status.INTERRUPTED


@pytest.mark.parametrize("broken", ["hub", "claims", "dispatcher", "disconnect"])
async def test_a_step_of_the_drain_that_fails_keeps_no_other_from_its_turn(
    broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with engine(holding()) as e:
        run_id = await start(e, "holder")
        await eventually(lambda: e.attempts.all())
        step = "close" if broken == "disconnect" else "drain"
        Faulty(getattr(e, broken), step, RuntimeError("?"))
        await e.drain()
        assert (await e.run("acme", run_id)).status is Status.INTERRUPTED
        assert e.heartbeat._thread is not None
        assert not e.heartbeat._thread.is_alive()
        assert "a step of the drain failed" in caplog.text
        await e.hub.close()


async def test_what_is_committed_is_answered_also_when_it_cannot_be_shown(caplog: pytest.LogCaptureFixture) -> None:
    async with engine(holding()) as e:
        run_id = await start(e, "holder")
        await eventually(lambda: e.attempts.all())
        Faulty(e.projector, "bring", *[PlayheadError("of a kind that nobody expects")] * 2)
        cancelled = await e.cancel("acme", run_id, by="ann")
        assert cancelled.cancel_requested_at is not None
        assert "cannot be projected" in caplog.text


async def test_a_patient_start_begins_when_the_record_answers() -> None:
    clock = SystemClock()
    record, live = MemoryRecord(clock), MemoryLive(clock, Retention(), 3_600.0, 86_400.0)
    ports = Ports(record, record, live, live, live.signal)
    beats = Faulty(record, "beat", always=StoreUnavailable())
    made = Engine(ports, clock, holding(), options=EngineOptions(**QUICK))
    with pytest.raises(StoreUnavailable):
        await made.start()
    await made.start(patient=True)
    assert not made.ready
    await eventually(lambda: beats.calls > 3)
    assert not made.ready
    beats.always = None
    await eventually(lambda: made.ready)
    run_id = await start(made, "holder")
    await eventually(lambda: made.attempts.of(run_id))
    await made.drain()


async def test_a_drain_ends_a_start_that_waits() -> None:
    clock = SystemClock()
    record, live = MemoryRecord(clock), MemoryLive(clock, Retention(), 3_600.0, 86_400.0)
    beats = Faulty(record, "beat", always=StoreUnavailable())
    made = Engine(Ports(record, record, live, live, live.signal), clock, [], options=EngineOptions(**QUICK))
    await made.start(patient=True)
    await eventually(lambda: beats.calls > 1)
    await made.drain()
    tried = beats.calls
    await asyncio.sleep(0.2)
    assert (made.ready, beats.calls) == (False, tried)


async def test_a_process_without_a_worker_takes_no_runs() -> None:
    async with engine(holding(), worker=False) as front:
        run_id = await start(front, "holder")
        async with engine(holding(), ports=front.ports) as back:
            await eventually(lambda: back.attempts.of(run_id))
        assert front.attempts.of(run_id) is None
