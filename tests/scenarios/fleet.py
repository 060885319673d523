"""Two gateways and two workers as real processes on a real PostgreSQL and a real Redis, a fault proxy on every way."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
import tempfile
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from redis.exceptions import RedisError

from playhead.testing.faults import Proxy
from playhead.testing.harness.postgres import Postgres
from playhead.testing.harness.process import Process, free_port
from playhead.testing.harness.redis import Server
from tests.support.wire import Client

ROOT = Path(__file__).parents[2]
PATIENCE = float(os.environ.get("PLAYHEAD_TEST_PATIENCE", "90"))  # seconds; how busy the machine is decides nothing
LOOK = 0.02
SKEW = {"three": 600.0, "four": -600.0}  # seconds by which the time of day of a process is wrong; it may be, always
SECRET = "hush-hush"  # the password in the address of the database

# Waits that a person would not notice, so that tests do not either. A lease outlives a machine that is busy.
QUICK: Mapping[str, Any] = {
    "lease": 4.0,
    "beat": 0.4,
    "sweep": 0.4,
    "reconcile": 0.1,
    "keepalive": 0.5,
    "cancel_grace": 1.0,
    "drain_window": 0.2,
    "drain_grace": 1.0,
    "retry": 0.1,
    "tick": 0.05,
    "record_connections": 4,
    "live_connections": 8,
    "concurrency": 8,
}
RECORD, LIVE = int(QUICK["record_connections"]), int(QUICK["live_connections"])
TOLD = ("maxclients", "maxmemory")  # settings of Redis that a fault may change
SPARE = 6  # files and threads
GROWTH = 96 << 20  # bytes
SUBSCRIBED = 3  # tasks of the one connection on which hints come, once there was somebody to hear them


@dataclass(frozen=True, slots=True)
class Counts:
    """What a process holds, apart from what its open connections are."""

    files: int
    threads: int
    tasks: tuple[str, ...]
    bytes: int  # resident


class Member:
    """One process, and its own ways to the stores."""

    def __init__(self, name: str, role: str, folder: Path, postgres: Postgres, redis: Server, dsn: str) -> None:
        self.name, self.role = name, role
        self.record, self.live = Proxy(postgres.port), Proxy(redis.port)
        self.port = free_port()
        self.front = Proxy(self.port)
        self._folder, self._dsn, self._redis = folder, dsn, redis
        self.process: Process  # once the proxies have their ports
        self._starts = 0

    @property
    def is_gateway(self) -> bool:
        return self.role == "gateway"

    @property
    def client(self) -> Client:
        """Through its proxy."""
        return Client("127.0.0.1", self.front.port)

    @property
    def direct(self) -> Client:
        """Past its proxy."""
        return Client("127.0.0.1", self.port)

    @property
    def log(self) -> str:
        return self.process.log

    async def start(self) -> None:
        """Return when it is ready."""
        self._starts += 1
        await asyncio.to_thread(self.process.start)

    async def kill(self) -> None:
        await asyncio.to_thread(self.process.kill)

    async def stop(self) -> None:
        """As an operator does."""
        await asyncio.to_thread(self.process.stop)

    def counts(self) -> Counts:
        pid = self.process.pid
        own = Path(f"/proc/{pid}")
        names = self._tasks(pid)
        lines = self.record.lines + self.live.lines + self.front.lines
        pages = int((own / "statm").read_text().split()[1])
        return Counts(
            len(list((own / "fd").iterdir())) - lines,
            len(list((own / "task").iterdir())),
            tuple(names),
            pages * os.sysconf("SC_PAGE_SIZE"),
        )

    def _tasks(self, pid: int) -> list[str]:
        told = self._folder / f"tasks-{pid}"
        told.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR1)
        return json.loads(_awaited(lambda: told.read_text() if told.exists() else ""))

    def prepared(self) -> Process:
        folder = Path(tempfile.mkdtemp(prefix=f"playhead-{self.name}-"))
        agents = "tests.scenarios.agents:app"
        command = [sys.executable, "-m", "playhead"]
        if self.is_gateway:
            command += ["serve", agents, "--no-worker", "--no-open", "--port", str(self.port)]
        else:
            command += ["worker", agents]
        address = self._dsn.replace("@127.0.0.1:", f":{SECRET}@127.0.0.1:")
        settings = {
            **QUICK,
            "record": address.replace(f":{_port(address)}/", f":{self.record.port}/"),
            "live": f"redis://127.0.0.1:{self.live.port}/0",
            "data": str(folder / "data"),
        }
        env = {f"PLAYHEAD_{name.upper()}": str(value) for name, value in settings.items()}
        env |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "SCENARIO_FOLDER": str(self._folder)}
        env["SCENARIO_SKEW"] = str(SKEW.get(self.name, 0.0))
        ready = self._answers if self.is_gateway else self._says
        return Process(command, folder=folder, env=env, ready=ready, patience=PATIENCE)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2.0) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _says(self) -> bool:
        return self.log.count(" at once\n") >= self._starts


class Fleet:
    """Use it as an async context manager; one serves many scenarios. `whole` comes before each of them."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self.folder = Path()
        self.members: list[Member] = []
        self.numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="playhead-scenarios-"))
            self.folder = Path(temporary)
            self.postgres = await asyncio.to_thread(Postgres, {"max_connections": "60"}, durable=True)
            stack.callback(self.postgres.close)
            self.redis = stack.enter_context(await asyncio.to_thread(_started_redis))
            self._redis_settings = await asyncio.to_thread(self.redis.ask, "CONFIG", "GET", *TOLD)
            self.dsn = self.postgres.dsn()
            await asyncio.to_thread(_upgrade, self.dsn)
            for name, role in (("one", "gateway"), ("two", "gateway"), ("three", "worker"), ("four", "worker")):
                self.members.append(Member(name, role, self.folder, self.postgres, self.redis, self.dsn))
            for member in self.members:
                for proxy in (member.record, member.live, member.front):
                    await stack.enter_async_context(proxy)
                member.process = member.prepared()
                stack.callback(member.process.close)
            await asyncio.gather(*(member.start() for member in self.members))
            self._baseline = {member.role: await asyncio.to_thread(member.counts) for member in self.members}
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._end_processes)
        await self._stack.aclose()

    def _end_processes(self) -> None:
        for member in self.members:
            member.process.resume()
            member.process.kill()

    @property
    def gateways(self) -> list[Member]:
        return [one for one in self.members if one.is_gateway]

    @property
    def workers(self) -> list[Member]:
        return [one for one in self.members if not one.is_gateway]

    @property
    def proxies(self) -> list[Proxy]:
        return [proxy for one in self.members for proxy in (one.record, one.live, one.front)]

    async def heal(self) -> None:
        """End every fault: proxies, stores and what they were told, processes."""
        for proxy in self.proxies:
            await proxy.resume()
        self.postgres.process.resume()
        self.redis.process.resume()
        await asyncio.to_thread(self.postgres.process.start)
        await asyncio.to_thread(self._redis_as_made)
        for member in self.members:
            member.process.resume()
        await asyncio.gather(*(member.start() for member in self.members if not member.process.running))

    async def whole(self) -> None:
        """Heal, and return when every process works."""
        await self.heal()
        for member in self.gateways:
            await until(partial(asyncio.to_thread, member._answers))

    def worker_of(self, pid: int) -> Member:
        return next(one for one in self.workers if one.process.running and one.process.pid == pid)

    async def excess(self) -> list[str]:
        """What somebody holds that was not held before there was any work; bounds of pools are allowed.

        A process that has not served yet has imported less: a few files and threads more are no leak, and neither is
        memory within the bound that everybody gets.
        """
        found = []
        for member in self.members:
            now, before = await asyncio.to_thread(member.counts), self._baseline[member.role]
            tasks = Counter(map(_kind, now.tasks)) - Counter(map(_kind, before.tasks))
            if tasks.total() > SUBSCRIBED:
                found.append(f"I8: {member.name} has more tasks: {dict(tasks)}")
            if now.files > before.files + SPARE or now.threads > before.threads + SPARE:
                found.append(f"I8: {member.name} has {now.files} files, {now.threads} threads; before {before}")
            if now.bytes > before.bytes + GROWTH:
                found.append(f"I9: {member.name} has {now.bytes >> 20} MiB; before {before.bytes >> 20}")
            for name, proxy, most in (("record", member.record, RECORD), ("live", member.live, LIVE + 1)):
                if proxy.lines > most:
                    found.append(f"I8: {member.name} has {proxy.lines} connections to its {name} store")
            if member.front.lines:
                found.append(f"I8: {member.front.lines} connections of viewers are still open at {member.name}")
        [(sessions,)] = await self.select("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'playhead'")
        if sessions > sum(member.record.lines for member in self.members):
            found.append(f"I8: PostgreSQL has {sessions} sessions")
        clients = int((await asyncio.to_thread(self.redis.ask, "INFO", "clients"))["connected_clients"])
        if clients > 1 + sum(member.live.lines for member in self.members):
            found.append(f"I8: Redis has {clients} clients")
        return found

    # The stores, past all proxies. An earlier fault may have ended the one that is asked: then it is back first.

    async def flush(self) -> None:
        await asyncio.to_thread(self._redis_up)
        await asyncio.to_thread(self.redis.ask, "FLUSHALL")

    def _redis_as_made(self) -> None:
        """A fault that did not end by itself would fail whatever comes after it."""
        self.redis.process.start()
        try:
            self.redis.ask("CONFIG", "SET", *self._redis_settings)
        except RedisError:  # it may be such a setting that keeps us out
            self.redis.process.kill()
            self.redis.process.start()

    def _redis_up(self) -> None:
        self.redis.process.resume()
        self.redis.process.start()

    async def remember(self) -> dict[bytes, bytes]:
        """What Redis holds now, to be gone back to."""

        def dump() -> dict[bytes, bytes]:
            self._redis_up()
            keys = self.redis.ask("KEYS", "*")
            found = {key: self.redis.ask("DUMP", key) for key in keys}
            return {key: data for key, data in found.items() if data is not None}

        return await asyncio.to_thread(dump)

    async def go_back(self, held: Mapping[bytes, bytes]) -> None:
        def restore() -> None:
            self._redis_up()
            self.redis.ask("FLUSHALL")
            for key, data in held.items():
                self.redis.ask("RESTORE", key, 0, data, "REPLACE")  # somebody may have been quicker

        await asyncio.to_thread(restore)

    async def select(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        def ask() -> list[tuple[Any, ...]]:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                return connection.execute(statement.encode(), values).fetchall()

        return await asyncio.to_thread(ask)

    def notes(self, run_id: str | None = None) -> list[dict[str, Any]]:
        path = self.folder / "notes"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [note for note in found if run_id in (None, note["run"])]

    def open_gate(self, run_id: str, name: str) -> None:
        (self.folder / f"{run_id}.{name}").touch()


async def until(look: Callable[[], Any], wait: float = PATIENCE, *, what: str | Callable[[], str] = "") -> Any:
    """What `look` gives, or the coroutine that it gives, once that is something. `what` may tell how far it came."""
    try:
        async with asyncio.timeout(wait):
            while True:
                found = look()
                if asyncio.iscoroutine(found):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(LOOK)
    except TimeoutError:
        raise AssertionError(f"not within {wait:g} s: {what() if callable(what) else what or look}") from None


def _kind(task: str) -> str:
    """Tasks without a name of their own are all of one kind."""
    return task if task.startswith("playhead-") else "Task"


def _awaited(look: Callable[[], str]) -> str:
    import time

    end = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < end
        time.sleep(0.01)  # between two looks
    return found


def _port(address: str) -> int:
    return int(address.rpartition("/")[0].rpartition(":")[2])


def _started_redis() -> Server:
    return Server("redis", ("--enable-debug-command", "local"))


def _upgrade(dsn: str) -> None:
    from tests.support.postgres import upgrade

    asyncio.run(upgrade(dsn))
