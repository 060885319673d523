"""Run an agent in memory, for its author's own tests: no server, no files, and no waiting for deadlines.

ran = await run_agent(review, {"limit": 3}, decisions={"spend": True})
assert ran.status == "succeeded"
assert ran.types[-1] == "run_succeeded"
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from playhead.agents import Agent, Decision, agent
from playhead.backends.memory import MemoryLive, MemoryRecord
from playhead.core import payload as payloads
from playhead.core.ids import EVERY_TENANT, Feed, run_feed
from playhead.core.interrupt import Interrupt
from playhead.core.retention import Retention
from playhead.core.run import Run
from playhead.errors import PlayheadError
from playhead.interfaces import Hint
from playhead.runtime.documents import interrupt_document
from playhead.runtime.engine import Engine
from playhead.runtime.setup import EngineOptions, Ports
from playhead.testing.clock import FakeClock

Json = dict[str, Any]
Answer = bool | Decision | Mapping[str, Any]
Decisions = Mapping[str, Answer] | Callable[[Json], Answer | None]

_TENANT = "local"
_STEP = 0.05  # seconds of the clock between two looks; those of real time are far fewer
_AGES = float(1 << 30)
_EVERYTHING = Retention(1 << 30, None, 1 << 40, archive=False)
# No other process could take the run over, so that no lease is to end, however slow this machine is.
_OPTIONS = EngineOptions(
    archive="off", reconcile=_STEP, lease=_AGES, lost_after=_AGES, drain_window=0.0, drain_grace=0.0
)


class Unanswered(PlayheadError):
    """The agent asks something that has neither a decision nor a deadline."""

    code = "unanswered"


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that has ended. Everything is as the wire shows it; `text` is that of the last attempt, by part."""

    id: str
    status: str
    result: Any
    error: Json | None
    events: list[Json]
    snapshots: list[Json]  # every one that a viewer could have seen, oldest first
    text: dict[str, str]
    interrupts: list[Json]

    @property
    def types(self) -> list[str]:
        """The types of the events, in order."""
        return [event["type"] for event in self.events]


@dataclass(slots=True)
class _Watcher:
    """Hears every snapshot; those of one batch are all there, where a screen would only be shown the last."""

    snapshots: list[Json] = field(default_factory=list)

    def on_hints(self, hints: Sequence[Hint]) -> None:
        self.snapshots += [payloads.parse(hint.snapshot.encode()) for hint in hints if hint.snapshot is not None]

    def on_gap(self, feed: Feed) -> None:
        pass


async def run_agent(
    function: Agent | Callable[..., Any],
    input: object = None,
    /,
    *,
    decisions: Decisions | None = None,
    timeout: float = 10.0,
) -> FinishedRun:
    """Run an agent, or a function that `playhead.agent` takes, to its end.

    `decisions` answers what the agent asks: by the key of the question, or by a function of the interrupt, as
    approved or not, as a Decision, or as an object with `approved`, `note` and `value`. For a question without an
    answer (missing, or None) the clock is set to its deadline. `timeout` is in seconds of real time.

    Raises Unanswered for a question that would wait for ever, TimeoutError, and InvalidInput as a start does. What
    the agent itself raises is the run's `error`.
    """
    made = function if isinstance(function, Agent) else agent(function)
    clock = FakeClock()
    record = MemoryRecord(clock)
    live = MemoryLive(clock, _EVERYTHING, timeline_ttl=_AGES, snapshot_ttl=_AGES)
    engine = Engine(
        Ports(record, record, live, live, live.signal),
        clock,
        [made],
        options=_OPTIONS,
    )
    # The worker has not begun yet, so that nothing of the run is missed.
    run, _ = await engine.create(made.name, input, tenant=_TENANT, subject=_TENANT)
    watcher = _Watcher()
    await live.signal.add(run_feed(run.id), watcher)
    await engine.start()
    try:
        async with asyncio.timeout(timeout):
            await _drive(engine, clock, run, decisions)
    finally:
        await _end(engine, clock, run.id)
    return await _told(engine, run.id, watcher)


async def _drive(engine: Engine, clock: FakeClock, run: Run, decisions: Decisions | None) -> None:
    """Let time pass and answer, until the run has ended."""
    while not (await engine.run(_TENANT, run.id)).status.final:
        for asked in await engine.interrupts(_TENANT, run.id):
            answer = _answer(asked, decisions)
            if answer is not None:
                by = answer.pop("by", None) or "test"
                await engine.decide(_TENANT, run.id, asked.id, answer, by=by)
            elif asked.deadline is None:
                raise Unanswered(key=asked.key, kind=asked.kind)
            else:
                clock.step_wall(max(0, asked.deadline - clock.wall_ms()) / 1000)
        await clock.advance(_STEP)
        await asyncio.sleep(0.001)  # what the agent does in threads needs real time


def _answer(asked: Interrupt, decisions: Decisions | None) -> Json | None:
    if callable(decisions):
        given = decisions(payloads.parse(interrupt_document(asked)))
    else:
        given = (decisions or {}).get(asked.key)
    if given is None:
        return None
    if isinstance(given, bool):
        return {"approved": given}
    if isinstance(given, Decision):
        return {"approved": given.approved, "note": given.note, "value": given.value, "by": given.by}
    return dict(given)


async def _end(engine: Engine, clock: FakeClock, run_id: str) -> None:
    """Stop the agent if it still runs, and the engine; both wait by the clock."""
    with suppress(PlayheadError):
        await engine.cancel(_TENANT, run_id, by="test", reason="the test is over")
    draining = asyncio.ensure_future(engine.drain())
    while not draining.done():
        await clock.advance(_STEP)
        await asyncio.sleep(0.001)
    await draining


async def _told(engine: Engine, run_id: str, watcher: _Watcher) -> FinishedRun:
    run = await engine.run(_TENANT, run_id)
    view = await engine.ports.live.read(run_feed(run_id), after=0, limit=1 << 30)
    parts = await engine.ports.texts.read_text(run_feed(run_id))
    asked = await engine.ports.record.interrupts(EVERY_TENANT, run_id, open_only=False)
    return FinishedRun(
        id=run_id,
        status=run.status.value,
        result=payloads.parse(run.result) if run.result is not None else None,
        error=None if run.failure is None else {"code": run.failure.code, "message": run.failure.message},
        events=[payloads.parse(entry.data) for entry in view.entries] if view else [],
        snapshots=watcher.snapshots,
        text={part.part: part.data.decode() for part in parts if part.token == run.token},
        interrupts=[payloads.parse(interrupt_document(one)) for one in asked],
    )
