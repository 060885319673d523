"""What the checks start from: runs in the record, and the writes that a run's life would bring to a projection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from playhead.core import cursor, event
from playhead.core.event import Fact, FactDraft
from playhead.core.ids import Feed, run_feed, uuid7
from playhead.core.interrupt import Interrupt, Question
from playhead.core.run import Failure, NewRun, Outcome, Policy, Run, Status
from playhead.core.snapshot import State
from playhead.core.text import TextWrite
from playhead.core.transition import Applied, Guard, Opening, Publish, Reply
from playhead.interfaces import Clock, View
from playhead.testing.check import LiveBench, RecordBench

TENANT = "acme"
AGENT = "echo"
TTL_MS = 10_000  # of every lease here

YES = b'{"approved":true,"note":null}'
NO = b'{"approved":false,"note":null}'
DONE = Outcome(Status.SUCCEEDED, result=b'{"answer":42}')
FAILED = Outcome(Status.FAILED, failure=Failure("boom", "It broke."))

# Texts that stores like to change: NUL, beyond the basic plane, combining, separators of many kinds, quotes.
STRANGE = "a\x00b \U0001f600 e\u0301 \u2028\u2029\x85\r\n\t\"'\\ %_*? \u202e \ufeff"

# Ids that nobody made, and that would hurt where one is pasted into a query, a pattern, a path or a key.
HOSTILE = (
    "",
    "\x00",
    "*",
    "%",
    "' OR 1=1 --",
    "../../etc/passwd",
    "{x}:state",
    "\U0001f600",
    "a" * 100_000,
    "0190163d-8694-739b-aea5-966c26f8ad90\n",
)


Act = Callable[[], Awaitable[object]]


async def in_some_order(clock: Clock, *acts: Act) -> None:
    """Do these at once, begun in an order that the clock's seed gives; what they raise is theirs."""
    order = sorted(acts, key=lambda _: clock.random(4))
    await asyncio.gather(*(act() for act in order), return_exceptions=True)


def new_id(clock: Clock) -> str:
    return uuid7(clock.wall_ms(), clock.random(10))


def new_run(clock: Clock, **fields: Any) -> NewRun:
    """A run that somebody asks for, with these fields set."""
    plain = NewRun(new_id(clock), TENANT, AGENT, b'{"q":1}', Policy(), {}, digest="d1")
    return replace(plain, **fields)


def resumable(most: int = 3) -> Policy:
    return Policy(resumable=True, max_attempts=most)


async def queued(b: RecordBench, **fields: Any) -> Run:
    run, _ = await b.store.create(new_run(b.clock, **fields))
    return run


async def running(b: RecordBench, process: str = "p1", **fields: Any) -> Run:
    """A run in its first attempt, owned by this process."""
    run = await queued(b, **fields)
    await b.store.beat(process, TTL_MS, ())
    return await b.store.claim(run.tenant, run.id, process)


async def taken_over(b: RecordBench, **fields: Any) -> Run:
    """A run whose first attempt was lost and whose second goes on at the process `p2`."""
    run = await running(b, policy=resumable(), **fields)
    await b.store.leave("p1")
    assert await b.store.lose(run.id, run.token, None) is not None
    await b.clock.advance(60)
    await b.store.beat("p2", TTL_MS, ())
    return await b.store.claim(run.tenant, run.id, "p2")


async def get(b: RecordBench, run: Run) -> Run:
    found = await b.store.get(run.tenant, run.id)
    assert found is not None
    return found


def question(key: str = "ship", **fields: Any) -> Question:
    return replace(Question(key, "approval", b'{"title":"Ship it?"}', None), **fields)


async def asked(b: RecordBench, run: Run, key: str = "ship", **fields: Any) -> Interrupt:
    return await b.store.ask(run.id, run.token, question(key, **fields), new_id(b.clock), None)


async def facts(b: RecordBench, run: Run, after_rev: int = 0) -> Sequence[Fact]:
    """The run's facts, which are whole: contiguous, counted by the run, and with at most one final one, the last."""
    page = await b.store.facts(run_feed(run.id), after_rev)
    assert page is not None
    assert [fact.rev for fact in page.facts] == list(range(after_rev + 1, page.run.rev + 1))
    assert [fact.event.id for fact in page.facts] == [f"run:{run.id}:{fact.rev}" for fact in page.facts]
    assert all(not fact.final for fact in page.facts[:-1])
    if page.facts:
        last = page.facts[-1]
        assert (last.status, last.final) == (page.run.status, page.run.status.final)
    return page.facts


async def types(b: RecordBench, run: Run) -> list[str]:
    return [fact.event.type for fact in await facts(b, run)]


