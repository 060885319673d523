"""One run, the processes that work on it, and time. A step runs until nothing moves any more, then the next one may."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import tempfile
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from playhead.core import cursor
from playhead.core import event as events
from playhead.core.event import Event
from playhead.core.ids import EVERY_TENANT, run_feed, uuid7
from playhead.core.interrupt import Question
from playhead.core.redaction import Redactor
from playhead.core.retention import Retention
from playhead.core.run import NewRun, Outcome, Policy, Run, Status
from playhead.core.snapshot import State
from playhead.core.transition import (
    Already,
    Applied,
    Behind,
    Final,
    Guard,
    NeedsRebuild,
    Publish,
    Reply,
    Stale,
    StaleVersion,
    WrongEpoch,
)
from playhead.errors import AttemptLost, PlayheadError, RunFinal, RunNotFree, StoreUnavailable
from playhead.runtime.archiver import Archiver
from playhead.runtime.projector import Projector, quietly
from playhead.runtime.publisher import Publisher, PublisherOptions
from playhead.testing.clock import FakeClock
from tests.machine.stores import KEPT_COPIES, TTL, Stores
from tests.machine.truth import Truth

T = TypeVar("T")

LEASE_MS = 10_000
LONG = 31.0  # seconds: longer than any backoff
PATIENCE = 400  # quarters of a second that a step may take
TRIES = 8


class FakeLoop(asyncio.SelectorEventLoop):
    """Its timers go by the fake clock too."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._fake = clock

    def time(self) -> float:
        return self._fake.steady()


