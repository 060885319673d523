"""The rules that both machines share: what attempts, people, processes and accidents do to one run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from playhead.core.run import Failure, Outcome, Status
from playhead.errors import StoreUnavailable
from tests.machine.world import Setting, World
from tests.plugins import histories

T = TypeVar("T")

STEPS = 50

# Mostly nothing happens. A plan says what befalls the calls of one step, a seed how its tasks overtake each other.
WORDS = [*[""] * 9, "reply", "reply", "request", "request", "copy", "back", "lost"]
PLANS = st.lists(st.sampled_from(WORDS), max_size=6)
SEEDS = st.integers(0, 1_000)
WHO = st.sampled_from([0, 0, 0, 1, 2])  # of the attempts, newest first; all but the newest are zombies

# What an attempt does, and with what.
DEED = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 3), st.none() | st.integers(0, 99)),
    st.tuples(st.just("publish"), st.integers(1, 3), st.integers(0, 99)),
    st.tuples(st.just("say"), st.sampled_from(["answer", "notes"]), st.text("ab\u00e9", max_size=3)),
    st.tuples(st.just("again"), st.integers(0, 9), st.none()),
    st.tuples(st.just("ask"), st.sampled_from(["one", "two"]), st.booleans()),
)
DEEDS = st.lists(DEED, min_size=1, max_size=3)
OUTCOMES = {
    "succeeded": Outcome(Status.SUCCEEDED, result=b"1"),
    "failed": Outcome(Status.FAILED, failure=Failure("boom", "It broke.")),
    "released": Outcome(Status.INTERRUPTED, released=True),
}


def goes_on(machine: History) -> bool:
    return not machine.world.run.status.final


def old_enough(machine: History) -> bool:
    """Histories end at an age that each has of its own, so that most see much before."""
    return goes_on(machine) and machine.steps >= machine.lifetime


class History(RuleBasedStateMachine):
    """Every step ends with all of the store compared with the model."""

    backend: ClassVar[str]

    world: World
    lifetime = chatter = steps = 0
    broken = False

    @initialize(
        archive=st.sampled_from(["async", "sync", "off"]),
        count=st.sampled_from([1, 2, 4, 1_000]),
        seed=SEEDS,
        lifetime=st.integers(5, STEPS + 20),
        chatter=st.sampled_from([0, 1, 2, 4]),
        attempts=st.lists(st.booleans(), min_size=1, max_size=2),
    )
    def begin(self, archive: str, count: int, seed: int, lifetime: int, chatter: int, attempts: list[bool]) -> None:
        """`chatter`: after every so many steps somebody publishes, whatever rules this history has."""
        self.lifetime = lifetime
        self.world = World(Setting(self.backend, archive, count, seed))
        self.step(self.began)
        for raw in attempts:
            self.step(partial(self.world.start, raw))
        self.chatter = chatter

    async def began(self) -> None:
        """Called once, in the loop."""

    def step(
        self, work: Callable[[], Coroutine[Any, Any, T]], plan: list[str] | None = None, seed: int = 0
    ) -> T | None:
        """Do this under that sky, and judge. None: a store did not answer, and whoever asked gave up."""
        result = self._do(work, plan or [], seed)
        self.steps += 1
        if self.chatter and self.steps % self.chatter == 0 and not self.world.stores.sky.down:
            turn = self.steps // self.chatter
            self._do(
                partial(self.world.author(1 if turn % 4 == 3 else 0).publish, 1, turn if turn % 2 else None), [], 0
            )
        return result

    def _do(self, work: Callable[[], Coroutine[Any, Any, T]], plan: list[str], seed: int) -> T | None:
        self.world.stores.sky.set(plan, seed)
        result: T | None = None
        try:
            with suppress(StoreUnavailable):
                result = self.world.do(work())
            self.world.stores.sky.set((), 0)
            self.judge()
        except BaseException:
            self.broken = True
            raise
        return result

    def judge(self) -> None:
        self.world.check()

    # Attempts and people.

    @precondition(goes_on)
    @rule(raw=st.booleans(), plan=PLANS, seed=SEEDS)
    def start(self, raw: bool, plan: list[str], seed: int) -> None:
        self.step(lambda: self.world.start(raw), plan, seed)

    @rule(who=WHO, deeds=DEEDS, plan=PLANS, seed=SEEDS)
    def work(self, who: int, deeds: list[Any], plan: list[str], seed: int) -> None:
        self.step(lambda: self.world.work(who, deeds), plan, seed)

    @rule(deeds=DEEDS, more=DEEDS, plan=PLANS, seed=SEEDS)
    def work_at_once(self, deeds: list[Any], more: list[Any], plan: list[str], seed: int) -> None:
        """The newest attempt and the one before it."""
        self.step(lambda: self.world.all_at_once(self.world.work(0, deeds), self.world.work(1, more)), plan, seed)

    @rule(yes=st.booleans(), project=st.booleans(), plan=PLANS, seed=SEEDS)
    def decide(self, yes: bool, project: bool, plan: list[str], seed: int) -> None:
        self.step(lambda: self.world.decide(yes, project), plan, seed)

    @precondition(old_enough)
    @rule(how=st.sampled_from(sorted(OUTCOMES)), who=WHO, project=st.booleans(), plan=PLANS, seed=SEEDS)
    def finish(self, how: str, who: int, project: bool, plan: list[str], seed: int) -> None:
        self.step(lambda: self.world.finish(self.world.author(who), OUTCOMES[how], project), plan, seed)

    @precondition(goes_on)
    @rule(how=st.sampled_from(sorted(OUTCOMES)), count=st.integers(1, 9), plan=PLANS, seed=SEEDS)
    def end_while_the_store_is_away(self, how: str, count: int, plan: list[str], seed: int) -> None:
        """What it says then is more than an attempt keeps, or not. The store stays away."""
        outcome = OUTCOMES[how if old_enough(self) else "released"]
        self.world.stores.sky.down = True
        self.step(lambda: self.world.work(0, [("publish", count, count)]))
        self.step(lambda: self.world.finish(self.world.author(0), outcome, project=True), plan, seed)

    @precondition(old_enough)
    @rule(project=st.booleans(), plan=PLANS, seed=SEEDS)
    def cancel(self, project: bool, plan: list[str], seed: int) -> None:
        self.step(lambda: self.world.cancel(project), plan, seed)

    # Processes.

    @rule(which=st.lists(st.integers(0, 3), min_size=1, max_size=3), lost=st.booleans(), plan=PLANS, seed=SEEDS)
    def bring(self, which: list[int], lost: bool, plan: list[str], seed: int) -> None:
        """Several processes at once; they rebuild if the projection was lost."""
        work = [self.world.bring(one) for one in which]
        self.step(lambda: self.world.all_at_once(*work), ["lost", *plan] if lost else plan, seed)

    @rule(what=st.sampled_from(["sweep", "archive", "trim"]), plan=PLANS, seed=SEEDS)
    def keep_house(self, what: str, plan: list[str], seed: int) -> None:
        self.step(lambda: self.world.keep_house(what), plan, seed)

    @rule(which=st.sampled_from([0, 0, *range(1, 8)]), epoch=st.integers(0, 2))
    def come_out_of_turn(self, which: int, epoch: int) -> None:
        """A fact arrives out of its turn, under an epoch of its time: the newest is 0."""
        self.step(lambda: self.world.come_out_of_turn(which, epoch))

    @rule(seconds=st.sampled_from([0.3, 2.5, 70.0, 400.0]), wall=st.sampled_from([0.0, 0.0, -30.0, -3.0, 5.0]))
    def wait(self, seconds: float, wall: float) -> None:
        """Time passes, and the time of day may step."""
        self.world.clock.step_wall(wall)
        self.step(lambda: self.world.wait(seconds))

    # Accidents.

    @rule(what=st.sampled_from(["copy", "copy", "back", "back", "lost"]), which=st.integers(0, 3))
    def happen(self, what: str, which: int) -> None:
        self.step(lambda: self.world.happen(what, which))

    @rule(down=st.booleans())
    def outage(self, down: bool) -> None:
        self.world.stores.sky.down = down

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            if not self.broken:
                self.chatter = 0
                self.step(self.world.heal)
                self.step(self.converge)
                self.agreed()
        finally:
            self.world.close()

    async def converge(self) -> None:
        """Readers read to the end."""

    def agreed(self) -> None:
        """Called last: what must hold now."""


def play(machine: type[History], backend: str, examples: int, steps: int = STEPS) -> None:
    """Play so many histories on this backend."""
    kind = type(f"{machine.__name__}On{backend.title()}", (machine,), {"backend": backend})
    hypothesis.seed(histories.seed())(kind)
    run_state_machine_as_test(
        kind,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=False,
            print_blob=False,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
