"""The calls of a server, as methods. Each is safe to send again, and is, for a while."""

from __future__ import annotations

import inspect
import ssl
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import orjson

from playhead.client import connection, transport
from playhead.client.clock import Clock
from playhead.client.connection import KEEPALIVE, MAX_RUNS, Pace
from playhead.client.following import Following, FollowingMany
from playhead.client.problems import parsed, problem_of
from playhead.client.reducer import MAX_EVENTS, Reducer
from playhead.client.transport import Response
from playhead.client.view import Document
from playhead.errors import InvalidRequest, NoServer, PlayheadError

T = TypeVar("T")
Headers = Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """Speaks to one server.

    `base_url` is its address, or a function that gives it each time, for a server that may move; it raises NoServer
    while there is none. `headers` go with every request, or a function, which may be async, gives them: that is where
    a token is renewed. A call that fails in a way that may pass is sent again for `patience` seconds; an answer has
    `timeout` seconds to come. `keepalive` is what the server is set to: a stream that is silent for two and a half
    times as long is taken for dead. Views keep the newest `max_events` events.

    Errors are those of `playhead.errors`, by the server's stable codes: look at `code`, `retryable` and `details`.
    NoServer says that it could not be reached.
    """

    def __init__(
        self,
        base_url: str | Callable[[], str],
        *,
        headers: Headers | None = None,
        patience: float = 10.0,
        timeout: float = 30.0,
        keepalive: float = KEEPALIVE,
        max_events: int = MAX_EVENTS,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.keepalive, self.clock = keepalive, clock or Clock()
        self._base_url, self._headers, self._tls = base_url, headers or {}, tls
        self._patience, self._timeout, self._max_events = patience, timeout, max_events

    async def agents(self) -> Sequence[Document]:
        """The agents that can be started, with their input schemas."""
        found: Sequence[Document] = (await self.call("GET", "/agents"))["agents"]
        return found

    async def start(
        self,
        agent: str,
        input: Any = None,
        *,
        labels: Mapping[str, str] | None = None,
        key: str | None = None,
        idempotency_key: str | None = None,
    ) -> Document:
        """Start a run; the run. With an `idempotency_key`, the run that was started under it, however often.

        Raises UnknownAgent, InvalidInput, KeyConflict.
        """
        body = {"agent": agent, "input": {} if input is None else input, "labels": dict(labels or {}), "key": key}
        # With a key of its own the call can be sent again when its answer was lost, and still starts one run.
        return await self._document(
            "POST", "/runs", body, {"Idempotency-Key": idempotency_key or f"client-{uuid.uuid4()}"}
        )

    async def get(self, run_id: str) -> Document:
        """The run as the record has it. Raises NotFound."""
        return await self._document("GET", _run(run_id))

    async def list(
        self,
        *,
        status: Sequence[str] = (),
        agent: str | None = None,
        labels: Mapping[str, str] | None = None,
        key: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Document:
        """A page of runs, newest first: `{runs, next}`. Only `next: null` is the end; give it as `after`."""
        query = [("limit", str(limit)), *(("status", one) for one in status)]
        query += [("label", f"{name}:{value}") for name, value in (labels or {}).items()]
        query += [(name, one) for name, one in (("agent", agent), ("key", key), ("after", after)) if one is not None]
        return await self._document("GET", f"/runs?{urlencode(query)}")

    async def cancel(self, run_id: str, reason: str | None = None) -> Document:
        """Ask a run to stop; the run. Asked again, or after its end, this changes nothing. Raises NotFound."""
        return await self._document("POST", f"{_run(run_id)}/cancel", {"reason": reason})

    async def decide(
        self, run_id: str, interrupt_id: str, approved: bool, *, note: str | None = None, value: Any = None
    ) -> Document:
        """Answer a question; the interrupt as decided. The first decision counts.

        Raises AlreadyDecided with the one that counts, ApprovalExpired, ApprovalCancelled, RunInterrupted, NotFound.
        """
        body = {"approved": approved, "note": note} | ({} if value is None else {"value": value})
        return await self._document("POST", f"{_run(run_id)}/interrupts/{quote(interrupt_id, safe='')}/decision", body)

    async def remove(self, run_id: str) -> None:
        """Erase a run that has ended, for good. Raises RunNotFree while it goes on, NotFound."""
        await self.call("DELETE", _run(run_id))

    async def interrupts(self, run_id: str | None = None) -> Sequence[Document]:
        """The open questions, oldest first, of one run or of all."""
        query = "" if run_id is None else f"?{urlencode({'run': run_id})}"
        found: Sequence[Document] = (await self.call("GET", f"/interrupts{query}"))["interrupts"]
        return found

    async def bootstrap(self, run_id: str, limit: int = 50) -> Document:
        """Everything that a screen shows of a run. Raises NotFound."""
        return await self._document("GET", f"{_run(run_id)}/bootstrap?limit={limit}")

    async def earlier(self, run_id: str, before: str | None = None, limit: int = 50) -> Document:
        """Events before that one, oldest first: `{events, timeline}`. Raises NotFound."""
        query = {"limit": str(limit)} | ({} if before is None else {"before": before})
        return await self._document("GET", f"{_run(run_id)}/events?{urlencode(query)}")

    def follow(self, run_id: str, *, bootstrap: bool = True, cursor: str | None = None, limit: int = 50) -> Following:
        """Follow one run to its end, through lost connections and restarts.

            async with client.follow(run_id) as views:
                async for view in views:
                    print(view.status, view.snapshot)

        Begins with a bootstrap of `limit` events; without `bootstrap`, with the stream alone, behind `cursor` or at
        the oldest event that is retained. The last view shows the record's result. Raises what says that the run
        cannot be followed: NotFound, Forbidden, Unauthenticated and other refusals, after a view that shows it; and
        where the run has ended and its result cannot be had, after a few tries, why that is.
        """
        reducer = Reducer(run_id, max_events=self._max_events)
        reducer.cursor = cursor
        return Following(self, {run_id: reducer}, bootstrap=bootstrap, limit=limit)

    def follow_many(self, run_ids: Sequence[str], *, limit: int = 50) -> FollowingMany:
        """Follow up to 32 runs over one connection; each view is of the run that changed.

        Ends when all of them have. A run that cannot be followed gets a view that says `refused`, and the others go on.
        Raises as `follow` does where all have ended and a result cannot be had.
        """
        if not 0 < len(set(run_ids)) <= MAX_RUNS:
            raise InvalidRequest(f"One connection follows 1 to {MAX_RUNS} runs.")
        reducers = {run_id: Reducer(run_id, max_events=self._max_events) for run_id in run_ids}
        return FollowingMany(self, reducers, bootstrap=True, limit=limit)

    async def call(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any:
        """The JSON of an answer (None: it has none). Raises NoServer, and what the server's problem says."""
        clock = self.clock
        self._url()  # where there is no server now, nobody waits for one
        end = clock.now() + self._patience
        pace = Pace(0.0)
        while True:
            told = 0.0
            try:
                answer = await self.exchange(method, path, body, headers)
            except NoServer as error:
                problem: PlayheadError = error
            else:
                if answer.status < 300:
                    return parsed(answer.body) if answer.body else None
                problem = problem_of(answer.status, answer.body)
                if answer.status not in connection.LATER:
                    if method == "DELETE" and answer.status == 404 and pace.failures:
                        return None  # the answer that said so was lost
                    raise problem
                told = connection.retry_after(answer.headers) or 0.0
            wait = Pace(told or QUICK, pace.failures).wait(clock.random())
            if clock.now() + wait > end:
                raise problem
            pace = pace.failed()
            await clock.sleep(wait)

    async def exchange(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request and its answer, whatever that is. Raises NoServer where there is none."""
        data = None if body is None else orjson.dumps(body)
        response = await self.open(method, path, headers or {}, data, within=self._timeout)
        try:
            return Answer(response.status, response.headers, await self.within(self._timeout, response.whole()))
        finally:
            await response.close()

    async def open(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None, *, within: float
    ) -> Response:
        """Send a request; its answer, to be read as it comes, and to be closed. Raises NoServer."""
        given = self._headers() if callable(self._headers) else self._headers
        own = await given if inspect.isawaitable(given) else given
        return await self.within(
            within, transport.send(self._url(), method, path, {**own, **headers}, body, tls=self._tls)
        )

    def _url(self) -> str:
        return self._base_url if isinstance(self._base_url, str) else self._base_url()

    async def within(self, seconds: float, work: Awaitable[T]) -> T:
        """What this gives. Raises NoServer where a connection breaks, and when it takes longer."""
        try:
            with self.clock.limit(seconds):
                return await work
        except OSError as error:
            raise NoServer(f"The server does not answer: {error or type(error).__name__}.") from error
        raise NoServer(f"The server has said nothing for {seconds:g} s.")

    async def _document(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Document:
        found = await self.call(method, path, body, headers)
        if not isinstance(found, dict):
            raise PlayheadError("The server's answer is not of its form.")
        return found


QUICK = 0.25  # seconds, about, before a call is sent again for the first time


def _run(run_id: str) -> str:
    return f"/runs/{quote(run_id, safe='')}"
