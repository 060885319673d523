"""The live store is away while a run goes on or ends: nothing is lost, nothing comes out of order, nobody is misled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import playhead
from playhead.core.ids import run_feed
from tests.support.stage import STORES, Gates, Outage, Stage, stage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", STORES)]

FINALS = {"run_succeeded", "run_failed", "run_cancelled", "run_interrupted"}


def telling(gates: Gates) -> Sequence[playhead.Agent]:
    async def tell(run: playhead.RunContext, before: int, while_away: int) -> str:
        for i in range(1, before + 1):
            await run.event("told", {"i": i}, done=i)
        await gates.wait(f"away-{run.attempt}")
        for i in range(before + 1, before + while_away + 1):
            await run.event("told", {"i": i}, done=i)
        await gates.wait(f"end-{run.attempt}")
        return "done"

    @playhead.agent
    async def teller(run: playhead.RunContext, before: int = 3, while_away: int = 2) -> str:
        return await tell(run, before, while_away)

    @playhead.agent(resumable=True)
    async def stayer(run: playhead.RunContext, before: int = 3, while_away: int = 2) -> str:
        return await tell(run, before, while_away)

    return [teller, stayer]


def lag(s: Stage) -> None:
    """The archiver's loop comes to nothing: it is only ever as far as it has to be."""

    async def none(limit: int) -> list[Any]:
        return []

    s.engine.ports.live.unarchived = none


async def archived(s: Stage, run_id: str) -> list[str]:
    return [event.id for event, _ in await s.engine.ports.archive.read(run_feed(run_id), None, 1_000)]


def told(events: list[dict[str, Any]]) -> list[int]:
    return [event["payload"]["i"] for event in events if event["type"] == "told"]


@pytest.mark.store
@pytest.mark.row("BR-15", "R6", "R24")
@pytest.mark.parametrize("reads", [True, False], ids=["all", "writes"])
async def test_a_run_that_ended_while_the_store_was_away_is_shown_whole_to_those_who_watched(
    backend: str, tmp_path: Path, reads: bool
) -> None:
    async with stage(backend, tmp_path, telling) as s:
        lag(s)
        outage = Outage(s, reads=reads)
        run_id = await s.client.start("teller")
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("away-1")
            await stream.until(lambda one: told(one.events) == [1, 2, 3])
            outage.on = True
            s.gates.open("away-1", "end-1")
            assert (await s.client.ended(run_id))["status"] == "succeeded"
            assert FINALS.isdisjoint(stream.types)
            outage.on = False
            await stream.end()
        assert stream.named("resync_required") == []
        assert told(stream.events) == [1, 2, 3, 4, 5]
        assert [name for name in stream.types if name in FINALS] == [stream.types[-1]] == ["run_succeeded"]
        ids = [event["id"] for event in stream.events]
        await s.archived(run_id)
        assert await archived(s, run_id) == ids
        for lost in (False, True):
            if lost:
                await s.flush()
            shown = await s.client.bootstrap(run_id)
            assert [event["id"] for event in shown["events"]] == ids
            assert shown["timeline"] == {"complete": True, "has_older": False, "oldest": ids[0]}


async def test_a_released_attempt_s_last_words_come_before_the_next_attempt(backend: str, tmp_path: Path) -> None:
    settings = {"drain_grace": 0.1}
    async with stage(backend, tmp_path, telling, settings=settings) as s:
        outage = Outage(s, reads=True)
        run_id = await s.client.start("stayer")
        await s.gates.reached("away-1")
        outage.on = True
        s.gates.open("away-1")
        await s.gates.reached("end-1")
        await s.app.drain()
        kept = s.engine.ports
        assert (await kept.record.get("local", run_id)).owner is None
        outage.on = False
    async with stage(backend, tmp_path, telling, settings=settings, kept=kept) as s:
        s.gates.open("away-2", "end-2")
        assert (await s.client.ended(run_id))["status"] == "succeeded"
        await s.archived(run_id)
        shown = await s.client.bootstrap(run_id)
        assert [event["id"] for event in shown["events"]] == await archived(s, run_id)
        assert [(event["type"], event["attempt"]) for event in shown["events"]] == [
            ("run_queued", 0),
            ("run_started", 0),
            ("attempt_started", 1),
            *[("told", 1)] * 5,
            ("attempt_started", 2),
            *[("told", 2)] * 5,
            ("run_succeeded", 2),
        ]
        assert told(shown["events"]) == [1, 2, 3, 4, 5] * 2
        assert shown["timeline"]["complete"] is True