class Scribe:
    """Writes what a record and an attempt would write for one run: contiguous revs, an n per attempt, new tags."""

    def __init__(self, clock: Clock, run_id: str | None = None) -> None:
        self.clock = clock
        self.run_id = run_id or new_id(clock)
        self.feed: Feed = run_feed(self.run_id)
        self.epoch = clock.wall_ms()
        self.token = self.rev = self.n = self.state_version = 0
        self.status = Status.QUEUED
        self.started_at: int | None = None

    def tag(self) -> str:
        return cursor.tag(self.clock.random(6))

    def opening(self, seen: int = 0, **fields: Any) -> Opening:
        plain = Opening(
            self.feed,
            seen,
            self.epoch,
            self.tag(),
            self.rev,
            self.token,
            self.status,
            self.started_at,
            None,
            self.clock.wall_ms(),
        )
        return replace(plain, **fields)

    def fact(
        self, name: str, status: Status | None = None, payload: dict[str, Any] | None = None, state: bytes | None = None
    ) -> Fact:
        """The next fact."""
        if name == event.ATTEMPT_STARTED:
            self.token, self.n, self.state_version = self.token + 1, 0, 0
            status = Status.RUNNING
            self.started_at = self.started_at or self.clock.wall_ms()
        self.rev += 1
        self.status = status or self.status
        draft = FactDraft(name, payload or {}, self.status, self.token, state)
        return event.numbered(draft, self.feed, self.rev, started_at=self.started_at, at=self.clock.wall_ms())

    def final(self, status: Status = Status.SUCCEEDED) -> Fact:
        return self.fact(event.FINAL_TYPES[status], status)

    def guard(self, **fields: Any) -> Guard:
        return replace(Guard(self.epoch, self.token, self.rev), **fields)

    def write(
        self, count: int = 1, *, payload: object = None, state: State | None = None, guard: Guard | None = None
    ) -> Publish:
        """The attempt's next write: `count` events, and a state if one is given."""
        first = self.n + 1
        self.n += count
        if state is not None:
            self.state_version += 1
        at = self.clock.wall_ms()
        made = [event.published(self.run_id, self.token, first + i, "step_done", payload, at) for i in range(count)]
        return Publish(
            self.feed,
            guard or self.guard(),
            first,
            tuple(made),
            tuple(self.tag() for _ in made),
            state.encode() if state is not None else None,
            self.state_version,
            at,
        )

    def again(self, write: Publish, **fields: Any) -> Publish:
        """The same write sent once more: with new tags, as every send has."""
        return replace(write, tags=tuple(self.tag() for _ in write.events), **fields)

    def text(self, offset: int, data: bytes, part: str = "answer", **fields: Any) -> TextWrite:
        return replace(TextWrite(self.feed, self.guard(), part, offset, data), **fields)


async def opened(b: LiveBench) -> Scribe:
    """A projection that was just opened."""
    scribe = Scribe(b.clock)
    applied(await b.store.open(scribe.opening()))
    return scribe


async def live(b: LiveBench) -> Scribe:
    """A projection of a run in its first attempt: three facts on its timeline."""
    scribe = await opened(b)
    applied(await project(b, scribe, scribe.fact(event.RUN_QUEUED)))
    applied(await project(b, scribe, scribe.fact(event.RUN_STARTED, Status.RUNNING)))
    applied(await project(b, scribe, scribe.fact(event.ATTEMPT_STARTED)))
    return scribe


async def project(b: LiveBench, scribe: Scribe, fact: Fact) -> Reply:
    return await b.store.fact(scribe.epoch, fact, scribe.tag())


async def publish(b: LiveBench, scribe: Scribe, count: int, **how: Any) -> None:
    """Publish this many events, each by a write of its own."""
    for _ in range(count):
        applied(await b.store.publish(scribe.write(**how)))


def applied(reply: object) -> Applied:
    assert isinstance(reply, Applied), reply
    return reply


async def view(b: LiveBench, feed: Feed, **window: Any) -> View:
    """A read, which must be whole: entries chained, in the epoch of the marks, the newest being the tip."""
    seen = await b.store.read(feed, **({"limit": 10_000} | window))
    assert seen is not None
    for before, after in zip(seen.entries, seen.entries[1:], strict=False):
        assert (after.position, after.prev) == (before.position + 1, before.tag)
    assert all(entry.epoch == seen.marks.epoch for entry in seen.entries)
    assert all(seen.marks.floor < entry.position <= seen.marks.position for entry in seen.entries)
    if seen.entries and seen.entries[-1].position == seen.marks.position:
        assert seen.entries[-1].tag == seen.marks.tag
    assert (seen.snapshot.version, seen.snapshot.rev) == (seen.marks.version, seen.marks.rev)
    assert seen.snapshot.status.final == seen.marks.final
    return seen


def positions(seen: View) -> list[int]:
    return [entry.position for entry in seen.entries]
