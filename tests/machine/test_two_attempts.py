"""Two attempts that both go on, over PostgreSQL and Redis, in any order of what they say to the servers.

The one lost its lease and does not know; the other takes over meanwhile. Each statement and each command waits for its
turn, so transactions lie in each other as the drawn turns will have it, also where one waits for the other's lock.
Nothing that an attempt writes is accepted after a higher token stands there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

import hypothesis
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from playhead.backends.postgres import PostgresRecord
from playhead.backends.postgres.database import Session
from playhead.backends.redis import RedisLive
from playhead.core import cursor
from playhead.core.event import Fact
from playhead.core.ids import EVERY_TENANT, published_place, run_feed, uuid7
from playhead.core.interrupt import Question
from playhead.core.run import Failure, NewRun, Outcome, Policy, Run, Status
from playhead.core.snapshot import EMPTY, decode_state
from playhead.core.text import TextApplied, TextWrite
from playhead.core.transition import Guard
from playhead.errors import AttemptLost, PlayheadError, RunFinal, RunNotFree
from playhead.interfaces import View
from playhead.runtime.projector import Projector
from playhead.testing.clock import FakeClock
from tests.machine.world import LEASE_MS, Raw
from tests.plugins import histories
from tests.support import postgres, redis_servers

SHARE = 0.1  # of the histories
AFTER_BACKOFF = 31.0  # seconds

DEEDS = ("publish", "publish", "say", "ask", "bring", "succeed", "fail", "release")
OLD = st.lists(st.sampled_from(DEEDS), min_size=2, max_size=5)
NEW = st.lists(st.sampled_from(DEEDS[:5]), max_size=3)
PEOPLE = st.lists(st.sampled_from(["cancel", "decide", "decide", "lose the store"]), max_size=2)
TURNS = st.lists(st.integers(0, 5), max_size=80)

_who: ContextVar[str | None] = ContextVar("_who", default=None)


class Turns:
    """Whoever wants to say something to a server waits here until it is picked."""

    def __init__(self, blocked: Callable[[], int]) -> None:
        self._blocked = blocked
        self._waiting: dict[str | None, list[tuple[asyncio.Future[None], str]]] = {}
        self._tasks: dict[str | None, asyncio.Task[None]] = {}
        self._over = False

    async def mine(self, changes: str) -> None:
        """`changes`: what may be another one afterwards, for whoever judges."""
        who = _who.get()
        if who in self._tasks and not self._over:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(who, []).append((turn, changes))
            await turn

    def begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        async def named() -> None:
            _who.set(name)
            await work

        self._tasks[name] = asyncio.get_running_loop().create_task(named())

    async def play(self, turns: list[int], judge: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        """Let all of them come to their end, and judge after each turn."""
        picks, self._over = iter(turns), False
        try:
            while True:
                await self._quiet()
                ready = [name for name in self._tasks if self._waiting.get(name)]
                if ready:
                    turn, changes = self._waiting[ready[next(picks, 0) % len(ready)]].pop(0)
                    turn.set_result(None)
                    await self._quiet()
                    await judge(changes)
                elif all(task.done() for task in self._tasks.values()):
                    break
            for task in self._tasks.values():
                task.result()
        finally:
            self._over = True
            for turn, _ in [one for waiting in self._waiting.values() for one in waiting]:
                turn.set_result(None)
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            self._tasks.clear()
            self._waiting.clear()

    async def _quiet(self) -> None:
        """Return when everybody waits for a turn or for somebody else's lock, or has ended."""
        while True:
            for _ in range(5):
                await asyncio.sleep(0)
            busy = [name for name, task in self._tasks.items() if not task.done() and not self._waiting.get(name)]
            if not busy or (len(busy) < len(self._tasks) and self._blocked() >= len(busy) and self._others(busy)):
                return
            await asyncio.sleep(0.0005)  # the servers answer in their own time

    def _others(self, busy: list[str | None]) -> bool:
        return any(waiting for name, waiting in self._waiting.items() if name not in busy)


