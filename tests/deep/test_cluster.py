"""A cluster of three masters with a replica each, of which one master after the other is killed under load."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

import playhead
from playhead.testing.harness.redis import Cluster
from tests.support.stage import Gates, Stage, stage
from tests.support.viewer import Viewer

MASTERS = 3
RUNS = 2  # at least, on each master
PATIENCE = 120.0
LEGAL = {"epoch", "ahead", "expired", "foreign"}


class Load:
    """Runs that count until they are told that it is enough, and who watches them, by the master that has them."""

    def __init__(self, s: Stage, other: Stage, cluster: Cluster) -> None:
        self.s, self.other, self.cluster = s, other, cluster
        self.runs: dict[int, list[str]] = {number: [] for number in range(MASTERS)}
        self.viewers: dict[str, list[Viewer]] = {}
        self.following: list[asyncio.Task[Any]] = []

    async def start(self) -> None:
        while min(map(len, self.runs.values())) < RUNS:
            run_id = await self.s.client.start("count")
            self.runs[self.cluster.owner(key_slot(run_id.encode()))].append(run_id)
            self.viewers[run_id] = [Viewer(one.client, run_id) for one in (self.s, self.other)]
            self.following += [asyncio.create_task(viewer.follow()) for viewer in self.viewers[run_id]]

    async def shown(self, counts: Counter[str], more: int) -> None:
        """Return when every viewer has seen its run count this much further."""
        wanted = {run_id: counts[run_id] + more for run_id in self.viewers}
        async with asyncio.timeout(PATIENCE):
            for run_id, viewers in self.viewers.items():
                for viewer in viewers:
                    while (viewer.screen.snapshot.get("done") or 0) < wanted[run_id]:
                        await asyncio.sleep(0.05)

    def resyncs(self, number: int) -> list[str]:
        """What the viewers of this master's runs were told so far."""
        return [reason for run_id in self.runs[number] for viewer in self.viewers[run_id] for reason in viewer.resyncs]


@pytest.mark.anyio
@pytest.mark.deep
@pytest.mark.row("F19", "F32")
async def test_a_cluster_whose_masters_are_killed_one_after_the_other(tmp_path: Path) -> None:
    """Each run goes on through it, ends once, and is shown as the record has it. A run whose master lived loses nothing
    and nobody who watches it is told to start again."""
    counts: Counter[str] = Counter()

    def counting(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def count(run: playhead.RunContext) -> dict[str, int]:
            while not gates.is_open("enough"):
                counts[run.id] += 1
                await run.event("counted", {"i": counts[run.id]}, done=counts[run.id])
                await run.text(f"{counts[run.id]} ")
                await asyncio.sleep(0.02)
            return {"counted": counts[run.id]}

        return [count]

    async with AsyncExitStack() as stack:
        cluster = await asyncio.to_thread(stack.enter_context, Cluster("redis", MASTERS, replicated=True))
        settings = {"live": cluster.url, "sweep": 1.0, "keep_events": 100_000, "concurrency": 64}
        s = await stack.enter_async_context(stage("servers", tmp_path, counting, settings=settings))
        second = {**settings, "worker": False}
        other = await stack.enter_async_context(stage("servers", tmp_path, counting, settings=second))
        load = Load(s, other, cluster)
        await load.start()
        await load.shown(counts, 10)
        for number in range(MASTERS):
            elsewhere = [one for one in range(MASTERS) if one != number]
            before = {one: load.resyncs(one) for one in elsewhere}
            await asyncio.to_thread(cluster.fail, number)
            await load.shown(counts, 20)
            assert {one: load.resyncs(one) for one in elsewhere} == before
            await asyncio.to_thread(cluster.rejoin, number)
        s.gates.open("enough")
        await asyncio.wait_for(asyncio.gather(*load.following), PATIENCE)
        for run_id, viewers in load.viewers.items():
            run = await s.client.run(run_id)
            assert (run["status"], run["attempt"], run["result"]) == ("succeeded", 1, {"counted": counts[run_id]})
            await s.archived(run_id)
            screens = [await one.client.bootstrap(run_id, limit=200) for one in (s, other)]
            assert screens[0] == screens[1]
            told = [event["id"] for event in screens[0]["events"]]
            numbers = [event["payload"]["i"] for event in screens[0]["events"] if event["type"] == "counted"]
            assert numbers == sorted(set(numbers))
            if screens[0]["timeline"]["complete"]:
                assert numbers == list(range(numbers[0], counts[run_id] + 1))
            for viewer in viewers:
                assert set(viewer.resyncs) <= LEGAL
                assert viewer.screen.finals == ["run_succeeded"]
                assert viewer.screen.snapshot["done"] == counts[run_id]
                assert set(told) <= set(viewer.screen.events)
