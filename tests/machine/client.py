"""A client of the stream route, in process: it believes what it is told, and the model says whether it is true."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from typing import Any

from starlette.requests import HTTPConnection

from playhead.core.composite import Held, decode, encode
from playhead.core.cursor import END, STOP, Cursor, parse
from playhead.core.ids import EVERY_TENANT, run_feed
from playhead.core.replay import Reason
from playhead.core.run import Run
from playhead.core.snapshot import decode_state
from playhead.core.sse import Frame, Parser
from playhead.gateway.feeds import AskedFeeds
from playhead.gateway.multiplex import serve_feeds
from playhead.gateway.stream import serve_stream
from playhead.interfaces import Hint, Listener, Signal
from playhead.runtime.bootstrap import Screens
from playhead.runtime.hub import Hub
from tests.gateway.stub import scope_of
from tests.machine.truth import Line, Part, Truth, reason_at
from tests.machine.world import World
from tests.support.feeds import query, single


class Lossy:
    """A signal that loses the next `lose` batches of hints."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal
        self._heard: dict[int, _Deaf] = {}
        self.lose = 0

    async def add(self, feed: Any, listener: Listener) -> None:
        await self._signal.add(feed, self._heard.setdefault(id(listener), _Deaf(self, listener)))

    async def remove(self, feed: Any, listener: Listener) -> None:
        await self._signal.remove(feed, self._heard[id(listener)])

    def notify(self, hints: Sequence[Hint]) -> None:
        self._signal.notify(hints)

    async def ring(self, feed: Any) -> None:
        await self._signal.ring(feed)


class _Deaf:
    def __init__(self, signal: Lossy, listener: Listener) -> None:
        self._signal, self._listener = signal, listener

    def on_hints(self, hints: Sequence[Hint]) -> None:
        if self._signal.lose:
            self._signal.lose -= 1
        else:
            self._listener.on_hints(hints)

    def on_gap(self, feed: Any) -> None:
        self._listener.on_gap(feed)


class RequestResponseCycle:
    """One connection as a server would hold it. Under this name the hub takes `send` for a known server's own."""

    def __init__(self, client: Client) -> None:
        self.transport = self
        self._client = client
        self._left = asyncio.Event()

    def leave(self) -> None:
        self._left.set()

    # Transport.

    def abort(self) -> None:
        self._left.set()

    def is_closing(self) -> bool:
        return self._left.is_set()

    def get_extra_info(self, name: str) -> None:
        """There is no socket."""

    # Request.

    async def receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        await self._client.open.wait()
        if not self._left.is_set():
            self._client.hear(message)
            if message["type"] == "http.response.body" and not message["more_body"]:
                self._left.set()


RequestResponseCycle.__module__ = "uvicorn.protocols.http.h11_impl"


