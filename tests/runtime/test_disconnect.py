"""The record is told who watches, once for a run and a process, also when it does not answer at first."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from playhead.core.ids import run_feed
from playhead.errors import StoreUnavailable
from playhead.runtime.disconnect import DisconnectPolicy
from playhead.testing.clock import FakeClock
from tests.runtime.whole import Faulty, Held

pytestmark = pytest.mark.anyio

ONE, TWO = "one", "two"


class Book:
    """What the record is told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, set[str]]] = []

    async def watch(self, process: str, runs: Collection[str]) -> bool:
        return self._note(process, "came", runs)

    async def unwatch(self, process: str, runs: Collection[str]) -> bool:
        return self._note(process, "left", runs)

    def _note(self, process: str, what: str, runs: Collection[str]) -> bool:
        assert process == "p"
        self.told.append((what, set(runs)))
        return True


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.book = Book()
        self.looks = 0
        book: Any = self.book  # what is needed of the port
        self.policy = DisconnectPolicy(book, "p", self.clock, on_left=self.look, retry=0.001)

    async def look(self) -> None:
        self.looks += 1

    async def tell(self) -> list[tuple[str, set[str]]]:
        self.book.told.clear()
        await self.policy.tell()
        return list(self.book.told)

    def came(self, *runs: str) -> None:
        for run in runs:
            self.policy.came(run_feed(run))

    def left(self, *runs: str) -> None:
        for run in runs:
            self.policy.left(run_feed(run))


async def test_the_record_is_told_of_what_changed_in_one_act_each() -> None:
    b = Bench()
    assert await b.tell() == []
    b.came(ONE, TWO)
    assert await b.tell() == [("came", {ONE, TWO})]
    assert (await b.tell(), b.looks) == ([], 0)
    b.left(ONE)
    b.came("three")
    assert await b.tell() == [("came", {"three"}), ("left", {ONE})]
    assert b.looks == 1  # somebody may be deserted now


async def test_only_what_is_so_at_last_is_told() -> None:
    b = Bench()
    b.came(ONE, TWO)
    b.left(ONE)
    assert await b.tell() == [("came", {TWO}), ("left", {ONE})]  # somebody watched it
    b.left(TWO)
    b.came(TWO)
    assert await b.tell() == [("came", {TWO})]


async def test_a_record_that_is_away_is_told_later_and_only_what_is_so_then() -> None:
    b = Bench()
    b.came(ONE, TWO)
    away = Faulty(b.book, "watch", StoreUnavailable(), StoreUnavailable())
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await b.tell()
    b.left(TWO)
    assert await b.tell() == [("came", {ONE}), ("left", {TWO})]
    assert away.calls == 3
    assert await b.tell() == []


async def test_what_comes_while_the_record_is_told_is_told_after_it() -> None:
    b = Bench()
    b.came(ONE)
    await b.tell()
    b.left(ONE)
    held = Held(b.book, "unwatch")
    telling = asyncio.create_task(b.tell())
    await held.done.wait()
    b.came(ONE)
    held.go.set()
    assert await telling == [("left", {ONE}), ("came", {ONE})]


async def test_whoever_watches_is_told_again_well_within_the_grace() -> None:
    """Others may have taken this process for dead: it stood still, or could not reach the record."""
    b = Bench()
    b.came(ONE, TWO)
    await b.tell()
    b.left(TWO)
    await b.tell()
    told = []
    for _ in range(60):
        await b.clock.advance(1.0)
        told += await b.tell()
    assert told == [("came", {ONE})] * 4  # of a grace of 30 s


async def test_many_are_told_in_bounded_acts() -> None:
    b = Bench()
    names = [str(number) for number in range(1_201)]
    b.came(*names)
    told = await b.tell()
    assert [len(runs) for _, runs in told] == [500, 500, 201]
    assert set().union(*(runs for _, runs in told)) == set(names)


async def test_a_server_that_stops_is_no_viewer_that_left() -> None:
    b = Bench()
    b.came(ONE)
    await b.tell()
    await b.policy.close()
    b.left(ONE)
    b.came(TWO)
    assert await b.tell() == []


async def test_it_goes_on_when_the_record_is_back(caplog: pytest.LogCaptureFixture) -> None:
    b = Bench()
    Faulty(b.book, "watch", *[StoreUnavailable()] * 3)
    telling = asyncio.create_task(b.policy.keep_telling())
    b.came(ONE)
    async with asyncio.timeout(20):
        while not b.book.told:
            await b.clock.advance(1.0)
            await asyncio.sleep(0.001)
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)
    assert b.book.told == [("came", {ONE})]
    assert caplog.text.count("the record is not told who watches") == 2  # that it began, and that it is over
