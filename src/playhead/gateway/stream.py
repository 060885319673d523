"""GET /runs/{id}/stream: server-sent events of one run, as a raw ASGI handler.

    status = await serve_stream(
        scope, receive, send,
        run=run,                  # as the record had it just now; the caller may read it (404 is the caller's)
        hub=engine.hub,
        screens=engine.screens,   # for `resync=inline`
        ready=engine.ready,
        recheck=still_allowed,    # awaited every `options.recheck` seconds; False closes the stream
        options=StreamOptions(),
    )

It returns the status that was sent, once the stream has ended. Before anything was sent it raises NotFound, for a run
that was erased just now, and TooManyStreams or NotReady: these two only to clients that say that they can read a
refusal, by `Accept: text/event-stream; client=playhead`. It reads the query parameters `cursor`, `resync` and `text`
(`<attempt>.<part>:<end>`, any number of times) and refuses none.

To be driven by the hub itself, `send` must be the server's own, wrapped by no middleware; a wrapped one works too.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from playhead.core import sse
from playhead.core.cursor import END, STOP
from playhead.core.ids import run_feed
from playhead.core.run import Run
from playhead.errors import NotReady, StoreUnavailable, TooManyStreams
from playhead.gateway.follow import AGAIN, Asked, Follower, Resync, attach
from playhead.gateway.servers import direct_of, is_own, temper, transport_of
from playhead.runtime import frames
from playhead.runtime.bootstrap import Screens
from playhead.runtime.documents import record_snapshot
from playhead.runtime.hub import Hub
from playhead.runtime.livefeed import LiveFeed
from playhead.runtime.subscription import Viewer

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Coroutine[Any, Any, None]]

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Seconds and bytes."""

    max_streams: int = 10_000
    retry: float = 3.0  # what native clients are told to wait, before jitter
    refused_retry: float = 30.0  # likewise, above the cap or while not ready
    recheck: float = 600.0
    first_byte: float = 0.7  # after this long a stream begins without what the store has not answered yet
    socket_buffer: int = 256 << 10
    silence: float = 30.0  # after which a peer that acknowledges nothing is taken for gone


async def serve_stream(
    scope: Mapping[str, Any],
    receive: Receive,
    send: Send,
    *,
    run: Run,
    hub: Hub,
    screens: Screens,
    ready: bool = True,
    recheck: Callable[[], Awaitable[bool]] | None = None,
    options: StreamOptions | None = None,
) -> int:
    options = options or StreamOptions()
    asked = Asked.read(scope)
    if asked.cursor in (END, STOP):
        return await nothing(send)
    if not await admitted(send, hub, ready=ready, ours=asked.ours, options=options):
        return 200
    stream = _Stream(scope, receive, send, asked, run, hub, screens, recheck, options)
    hub.streams += 1
    try:
        return await stream.serve()
    except NotReady:
        # The hub closes while this one is on its way in.
        return await stream.part()
    finally:
        hub.streams -= 1
        stream.close()


