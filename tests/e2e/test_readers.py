"""Another reader of event streams, with nothing but what PROTOCOL.md says, follows a run to its end."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import aconnect_sse

from playhead.testing.faults import Cut, Proxy
from tests.support.agents import counting
from tests.support.stage import BACKENDS, stage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", BACKENDS)]


async def follow(http: httpx.AsyncClient, run_id: str, cursor: str, events: dict[str, Any]) -> str:
    """Streams from the last cursor until `end`, which says how the run ended; events are kept by id."""
    while True:
        try:
            async with aconnect_sse(http, "GET", f"/runs/{run_id}/stream", headers={"Last-Event-ID": cursor}) as source:
                if source.response.status_code == 204:  # the cut came between the last event and `end`
                    return list(events.values())[-1]["type"].removeprefix("run_")
                assert source.response.status_code == 200
                async for told in source.aiter_sse():
                    if not told.data:
                        continue
                    data = json.loads(told.data)
                    if told.event == "message":
                        events.setdefault(data["id"], data)
                        cursor = told.id
                    elif told.event == "end":
                        return str(data["status"])
        except httpx.TransportError:
            await asyncio.sleep(0.01)


async def test_a_reader_of_others_follows_a_run_to_its_end(backend: str, tmp_path: Path) -> None:
    chance = random.Random(backend)
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 40, "stops": [2, 20]})
        await s.gates.reached("at-2")
        shown = await s.client.bootstrap(run_id, limit=200)
        events = {event["id"]: event for event in shown["events"]}
        async with Proxy(s.client.port) as between:
            between.down.set(cut=Cut(after=lambda: chance.randint(1_500, 6_000)))
            async with httpx.AsyncClient(base_url=between.url, trust_env=False, timeout=20) as http:
                following = asyncio.ensure_future(follow(http, run_id, shown["cursor"], events))
                s.gates.open("at-2")
                await s.gates.reached("at-20")
                s.gates.open("at-20")
                status = await asyncio.wait_for(following, 60)
        run = await s.client.run(run_id)
    assert between.down.cuts >= 1
    assert (run["status"], run["result"], status) == ("succeeded", {"counted": 40}, "succeeded")
    told = list(events.values())
    assert [event["payload"]["i"] for event in told if event["type"] == "counted"] == list(range(1, 41))
    assert told[-1]["type"] == "run_succeeded"
