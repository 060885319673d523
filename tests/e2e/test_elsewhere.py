"""What one process does reaches another at once: nobody waits there for a sweep, a beat or a second look."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import playhead
from playhead.runtime import attempt
from tests.support.stage import Gates, stage

pytestmark = pytest.mark.anyio

# Every regular look comes later than any test ends, but for the one by which a worker finds new runs.
STILL = {"sweep": 600.0, "beat": 600.0, "lease": 1_200.0, "keepalive": 600.0}


def asking(gates: Gates) -> Sequence[playhead.Agent]:
    @playhead.agent
    async def asker(run: playhead.RunContext) -> str:
        for i in range(3):
            await run.event("noted", {"i": i}, progress=10 * i)
            await gates.wait(f"noted-{i}")
        decision = await run.ask({"title": "Go on?"})
        await run.event("answered", {"approved": decision.approved})
        await gates.wait("for ever")
        return "never"

    return [asker]


@pytest.mark.row("E5", "M-other-process")
async def test_events_answers_and_stops_reach_the_other_process_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "_LOOK_AGAIN", 600.0)
    async with stage("servers", tmp_path, asking, settings=STILL) as worker:
        async with stage("servers", tmp_path, asking, settings={**STILL, "worker": False}) as other:
            run_id = await other.client.start("asker")
            async with other.client.stream(run_id) as stream:
                for i in range(3):
                    await stream.type("noted", i + 1)
                    await stream.until(lambda seen, i=i: seen.snapshot["progress"] == 10 * i)
                    worker.gates.open(f"noted-{i}")
                await stream.type("approval_required")
                [question] = (await other.client.bootstrap(run_id))["interrupts"]
                path = f"/runs/{run_id}/interrupts/{question['id']}/decision"
                assert (await other.client.call("POST", path, {"approved": True})).status == 200
                await stream.type("answered")
                assert (await other.client.call("POST", f"/runs/{run_id}/cancel", {})).status == 202
                await stream.end()
            assert stream.types[-4:] == ["approval_decided", "answered", "cancel_requested", "run_cancelled"]
            assert other.gates.calls == 0
