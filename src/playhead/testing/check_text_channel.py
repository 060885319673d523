"""The suite of `TextChannel`. `make(retention=, timeline_ttl=, snapshot_ttl=)` gives a fresh store each time."""

from __future__ import annotations

from playhead.testing.check import Check, LiveBench, Make, Report, run_checks
from playhead.testing.ports import text_rules

CHECKS: tuple[Check[LiveBench], ...] = tuple(text_rules.rule.checks)


async def check_text_channel(make: Make[LiveBench]) -> Report:
    return await run_checks("text_channel", CHECKS, make)