class Passing(FakeClock):
    """Time passes as soon as anybody waits for it."""

    async def sleep(self, seconds: float) -> None:
        self.step_wall(seconds)
        await asyncio.sleep(0)


@dataclass
class Process:
    """One side: its own connections to both servers."""

    record: PostgresRecord
    live: RedisLive
    projector: Projector


class Servers:
    """Both servers, and who speaks to them: three processes by turns, and an eye that sees at any time."""

    def __init__(self) -> None:
        self.clock = Passing()
        self._dsn, self._prefix = postgres.database(), redis_servers.prefix()
        self._watch = psycopg.connect(self._dsn, autocommit=True)
        self.turns = Turns(self._blocked)
        self.sides: list[Process] = []

    def _blocked(self) -> int:
        found = self._watch.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
        ).fetchall()
        return int(found[0][0])

    async def open(self) -> None:
        for by_turns in (True, True, True, False):
            record = await PostgresRecord.open(
                self._dsn, clock=self.clock, wall=lambda _: self.clock.wall_ms(), deadline=redis_servers.PATIENCE
            )
            live = await redis_servers.live("redis", self.clock, prefix=self._prefix)
            if by_turns:
                nodes: Any = live._nodes
                nodes.execute, nodes.execute_all = self._by_turns(nodes.execute), self._by_turns(nodes.execute_all)
            self.sides.append(Process(record, live, Projector(record, live, self.clock)))

    def _by_turns(self, say: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            await self.turns.mine("live")
            return await say(*args, **options)

        return call

    @contextmanager
    def sessions(self) -> Iterator[None]:
        """While this is on, statements wait for their turn too."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Session, "read", self._by_turns_of(Session.read, ""))
            patch.setattr(Session, "commit", self._by_turns_of(Session.commit, "record"))
            yield

    def _by_turns_of(self, say: Callable[..., Any], changes: str) -> Callable[..., Any]:
        async def call(session: Session, *args: Any, **options: Any) -> Any:
            if not session.ending:
                await self.turns.mine(changes)
            return await say(session, *args, **options)

        return call

    async def close(self) -> None:
        for side in self.sides:
            await side.record.close()
            await side.live.close()
        self._watch.close()


class Scene:
    """One run, and what a `Raw` attempt asks its world for."""

    def __init__(self, servers: Servers, run: Run, seed: int) -> None:
        self.servers, self.run, self.clock = servers, run, servers.clock
        self.feed = run_feed(run.id)
        self.eye = servers.sides[-1]
        self.stores = self  # of the attempt's side, while it asks
        self.sky = self
        self.random = random.Random(seed)
        self.seen = Seen()

    def tag(self) -> str:
        return cursor.tag(self.clock.random(6))

    async def judge(self, changes: str) -> None:
        if changes == "record":
            await self.judge_record()
        elif changes == "live":
            await self.judge_projection()

    async def judge_record(self) -> None:
        page = await self.eye.record.facts(self.feed, 0)
        assert page is not None
        asked = await self.eye.record.interrupts(EVERY_TENANT, self.run.id, open_only=False)
        self.seen.record(page.run, page.facts, {one.id: one.token for one in asked})

    async def judge_projection(self) -> None:
        view = await self.eye.live.read(self.feed, after=0, limit=10_000)
        text = {part.token for part in await self.eye.live.read_text(self.feed)}
        self.seen.projection(view, text)


@dataclass
class Seen:
    """What stood there before, and so what may not be accepted any more."""

    run: Run | None = None
    asked: dict[str, int] = field(default_factory=dict)
    states: set[bytes | None] = field(default_factory=lambda: {EMPTY})  # every one that the record had
    view: View | None = None
    projected: int = 0  # the highest token that any projection of the run had
    told: set[str] = field(default_factory=set)  # tags

    def record(self, run: Run, facts: tuple[Fact, ...], asked: dict[str, int]) -> None:
        before = self.run.token if self.run else 0
        assert [fact.rev for fact in facts] == list(range(1, run.rev + 1))
        assert [fact.token for fact in facts] == sorted(fact.token for fact in facts), "tokens only grow"
        assert sum(fact.final for fact in facts) == run.status.final, "one final fact, and the last"
        for name in asked.keys() - self.asked.keys():
            assert asked[name] >= before, "a question of an attempt that was overtaken"
        for name in asked.keys() & self.asked.keys():
            assert asked[name] in (self.asked[name], run.token), "a question taken over by whoever was overtaken"
        if self.run is not None and run.state != self.run.state:
            assert author(run.state) >= before, "the record has the state of an attempt that was overtaken"
        if run.status.final and self.run is not None and not self.run.status.final:
            for word in (run.result, run.partial, run.failure.message if run.failure else None):
                assert word is None or int(word) >= before, "an attempt that was overtaken ended the run"
        self.run, self.asked = run, asked
        self.states |= {run.state, *(fact.state for fact in facts)}

    def projection(self, view: View | None, text: set[int]) -> None:
        if view is None:
            self.view = None
            return
        for entry in view.entries:
            if entry.tag not in self.told and not entry.event.id.startswith("run:"):
                token, _ = published_place(entry.event.id)
                assert token >= self.projected, "an event of an attempt that was overtaken"
        assert view.marks.token >= self.projected, "the projection's token only grows"
        assert not text or min(text) >= view.marks.token, "text of an attempt that was overtaken"
        shown, was = view.snapshot.state, self.view.snapshot.state if self.view else None
        if shown != was and shown not in self.states:
            assert author(shown) >= self.projected, "a state of an attempt that was overtaken"
        self.view, self.projected = view, view.marks.token
        self.told |= {entry.tag for entry in view.entries}


def author(state: bytes | None) -> int:
    """The token of whoever wrote this."""
    title = decode_state(state or b"{}").title
    return int(title.removeprefix("attempt ")) if title else 0


class Attempt:
    """An attempt of one side, which writes everything that an attempt can."""

    def __init__(self, scene: Scene, run: Run, side: Process) -> None:
        self.scene, self.run, self.side = scene, run, side
        view = _Sided(scene, side)
        self.raw = Raw(cast(Any, view), run, cast(Any, side))
        self.said = self.asked = 0

    async def work(self, deeds: list[str]) -> None:
        for deed in deeds:
            # Whoever learns that it is overtaken stops; this one tries everything all the same.
            self.raw.over = False
            with suppress(AttemptLost, RunFinal):
                await self._do(deed)

    async def _do(self, deed: str) -> None:
        token, run = self.run.token, self.run
        mark = str(token).encode()
        if deed == "publish":
            await self.raw.publish(2, self.raw.n)
        elif deed == "say":
            words = b"%d:so " % token
            guard = Guard(self.raw.epoch, token, self.raw.rev)
            write = TextWrite(self.scene.feed, guard, "answer", self.said, words)
            if isinstance(await self.side.live.append(write), TextApplied):
                self.said += len(words)
        elif deed == "ask":
            self.asked += 1
            question = Question(f"{token}-{self.asked}", "approval", b'{"title":"Go on?"}', None)
            await self.side.record.ask(run.id, token, question, self._id(), self.raw.state())
            await self._bring()
        elif deed == "bring":
            await self._bring()
        elif deed == "succeed":
            await self._finish(Outcome(Status.SUCCEEDED, result=mark, partial=mark, state=self.raw.state()))
        elif deed == "fail":
            failure = Failure("boom", str(token))
            await self._finish(Outcome(Status.FAILED, failure=failure, partial=mark, state=self.raw.state()))
        else:
            await self._finish(
                Outcome(Status.INTERRUPTED, released=True, failure=Failure("left", str(token)), state=self.raw.state())
            )

    async def _finish(self, outcome: Outcome) -> None:
        await self.side.record.finish(self.run.id, self.run.token, outcome)
        await self._bring()

    async def _bring(self) -> None:
        found = await self.side.projector.bring(self.run.id, wait=False)
        assert found is not None
        self.raw.knows(found)

    def _id(self) -> str:
        return uuid7(self.scene.clock.wall_ms(), self.scene.clock.random(10))


class _Sided:
    """The scene, with the stores of one side."""

    def __init__(self, scene: Scene, side: Process) -> None:
        self.live, self.sky, self.stores = side.live, scene, self
        self.run, self.clock, self.tag = scene.run, scene.clock, scene.tag


async def takes_over(scene: Scene, side: Process, deeds: list[str]) -> None:
    """The other process finds the lease gone, reaps, and goes on with the run."""
    with suppress(RunFinal, RunNotFree):
        await side.record.leave("old")
        await side.record.lose(scene.run.id, 1, None)
        scene.clock.step_wall(AFTER_BACKOFF)
        run = await side.record.claim(EVERY_TENANT, scene.run.id, "new")
        attempt = Attempt(scene, run, side)
        await attempt._bring()
        await attempt.work(deeds)


async def people(scene: Scene, side: Process, deeds: list[str]) -> None:
    for deed in deeds:
        with suppress(PlayheadError):
            if deed == "cancel":
                await side.record.request_cancel(EVERY_TENANT, scene.run.id, "ada", None)
            elif deed == "decide":
                for asked in await side.record.interrupts(EVERY_TENANT, scene.run.id):
                    await side.record.decide(EVERY_TENANT, scene.run.id, asked.id, b'{"approved":true}', "ada")
            else:
                await side.live.drop(scene.feed)
            await side.projector.bring(scene.run.id, wait=False)


async def play(servers: Servers, old: list[str], new: list[str], more: list[str], turns: list[int]) -> Seen:
    clock, (here, there, elsewhere, eye) = servers.clock, servers.sides
    fresh = NewRun(uuid7(clock.wall_ms(), clock.random(10)), "acme", "echo", b"{}", Policy(True, 1_000), {})
    created, _ = await eye.record.create(fresh)
    for record, name in ((here.record, "old"), (there.record, "new")):
        await record.beat(name, LEASE_MS, ())
    run = await here.record.claim(EVERY_TENANT, created.id, "old")
    await eye.projector.begin(run)
    scene = Scene(servers, run, len(turns))
    first = Attempt(scene, run, here)
    first.raw.knows(run)
    await scene.judge_record()
    await scene.judge_projection()
    with servers.sessions():
        servers.turns.begin("old", first.work(old))
        servers.turns.begin("new", takes_over(scene, there, new))
        servers.turns.begin("people", people(scene, elsewhere, more))
        await servers.turns.play(turns, scene.judge)
    agreed = await eye.projector.bring(run.id)
    await scene.judge_record()
    await scene.judge_projection()
    view = scene.seen.view
    assert agreed is not None
    if view is not None:
        assert (view.marks.token, view.marks.rev, view.snapshot.status) == (agreed.token, agreed.rev, agreed.status)
    return scene.seen


@pytest.mark.slow
@pytest.mark.timeout(600 + 6 * histories.count())
@pytest.mark.row("H-machine", "F9", "R22", "S1-5", "A8", "A37")
def test_histories_of_two_attempts_in_which_the_overtaken_one_writes_nothing():
    overtaken = 0
    with asyncio.Runner() as runner:
        servers = Servers()
        runner.run(servers.open())

        @hypothesis.seed(histories.seed())
        @settings(
            max_examples=histories.count(SHARE),
            deadline=None,
            database=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        )
        @given(old=OLD, new=NEW, more=PEOPLE, turns=TURNS)
        def plays(old: list[str], new: list[str], more: list[str], turns: list[int]) -> None:
            nonlocal overtaken
            overtaken += runner.run(play(servers, old, new, more, turns)).projected > 1

        try:
            plays()
        finally:
            runner.run(servers.close())
    assert overtaken, "nobody was overtaken in any history"
