"""The workers' times of day are twenty minutes apart, in every scenario; here is what that could do."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.scenarios.fleet import SKEW
from tests.scenarios.scene import Scene

pytestmark = [pytest.mark.anyio, pytest.mark.wide]


@pytest.mark.row("F54")
async def test_a_run_goes_from_one_time_of_day_to_another(scene: Scene) -> None:
    """Its order is that of its events, and a deadline is as long as it says, wherever it is asked for."""
    first, second = scene.fleet.workers
    apart = timedelta(seconds=SKEW[second.name] - SKEW[first.name])
    await second.stop()
    one = await scene.start("hurried")
    await scene.reached(one, "ask-1")
    await second.start()
    await first.stop()
    await scene.reached(one, "ask-2", 2)
    await first.start()
    scene.open(one, "ask-2")
    await scene.settle()
    run = await scene.run(one)
    assert run["result"] == {"attempt": 2, "text": "", "expired": False}
    [shown, _] = await scene.bootstraps(one)
    begun = [event for event in shown["events"] if event["type"] == "work_begun"]
    assert [event["payload"]["attempt"] for event in begun] == [1, 2]
    early, later = [datetime.fromisoformat(event["occurred_at"]) for event in begun]
    assert abs((later - early) - apart) < timedelta(minutes=5)  # for display, and for nothing else
    await scene.judge()
