"""One attempt's publisher: what it may not show, and what it says about what it had to drop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from playhead.core.ids import run_feed
from playhead.core.redaction import Redactor
from playhead.core.run import Run
from playhead.core.snapshot import State
from playhead.runtime.projector import Projector
from playhead.runtime.publisher import Publisher, PublisherOptions
from tests.runtime.bench import Bench, bench
from tests.runtime.whole import eventually, plant

pytestmark = pytest.mark.anyio


class Speaker:
    """A publisher over the bench's stores."""

    def __init__(self, b: Bench, run: Run, **options: Any) -> None:
        self.lost: list[BaseException | None] = []
        self.projector = Projector(b.record, b.live, b.clock)
        self.publisher = Publisher(
            run,
            State(),
            live=b.live,
            texts=b.live,
            projector=self.projector,
            clock=b.clock,
            redactor=Redactor(),
            lost=self.lost.append,
            options=PublisherOptions(**options),
        )
        self.projector.sources[run.id] = self.publisher

    async def say(self, count: int) -> None:
        for _ in range(count):
            await self.publisher.event("told", {}, {})


async def numbers(b: Bench, run: Run) -> tuple[int, list[int]]:
    """The epoch of the timeline, and the numbers of its published events."""
    view = await b.live.read(run_feed(run.id), limit=100)
    assert view is not None
    names = [entry.event.id for entry in view.entries if not entry.event.id.startswith("run:")]
    return view.marks.epoch, [int(name.rpartition(":")[2]) for name in names]


async def test_a_hole_is_never_hidden_by_what_follows_it() -> None:
    """The timeline cannot be rebuilt at once: until it is, nothing is put behind the hole."""
    async with bench() as b:
        run = await b.get((await b.attempt()).run)
        s = Speaker(b, run, pending=3)
        await s.say(2)
        before = await numbers(b, run)
        b.live.down = True
        await s.say(9)
        bring, refused = s.projector.bring, []

        async def not_now(run_id: str, **how: Any) -> Run | None:
            refused.append(how["rebuild"])
            return await b.record.get("acme", run_id)

        plant(s.projector, "bring", not_now)
        b.live.down = False
        for _ in range(6):
            await b.clock.advance(2.0)
            assert await numbers(b, run) == before
        assert refused
        assert all(refused)
        plant(s.projector, "bring", bring)
        for _ in range(6):
            await b.clock.advance(2.0)
        epoch, told = await numbers(b, run)
        assert epoch > before[0]
        assert told == [9, 10, 11]
        s.publisher.shut()


async def test_a_hole_of_an_attempt_that_was_overtaken_is_nobody_s_any_more() -> None:
    async with bench() as b:
        run = await b.get((await b.attempt()).run)
        s = Speaker(b, run, pending=3)
        await s.say(1)
        b.live.down = True
        await s.say(9)
        b.record._files[run.id].run = replace(await b.get(run), token=run.token + 1)
        b.live.down = False
        for _ in range(6):
            await b.clock.advance(2.0)
        assert s.lost == [None]
        assert s.publisher.closed


async def test_what_waits_for_an_acknowledgement_is_let_go_when_the_store_goes_away() -> None:
    async with bench() as b:
        run = await b.get((await b.attempt()).run)
        s = Speaker(b, run)
        await s.say(1)
        b.live.down = True
        saying = asyncio.create_task(s.say(3))
        await eventually(saying.done)
        assert [event.id for event in await s.publisher.settle()] == [f"{run.id}:1:{n}" for n in (2, 3, 4)]
        assert s.publisher.holed is None
        b.live.down = False
        assert await s.publisher.settle() == []
        s.publisher.shut()


async def test_acknowledged_is_what_was_shown_and_not_what_is_on_its_way() -> None:
    async with bench() as b:
        run = await b.get((await b.attempt()).run)
        s = Speaker(b, run, pending=3)
        assert s.publisher.acknowledged == 0
        await s.say(2)
        assert s.publisher.acknowledged == 2
        saying = asyncio.create_task(s.say(1))
        await asyncio.sleep(0)
        assert s.publisher.acknowledged == 2
        await saying
        assert s.publisher.acknowledged == 3
        b.live.down = True
        await s.say(2)
        assert s.publisher.acknowledged == 3
        b.live.down = False
        assert await s.publisher.settle() == []
        assert s.publisher.acknowledged == 5
        s.publisher.shut()
