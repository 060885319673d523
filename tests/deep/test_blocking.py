"""A call that blocks for a whole minute, on a server with the lease settings that everybody has."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from playhead.settings import Settings
from tests.cli.served import serving
from tests.support.wire import Client

SECONDS = 60.0  # six leases
LOOK = 0.25


def lease(data: Path) -> int:
    """Milliseconds that the lease of the one worker process still has; negative if it is over."""
    with sqlite3.connect(f"{(data / 'record.db').as_uri()}?mode=ro", uri=True) as record:
        [(expires,)] = record.execute("SELECT expires FROM process").fetchall()
    return int(expires) - round(time.monotonic() * 1000)


async def watched(data: Path, over: Callable[[], bool]) -> list[int]:
    """The lease, looked at from outside until it is over."""
    seen = []
    while not over():
        seen.append(await asyncio.to_thread(lease, data))
        await asyncio.sleep(LOOK)
    return seen


@pytest.mark.anyio
@pytest.mark.deep
@pytest.mark.row("H-block-60s", "BR-37", "F14")
@pytest.mark.parametrize("agent", ["loop", "thread"])
@pytest.mark.parametrize("how", ["asleep", "busy"])
async def test_a_minute_of_blocking_loses_no_lease(tmp_path: Path, agent: str, how: str) -> None:
    defaults = Settings()
    assert (defaults.lease, defaults.beat) == (10.0, 3.0)
    with serving(tmp_path / "data", targets=("tests.deep.blockers:every",)) as served:
        client = Client("127.0.0.1", int(served.url.rpartition(":")[2]))
        other = await client.start("bystander")
        while not (asked := (await client.bootstrap(other))["interrupts"]):
            await asyncio.sleep(0.05)
        begun = time.monotonic()
        run_id = await client.start(agent, {"how": how, "seconds": SECONDS})

        async def ended() -> dict[str, Any]:
            while (run := await ask(client, run_id))["ended_at"] is None:
                await asyncio.sleep(LOOK)
            return run

        ending = asyncio.create_task(ended())
        seen = await watched(served.data, ending.done)
        run = await ending
        assert time.monotonic() - begun >= SECONDS
        assert min(seen) > 0
        assert len(seen) > SECONDS
        assert (run["status"], run["result"], run["attempt"]) == ("succeeded", how, 1)
        answer = await client.post(f"/runs/{other}/interrupts/{asked[0]['id']}/decision", {"approved": True})
        assert answer.status == 200
        assert (await client.ended(other))["attempt"] == 1
        log = served.log.read_text()
        for word in ("no answer to a beat", "a beat failed", "was lost", "is not ours any more"):
            assert word not in log
        metrics = (await client.get("/metrics")).body.decode()
        assert ("playhead_loop_blocked_total 0.0" in metrics) is (agent == "thread")


async def ask(client: Client, run_id: str) -> dict[str, Any]:
    """The run, from a server that may not answer for a minute."""
    while True:
        try:
            return await client.run(run_id)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            await asyncio.sleep(LOOK)
