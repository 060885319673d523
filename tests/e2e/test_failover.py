"""The live store changes places: its master, the server of a slot, the machine behind its address."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

import playhead
from playhead.testing.faults import Proxy
from playhead.testing.harness.redis import SERVICE, Cluster, Server, Watched
from tests.support import redis_servers
from tests.support.stage import Gates, Stage, stage
from tests.support.viewer import Viewer

pytestmark = [pytest.mark.anyio, pytest.mark.wide]

PATIENCE = 40.0
FACTS = ["run_queued", "run_started", "attempt_started"]


def counting(gates: Gates) -> Sequence[playhead.Agent]:
    """Counts for as long as the gate `enough` is closed, and asks in between once `ask` is open."""

    @playhead.agent
    async def count(run: playhead.RunContext) -> dict[str, int]:
        asked = False
        while not gates.is_open("enough"):
            gates.calls += 1
            await run.event("counted", {"i": gates.calls}, done=gates.calls)
            await run.text(f"{gates.calls} ")
            if gates.is_open("ask") and not asked:
                asked = True
                await run.ask({"title": "Go on?"})
            await asyncio.sleep(0.005)
        await run.flush()
        return {"counted": gates.calls}

    return [count]


async def counted(s: Stage, more: int) -> None:
    """Return when the agent has counted this much further."""
    wanted = s.gates.calls + more
    await until(lambda: s.gates.calls >= wanted)


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not (await asyncio.to_thread(condition)):
            await asyncio.sleep(0.02)


async def whole(s: Stage, run_id: str, viewers: Sequence[Viewer], following: Sequence[asyncio.Task[Any]]) -> None:
    """The run ends well, nothing of it is missing, and every viewer has seen all of it once."""
    s.gates.open("enough")
    await asyncio.wait_for(asyncio.gather(*following), PATIENCE)
    run = await s.client.run(run_id)
    n = s.gates.calls
    assert (run["status"], run["attempt"], run["result"]) == ("succeeded", 1, {"counted": n})
    await s.archived(run_id)
    history: list[dict[str, Any]] = []
    before = ""
    while True:
        page = (await s.client.get(f"/runs/{run_id}/events?limit=200{before}")).json()
        history[:0] = page["events"]
        if not page["timeline"]["has_older"]:
            break
        before = f"&before={page['timeline']['oldest']}"
    assert [event["payload"]["i"] for event in history if event["type"] == "counted"] == list(range(1, n + 1))
    assert [event["type"] for event in history if event["type"] in FACTS] == FACTS
    assert history[-1]["type"] == "run_succeeded"
    assert (await s.client.bootstrap(run_id))["timeline"]["complete"] is True
    told = [event["id"] for event in history]
    for viewer in viewers:
        assert (viewer.screen.faults, viewer.screen.finals) == ([], ["run_succeeded"])
        assert list(viewer.screen.events)[-200:] == told[-200:]
        assert len(set(viewer.screen.events)) == len(viewer.screen.events)


@asynccontextmanager
async def watched_run(tmp_path: Path, **settings: Any) -> Any:
    """A run that counts, with three viewers."""
    settings = {"sweep": 0.4, "keep_events": 10_000, **settings}
    async with stage("servers", tmp_path, counting, settings=settings) as s:
        run_id = await s.client.start("count")
        viewers = [Viewer(s.client, run_id) for _ in range(3)]
        following = [asyncio.create_task(viewer.follow()) for viewer in viewers]
        try:
            await counted(s, 10)
            yield s, run_id, viewers, following
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)


def role(server: Server) -> str:
    return str(server.ask("INFO", "replication")["role"])


@pytest.mark.row("F18")
async def test_a_switch_of_masters_in_good_order_costs_nothing(tmp_path: Path) -> None:
    """One address, behind which the replica becomes the master. Connections to the old one stay: it refuses writes."""
    with Server("redis") as one, Server("redis", ("--replicaof", "127.0.0.1", str(one.port))) as other:
        await until(lambda: other.ask("INFO", "replication").get("master_link_status") == "up")
        async with Proxy(one.port) as address:
            live = f"redis://127.0.0.1:{address.port}/0"
            async with watched_run(tmp_path, live=live) as (s, run_id, viewers, following):
                address.server_port = other.port
                await asyncio.to_thread(one.ask, "FAILOVER", "TO", "127.0.0.1", other.port)
                await until(lambda: (role(one), role(other)) == ("slave", "master"))
                await counted(s, 20)
                await until(
                    lambda: int(other.ask("INFO", "commandstats").get("cmdstat_evalsha", {}).get("calls", 0)) > 20
                )
                await whole(s, run_id, viewers, following)
                assert all(viewer.connections <= 2 for viewer in viewers)


@pytest.mark.row("F18", "F19")
async def test_a_master_that_sentinels_replace_in_good_order(tmp_path: Path) -> None:
    """Between the promotion and its end the old master takes writes, which die with it."""
    with Watched("redis") as servers:
        async with watched_run(tmp_path, live=servers.url) as (s, run_id, viewers, following):
            await s.archived(run_id)
            await asyncio.to_thread(servers.sentinel.ask, "SENTINEL", "FAILOVER", SERVICE)
            await until(lambda: (role(servers.master), role(servers.replica)) == ("slave", "master"))
            await counted(s, 20)
            await converged(s, run_id, viewers, following)


async def converged(s: Stage, run_id: str, viewers: Sequence[Viewer], following: Sequence[asyncio.Task[Any]]) -> None:
    """The run ends well; what is missing is said to be, and all viewers and the record agree."""
    s.gates.open("enough")
    await asyncio.wait_for(asyncio.gather(*following), PATIENCE)
    run = await s.client.run(run_id)
    assert (run["status"], run["attempt"], run["result"]) == ("succeeded", 1, {"counted": s.gates.calls})
    shown = await s.client.bootstrap(run_id, limit=200)
    assert shown["snapshot"]["done"] == s.gates.calls
    told = [event["id"] for event in shown["events"]]
    assert len(set(told)) == len(told)
    numbers = [event["payload"]["i"] for event in shown["events"] if event["type"] == "counted"]
    if shown["timeline"]["complete"]:
        assert numbers == list(range(numbers[0], s.gates.calls + 1))
    assert numbers == sorted(numbers)
    for viewer in viewers:
        assert viewer.screen.finals == ["run_succeeded"]
        assert viewer.screen.snapshot["done"] == s.gates.calls
        assert set(told) <= set(viewer.screen.events)


@pytest.mark.row("F19")
@pytest.mark.parametrize("archive", ["async", "off"])
async def test_what_is_written_to_a_master_that_was_replaced_dies_with_it(tmp_path: Path, archive: str) -> None:
    """Two masters: the worker's process still writes to the old one, the other process has the new one."""
    settings = {"archive": archive, "sweep": 0.3, "keep_events": 10_000}
    async with AsyncExitStack() as stack:
        old = stack.enter_context(Server("redis"))
        new = stack.enter_context(Server("redis", ("--replicaof", "127.0.0.1", str(old.port))))
        await until(lambda: new.ask("INFO", "replication").get("master_link_status") == "up")
        here, there = [await stack.enter_async_context(Proxy(old.port)) for _ in range(2)]
        lives = [{"live": f"redis://127.0.0.1:{proxy.port}/0"} for proxy in (here, there)]
        s = await stack.enter_async_context(stage("servers", tmp_path, counting, settings={**settings, **lives[0]}))
        other = await stack.enter_async_context(
            stage("servers", tmp_path, counting, settings={**settings, **lives[1], "worker": False})
        )
        run_id = await s.client.start("count")
        viewers = [Viewer(one.client, run_id) for one in (s, other)]
        following = [asyncio.create_task(viewer.follow()) for viewer in viewers]
        await counted(s, 10)

        new.ask("REPLICAOF", "NO", "ONE")
        there.server_port = new.port
        there.reset()
        await until(lambda: "playhead" in str(new.ask("CLIENT", "LIST")))
        await counted(s, 20)
        # A fact, told only to the old one: the record has it, and so whoever has the new one sees it.
        s.gates.open("ask")
        await until(lambda: viewers[1].screen.interrupts)
        [question] = (await other.client.bootstrap(run_id))["interrupts"]
        if archive == "async":
            await s.archived(run_id)
        old.process.kill()
        here.server_port = new.port
        path = f"/runs/{run_id}/interrupts/{question['id']}/decision"
        assert (await other.client.call("POST", path, {"approved": True})).status == 200
        await counted(s, 10)
        await converged(s, run_id, viewers, following)
        shown = [await one.client.bootstrap(run_id, limit=200) for one in (s, other)]
        assert shown[0] == shown[1]
        assert shown[0]["timeline"]["complete"] is (archive == "async")
        types = [event["type"] for event in shown[0]["events"]]
        if archive == "async":
            assert [types.count(name) for name in ("approval_required", "approval_decided")] == [1, 1]


@pytest.mark.row("F32")
async def test_a_slot_that_moves_under_load_is_followed(tmp_path: Path) -> None:
    """Key by key, with pauses: a part of a run's keys is here, and a part there already."""
    cluster = redis_servers.started("cluster")
    assert isinstance(cluster, Cluster)
    async with watched_run(tmp_path, live=cluster.url) as (s, run_id, viewers, following):

        def move() -> None:
            cluster.move(key_slot(run_id.encode()), at_once=1, pause=0.03)

        for _ in range(2):
            await asyncio.to_thread(move)
            await counted(s, 10)
        await whole(s, run_id, viewers, following)