class _Stream:
    """One connection, from its request to its end. What it sends until the hub takes over, and after a resync."""

    __slots__ = (
        "_asked",
        "_direct",
        "_driven",
        "_hub",
        "_live",
        "_options",
        "_over",
        "_receive",
        "_recheck",
        "_run",
        "_screens",
        "_send",
        "_started",
        "_transport",
        "_viewer",
        "_works",
    )

    def __init__(
        self,
        scope: Mapping[str, Any],
        receive: Receive,
        send: Send,
        asked: Asked,
        run: Run,
        hub: Hub,
        screens: Screens,
        recheck: Callable[[], Awaitable[bool]] | None,
        options: StreamOptions,
    ) -> None:
        self._receive, self._send, self._asked, self._run = receive, send, asked, run
        self._hub, self._screens, self._recheck, self._options = hub, screens, recheck, options
        self._driven = is_own(send, "send")
        self._direct = direct_of(scope, send)
        self._transport = transport_of(receive) or transport_of(send)
        self._live: LiveFeed | None = None
        self._viewer: Viewer | None = None
        self._started = False
        self._over: asyncio.Event | None = None if self._driven else asyncio.Event()
        self._works: list[asyncio.Task[Any]] = []

    async def serve(self) -> int:
        live = self._live = self._hub.attached(run_feed(self._run.id), self._run) or await self._attach()
        if live is None:
            return 200  # the client left while the store was down
        if self._hub.draining:
            raise NotReady
        if self._is_done(live):
            return await nothing(self._send)
        await self._open()
        head = sse.retry(self._hub.jitter(self._options.retry))
        follower = Follower(partial(self._view, live), self._asked, self._run, self._hub, self._screens, head)
        self._viewer = follower.viewer
        if self._over is None:
            await follower.begin()
            while not self._viewer.gone and (await self._receive())["type"] != "http.disconnect":
                pass
            return 200
        # Somebody may have wrapped `send` so that it waits for ever, or that it asks which task it is in.
        self._works = [asyncio.create_task(work) for work in (follower.begin(), self._gone(), self._over.wait())]
        beginning, *ends = self._works
        beginning.add_done_callback(self._begun)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if self._transport is not None and self._transport.is_closing():
            await asyncio.wait(ends[:1], timeout=AGAIN)  # let the server notice that it was cut
        return 200

    async def part(self) -> int:
        """Send the client to this server's successor. Raises NotReady for one that can read that."""
        if self._asked.ours and not self._started:
            raise NotReady
        if self._viewer is None:  # a viewer was cut off by the hub
            await self._open()
            await self._say(frames.draining(self._hub.jitter(self._options.retry)), last=True)
        return 200

    def _view(self, live: LiveFeed, resync: Resync) -> Viewer:
        return Viewer(
            self._hub,
            live,
            self._send,
            abort=self._cut,
            ended=None if self._over is None else self._over.set,
            resync=resync,
            driven=self._driven,
            direct=self._direct,
            context=None if self._driven else contextvars.copy_context(),
            recheck=self._recheck,
            recheck_every=self._options.recheck,
        )

    def close(self) -> None:
        """Give back what the stream holds. A send that is under way is given up."""
        if self._viewer is not None:
            self._viewer.leave()
        for work in self._works:
            work.cancel()
        if self._live is not None:
            self._hub.detach(self._live)
            self._live = None

    # The way in.

    async def _attach(self) -> LiveFeed | None:
        """The feed, however long it takes; what the record alone knows is shown meanwhile. None: the client left."""
        attaching = asyncio.create_task(attach(self._hub, self._run))
        self._works = [attaching]
        try:
            await asyncio.wait(self._works, timeout=self._options.first_byte)
            if not attaching.done():
                await self._open()
                await self._say(frames.state(record_snapshot(self._run), StoreUnavailable.code))
                leaving = asyncio.create_task(self._gone())
                self._works.append(leaving)
                while not attaching.done():
                    every = min(self._hub.options.keepalive, AGAIN * 5)
                    await asyncio.wait(self._works, timeout=every, return_when=asyncio.FIRST_COMPLETED)
                    if leaving.done():
                        return None
                    if self._hub.draining:
                        await self._say(frames.draining(self._hub.jitter(self._options.retry)), last=True)
                        return None
                    if not attaching.done():
                        await self._say(sse.comment())
            return attaching.result()
        finally:
            for work in self._works:
                work.cancel()
            if attaching.done() and not attaching.cancelled() and attaching.exception() is None:
                self._live = attaching.result()

    def _is_done(self, live: LiveFeed) -> bool:
        """Whether there is nothing to say: the client has seen the end."""
        ring, marks = live.ring, live.marks
        if self._started or ring is None or marks is None or not marks.final or ring.position < marks.position:
            return False
        return self._asked.cursor == str(ring.tip)

    async def _open(self) -> None:
        if self._started:
            return
        self._started = True
        if self._direct is not None and self._direct.begin(HEADERS):
            self._send = self._direct.send
            return
        self._direct = None
        if self._transport is not None:
            temper(self._transport, buffer=self._options.socket_buffer, silence=self._options.silence)
        await begin(self._send)

    async def _say(self, body: bytes, *, last: bool = False) -> None:
        await self._send(_body(body, last=last))

    # The way out.

    def _cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def _begun(self, beginning: asyncio.Task[None]) -> None:
        if not beginning.cancelled() and beginning.exception() is not None and self._viewer is not None:
            self._viewer.drop("broken")


async def admitted(send: Send, hub: Hub, *, ready: bool, ours: bool, options: StreamOptions) -> bool:
    """Whether there is room for one more stream.

    If not, a client that can read a refusal gets it by TooManyStreams or NotReady, any other one a time to come back.
    """
    full = hub.streams >= options.max_streams
    if not full and ready and not hub.draining:
        return True
    if ours:
        raise TooManyStreams if full else NotReady
    await later(send, hub, options)
    return False


async def later(send: Send, hub: Hub, options: StreamOptions) -> int:
    """Tell a client that cannot read a refusal when to come back: an EventSource gives up on any other status."""
    await begin(send)
    await send(_body(frames.draining(hub.jitter(options.refused_retry)), last=True))
    return 200


async def begin(send: Send, status: int = 200) -> None:
    await send({"type": "http.response.start", "status": status, "headers": HEADERS if status == 200 else []})


async def nothing(send: Send) -> int:
    """204 is what makes a browser's EventSource stop."""
    await begin(send, 204)
    await send(_body(b"", last=True))
    return 204


def _body(body: bytes, *, last: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": not last}
