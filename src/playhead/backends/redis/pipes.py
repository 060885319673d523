"""One connection to each server, shared by all calls: what is asked in one turn of the loop goes out in one write.

Replies come in the order of the commands, so a call that was given up leaves a place whose reply is passed over; no
reply can reach another call. A connection that owes a reply for longer than a call may take is given up whole.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hiredis import Reader, pack_command
from redis.asyncio.connection import AbstractConnection, Connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError,
    InvalidResponse,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from playhead.backends.redis.nodes import Address, Command, Shared, common, joined, sentinels
from playhead.backends.redis.target import Target

# What a server says instead of doing what it was asked for.
UNDONE = (NoScriptError, AskError, MovedError, TryAgainError, ClusterDownError)

_MOVES = 1_000  # times that a command follows a cluster that is changing; its deadline ends it sooner
_PAUSE = 0.05
_MORE = object()  # what the parser says while a reply is not whole


class Pipe(asyncio.Protocol):
    """A connection and the calls that wait for it.

    The driver makes the connection: its socket, TLS, account and database. From then on the bytes go straight between
    the socket and the calls, as streams, a task for each side and the driver's own layers cost several times what is
    done here.
    """

    def __init__(self, connection: AbstractConnection, patience: float) -> None:
        self._connection, self._patience = connection, patience
        self._unsent: list[bytes] = []
        self._owed: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._replies: Reader | None = None
        self._lone = True  # replies come one at a time
        self._opening: asyncio.Future[None] | None = None
        self._watching: asyncio.TimerHandle | None = None
        self.opened = self.broken = False

    async def open(self) -> None:
        """Connect, once for all who ask. Raises what the driver raises."""
        if self.opened:
            return
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
            self._opening.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        await joined(self._opening)

    async def _open(self) -> None:
        connection = self._connection
        try:
            async with asyncio.timeout(self._patience):
                await connection.connect()
        except BaseException:
            self.broken = True
            with suppress(RedisError, OSError):
                await connection.disconnect(nowait=True)
            raise
        # The driver has no public way to give its socket away; should these names change, nothing here works at all.
        self._replies = Reader(InvalidResponse, connection._parser.parse_error, notEnoughData=_MORE)
        self._transport = connection._writer.transport
        self._transport.set_protocol(self)
        self.opened = True

    def send(self, commands: Sequence[Command]) -> list[asyncio.Future[Any]]:
        """The replies to come. What is asked for in one turn of the loop goes out in one write; where nothing else is
        under way, at once."""
        packed = [pack_command(tuple(command)) for command in commands]  # type: ignore[arg-type]  # declared for text alone
        futures: list[asyncio.Future[Any]] = [self._loop.create_future() for _ in commands]
        if self._transport is None or self.broken:
            self._fail(futures, ConnectionError("the connection broke"))
            return futures
        if self._lone and not self._owed:
            self._transport.write(b"".join(packed))
        else:
            if not self._unsent:
                self._loop.call_soon(self._flush)
            self._unsent += packed
        now = self._loop.time()
        self._owed.extend((now, future) for future in futures)
        if self._watching is None:
            self._watching = self._loop.call_at(now + self._patience, self._watch)
        return futures

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self._transport is not None:
            self._transport.write(b"".join(unsent))

    def _watch(self) -> None:
        """Nothing more can be expected of a server that owes a reply for too long. One timer, not one for each call."""
        self._watching = None
        if self._owed:
            due = self._owed[0][0] + self._patience
            if due <= self._loop.time():
                self._end(TimeoutError("the server does not answer"))
            else:
                self._watching = self._loop.call_at(due, self._watch)

    async def close(self) -> None:
        self._end(ConnectionError("the connection is closed"))
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        with suppress(RedisError, OSError):
            await self._connection.disconnect(nowait=True)

    def data_received(self, data: bytes) -> None:
        assert self._replies is not None
        self._replies.feed(data)
        count = 0
        try:
            while (reply := self._replies.gets(False)) is not _MORE:
                count += 1
                if isinstance(reply, ConnectionError):  # it will not serve us
                    raise reply
                _, future = self._owed.popleft()
                if future.done():
                    continue
                if not isinstance(reply, ResponseError):
                    future.set_result(reply)
                    continue
                future.set_exception(reply)
                if isinstance(reply, ReadOnlyError):  # another is the master, and the address may lead there by now
                    raise ConnectionError("the server takes no writes any more")
        except (RedisError, IndexError) as error:
            self._end(error if isinstance(error, RedisError) else ConnectionError("a reply that nobody asked for"))
        self._lone = count <= 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionError("the connection broke"))

    def _end(self, error: BaseException) -> None:
        self.broken, self.opened = True, False
        self._unsent = []
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        owed, self._owed = self._owed, deque()
        self._fail([future for _, future in owed], error)
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, futures: Sequence[asyncio.Future[Any]], error: BaseException) -> None:
        for future in futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever waited for it may have gone


class Pipes:
    """`Nodes` over such connections."""

    def __init__(self, target: Target, *, deadline: float) -> None:
        options: dict[str, Any] = {**common(deadline), **target.options}
        self._class = options.pop("connection_class", Connection)
        self._options = {"retry": Retry(NoBackoff(), 0), **options, "socket_timeout": None}
        self._target, self._deadline = target, deadline
        self._pipes: dict[Address, Pipe] = {}
        self._slots: list[Address] = []
        self._learning = Shared(self._learn)
        self._closing: set[asyncio.Task[None]] = set()
        self._sentinel = sentinels(target, deadline)
        self._master: Address | None = None
        self._closed = False

    def begin(self, command: Command) -> asyncio.Future[Any] | None:
        """The reply to come, where its server is known and connected; else None, and `execute` finds it.

        It fails with one of UNDONE where `execute` would have followed what the server said, with TimeoutError when
        the reply is late, and with what the driver raises.
        """
        place = self._told(_key(command))
        pipe = self._pipes.get(place) if place is not None else None
        return pipe.send([command])[0] if pipe is not None and pipe.opened else None

    async def execute(self, command: Command) -> Any:
        (reply,) = await self.execute_all([command])
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def execute_all(self, commands: Sequence[Command]) -> list[Any]:
        keys = [_key(command) for command in commands]
        places = [self._known(key) or await self.locate(key) for key in keys]
        replies = await self._replies(places, commands)
        for i, reply in enumerate(replies):
            if isinstance(reply, Exception):
                replies[i] = await self._again(commands[i], reply, places[i])
        return replies

    async def everywhere(self, command: Command) -> dict[str, Any]:
        await self.refresh()
        places = sorted(set(self._slots)) if self._target.kind == "cluster" else [await self.locate("")]
        replies = await self._replies(places, [command] * len(places))
        names = [f"{host}:{port}" if port else "" for host, port in places]
        return dict(zip(names, replies, strict=True))

    async def locate(self, key: str) -> Address:
        while (place := self._known(key)) is None:  # again, if it is in doubt once more when it is found
            await self.refresh()
        return place

    def _told(self, key: str) -> Address | None:
        """Where this key's server was when that was last found out."""
        if self._target.kind == "cluster":
            slot: int = key_slot(key.encode())
            return self._slots[slot] if self._slots else None
        if self._sentinel is not None:
            return self._master
        return self._target.hosts[0] if self._target.hosts else ("", 0)

    def _known(self, key: str) -> Address | None:
        """The same, unless the connection to it broke: another may be the master by now. No other server is in doubt
        for that, and whoever wants one need not wait until this one's place is found."""
        place = self._told(key)
        if place is None or self._target.kind == "single":
            return place
        pipe = self._pipes.get(place)
        return None if pipe is not None and pipe.broken else place

    def subscriber(self, address: Address) -> AbstractConnection:
        places = {"host": address[0], "port": address[1]} if address[1] else {}
        connection: AbstractConnection = self._class(**{**self._options, **places})
        return connection

    async def refresh(self) -> None:
        if self._target.kind != "single":
            await self._learning.done()

    async def close(self) -> None:
        self._closed = True
        self._learning.end()
        for pipe in list(self._pipes.values()):
            await pipe.close()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for sentinel in self._sentinel.sentinels if self._sentinel else ():
            await sentinel.aclose(close_connection_pool=True)

    async def _pipe(self, place: Address) -> Pipe:
        if self._closed:
            raise ConnectionError("the connection is closed")
        pipe = self._pipes.get(place)
        if pipe is None or pipe.broken:
            if pipe is not None:
                self._forget(pipe)
            pipe = self._pipes[place] = Pipe(self.subscriber(place), self._deadline)
        await pipe.open()
        return pipe

    def _forget(self, pipe: Pipe) -> None:
        closing = asyncio.ensure_future(pipe.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _replies(self, places: Sequence[Address], commands: Sequence[Command], asking: bool = False) -> list[Any]:
        """The reply of each place to its command, or the error in its place."""
        by_place: dict[Address, list[int]] = {}
        for i, place in enumerate(places):
            by_place.setdefault(place, []).append(i)
        replies: list[Any] = [None] * len(commands)
        sent: list[tuple[Pipe, list[int], list[asyncio.Future[Any]]]] = []
        for place, numbers in by_place.items():
            try:
                pipe = await self._pipe(place)
            except (RedisError, OSError) as error:
                for i in numbers:
                    replies[i] = error
                continue
            if asking:
                pipe.send([["ASKING"]])
            sent.append((pipe, numbers, pipe.send([commands[i] for i in numbers])))
        try:
            for _, numbers, futures in sent:
                for i, future in zip(numbers, futures, strict=True):
                    try:
                        replies[i] = await future
                    except (RedisError, OSError) as error:
                        replies[i] = error
        except asyncio.CancelledError:
            for _, _, futures in sent:
                for future in futures:
                    future.cancel()
            raise
        return replies

    async def _again(self, command: Command, error: Exception, place: Address) -> Any:
        """Follow a cluster that says where else to ask; `place` said so. Whatever else went wrong is the caller's to
        repeat."""
        for _ in range(_MOVES):
            asking = isinstance(error, AskError) and not isinstance(error, MovedError)
            if isinstance(error, AskError):
                place = _named(error.host, error.port, place)
                if not asking and self._slots:  # a member of a cluster may have been given as the one server
                    self._slots[error.slot_id] = place
            elif isinstance(error, TryAgainError | ClusterDownError):
                await asyncio.sleep(_PAUSE)
                if isinstance(error, ClusterDownError):
                    await self.refresh()
                place = await self.locate(_key(command))
            else:
                return error
            (reply,) = await self._replies([place], [command], asking)
            if not isinstance(reply, Exception):
                return reply
            error = reply
        return error

    async def _learn(self) -> None:
        """Find out where servers are. Those whose connections broke are tried anew from then on."""
        if self._sentinel is not None and self._target.service is not None:
            host, port = await self._sentinel.discover_master(self._target.service)
            self._master = host, port
            there = {self._master}
        else:
            self._slots = await self._learn_slots()
            there = {*self._slots}
        for place, pipe in list(self._pipes.items()):
            if pipe.broken or place not in there:
                self._forget(self._pipes.pop(place))

    async def _learn_slots(self) -> list[Address]:
        """Ask any server which one has which slots, first those to which a connection is whole."""
        known = dict.fromkeys([*self._pipes, *self._target.hosts])
        failed: Exception = ConnectionError("no server of the cluster can be reached")
        for place in sorted(known, key=lambda place: place not in self._pipes or not self._pipes[place].opened):
            (told,) = await self._replies([place], [["CLUSTER", "SLOTS"]])
            if isinstance(told, Exception):
                failed = told
                continue
            slots: list[Address] = [place] * 16_384
            for first, last, master, *_ in told:
                slots[first : last + 1] = [_named(master[0], master[1], place)] * (last + 1 - first)
            return slots
        raise failed


def _named(host: bytes | str | None, port: int | str, place: Address) -> Address:
    """Where a cluster says that a server is. One that does not know its name is where the one that answered is."""
    name = host.decode() if isinstance(host, bytes) else host
    return name or place[0], int(port)


def _key(command: Command) -> str:
    """The first key of a command, or nothing for one without."""
    name = command[0]
    position = 3 if name in ("EVALSHA", "EVAL") else 1
    return str(command[position]) if len(command) > position else ""
