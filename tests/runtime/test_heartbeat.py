"""The heartbeat's thread: it beats whatever happens, and no more once it is stopped."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from playhead.backends.memory import MemoryRecord
from playhead.errors import PlayheadError, StoreUnavailable
from playhead.interfaces import Beat
from playhead.runtime.clock import SystemClock
from playhead.runtime.heartbeat import Heartbeat
from tests.runtime.whole import Faulty, eventually

pytestmark = pytest.mark.anyio


class Bench:
    def __init__(self, every: float = 0.01, **options: Any) -> None:
        self.beats: list[Beat] = []
        self.silences = 0
        self.record = MemoryRecord(SystemClock())
        self.heartbeat = Heartbeat(
            self.record,
            "p1",
            SystemClock(),
            on_beat=self.beats.append,
            on_silence=self.silent,
            every=every,
            **options,
        )

    def silent(self) -> None:
        self.silences += 1

    @property
    def alive(self) -> bool:
        thread = self.heartbeat._thread
        return thread is not None and thread.is_alive()


async def test_a_beat_that_fails_in_whatever_way_is_followed_by_the_next(caplog: pytest.LogCaptureFixture) -> None:
    b = Bench()
    await b.heartbeat.start()
    beat = Faulty(b.record, "beat", RuntimeError("?"), PlayheadError("?"), StoreUnavailable(), ValueError("?"))
    before = len(b.beats)
    await eventually(lambda: len(b.beats) > before + 2)
    assert beat.calls > 4
    assert b.alive
    assert sum(record.levelname == "ERROR" for record in caplog.records) == 3
    await b.heartbeat.stop()
    assert not b.alive


async def test_beats_that_only_fail_are_silence_too() -> None:
    b = Bench(lost_after=0.05)
    await b.heartbeat.start()
    Faulty(b.record, "beat", always=RuntimeError("?"))
    await eventually(lambda: b.silences)
    await b.heartbeat.stop()


async def test_a_heartbeat_that_is_stopped_at_once_beats_no_more() -> None:
    for _ in range(20):
        b = Bench()
        await b.heartbeat.start()
        async with asyncio.timeout(4):  # the thread is not given up on
            await b.heartbeat.stop()
        assert not b.alive
        assert b.record._leases == {}


async def test_a_heartbeat_is_stopped_though_the_loop_has_no_thread_to_spare() -> None:
    b, loop, let_go = Bench(), asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    hung = loop.run_in_executor(None, let_go.wait)
    try:
        await b.heartbeat.start()
        async with asyncio.timeout(4):
            await b.heartbeat.stop()
        assert not b.alive
        assert b.record._leases == {}
    finally:
        let_go.set()
        await hung
