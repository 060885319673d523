"""GET /stream: several runs on one connection, as a raw ASGI handler.

    status = await serve_feeds(
        receive, send,
        asked=asked,              # what the request says
        runs=runs,                # those that may be followed, as the record had them just now
        refusals=refusals,        # id → code, of those that may not; there is at least one of either
        hub=engine.hub,
        screens=engine.screens,
        ready=engine.ready,
        recheck=refusal_of,       # asked every `options.recheck` seconds about each run
        options=StreamOptions(),
    )

Each run is a lane with a viewer of its own. What the lanes say in one turn of the loop goes out in one send, in the
order in which they said it, and whoever says something while the socket takes nothing waits until that was sent. A lane
that is slow to begin holds up no other; one that lags ends the connection, and the client returns by its cursors.

It returns and raises as `serve_stream` does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from playhead.core import sse
from playhead.core.composite import OVER, Held, encode
from playhead.core.cursor import END
from playhead.core.ids import Feed, run_feed
from playhead.core.multiplexed import refused
from playhead.core.run import Run
from playhead.gateway.feeds import AskedFeeds
from playhead.gateway.follow import AGAIN
from playhead.gateway.lane import Lane, Recheck
from playhead.gateway.servers import temper, transport_of
from playhead.gateway.stream import Receive, Send, StreamOptions, admitted, begin, nothing
from playhead.runtime import frames
from playhead.runtime.bootstrap import Screens
from playhead.runtime.hub import Hub
from playhead.runtime.subscription import message

_log = logging.getLogger("playhead.gateway")

MARK = 1.0  # seconds between two ids on one connection


async def serve_feeds(
    receive: Receive,
    send: Send,
    *,
    asked: AskedFeeds,
    runs: Sequence[Run],
    refusals: Mapping[str, str],
    hub: Hub,
    screens: Screens,
    ready: bool = True,
    recheck: Recheck | None = None,
    options: StreamOptions | None = None,
) -> int:
    options = options or StreamOptions()
    follow = [run for run in runs if run.id not in asked.over]
    if asked.finished or not (follow or refusals):
        return await nothing(send)
    if not await admitted(send, hub, ready=ready, ours=asked.ours, options=options):
        return 200
    connection = _Connection(receive, send, hub, screens, recheck, options)
    connection.lanes = [Lane(connection, run, asked.runs[run.id]) for run in follow]
    connection.over = {run_feed(run.id): OVER for run in runs if run.id in asked.over}
    hub.streams += 1
    try:
        await connection.serve(b"".join(refused(run_feed(one).key, code) for one, code in refusals.items()))
    finally:
        hub.streams -= 1
        connection.close()
    return 200


class _Connection:
    """The one writer of a connection, from its request to its end."""

    def __init__(
        self,
        receive: Receive,
        send: Send,
        hub: Hub,
        screens: Screens,
        recheck: Recheck | None,
        options: StreamOptions,
    ) -> None:
        self.hub, self.screens, self.recheck, self.recheck_every = hub, screens, recheck, options.recheck
        self.lanes: list[Lane] = []
        self.over: dict[Feed, Held] = {}  # feeds whose end the client has seen before
        self._receive, self._send, self._options = receive, send, options
        self._transport = transport_of(receive) or transport_of(send)
        self._due = asyncio.Event()
        self._said: list[bytes] = []
        self._sending = False
        self._waiting: list[asyncio.Future[None]] = []  # lanes that said something during a send
        self._idle = False  # somebody wants the client to hear that the connection is alive
        self._moved = False  # the places are others than the id that the client has
        self._mark_at = float("-inf")
        self._wrote = float("-inf")
        self._farewell: bytes | None = None
        self._failure: BaseException | None = None
        self._writing: asyncio.Task[None] | None = None
        self._marking: asyncio.Task[None] | None = None
        self._works: set[asyncio.Task[None]] = set()

    # What lanes use.

    async def put(self, frames: bytes, *, moved: bool = False) -> None:
        self._moved = self._moved or moved
        self._idle = self._idle or not frames
        self._say(frames)
        if self._sending:
            sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(sent)
            await sent

    def part(self, farewell: bytes | None = None) -> None:
        if self._farewell is None:
            retry = self.hub.jitter(self.hub.options.retry)
            self._farewell = frames.draining(retry) if farewell is None else farewell
            self._due.set()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        if self._writing is not None:
            self._writing.cancel()

    # Its life.

    async def serve(self, first: bytes) -> None:
        if self._transport is not None:
            temper(self._transport, buffer=self._options.socket_buffer, silence=self._options.silence)
        await begin(self._send)
        self._say(sse.retry(self.hub.jitter(self._options.retry)) + first)
        for lane in self.lanes:  # before the writer: what they can say at once goes out with the first bytes
            _ = self._work(lane.begin())
        self._writing = self._work(self._write())
        leaving = self._work(self._gone())
        _ = self._work(self._mind())
        await asyncio.wait((self._writing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if self._transport is not None and self._transport.is_closing():
            await asyncio.wait((leaving,), timeout=AGAIN)  # let the server notice that it was cut
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()
        for work in self._works:
            work.cancel()

    def _work(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._works.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
            if self._writing is not None:
                self._writing.cancel()

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _mind(self) -> None:
        """For as long as stores do not answer: say what the record knows of those runs, and keep the client."""
        await asyncio.sleep(self._options.first_byte)
        self._say(b"".join(lane.degraded() for lane in self.lanes if lane.silent))
        while any(lane.silent for lane in self.lanes):
            await asyncio.sleep(min(self.hub.options.keepalive, AGAIN * 5))
            self._idle = True
            self._due.set()

    # Writing.

    def _say(self, frames: bytes) -> None:
        self._said.append(frames)
        self._due.set()

    async def _write(self) -> None:
        last = False
        while not last:
            await self._due.wait()
            self._due.clear()
            waiting, self._waiting = self._waiting, []
            over = all(lane.over for lane in self.lanes)
            last = over or self._farewell is not None
            body = self._joined(over=over, last=last)
            try:
                if body or last:
                    self._sending = True  # nobody sees it of a send that is done at once
                    await self._send(message(body, last=last))
                    self._sending = False
            except Exception as error:  # a server may raise anything for a socket that is gone
                _log.debug("a send failed: %r", error)
                self.hub.count("broken")
                self.cut()
                return
            for sent in waiting:
                if not sent.done():
                    sent.set_result(None)

    def _joined(self, *, over: bool, last: bool) -> bytes:
        """Everything that was said, and where it leads."""
        said, self._said = self._said, []
        now = self.hub.clock.steady()
        if over:
            said.append(sse.id_block(END))
        elif self._moved and (last or now >= self._mark_at):
            self._moved, self._mark_at = False, now + MARK
            said.append(sse.id_block(self._composite()))
        elif self._moved and (self._marking is None or self._marking.done()):
            self._marking = self._work(self._mark(self._mark_at - now))
        said.append(self._farewell or b"")
        body = b"".join(said)
        # The lanes that wait for a store say so every second each, and one comment is enough for all.
        if self._idle and not body and now - self._wrote >= AGAIN:
            body = sse.comment()
        self._idle = False
        if body:
            self._wrote = now
        return body

    async def _mark(self, after: float) -> None:
        await self.hub.clock.sleep(after)
        self._due.set()

    def _composite(self) -> str:
        return encode(self.over | {lane.feed: lane.held for lane in self.lanes if lane.held is not None})
