"""Following runs: the loop that connects, reads, waits and connects again. What it decides is decided elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from playhead.client.connection import (
    LIVENESS,
    Pace,
    address,
    is_stream,
    joined_address,
    retry_after,
    verdict,
)
from playhead.client.frames import Frame, is_screen, read, read_joined
from playhead.client.problems import class_of, parsed, problem_of
from playhead.client.reducer import Reducer
from playhead.client.transport import Response
from playhead.client.view import RunView
from playhead.core import sse
from playhead.errors import NoServer, NotReady, PayloadTooLarge, PlayheadError

if TYPE_CHECKING:
    from playhead.client.client import Client

ACCEPT = {"Accept": "text/event-stream; client=playhead", "Cache-Control": "no-cache"}
LAST_TRIES = 5  # to load how a run ended that is known to have ended
SOON = 5.0  # seconds until a bootstrap is asked for again beside an open stream
LOST = "The connection is lost."


class Follower(ABC):
    """What following one run and following many have in common: an iterator of views, and a context that closes it.

    `news` are the frames that led to the view that came last, each event once. `trouble` says why there is no
    connection now, and is None while there is one.
    """

    def __init__(self, client: Client, reducers: Mapping[str, Reducer], *, bootstrap: bool, limit: int) -> None:
        self.news: tuple[Frame, ...] = ()
        self.trouble: PlayheadError | None = None
        self._client, self._limit = client, limit
        self._reducers = dict(reducers)
        self._new: dict[str, list[Frame]] = {name: [] for name in reducers}
        self._unloaded = set(reducers) if bootstrap else set()
        self._refused: dict[str, PlayheadError] = {}
        self._pace = Pace()
        self._rested = True
        self._again = 0.0
        self._silence = LIVENESS * client.keepalive
        self._response: Response | None = None
        self._names: list[str] = []  # of the connection that is open
        self._parser = sse.Parser()
        self._steps: AsyncGenerator[str, None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Nothing follows."""
        if self._steps is not None:
            await self._steps.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RunView:
        if self._steps is None:
            self._steps = self._follow()
        name = await anext(self._steps)
        self.news, self._new[name] = tuple(self._new[name]), []
        return self._reducers[name].view

    @abstractmethod
    def _address(self, names: Iterable[str]) -> str:
        """Where the stream of these runs is."""

    @abstractmethod
    def _read(self, frame: sse.Frame) -> tuple[Iterable[str], Frame] | None:
        """A frame, and the runs that it is about."""

    # The runs of which more is to come, and those that need a bootstrap first.

    def _going(self) -> list[str]:
        return [name for name, one in self._reducers.items() if name not in self._refused and not one.finished]

    def _wanting(self) -> list[str]:
        wanting = [name for name, one in self._reducers.items() if one.wants or name in self._unloaded]
        return [name for name in wanting if name not in self._refused]

    async def _follow(self) -> AsyncGenerator[str, None]:
        try:
            while True:
                for name in self._wanting():
                    await self._load(name)
                    yield name
                    if name in self._wanting():
                        break  # what one cannot have now, the others cannot either
                going = self._going()
                if self._wanting():
                    if not going and self._pace.failures >= LAST_TRIES - 1:
                        raise self.trouble or NotReady("How the run ended cannot be had now.")
                elif not going:
                    return
                else:
                    try:
                        changed: list[str] | None = await self._connect(going)
                        while changed is not None:
                            for name in changed:
                                yield name
                            changed = await self._hear()
                    except (NoServer, PayloadTooLarge) as error:
                        self.trouble = error
                    await self._hang_up()
                    going = self._going()
                    self.trouble = self.trouble or (NoServer(LOST) if going else None)
                    for name in going:
                        if self._reducers[name].view.connection in ("live", "degraded"):
                            self._reducers[name].connection("reconnecting")
                        yield name
                    if not going or (self._rested and self._hurries()):
                        self._rested = False
                        continue
                self._rested = True
                wait = self._pace.wait(self._client.clock.random())
                self._pace = self._pace.failed()
                await self._client.clock.sleep(wait)
        finally:
            await self._hang_up()

    def _hurries(self) -> bool:
        """Whether another connection can be had at once."""
        return any(one.reopen for one in self._reducers.values())

    async def _connect(self, names: list[str]) -> list[str] | None:
        """Open a connection for these; the runs that changed by that. Raises NoServer."""
        self._response = await self._client.open("GET", self._address(names), ACCEPT, within=self._silence)
        meaning = verdict(self._response.status, self._pace.failures)
        if meaning == "good" and is_stream(self._response.headers):
            self.trouble, self._parser, self._names = None, sse.Parser(), names
            for name in names:
                self._reducers[name].opened()
            return names
        if meaning == "over":
            for name in names:
                self._reducers[name].nothing_follows()
            return None
        body = await self._client.within(self._silence, self._response.whole())
        problem = problem_of(self._response.status, body)
        if meaning == "refused":
            for name in names:
                self._refuse(name, problem)
            return names
        self._put_off(problem, self._response.headers)
        return None

    async def _hear(self) -> list[str] | None:
        """The runs that changed; None: this connection has no more to say. Raises NoServer, PayloadTooLarge."""
        told = all(self._reducers[name].over or name in self._refused for name in self._names)
        if self._response is None or told or self._hurries():
            return None
        partial = [name for name, one in self._reducers.items() if one.partial and name not in self._refused]
        for name in (*self._wanting(), *partial):
            if self._client.clock.now() >= self._again:
                await self._load(name)
                again = self._reducers[name].wants or self._reducers[name].partial
                self._again = self._client.clock.now() + SOON if again else 0.0
                return [name]
        chunk = await self._client.within(self._silence, self._response.read())
        if not chunk:
            return None
        self._pace = self._pace.heard()
        changed: dict[str, None] = {}
        for frame in self._parser.feed(chunk):
            changed |= dict.fromkeys(self._take(frame))
        if self._parser.retry is not None:
            self._pace = self._pace.heard(self._parser.retry / 1000)
        return list(changed)

    async def _hang_up(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            await response.close()

    def _take(self, frame: sse.Frame) -> list[str]:
        """Give a frame to the runs that it is about; those of which something is new."""
        found = self._read(frame)
        if found is None:
            return []
        names, told = found
        changed = []
        for name in names:
            if name not in self._reducers or name in self._refused:
                continue
            if told.name == "refused":
                self._refuse(name, class_of(told.data["code"])())
                changed.append(name)
            elif new := self._reducers[name].frame(told):
                self._new[name] += new
                changed.append(name)
        if told.name == "draining":
            self._pace = self._pace.heard(told.data["retry_ms"] / 1000)
            self.trouble = NotReady("The server is going down.")
        return changed

    async def _load(self, name: str) -> None:
        """Load a bootstrap, if that can be had now."""
        reducer = self._reducers[name]
        asked = reducer.epoch
        try:
            answer = await self._client.exchange("GET", f"/runs/{quote(name, safe='')}/bootstrap?limit={self._limit}")
        except NoServer as error:
            self.trouble = error
            return
        problem = problem_of(answer.status, answer.body)
        meaning = verdict(answer.status, self._pace.failures)
        if meaning == "refused":
            self._refuse(name, problem)
        elif meaning == "good" and is_screen(told := parsed(answer.body)):
            self._new[name] += reducer.bootstrap(told, asked)
            self._unloaded.discard(name)
            self._pace, self.trouble = self._pace.heard(), None
        else:
            self._put_off(problem, answer.headers)

    def _put_off(self, problem: PlayheadError, headers: Mapping[str, str]) -> None:
        self.trouble = problem
        told = retry_after(headers)
        self._pace = self._pace if told is None else Pace(told, self._pace.failures)

    def _refuse(self, name: str, problem: PlayheadError) -> None:
        self._refused[name] = problem
        self._reducers[name].connection("refused", problem)


class Following(Follower):
    """One run. `view` is what is known of it now."""

    def _address(self, names: Iterable[str]) -> str:
        (name,) = names
        return address(name, self._reducer.cursor, self._reducer.ends)

    def _read(self, frame: sse.Frame) -> tuple[Iterable[str], Frame] | None:
        told = read(frame)
        return None if told is None else (self._reducers, told)

    @property
    def _reducer(self) -> Reducer:
        (reducer,) = self._reducers.values()
        return reducer

    @property
    def view(self) -> RunView:
        return self._reducer.view

    async def __anext__(self) -> RunView:
        try:
            return await super().__anext__()
        except StopAsyncIteration:
            problem = self.view.problem or (None if self.view.ended else self.trouble)
            if problem is not None:
                raise problem from None
            raise

    async def refresh(self) -> RunView:
        """Load a bootstrap beside the stream; it takes nothing back that the stream has told since."""
        asked = self._reducer.epoch
        self._reducer.bootstrap(await self._client.bootstrap(self.view.id, self._limit), asked)
        return self.view

    async def older(self, limit: int = 50) -> RunView:
        """Load events from before those shown, if there are some."""
        if self.view.timeline.has_older:
            self._reducer.older(await self._client.earlier(self.view.id, self.view.timeline.oldest, limit))
        return self.view


class FollowingMany(Follower):
    """Several runs over one connection. `views` is what is known of each now, by id."""

    @property
    def views(self) -> dict[str, RunView]:
        return {name: one.view for name, one in self._reducers.items()}

    def _address(self, names: Iterable[str]) -> str:
        reducers = {name: self._reducers[name] for name in names}
        return joined_address(
            {name: one.cursor for name, one in reducers.items()}, {name: one.ends for name, one in reducers.items()}
        )

    def _read(self, frame: sse.Frame) -> tuple[Iterable[str], Frame] | None:
        found = read_joined(frame)
        if found is None:
            return None
        feed, told = found
        return (list(self._reducers) if feed == "" else [feed.removeprefix("run:")], told)