class Client:
    """One tab. `view` holds the ids of its epoch that it has, or that its screen stood for; None: it has nothing."""

    def __init__(self, world: World, hub: Hub, screens: Screens) -> None:
        self.world, self.hub, self.screens = world, hub, screens
        self.open = asyncio.Event()  # whether its socket takes anything
        self.open.set()
        self.view: list[str] | None = None
        self.cursor: str | None = None
        self.several = False  # the connection has another run too
        self.texts: dict[Part, bytes] = {}
        self.state: dict[str, Any] | None = None
        self.ended = False  # it was told that there is nothing more
        self.stopped = False  # it was told to load its screen again
        self.resyncs: list[Reason] = []
        self._since = 0  # of the model's lines, the first that an answer can be about
        self._parser = Parser()
        self._cycle: RequestResponseCycle | None = None
        self._task: asyncio.Task[int] | None = None

    @property
    def truth(self) -> Truth:
        return self.world.truth

    @property
    def connected(self) -> bool:
        return self._task is not None and not self._task.done()

    # What a person does.

    async def connect(self, *, inline: bool, driven: bool, several: bool = False) -> None:
        """Open the stream with the cursor that is held. Returns at once; frames come as they come.

        `several`: on one connection with another run, always inline; with the cursor in the id of the connection if
        `driven`, and beside the run if not.
        """
        await self.leave()
        run = await self._run()
        self.ended = self.stopped = False
        self.texts = {}
        self._since = len(self.truth.before) - 1
        self.several = several
        self._parser = Parser(last_event_id=None if several else self.cursor)
        cycle = self._cycle = RequestResponseCycle(self)
        if several:
            await self._connect_several(cycle, run, in_id=driven)
            return
        scope = {
            "type": "http",
            "query_string": b"resync=inline" if inline else b"",
            "headers": [(b"last-event-id", self.cursor.encode())] if self.cursor is not None else [],
        }

        async def wrapped(message: Any) -> None:
            await cycle.send(message)

        def serve() -> Coroutine[Any, Any, int]:
            send: Any = cycle.send if driven else wrapped
            return serve_stream(scope, cycle.receive, send, run=run, hub=self.hub, screens=self.screens)

        self._task = asyncio.get_running_loop().create_task(serve())
        self._task.add_done_callback(self._served)

    async def _connect_several(self, cycle: RequestResponseCycle, run: Run, *, in_id: bool) -> None:
        other = await self.world.surely("get", EVERY_TENANT, self.world.other.feed.id)
        assert isinstance(other, Run)
        at, headers, own = parse(self.cursor or ""), {}, f"{run.id}@{self.cursor}" if self.cursor else run.id
        if in_id and self.cursor is not None:
            own = run.id
            headers["last-event-id"] = encode({run_feed(run.id): Held(at)}) if at else self.cursor
        asked = AskedFeeds.read(HTTPConnection(scope_of("GET", query([own, other.id]), headers)))
        serving = serve_feeds(
            cycle.receive, cycle.send, asked=asked, runs=[run, other], refusals={}, hub=self.hub, screens=self.screens
        )
        self._task = asyncio.get_running_loop().create_task(serving)
        self._task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[int]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.world.faults.append({"message": "a stream failed", "exception": error})

    async def leave(self) -> None:
        if self._cycle is not None:
            self._cycle.leave()
            self._cycle = None
        await asyncio.sleep(0)

    async def use(self, what: str, limit: int) -> None:
        if what == "leave":
            await self.leave()
        elif what == "stall":
            self.open.clear()
        elif what == "take":
            self.open.set()
        elif what == "turn back":
            await self.turn_back(max(1, limit))
        elif not self.connected:
            await self.load(limit)

    async def load(self, limit: int) -> None:
        """Load the whole screen."""
        run = await self._run()
        self._since = len(self.truth.before) - 1
        screen = await self.screens.bootstrap(run, limit)
        self._show(json.loads(screen.body), limit)

    async def turn_back(self, limit: int) -> None:
        """Page through everything that there is, newest first."""
        run, before = await self._run(), None
        seen: list[str] = []
        for _ in range(200):
            page = json.loads(await self.screens.earlier(run, before, limit))
            seen[:0] = [self._true(event) for event in page["events"]]
            assert len(set(seen)) == len(seen), f"an event is on two pages: {seen}, archive {self.truth.archive}"
            if not page["events"]:
                return
            before = page["events"][0]["id"]
        raise AssertionError("the pages never end")

    async def _run(self) -> Run:
        run = await self.world.surely("get", EVERY_TENANT, self.world.run.id)
        assert isinstance(run, Run)
        return run

    def hold(self, cursor: str | None, view: Sequence[str] | None) -> None:
        """Go on with what somebody kept."""
        self.cursor, self.view = cursor, None if view is None else list(view)

    # What it is told.

    def hear(self, message: dict[str, Any]) -> None:
        try:
            if message["type"] == "http.response.start":
                if message["status"] == 204:
                    self._hear_nothing()
            elif self.several:
                self._hear_several(message["body"])
            else:
                for frame in self._parser.feed(message["body"]):
                    assert not self.ended, "nothing follows the end"
                    self._take(frame)
        except BaseException as error:
            # The hub takes whatever a send raises for a broken connection.
            self.world.faults.append({"message": "a client was told something false", "exception": error})
            raise

    def _hear_several(self, body: bytes) -> None:
        before = self._parser.last_event_id
        for frame in self._parser.feed(body):
            feed, alone = single(frame)
            if feed == self.truth.feed.key:
                assert not self.ended, "nothing follows the end"
                self._take(Frame(alone.event, json.dumps(alone.data), alone.id, frame.retry))
            else:
                assert feed == self.world.other.feed.key
        last = self._parser.last_event_id
        if last != before:
            held = (decode(last or "") or {}).get(self.truth.feed, Held(None))
            if self.ended:
                assert held.ended or last == END, "an id says what has ended"
            else:
                assert held == Held(parse(self.cursor or "")), "an id is where its connection has led"
        if self.ended and self._cycle is not None:
            self._cycle.leave()

    def _hear_nothing(self) -> None:
        assert self._saw_the_end(), "204 says that the client has seen the end"
        self.ended = True

    def _saw_the_end(self) -> bool:
        last = self.truth.facts[-1]
        return last.final and self.view is not None and self.view[-1:] == [last.event.id]

    def _take(self, frame: Frame) -> None:
        said = json.loads(frame.data)
        match frame.event:
            case "message":
                self._event(said, frame.id)
            case "state":
                self._state(said)
            case "text":
                self._text(said)
            case "resync_required":
                self._resync(said, frame.id)
            case "end":
                assert frame.id == END
                assert self.truth.facts[-1].final
                assert said["status"] == self.truth.run.status if self.truth.run else False
                self.ended = True
            case other:
                raise AssertionError(f"a frame {other} was not to be expected")

    def _true(self, event: dict[str, Any]) -> str:
        name: str = event["id"]
        body = self.truth.bodies[name]
        assert {**event, "version": 0} == {"version": 0, **json.loads(body)}, "an event is the same everywhere"
        return name

    def _event(self, event: dict[str, Any], placed: str | None) -> None:
        name = self._true(event)
        cursor = parse(placed or "")
        if cursor is None or placed == self.cursor:
            # From the record: the run is over and its timeline is gone, so there is no view of it to hold.
            assert name == self.truth.facts[-1].event.id
            assert self.truth.facts[-1].final
            self.view = None
            return
        true = self.truth.history[cursor.tag]
        held = list(true[:-1]) if self.view is None else self.view
        self.view = [*held, name]
        assert tuple(self.view) == true, "a client holds a wrong view"
        self.cursor = placed

    def _state(self, said: dict[str, Any]) -> None:
        shown = said["snapshot"]
        self.state = shown
        if said["degraded"] is not None:
            return
        if shown["version"]:
            known = {told[1:5] for told in self.truth.snapshots}
        else:  # from the record, of a run that is over and has no projection
            last = self.truth.facts[-1]
            known = {(0, last.status, last.token, last.rev)} if last.final else set()
        key = shown["version"], shown["status"], shown["attempt"], shown["rev"]
        assert key in known, f"a state that was never true: {key}"

    def _text(self, said: dict[str, Any]) -> None:
        key, offset = (said["attempt"], said["part"]), said["offset"]
        held = self.texts.get(key, b"")
        assert offset <= len(held), "text has a hole"
        self.texts[key] = held[:offset] + said["text"].encode()
        assert len(self.texts[key]) == said["end"]
        assert self.truth.said[key].startswith(self.texts[key]), "a part is a beginning of what its attempt said"

    def _resync(self, said: dict[str, Any], placed: str | None) -> None:
        reason = Reason(said["reason"])
        self.resyncs.append(reason)
        if reason is Reason.MALFORMED:
            assert self.cursor is not None
            assert parse(self.cursor) is None
        else:
            asked = said["requested"]
            assert self.cursor in (asked, None), f"at {self.cursor}, and told that it was at {asked}"
            at = parse(asked)
            assert at is not None
            lines = self.truth.before[max(self._since, self.truth.written.get(at.tag, 0)) :]
            reasons = {reason_at(line, at) if line else Reason.EXPIRED for line in lines}
            if self.truth.facts[-1].final and None in self.truth.before:
                reasons.add(Reason.EXPIRED)  # it was seen to be over and gone, and nobody looks again soon
            assert reason in reasons, f"resync {reason}, and right is one of {reasons}"
        self.cursor = self.view = None
        if "bootstrap" in said:
            self._show(said["bootstrap"], 50)
            # A run that is over ends its stream, also where a store that went back has its timeline again.
            assert placed == self.cursor or (placed == STOP and self.truth.facts[-1].final)
        else:
            assert placed == STOP
            self.stopped = True

    def _show(self, screen: dict[str, Any], limit: int) -> None:
        """Take a screen. Its cursor is not newer than what it shows."""
        events = [self._true(event) for event in screen["events"]]
        assert len(set(events)) == len(events), "a screen shows an event twice"
        self.texts = {}
        for part in screen["text"]:
            assert part["offset"] == 0
            self._text(part)
        self.cursor, self.view = screen["cursor"], None
        self.state = screen["snapshot"]
        if self.cursor is None:
            assert screen["degraded"] is not None or self.truth.facts[-1].final
            return
        cursor = parse(self.cursor)
        assert cursor is not None
        lines = [line for line in self.truth.before[self._since :] if line is not None]
        assert any(self._shows(line, cursor, screen["snapshot"]) for line in lines), "a screen that was never true"
        assert screen["run"]["rev"] >= screen["snapshot"]["rev"], "a screen's run is older than its cursor"
        held = self.truth.history[cursor.tag]
        known = [name for name in events if name in held]
        assert known == [name for name in held if name in known], "a screen's events are in the timeline's order"
        if limit and screen["timeline"]["complete"]:
            # What was lost with the live store leaves a gap only where a later event of its series is left.
            missing = set(held[-limit:]) - set(known) - self.truth.excused
            assert not missing, f"a hole is not told: {sorted(missing)}"
        self.view = list(held)

    def _shows(self, line: Line, cursor: Cursor, shown: dict[str, Any]) -> bool:
        state = decode_state(line.state)
        return (line.cursor, line.writes, line.status, line.rev, state.title, state.done) == (
            cursor,
            shown["version"],
            shown["status"],
            shown["rev"],
            shown["title"],
            shown["done"],
        )

    # At the end.

    def check_converged(self) -> None:
        assert self.ended, "every stream of a run that is over ends"
        assert not self.connected
        if self.view is not None:
            assert tuple(self.view) in self.truth.history.values(), f"{self.view}"
        if self.state is not None and self._saw_the_end():
            assert self.state["status"] == self.truth.facts[-1].status, "the final state goes before the end"
