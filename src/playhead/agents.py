"""What an agent author touches: the decorator, the run context, text parts, decisions, listeners.

@playhead.agent
async def greet(run: playhead.RunContext, who: str = "world") -> dict:
    await run.event("greeting_begun", {"who": who}, progress=10, current_step="greet")
    await run.text(f"Hello, {who}!")
    return {"greeted": who}
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

import pydantic

from playhead.core import payload as payloads
from playhead.core.event import FACT_TYPES
from playhead.core.ids import is_name
from playhead.core.interrupt import Interrupt, InterruptStatus
from playhead.core.run import Policy
from playhead.errors import ApprovalExpired, InvalidRequest, RunCancelled
from playhead.runtime.attempt import LiveAttempt
from playhead.runtime.inputs import Input
from playhead.runtime.threads import Threads, ordinary

_T = TypeVar("_T")
Disconnect = Literal["continue", "cancel"] | float
_LISTENING = 8  # threads of one plain listener


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's answer. `value` is whatever the form sent along; `expired` says that nobody answered in time."""

    approved: bool
    note: str | None = None
    value: Any = None
    by: str | None = None
    expired: bool = False


class RunContext:
    """The run as its agent code sees it. Each method may raise AttemptLost (another attempt took over, or the run
    has ended: stop) and, when the run was asked to stop, RunCancelled; async code is also cancelled once."""

    def __init__(self, attempt: LiveAttempt) -> None:
        self._attempt = attempt
        self._asked = 0

    @property
    def id(self) -> str:
        return self._attempt.run.id

    @property
    def attempt(self) -> int:
        """The attempt's fencing token: 1 for the first, larger for each later one. Pass it to side effects."""
        return self._attempt.run.token

    @property
    def labels(self) -> Mapping[str, str]:
        return self._attempt.run.labels

    @property
    def key(self) -> str | None:
        return self._attempt.run.key

    @property
    def input(self) -> Any:
        """The input as JSON, as it was stored with its defaults filled in."""
        return payloads.parse(self._attempt.run.input)

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to stop, or the attempt was lost."""
        return self._attempt.stopping is not None

    def check(self) -> None:
        """Raise RunCancelled or AttemptLost if the agent should stop: for long work between two calls."""
        self._attempt.check()

    async def event(self, type: str, payload: object = None, /, **state: Any) -> None:
        """Publish a domain event, with the snapshot fields it leads to; returns once viewers can see both, or, while
        the live store is away, once it is kept to be sent later.

        `type` is snake_case; `payload` any JSON value or Pydantic model, small (256 KiB; larger ones are cut and say
        so). State is absolute: `progress` (0-100), `current_step`, `done`, `total`, `title`, `subtitle`, `detail`,
        `scope`, `as_of`, `next_action`. Raises InvalidEventType, InvalidState, PayloadNotJson; then nothing is sent.
        """
        self.check()
        await self._attempt.event(type, {} if payload is None else payload, state)

    async def update(self, **state: Any) -> None:
        """Change snapshot fields without a timeline entry: for what moves often. Fields as for `event`."""
        self.check()
        self._attempt.publisher.set_state(state)

    async def text(self, piece: str, part: str = "answer") -> None:
        """Add to a text part; viewers see it grow. Not kept per piece: the result is what lasts."""
        self.check()
        self._attempt.publisher.text(part, piece)
        if self._attempt.publisher.crowded:
            await self._attempt.publisher.flush()

    async def close_text(self, part: str = "answer") -> None:
        """Nothing follows in this part."""
        self.check()
        self._attempt.publisher.close_part(part)

    async def audit(self, kind: str, data: object) -> None:
        """Write to the audit trail, which stays in the record and never reaches a browser."""
        self.check()
        await self._attempt.audit(kind, data)

    async def ask(
        self,
        payload: object,
        *,
        kind: str = "approval",
        key: str | None = None,
        deadline: float | None = None,
        on_deadline: Literal["raise", "return"] = "raise",
    ) -> Decision:
        """Ask a person and wait, however long, for the one decision that counts.

        The question survives restarts. `key` names it within the run (default: its place in the order of asking), so
        that a later attempt of a resumable agent, asking the same thing, gets the answer already given. `deadline`
        is in seconds from now, by the record's clock; past it, ApprovalExpired is raised or a Decision with `expired`
        is returned.
        """
        self.check()
        if not is_name(kind):
            raise InvalidRequest("The kind of an interrupt is snake_case.", kind=kind[:80])
        self._asked += 1
        within = None if deadline is None else int(deadline * 1000)
        closed = await self._attempt.ask(key or f"ask-{self._asked}", kind, payload, within)
        return _decision(closed, on_deadline)

    async def flush(self) -> None:
        """Return when everything published so far is where viewers can see it (or the store is down)."""
        self.check()
        await self._attempt.publisher.flush()


def _decision(closed: Interrupt, on_deadline: str) -> Decision:
    if closed.status is InterruptStatus.DECIDED:
        given = payloads.parse(closed.decision or b"{}")
        answer = given if isinstance(given, dict) else {}
        return Decision(
            bool(answer.get("approved")), answer.get("note"), answer.get("value"), closed.decided_by, expired=False
        )
    if closed.status is InterruptStatus.EXPIRED:
        if on_deadline == "raise":
            raise ApprovalExpired(interrupt_id=closed.id)
        return Decision(approved=False, expired=True)
    raise RunCancelled(run_id=closed.run_id)


class AttemptContext(RunContext):
    """The context of a block that claimed its run with `playhead.attempt`."""

    @property
    def result(self) -> object:
        """What is recorded as the run's result when the block ends well; any JSON value or Pydantic model."""
        return self._attempt.result

    @result.setter
    def result(self, value: object) -> None:
        self._attempt.result = value