@pytest.mark.parametrize("ended", [False, True])
async def test_a_timeline_with_a_hole_keeps_what_came_before_it(backend: str, tmp_path: Path, ended: bool) -> None:
    """What was acknowledged and not archived yet when the timeline is emptied for the hole, or dropped with it."""
    async with stage(backend, tmp_path, telling, settings={"pending_publishes": 4, "sweep": 0.2}) as s:
        lag(s)
        outage = Outage(s, reads=True)
        run_id = await s.client.start("teller", {"before": 3, "while_away": 20})
        await s.gates.reached("away-1")
        outage.on = True
        s.gates.open("away-1")
        await s.gates.reached("end-1")
        if ended:
            s.gates.open("end-1")
            await s.client.ended(run_id)
        await asyncio.sleep(2.1)  # no two epochs are minted within two seconds
        outage.on = False
        async with asyncio.timeout(20):
            while told((shown := await s.client.bootstrap(run_id))["events"])[-1:] != [23]:
                await asyncio.sleep(0.05)
        s.gates.open("end-1")
        await s.client.ended(run_id)
        shown = await s.client.bootstrap(run_id)
        assert told(shown["events"])[:3] == [1, 2, 3]
        assert told(shown["events"])[-1] == 23
        assert shown["timeline"]["complete"] is False
        await s.archived(run_id)
        assert await archived(s, run_id) == [event["id"] for event in shown["events"]]


async def test_with_the_store_away_a_screen_claims_no_whole_timeline(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, telling) as s:
        outage = Outage(s, reads=True)
        run_id = await s.client.start("teller")
        await s.gates.reached("away-1")
        await s.archived(run_id)
        outage.on = True
        shown = await s.client.bootstrap(run_id)
        assert (shown["degraded"], told(shown["events"])) == ("store_unavailable", [1, 2, 3])
        assert shown["timeline"]["complete"] is False  # there may be more
        s.gates.open("away-1", "end-1")
        await s.client.ended(run_id)
        shown = await s.client.bootstrap(run_id)
        assert shown["events"][-1]["type"] == "run_succeeded"
        assert shown["timeline"]["complete"] is False
        outage.on = False


async def test_nothing_comes_to_the_archive_of_an_erased_run(backend: str, tmp_path: Path) -> None:
    """Neither from an archiver that has read the timeline already, nor later, when the live store is back."""
    async with stage(backend, tmp_path, telling) as s:
        lag(s)
        run_id = await s.client.start("teller")
        s.gates.open("away-1", "end-1")
        await s.client.ended(run_id)
        await s.engine.projector.bring(run_id)
        archive, append = s.engine.ports.archive, s.engine.ports.archive.append
        held = asyncio.Event()

        async def slow(*args: Any) -> str | None:
            await held.wait()
            newest: str | None = await append(*args)
            return newest

        archive.append = slow
        archiving = asyncio.create_task(s.engine.archiver.run(run_id))
        erasing = asyncio.create_task(s.client.call("DELETE", f"/runs/{run_id}"))
        await asyncio.wait({erasing}, timeout=1.0)  # it waits for the archiver
        held.set()
        assert (await erasing).status == 204
        await archiving
        await s.engine.archiver.run(run_id)
        assert await archived(s, run_id) == []
        outage = Outage(s, reads=True)
        other = await s.client.start("teller")
        await s.client.ended(other)
        await s.engine.projector.bring(other)
        outage.on = True
        assert (await s.client.call("DELETE", f"/runs/{other}")).status == 503
        outage.on = False
        assert (await s.client.call("DELETE", f"/runs/{other}")).status == 204
        await s.engine.archiver.run(other)
        assert await archived(s, other) == []
