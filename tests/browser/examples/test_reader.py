"""The npm package `eventsource`, with nothing but its own five lines, follows a run to its end and stops by itself.

It belongs to the tests that need Node, which run with the browser's.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from playhead.testing.faults import Cut, Proxy
from tests.support.agents import counting
from tests.support.stage import BACKENDS, stage

pytestmark = pytest.mark.browser

READER = Path(__file__).parents[3] / "examples" / "node" / "follow.mjs"


async def read(backend: str, folder: Path) -> None:
    async with stage(backend, folder, counting, settings={"retry": 0.2}) as s:
        run_id = await s.client.start("count", {"n": 40, "stops": [2, 20]})
        async with Proxy(s.client.port) as between:
            between.down.set(cut=Cut(after=3_000, times=1))
            command = ("node", str(READER), f"{between.url}/runs/{run_id}/stream")
            reader = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            for gate in ("at-2", "at-20"):
                await s.gates.reached(gate)
                s.gates.open(gate)
            out, _ = await asyncio.wait_for(reader.communicate(), 60)
        shown = await s.client.bootstrap(run_id, limit=200)
    *events, end = map(json.loads, out.decode().splitlines())
    assert between.down.cuts == 1
    assert reader.returncode == 0
    assert [event["id"] for event in events] == [event["id"] for event in shown["events"]]
    assert end == {"run_id": run_id, "status": "succeeded"}


@pytest.mark.row("A31")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reader_of_node_misses_nothing_and_stops_by_itself(backend: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:  # in this one the browser's driver may have a loop already
        thread.submit(asyncio.run, read(backend, tmp_path)).result()
