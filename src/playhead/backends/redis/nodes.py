"""The servers behind a target, by the driver's own clients: one, the master that sentinels name, or a cluster.

No command is sent a second time unasked: whoever lost a reply asks again, and every act can be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff, NoBackoff
from redis.exceptions import ConnectionError

from playhead.backends.redis.target import Target

Command = Sequence[bytes | str | int]
Address = tuple[str, int]
T = TypeVar("T")

_MOVES = 4  # times that a command follows a cluster that is changing


class Nodes(Protocol):
    """Commands go to the server of their key, which is that of the first key in the command."""

    async def execute(self, command: Command) -> Any:
        """The reply. Raises what the driver raises."""

    async def execute_all(self, commands: Sequence[Command]) -> list[Any]:
        """The reply or the error of each; what goes to one server goes there together."""

    async def everywhere(self, command: Command) -> dict[str, Any]:
        """The reply or the error of every master."""

    async def locate(self, key: str) -> Address:
        """Where this key's server is."""

    def subscriber(self, address: Address) -> AbstractConnection:
        """A connection of its own to this server, not yet made."""

    async def refresh(self) -> None:
        """Find out anew which server has which keys."""

    async def close(self) -> None: ...


def common(deadline: float) -> dict[str, Any]:
    """What all connections have: no reply in another shape, no time-out longer than a call may take."""
    return {
        "protocol": 2,
        "legacy_responses": False,
        "socket_timeout": deadline,
        "socket_connect_timeout": deadline,
        "client_name": "playhead",
    }


def sentinels(target: Target, deadline: float) -> Sentinel | None:
    """Who is asked for the master, where the target says so. They are given its TLS and no password of it."""
    if target.service is None:
        return None
    options: dict[str, Any] = {name: value for name, value in target.options.items() if name.startswith("ssl_")}
    if issubclass(target.options.get("connection_class", Connection), SSLConnection):
        options["ssl"] = True
    waits = {"socket_timeout": deadline / 2, "socket_connect_timeout": deadline / 2}
    once = {"retry": Retry(NoBackoff(), 0), "protocol": 2, "legacy_responses": False}
    return Sentinel(target.hosts, sentinel_kwargs={**options, **once, **waits})


async def joined(task: asyncio.Future[T]) -> T:
    """What a task of several callers answers. To them its being ended is an error: none of them was cancelled."""
    await asyncio.wait({task})
    if task.cancelled():
        raise ConnectionError("the connection is closed")
    return task.result()


class Shared(Generic[T]):
    """A work that is done once for all who ask for it while it goes on."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._task: asyncio.Future[T] | None = None

    async def done(self) -> T:
        """Raises what the work raises, or ConnectionError when it is ended meanwhile."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._work())
            self._task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return await joined(self._task)

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()


class _Turns:
    """So many calls at once, and none after `end`: a client of the driver's would connect anew for it."""

    def __init__(self, most: int) -> None:
        self._free, self._over = asyncio.Semaphore(most), False

    async def __aenter__(self) -> None:
        await self._free.acquire()
        if self._over:
            self._free.release()
            raise ConnectionError("the connection is closed")

    async def __aexit__(self, *error: object) -> None:
        self._free.release()

    def end(self) -> None:
        self._over = True


class Single:
    """One server, or the master of a service that sentinels name."""

    def __init__(self, target: Target, *, deadline: float, connections: int) -> None:
        options: dict[str, Any] = {**common(deadline), **target.options}
        self._class = options.pop("connection_class", Connection)
        self._once = _Turns(connections)
        self._sentinel, self._service = sentinels(target, deadline), target.service
        self._finding = Shared(self._find)
        self._options = {"retry": Retry(NoBackoff(), 0), **options}
        if self._sentinel is not None:
            secure = {"ssl": True} if issubclass(self._class, SSLConnection) else {}
            self._client = self._sentinel.master_for(target.service, **self._options, **secure)
            self._address: Address = ("", 0)
        else:
            self._address = target.hosts[0] if target.hosts else ("", 0)
            if target.hosts:
                self._options |= {"host": self._address[0], "port": self._address[1]}
            pool = BlockingConnectionPool(
                max_connections=connections, timeout=deadline, connection_class=self._class, **self._options
            )
            self._client = Redis.from_pool(pool)

    async def execute(self, command: Command) -> Any:
        async with self._once:  # the sentinels' pool does not wait for a connection
            return await self._client.execute_command(*command)

    async def execute_all(self, commands: Sequence[Command]) -> list[Any]:
        async with self._once:
            async with self._client.pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                return cast(list[Any], await pipe.execute(raise_on_error=False))

    async def everywhere(self, command: Command) -> dict[str, Any]:
        host, port = await self.locate("")
        (reply,) = await self.execute_all([command])
        return {f"{host}:{port}" if port else "": reply}

    async def locate(self, key: str) -> Address:
        return self._address if self._sentinel is None else await self._finding.done()

    async def _find(self) -> Address:
        assert self._sentinel is not None
        assert self._service is not None
        host, port = await self._sentinel.discover_master(self._service)
        return host, port

    def subscriber(self, address: Address) -> AbstractConnection:
        places = {"host": address[0], "port": address[1]} if address[1] else {}
        return cast(AbstractConnection, self._class(**{**self._options, **places, "socket_timeout": None}))

    async def refresh(self) -> None:
        """There is nothing to know but what is asked each time."""

    async def close(self) -> None:
        self._once.end()
        self._finding.end()
        await self._client.aclose(close_connection_pool=True)
        for sentinel in self._sentinel.sentinels if self._sentinel else ():
            await sentinel.aclose(close_connection_pool=True)


class Cluster:
    """A cluster: every feed lies on one of its masters."""

    def __init__(self, target: Target, *, deadline: float, connections: int) -> None:
        options: dict[str, Any] = {**common(deadline), **target.options}
        self._class = options.pop("connection_class", Connection)
        secure = {"ssl": True} if issubclass(self._class, SSLConnection) else {}
        self._options = {"retry": Retry(NoBackoff(), 0), **options}
        self._once = _Turns(connections)
        self._client = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in target.hosts],
            require_full_coverage=False,
            max_connections=connections,
            retry=Retry(ConstantBackoff(0.05), _MOVES),
            **options,
            **secure,
        )

    async def execute(self, command: Command) -> Any:
        async with self._once:
            return await self._client.execute_command(*command)

    async def execute_all(self, commands: Sequence[Command]) -> list[Any]:
        async with self._once:
            pipe = self._client.pipeline()
            for command in commands:
                pipe.execute_command(*command)
            return cast(list[Any], await pipe.execute(raise_on_error=False))

    async def everywhere(self, command: Command) -> dict[str, Any]:
        await self._client.initialize()
        found: dict[str, Any] = {}
        for node in self._client.get_primaries():
            try:
                found[node.name] = await self._client.execute_command(*command, target_nodes=node)
            except Exception as error:  # told in the place of the reply, as `execute_all` does
                found[node.name] = error
        return found

    async def locate(self, key: str) -> Address:
        await self._client.initialize()
        slot = self._client.keyslot(key)
        node = self._client.nodes_manager.get_node_from_slot(slot)
        return str(node.host), int(node.port)

    def subscriber(self, address: Address) -> AbstractConnection:
        places = {"host": address[0], "port": address[1], "socket_timeout": None}
        return cast(AbstractConnection, self._class(**{**self._options, **places}))

    async def refresh(self) -> None:
        await self._client.initialize()
        await self._client.nodes_manager.initialize()

    async def close(self) -> None:
        self._once.end()
        await self._client.aclose()
