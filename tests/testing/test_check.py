"""The suites as their users run them: free of pytest, and telling what failed."""

from contextlib import asynccontextmanager

import pytest

from playhead.backends.local_signal import LocalSignal
from playhead.backends.memory import MemoryLive, MemoryRecord
from playhead.errors import NotFound, PlayheadError
from playhead.testing.check import LiveBench, RecordBench, refused
from playhead.testing.check_archive import check_archive
from playhead.testing.check_projection_store import check_projection_store
from playhead.testing.check_run_store import check_run_store
from playhead.testing.check_signal import check_signal
from playhead.testing.check_text_channel import check_text_channel
from playhead.testing.clock import FakeClock

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def record():
    clock = FakeClock()
    store = MemoryRecord(clock)
    yield RecordBench(store, store, clock)


@asynccontextmanager
async def archive():
    yield MemoryRecord(FakeClock())


@asynccontextmanager
async def live(**options):
    clock = FakeClock()
    store = MemoryLive(clock, **options)
    yield LiveBench(store, store, store.signal, clock)


@asynccontextmanager
async def signal():
    yield LocalSignal()


@pytest.mark.parametrize(
    ("check", "make"),
    [
        (check_run_store, record),
        (check_archive, archive),
        (check_projection_store, live),
        (check_text_channel, live),
        (check_signal, signal),
    ],
)
async def test_a_suite_reports_what_passed(check, make):
    report = await check(make)
    report.demand()
    assert report.ok
    assert len(report.passed) >= 5


async def test_a_suite_goes_on_after_a_failure_and_tells_it():
    class Deaf(LocalSignal):
        async def add(self, feed, listener):
            raise OSError("no ears")

    @asynccontextmanager
    async def deaf():
        yield Deaf()

    report = await check_signal(deaf)
    assert not report.ok
    assert len(report.failed) == 7
    with pytest.raises(AssertionError, match="signal: 7 checks failed") as caught:
        report.demand()
    assert "no ears" in str(caught.value)
    assert "From the return of `add` on" in str(caught.value)


async def test_a_refusal_is_of_exactly_one_kind():
    with refused(NotFound) as caught:
        raise NotFound("gone")
    assert caught.error.message == "gone"
    with pytest.raises(AssertionError, match="wanted NotFound"), refused(NotFound):
        pass
    with pytest.raises(AssertionError, match="wanted PlayheadError"), refused(PlayheadError):
        raise NotFound
    with pytest.raises(OSError), refused(NotFound):
        raise OSError
