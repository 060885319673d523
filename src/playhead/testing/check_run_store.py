"""The suite of `RunStore`. `make()` gives a fresh record each time, see `RecordBench`."""

from __future__ import annotations

from playhead.testing.check import Check, Make, RecordBench, Report, run_checks
from playhead.testing.ports import (
    presence_rules,
    runs_attempts,
    runs_create,
    runs_end,
    runs_facts,
    runs_left,
    runs_questions,
)

_TOPICS = (runs_create, runs_attempts, runs_left, runs_end, runs_questions, runs_facts, presence_rules)

CHECKS: tuple[Check[RecordBench], ...] = tuple(check for topic in _TOPICS for check in topic.rule.checks)


async def check_run_store(make: Make[RecordBench]) -> Report:
    return await run_checks("run_store", CHECKS, make)