class SyncRun:
    """The run context for plain functions, which run in threads: the same calls, blocking. See RunContext."""

    def __init__(self, run: RunContext, loop: asyncio.AbstractEventLoop) -> None:
        self._run, self._loop = run, loop
        self.id, self.attempt, self.labels, self.key, self.input = run.id, run.attempt, run.labels, run.key, run.input

    @property
    def cancelled(self) -> bool:
        return self._run.cancelled

    def check(self) -> None:
        self._run.check()

    def event(self, type: str, payload: object = None, /, **state: Any) -> None:
        self._do(self._run.event(type, payload, **state))

    def update(self, **state: Any) -> None:
        self._do(self._run.update(**state))

    def text(self, piece: str, part: str = "answer") -> None:
        self._do(self._run.text(piece, part))

    def close_text(self, part: str = "answer") -> None:
        self._do(self._run.close_text(part))

    def audit(self, kind: str, data: object) -> None:
        self._do(self._run.audit(kind, data))

    def ask(self, payload: object, **options: Any) -> Decision:
        return self._do(self._run.ask(payload, **options))

    def flush(self) -> None:
        self._do(self._run.flush())

    def _do(self, call: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


class Agent:
    """A registered agent: its name, its policy, the shape of its input, and the function."""

    def __init__(
        self,
        function: Callable[..., Any] | None,
        *,
        name: str,
        title: str | None = None,
        policy: Policy | None = None,
        input_model: type[pydantic.BaseModel] | None = None,
    ) -> None:
        if not is_name(name):
            raise InvalidRequest("The name of an agent is snake_case, at most 64 characters.", name=name[:80])
        self.name = name
        self.title = title or name.replace("_", " ").capitalize()
        self.description = inspect.getdoc(function) or "" if function else ""
        self.policy = policy or Policy()
        self.resumable = self.policy.resumable
        self._function = function
        self._input = Input(function, name, input_model)
        self.input_schema: dict[str, Any] = self._input.schema
        self.runs_here = function is not None  # else code elsewhere claims its runs

    def validate(self, given: object) -> bytes:
        """The input as it is stored, defaults filled in. Raises InvalidInput that names each field."""
        return self._input.accept(given)

    def context(self, attempt: LiveAttempt) -> RunContext:
        return RunContext(attempt)

    async def call(self, attempt: LiveAttempt) -> object:
        """Run the function for this attempt; what it returns is the result."""
        assert self._function is not None
        run = self.context(attempt)
        given = self._input.arguments(attempt.run.input)
        if not inspect.iscoroutinefunction(self._function):
            return await _in_thread(self._function, SyncRun(run, asyncio.get_running_loop()), given)
        try:
            return await self._function(run, **given)
        except SystemExit as leaving:  # of this agent, not of the process and all other runs
            raise ordinary(leaving) from leaving


async def _in_thread(function: Callable[..., Any], run: SyncRun, given: Mapping[str, Any]) -> object:
    """Run a plain function in a thread of its own."""
    done = Threads(1, f"playhead-agent-{run.id}").call(function, run, **given)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        # The thread cannot be cancelled; it is told at its next call on the run. Wait for that.
        await asyncio.wait([done])
        done.exception()  # looked at: why it ended does not matter any more
        raise


@overload
def agent(function: Callable[..., Any], /) -> Agent: ...
@overload
def agent(
    *,
    name: str | None = None,
    title: str | None = None,
    resumable: bool = False,
    max_attempts: int = 3,
    on_disconnect: Disconnect = "continue",
) -> Callable[[Callable[..., Any]], Agent]: ...
def agent(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    resumable: bool = False,
    max_attempts: int = 3,
    on_disconnect: Disconnect = "continue",
) -> Agent | Callable[[Callable[..., Any]], Agent]:
    """Make an agent of an async function, or of a plain one (which runs in a thread).

    Its first parameter is the run; the others, or one Pydantic model, are its input. `resumable` says that it may be
    started again after its process died; `max_attempts` crashes end that. `on_disconnect` is what becomes of a run
    whose last viewer, on whichever process, left: "continue", "cancel", or the seconds after which it is cancelled.
    """
    after = {"continue": None, "cancel": 0.0}.get(str(on_disconnect), on_disconnect)
    if isinstance(after, str) or not (after is None or 0 <= after < math.inf):
        raise InvalidRequest('on_disconnect is "continue", "cancel", or seconds.', given=str(on_disconnect)[:80])

    def make(wrapped: Callable[..., Any]) -> Agent:
        policy = Policy(resumable, max_attempts, None if after is None else float(after))
        return Agent(wrapped, name=name or wrapped.__name__, title=title, policy=policy)

    return make(function) if function is not None else make


def external_agent(
    name: str, *, title: str | None = None, input_model: type[pydantic.BaseModel] | None = None, resumable: bool = False
) -> Agent:
    """An agent that no worker runs: other code, in this process or another, takes its runs with `attempt(run_id)`."""
    return Agent(None, name=name, title=title, input_model=input_model, policy=Policy(resumable=resumable))


@dataclass(frozen=True, slots=True)
class Listening:
    """A function that hears of facts of these types."""

    types: tuple[str, ...]
    function: Callable[[dict[str, Any]], Awaitable[None]]

    async def __call__(self, event: dict[str, Any]) -> None:
        await self.function(event)


def on(*types: str) -> Callable[[Callable[[dict[str, Any]], Any]], Listening]:
    """Make a listener for facts: run statuses, approvals, cancel requests (`run_succeeded`, `approval_required`, …).

    It runs after the fact is committed, from the outbox, at least once for each; what it raises is logged and tried
    again twice. It may be async or plain (then it runs in a thread; at most 8 at once).
    """
    for name in types:
        if name not in FACT_TYPES:
            raise InvalidRequest(f"{name} is not a fact; listeners hear {', '.join(sorted(FACT_TYPES))}.")

    def make(function: Callable[[dict[str, Any]], Any]) -> Listening:
        threads = Threads(_LISTENING, f"playhead-listener-{getattr(function, '__name__', '')}")

        async def hear(event: dict[str, Any]) -> None:
            if not inspect.iscoroutinefunction(function):
                await threads.call(function, event)
                return
            try:
                await function(event)
            except SystemExit as leaving:
                raise ordinary(leaving) from leaving

        return Listening(types, hear)

    return make
