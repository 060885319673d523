"""The suite of `ProjectionStore`.

`make(retention=, timeline_ttl=, snapshot_ttl=, idle_ttl=)` gives a fresh store each time.
"""

from __future__ import annotations

from playhead.testing.check import Check, LiveBench, Make, Report, run_checks
from playhead.testing.ports import (
    projection_facts,
    projection_hints,
    projection_publish,
    projection_reads,
    projection_retention,
)

_TOPICS = (projection_facts, projection_publish, projection_reads, projection_retention, projection_hints)

CHECKS: tuple[Check[LiveBench], ...] = tuple(check for topic in _TOPICS for check in topic.rule.checks)


async def check_projection_store(make: Make[LiveBench]) -> Report:
    return await run_checks("projection_store", CHECKS, make)
