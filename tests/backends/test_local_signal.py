"""The signal within one process: several loops in several threads, and loops that are gone."""

import asyncio
import threading

import pytest

from playhead.backends.local_signal import LocalSignal
from playhead.core.ids import run_feed
from playhead.core.transition import Marks
from playhead.interfaces import Hint
from playhead.testing.check import eventually

ONE, TWO = run_feed("one"), run_feed("two")

pytestmark = pytest.mark.anyio


def hint(feed, position):
    return Hint(feed, Marks(1, 0, 0, False, position, "0" * 12))


class Ear:
    def __init__(self):
        self.batches = []
        self.threads = set()

    def on_hints(self, hints):
        self.batches.append([(one.feed, one.marks.position) for one in hints])
        self.threads.add(threading.get_ident())

    def on_gap(self, feed): ...


class OtherLoop:
    """An event loop in a thread of its own."""

    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        return self

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    def __exit__(self, *_):
        if not self.loop.is_closed():
            self.close()

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class CountingLoop:
    """Passes everything on to a loop and counts the calls that a signal makes into it."""

    def __init__(self, loop):
        self.loop, self.calls = loop, 0

    def call_soon_threadsafe(self, *args):
        self.calls += 1
        return self.loop.call_soon_threadsafe(*args)


async def test_each_listener_hears_in_its_own_loop():
    signal = LocalSignal()
    with OtherLoop() as first, OtherLoop() as second:
        ears = [Ear(), Ear(), Ear()]
        await signal.add(ONE, ears[0])
        first.run(signal.add(ONE, ears[1]))
        second.run(signal.add(ONE, ears[2]))
        for i in range(100):
            signal.notify([hint(ONE, i)])
        await eventually(lambda: all(len(ear.batches) == 100 for ear in ears))
        assert all(ear.batches == [[(ONE, i)] for i in range(100)] for ear in ears)
        assert [ear.threads for ear in ears] == [{threading.get_ident()}, {first.thread.ident}, {second.thread.ident}]


async def test_writers_in_many_threads_keep_their_order():
    signal = LocalSignal()
    ear = Ear()
    await signal.add(ONE, ear)
    await signal.add(TWO, ear)

    def write(feed):
        for i in range(300):
            signal.notify([hint(feed, i)])

    await asyncio.gather(asyncio.to_thread(write, ONE), asyncio.to_thread(write, TWO))
    await eventually(lambda: len(ear.batches) == 600)
    for feed in (ONE, TWO):
        assert [one for batch in ear.batches for one in batch if one[0] == feed] == [(feed, i) for i in range(300)]


async def test_a_batch_is_one_call_into_a_loop(monkeypatch):
    signal = LocalSignal()
    counting = CountingLoop(asyncio.get_running_loop())
    ears = [Ear() for _ in range(20)]
    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "get_running_loop", lambda: counting)
        for ear in ears:
            await signal.add(ONE, ear)
            await signal.add(TWO, ear)
    await asyncio.to_thread(signal.notify, [hint(ONE, 1), hint(TWO, 2), hint(ONE, 3)])
    await eventually(lambda: all(ear.batches for ear in ears))
    assert counting.calls == 1
    assert all(ear.batches == [[(ONE, 1), (TWO, 2), (ONE, 3)]] for ear in ears)


async def test_nobody_is_called_from_within_notify():
    signal = LocalSignal()
    ear = Ear()
    await signal.add(ONE, ear)
    signal.notify([hint(ONE, 1)])
    assert ear.batches == []
    await eventually(lambda: ear.batches)


async def test_who_leaves_before_the_delivery_hears_nothing():
    signal = LocalSignal()
    ear = Ear()
    await signal.add(ONE, ear)
    signal.notify([hint(ONE, 1)])
    await signal.remove(ONE, ear)
    await asyncio.sleep(0.01)
    assert ear.batches == []


async def test_a_loop_that_is_gone_is_dropped():
    signal = LocalSignal()
    here, there = Ear(), Ear()
    with OtherLoop() as other:
        other.run(signal.add(ONE, there))
        other.run(signal.add(TWO, there))
        await signal.add(ONE, here)
        other.close()
        signal.notify([hint(TWO, 1), hint(ONE, 2)])
        signal.notify([hint(ONE, 3)])
    await eventually(lambda: len(here.batches) == 2)
    assert here.batches == [[(ONE, 2)], [(ONE, 3)]]
    assert there.batches == []
    await signal.remove(ONE, here)
    assert signal._listeners == {}


async def test_a_faulty_listener_harms_no_other():
    signal = LocalSignal()

    class Faulty(Ear):
        def on_hints(self, hints):
            raise RuntimeError("broken")

    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    ear = Ear()
    await signal.add(ONE, Faulty())
    await signal.add(ONE, ear)
    signal.notify([hint(ONE, 1)])
    await eventually(lambda: ear.batches)
    assert told == ["broken"]


async def test_a_gap_is_told_in_its_turn_and_to_whom_it_concerns():
    signal = LocalSignal()
    told: list = []

    class Careful(Ear):
        def on_hints(self, hints):
            told.extend(one.marks.position for one in hints)

        def on_gap(self, feed):
            told.append(feed)

    class Faulty(Ear):
        def on_gap(self, feed):
            raise RuntimeError("broken")

    faults = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(str(context["exception"])))
    await signal.add(ONE, Faulty())
    await signal.add(ONE, Careful())
    signal.notify([hint(ONE, 1)])
    signal.gap([TWO, ONE])
    signal.notify([hint(ONE, 2)])
    await eventually(lambda: len(told) == 3)
    assert (told, faults) == ([1, ONE, 2], ["broken"])
    heard = []
    with OtherLoop() as other:

        class There(Ear):
            def on_gap(self, feed):
                heard.append((feed, threading.get_ident()))

        other.run(signal.add(TWO, There()))
        signal.gap([TWO])
        await eventually(lambda: heard)
    assert heard[0][0] == TWO
    assert heard[0][1] != threading.get_ident()