class Complaints(logging.Handler):
    """An error in the log is a fault of the code under test that it swallowed."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(self.format(record))


class Process:
    """A server process: its own projector and archiver over the shared stores."""

    def __init__(self, world: World, name: str) -> None:
        stores = world.stores
        self.name = name
        self.projector = Projector(stores.record, stores.live, world.clock)
        self.archiver = Archiver(stores.record, stores.record, stores.live, world.clock)
        if world.archive != "off":
            self.projector.before_empty = self.archiver.save


class Author:
    """An attempt that speaks through the real publisher, in a process of its own."""

    def __init__(self, world: World, run: Run, process: Process) -> None:
        self.world, self.run, self.process = world, run, process
        self.over = False
        self.calls = 0
        self.publisher = Publisher(
            run,
            State(title=f"attempt {run.token}"),
            live=world.stores.live,
            texts=world.stores.live,
            projector=process.projector,
            clock=world.clock,
            redactor=Redactor(),
            lost=self.lost,
            archive=process.archiver.run if world.archive == "sync" else None,
            options=PublisherOptions(pending=6),
        )
        process.projector.sources[run.id] = self.publisher

    def lost(self, error: BaseException | None) -> None:
        assert error is None, "a fault of the code under test"
        self.stop()

    def stop(self) -> None:
        self.over = True
        self.process.projector.sources.pop(self.run.id, None)

    def state(self) -> bytes | None:
        return self.publisher.state()

    def knows(self, run: Run) -> None:
        self.publisher.knows(run)

    async def publish(self, count: int, state: int | None) -> None:
        changes = {} if state is None else {"done": state}
        self.calls += 1
        payload = {"of": self.run.token, "call": self.calls}
        said = [self.publisher.event("step_done", payload, changes) for _ in range(count)]
        for done in await asyncio.gather(*said, return_exceptions=True):
            assert done is None or isinstance(done, AttemptLost), done
        if self.world.archive == "sync" and not self.publisher.closed and not self.publisher.down:
            truth, mine = self.world.truth, json.dumps(payload, separators=(",", ":")).encode()
            waiting = truth.acked - truth.excused - set(truth.archive)
            assert not [name for name in waiting if mine in truth.bodies[name]], "acknowledged before it was archived"

    def say(self, part: str, words: str) -> None:
        """Words of this attempt, which name it."""
        if self.publisher.closed:
            return
        key = self.run.token, part
        text = "".join(f"{self.run.token}:{word} " for word in words)
        self.world.truth.said[key] = self.world.truth.said.get(key, b"") + text.encode()
        self.publisher.text(part, text)

    async def flush(self) -> None:
        await self.publisher.flush()

    def shut(self) -> None:
        self.publisher.shut()
        self.stop()


class Raw:
    """An attempt that writes to the store directly, in order and until it is answered; and old writes once more."""

    def __init__(self, world: World, run: Run, process: Process) -> None:
        self.world, self.run, self.process = world, run, process
        self.over = False
        self.epoch, self.rev = run.epoch, run.rev
        self.n = self.acked_n = self.acked_state = self.state_version = 0
        self.encoded: bytes | None = None
        self.owes_state = False
        self.pending: list[tuple[int, Event]] = []
        self.sent: list[Publish] = []

    def state(self) -> bytes | None:
        return self.encoded

    def knows(self, run: Run) -> None:
        self.rev = max(self.rev, run.rev)
        self._move(run.epoch)

    def _move(self, epoch: int) -> None:
        if epoch > self.epoch:
            self.epoch, self.acked_n, self.acked_state = epoch, 0, 0
            self.owes_state = self.encoded is not None

    async def publish(self, count: int, state: int | None) -> None:
        at = self.world.clock.wall_ms()
        for _ in range(count):
            self.n += 1
            event = events.published(self.run.id, self.run.token, self.n, "step_done", {"of": self.run.token}, at)
            self.pending.append((self.n, event))
        if state is not None:
            self.encoded = State(title=f"attempt {self.run.token}", done=state).encode()
            self.owes_state = True
        await self.flush()

    async def flush(self) -> None:
        for _ in range(TRIES):
            if self.over or not (self.pending or self.owes_state):
                return
            with suppress(StoreUnavailable):
                write = self._write()
                self.sent.append(write)
                await self._took(write, await self.world.stores.live.publish(write))

    def _write(self) -> Publish:
        batch = self.pending[: self.world.stores.sky.random.randint(1, 3)]
        if self.owes_state:
            self.state_version += 1
        return Publish(
            run_feed(self.run.id),
            Guard(self.epoch, self.run.token, self.rev, self.acked_n, self.acked_state),
            batch[0][0] if batch else self.n + 1,
            tuple(event for _, event in batch),
            tuple(self.world.tag() for _ in batch),
            self.encoded if self.owes_state else None,
            self.state_version,
            self.world.clock.wall_ms(),
        )

    async def _took(self, write: Publish, reply: Reply) -> None:
        match reply:
            case Applied() | Already():
                if write.guard.epoch == self.epoch:
                    self.acked_n = max(self.acked_n, write.last_n) if write.events else self.acked_n
                if write.state is not None:
                    self.acked_state, self.owes_state = write.state_version, False
                self.pending = [one for one in self.pending if one[0] > write.last_n]
            case StaleVersion():
                self.owes_state = False
            case Stale() | Final():
                self.over = True
            case WrongEpoch(epoch):
                self._move(epoch)
            case _:
                back = isinstance(reply, NeedsRebuild) and reply.seen == self.epoch
                run = await self.process.projector.bring(self.run.id, rebuild=back)
                assert isinstance(reply, Behind | NeedsRebuild)
                assert run is not None
                self.knows(run)

    async def send_again(self, which: int) -> None:
        """A write from some time ago arrives once more."""
        if self.sent:
            old = self.sent[-1 - which % len(self.sent)]
            with suppress(StoreUnavailable):
                await self.world.stores.live.publish(replace(old, tags=tuple(self.world.tag() for _ in old.tags)))

    def shut(self) -> None:
        self.over = True


@dataclass(frozen=True)
class Setting:
    backend: str
    archive: str
    count: int
    seed: int


class World:
    def __init__(self, setting: Setting) -> None:
        self.setting, self.archive = setting, setting.archive
        self.clock = FakeClock(seed=setting.seed)
        self.loop = FakeLoop(self.clock)
        self.faults: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.faults.append(context))
        self.complaints = Complaints()
        logging.getLogger("playhead").addHandler(self.complaints)
        self._folder = Path(tempfile.mkdtemp(prefix="machine-"))
        keep = Retention(count=setting.count, archive=setting.archive != "off")
        self.stores = Stores(setting.backend, self.clock, self._folder, keep)
        self.processes = [Process(self, "p0")]
        self.authors: list[Author | Raw] = []
        self.background: list[asyncio.Task[None]] = []  # loops that run as long as the world does
        self.other, self.truth = self._create(keep), self._create(keep)
        self.do(self._begin())

    def _create(self, keep: Retention) -> Truth:
        """Two runs, made in one millisecond, so that their first epochs are one number."""
        new = NewRun(self.new_id(), "acme", "echo", b"{}", Policy(resumable=True, max_attempts=1_000), {})
        self.stores.backend.wait(self.stores.backend.record.create(new))
        truth = Truth(run_feed(new.id), keep, (int(TTL[0] * 1000), int(TTL[1] * 1000)))
        self.stores.truths[truth.feed] = truth
        return truth

    async def _begin(self) -> None:
        self.stores.record.learn()
        for truth in (self.other, self.truth):
            assert truth.run is not None
            await self.server.projector.begin(truth.run)

    @property
    def server(self) -> Process:
        return self.processes[0]

    @property
    def run(self) -> Run:
        assert self.truth.run is not None
        return self.truth.run

    @property
    def current(self) -> Author | Raw | None:
        """The attempt that the record takes for the run's own."""
        last = self.authors[-1] if self.authors else None
        owned = self.run.owner is not None and last is not None and last.run.token == self.run.token
        return last if owned else None

    def author(self, who: int) -> Author | Raw:
        """The newest is 0; those before it are zombies."""
        return self.authors[-1 - who % len(self.authors)]

    def new_id(self) -> str:
        return uuid7(self.clock.wall_ms(), self.clock.random(10))

    def tag(self) -> str:
        return cursor.tag(self.clock.random(6))

    # Steps.

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this to its end and everything else until it waits for time to pass. Time passes if this needs it."""
        return self.loop.run_until_complete(self._drive(work))

    async def _drive(self, work: Coroutine[Any, Any, T]) -> T:
        task = self.loop.create_task(work)
        for _ in range(PATIENCE):
            await self.settle()
            if task.done():
                return await task
            await self.clock.advance(0.25)
        task.cancel()
        raise AssertionError("a step never ends")

    async def settle(self) -> None:
        while True:
            await asyncio.sleep(0)
            if not self.loop._ready:  # type: ignore[attr-defined]
                return

    def check(self) -> None:
        self.stores.check(self.truth)
        if self.faults:
            raise AssertionError(self.faults[0]["message"]) from self.faults[0].get("exception")
        assert not self.complaints.heard, "\n".join(self.complaints.heard)

    def close(self) -> None:
        for author in self.authors:
            author.shut()
        try:
            self.loop.run_until_complete(self._end())
        finally:
            logging.getLogger("playhead").removeHandler(self.complaints)
            self.loop.close()
            self.stores.backend.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _end(self) -> None:
        tasks = asyncio.all_tasks(self.loop) - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.settle()

    # What people and processes do. The record is asked until it answers; who asks may die before projecting.

    async def surely(self, method: str, *args: Any) -> Any:
        while True:
            try:
                return await getattr(self.stores.record, method)(*args)
            except StoreUnavailable:
                continue

    async def bring(self, which: int = 0) -> None:
        await quietly(self.processes[which % len(self.processes)].projector, self.run.id)

    async def start(self, raw: bool) -> None:
        """A new attempt; the one before, if any, has lost its lease and does not know."""
        if self.run.owner is not None:
            await self.surely("leave", self.run.owner)
            await self.surely("lose", self.run.id, self.run.token, None)
        await self.clock.advance(LONG)
        name = f"p{len(self.processes)}"
        process = Process(self, name)
        self.processes.append(process)
        try:
            run = await self.claim(name)
        except StoreUnavailable:
            return  # it may be claimed now, by a process that will never know
        except RunFinal:
            return
        author = (Raw if raw else Author)(self, run, process)
        self.authors.append(author)
        with suppress(StoreUnavailable):
            found = await process.projector.bring(run.id, resend=False)
            assert found is not None
            author.knows(found)

    async def claim(self, name: str) -> Run:
        await self.surely("beat", name, LEASE_MS, ())
        try:
            return await self.stores.record.claim(EVERY_TENANT, self.run.id, name)
        except RunNotFree:
            assert self.run.not_before > self.clock.wall_ms(), "only a clock that went back can make a wait longer"
            await self.clock.advance(LONG)
            await self.surely("beat", name, LEASE_MS, ())
            return await self.stores.record.claim(EVERY_TENANT, self.run.id, name)

    async def work(self, who: int, deeds: Sequence[tuple[str, Any, Any]]) -> None:
        author = self.author(who)
        for deed, this, that in deeds:
            if deed == "publish":
                await author.publish(this, that)
            elif deed == "say" and isinstance(author, Author):
                author.say(this, that)
                await self.clock.advance(0.05)
            elif deed == "again" and isinstance(author, Raw):
                await author.send_again(this)
            elif deed == "ask":
                await self.ask(author, this, project=that)

    async def all_at_once(self, *works: Coroutine[Any, Any, None]) -> None:
        for done in await asyncio.gather(*works, return_exceptions=True):
            if done is not None and not isinstance(done, StoreUnavailable):
                raise done

    async def finish(self, author: Author | Raw, outcome: Outcome, project: bool) -> None:
        with suppress(AttemptLost, RunFinal):
            lacking = await self.last_words(author)
            ending = replace(outcome, state=author.state(), lacking=lacking)
            await self.surely("finish", self.run.id, author.run.token, ending)
        author.shut()
        if project:
            await quietly(author.process.projector, self.run.id)

    async def last_words(self, author: Author | Raw) -> tuple[Event, ...]:
        """What the projection lacks of an attempt that has tried once more to send everything."""
        if isinstance(author, Raw):
            await author.flush()
            return tuple(event for _, event in author.pending)
        lacking = await author.publisher.settle()
        if (epoch := author.publisher.holed) is not None:
            await self.surely("mint_epoch", run_feed(self.run.id), epoch)
        return tuple(lacking)

    async def ask(self, author: Author | Raw, key: str, project: bool) -> None:
        with suppress(AttemptLost, RunFinal):
            await author.flush()
            question = Question(key, "approval", b'{"title":"Go on?"}', None)
            await self.surely("ask", self.run.id, author.run.token, question, self.new_id(), author.state())
            if project:
                with suppress(StoreUnavailable):
                    found = await author.process.projector.bring(self.run.id, resend=False)
                    assert found is not None
                    author.knows(found)

    async def decide(self, yes: bool, project: bool) -> None:
        for asked in await self.surely("interrupts", EVERY_TENANT, self.run.id):
            decision = b'{"approved":true}' if yes else b'{"approved":false}'
            with suppress(PlayheadError):
                await self.surely("decide", EVERY_TENANT, self.run.id, asked.id, decision, "ada")
            if project:
                await self.bring()

    async def cancel(self, project: bool) -> None:
        await self.surely("request_cancel", EVERY_TENANT, self.run.id, "ada", None)
        if project:
            await self.bring()

    async def keep_house(self, what: str) -> None:
        """What the loops of a server do now and then."""
        if what == "sweep":
            for feed in await self.stores.record.outbox(10):
                await self.server.projector.bring(feed.id, wait=False)
            await self.server.projector.settle()
        elif what == "trim":
            await self.stores.live.trim(self.truth.feed)
        elif self.archive != "off":
            await self.server.archiver.run(self.run.id)

    async def come_out_of_turn(self, which: int, epoch: int) -> None:
        opened, facts = sorted(self.truth.opened), self.truth.facts
        if which == 0:  # the newest, for a store that may lack some before it
            self.stores.happen("back", KEPT_COPIES - 1)
        fact = facts[-1 - which % len(facts)]
        self.truth.parted.update(event.id for event in fact.lacking)
        await self.stores.live.fact(opened[-1 - epoch % len(opened)], fact, self.tag())

    async def wait(self, seconds: float) -> None:
        """Time passes, and what has outlived it goes: projections of ended runs, and facts that are settled."""
        await self.clock.advance(seconds)
        await self.keep_house("sweep")
        await self.stores.live.expire()
        await self.surely("prune", self.clock.wall_ms())
        self.truth.pruned()

    async def happen(self, word: str, which: int = 0) -> None:
        self.stores.happen(word, which)

    # The end of a history: no more damage, and time for everyone to agree.

    async def heal(self) -> None:
        """A last attempt says its last words, ends the run, and everything is projected."""
        self.stores.sky.down = False
        self.stores.sky.set((), 0)
        await self.clock.advance(10.0)
        if not self.run.status.final:
            await self.start(raw=False)
        author = self.current
        if author is not None:
            assert isinstance(author, Author)
            assert not author.over
            author.say("answer", "so")
            await author.publish(2, 7)
            author.publisher.close_parts()
            await author.flush()
            line, token = self.truth.line, author.run.token
            assert line is not None
            assert line.state == author.state(), "the projection has the attempt's whole state"
            open_text = {key: data for key, (data, _) in line.texts.items()}
            assert open_text == {key: said for key, said in self.truth.said.items() if key[0] == token}
            await self.finish(author, Outcome(Status.SUCCEEDED, result=b"1"), project=True)
        self.stores.check(self.other)
        await self.bring()
        for late in self.authors:  # whoever goes on now is refused
            if isinstance(late, Raw):
                late.over = False
                await late.publish(1, 1)
        await self.server.projector.settle()
        if self.archive != "off":
            await self.server.archiver.run(self.run.id)
        line = self.truth.line
        if line is not None:
            assert (line.epoch, line.rev, line.status) == (self.run.epoch, self.run.rev, self.run.status)
            revs = [one.rev for one in line.told if one.rev]
            assert revs == list(range(line.opening.rev + 1, self.run.rev + 1)), "each fact once, in order"
            assert not line.told or line.told[-1].rev == self.run.rev, "nothing follows the final event"
        assert sum(fact.final for fact in self.truth.facts) == 1, "one final event"
        self.truth.check_carried()
