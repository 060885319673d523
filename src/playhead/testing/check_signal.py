"""The suite of `Signal`. `make()` gives a fresh signal each time."""

from __future__ import annotations

from playhead.interfaces import Signal
from playhead.testing.check import Check, Make, Report, run_checks
from playhead.testing.ports import signal_rules

CHECKS: tuple[Check[Signal], ...] = tuple(signal_rules.rule.checks)


async def check_signal(make: Make[Signal]) -> Report:
    return await run_checks("signal", CHECKS, make)
