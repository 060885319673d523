"""The suite of `Archive`. `make()` gives a fresh archive each time."""

from __future__ import annotations

from playhead.interfaces import Archive
from playhead.testing.check import Check, Make, Report, run_checks
from playhead.testing.ports import archive_rules

CHECKS: tuple[Check[Archive], ...] = tuple(archive_rules.rule.checks)


async def check_archive(make: Make[Archive]) -> Report:
    return await run_checks("archive", CHECKS, make)
