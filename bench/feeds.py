"""What many feeds, long timelines and many viewers cost Redis and its connections.

    python3 dev.py bench feeds

CPU is that of the server process. Every feed counts as live: this process is subscribed to it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import statistics
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import uvloop

from bench import measure, redisload
from playhead.backends.memory import MemoryRecord
from playhead.backends.redis import RedisLive
from playhead.core.event import published
from playhead.core.ids import Feed, run_feed
from playhead.core.retention import Retention
from playhead.core.transition import Applied, Publish
from playhead.interfaces import Hint
from playhead.runtime.hub import Hub
from playhead.runtime.projector import Projector
from playhead.runtime.subscription import Place, Viewer
from playhead.testing.harness.redis import Server
from playhead.testing.ports.given import Scribe

ROUNDS = 5
FEWS, MANY, MOST = 10, 1_000, 10_000
EVENTS = 3_000
FLYING = FEWS  # the same for all, or more would be joined in one write where more are live
LONG, SHORT = 100_000, 10
STEPS = 300


class Heard:
    """Counts what it is told of."""

    def __init__(self) -> None:
        self.events = 0
        self.gaps = 0

    def on_hints(self, hints: Sequence[Hint]) -> None:
        self.events += sum(len(hint.entries) for hint in hints)

    def on_gap(self, feed: Feed) -> None:
        self.gaps += 1


class Live:
    """A server with so many live feeds, and this process that hears all of them."""

    def __init__(self, server: Server, count: int) -> None:
        self.server, self.count, self.ear = server, count, Heard()
        self.scribes: list[Scribe] = []

    async def begin(self) -> None:
        self.store = await redisload.store(self.server)
        for _ in range(0, self.count, 500):
            self.scribes += await redisload.attempts(self.store, min(500, self.count - len(self.scribes)))
        await asyncio.gather(*(self.store.signal.add(scribe.feed, self.ear) for scribe in self.scribes))

    async def round(self) -> float:
        """Microseconds of the server's CPU for an event."""
        chosen = [random.choice(self.scribes) for _ in range(EVENTS)]
        loads: dict[str, list[Publish]] = {}
        for scribe in chosen:
            loads.setdefault(scribe.run_id, []).extend(redisload.writes(scribe, 1))
        heard = self.ear.events
        order = deque(loads.values())

        async def lane() -> None:
            while order:
                load = order.popleft()
                reply = await self.store.publish(load.pop(0))
                assert isinstance(reply, Applied), reply
                if load:
                    order.append(load)

        async def all_of_them() -> None:
            await asyncio.gather(*(lane() for _ in range(FLYING)))
            while self.ear.events - heard < EVENTS:
                await asyncio.sleep(0.002)

        return (await redisload.measured(self.server, EVENTS, all_of_them)).server_us

    async def resubscribe(self) -> tuple[float, int, int, float]:
        """Seconds, commands and connections that it takes to hear all feeds again once the line was cut, and CPU."""
        before = self.server.ask("INFO", "stats")["total_connections_received"]
        calls = subscriptions(self.server)
        gaps, start, cpu = self.ear.gaps, time.perf_counter(), redisload.server_cpu(self.server)
        self.server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        while self.ear.gaps - gaps < self.count:
            await asyncio.sleep(0.002)
        took, cpu = time.perf_counter() - start, redisload.server_cpu(self.server) - cpu
        made = self.server.ask("INFO", "stats")["total_connections_received"] - before
        return took, subscriptions(self.server) - calls, made - 5, cpu  # five of those are ours that ask


def subscriptions(server: Server) -> int:
    return int(server.ask("INFO", "commandstats").get("cmdstat_ssubscribe", {"calls": 0})["calls"])


def commands(server: Server) -> int:
    """Commands that clients sent, what scripts did not counted."""
    told = server.ask("INFO", "commandstats")
    asked = ("evalsha", "eval", "ssubscribe", "sunsubscribe")
    return sum(int(told.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in asked)


async def live_feeds(stack: ExitStack) -> None:
    lives = [Live(stack.enter_context(Server(redisload.FLAVOR)), count) for count in (FEWS, MANY, MOST)]
    for live in lives:
        await live.begin()
    found: list[list[float]] = [[] for _ in lives]
    for _ in range(ROUNDS):
        for costs, live in zip(found, lives, strict=True):
            costs.append(await live.round())
    for costs, live in zip(found, lives, strict=True):
        print(f"{live.count:,} live feeds: {statistics.median(costs):.1f} us of the server's CPU an event")
    value = measure.ratio(found[-1], found[0])
    measure.report("feeds_10000_to_10", value, "x", peer=f"CPU of Redis an event, {MOST:,} live feeds to {FEWS}")
    again = [await lives[-1].resubscribe() for _ in range(3)]
    took, calls, made, cpu = sorted(again)[1]
    print(f"hearing {MOST:,} feeds again: {took:.2f} s, {calls:,} commands, {made} connection, {cpu:.2f} s of its CPU")
    for live in lives:
        await live.store.close()


async def long_timelines(stack: ExitStack) -> None:
    """A read as a bootstrap makes it, and an event, one after the other, on one long timeline and on short ones.

    Retention is as the settings have it, and the archiver keeps up.
    """
    server = stack.enter_context(Server(redisload.FLAVOR))
    store = await redisload.store(server, retention=Retention())
    long = await redisload.attempt(store)
    shorts = await redisload.attempts(store, STEPS // 2)

    async def archived() -> None:
        marks = (await store.stand([long.feed]))[long.feed]
        await store.archived(long.feed, long.epoch, marks.position)

    for _ in range(LONG // 250):
        await store.publish(long.write(250, payload=redisload.PAYLOAD))
        await archived()
    for short in shorts:
        await store.publish(short.write(SHORT, payload=redisload.PAYLOAD))

    async def reads(scribes: Sequence[Scribe]) -> None:
        for i in range(STEPS):
            feed = scribes[i % len(scribes)].feed
            view = await store.read(feed, limit=SHORT)
            assert view is not None
            assert len(view.entries) == SHORT
            await store.read_text(feed)

    async def events(loads: Sequence[Publish]) -> None:
        for write in loads:
            assert isinstance(await store.publish(write), Applied)

    found: list[list[float]] = [[], [], [], []]
    for _ in range(ROUNDS):
        for which, scribes in enumerate(([long], shorts)):
            cost = await redisload.measured(server, STEPS, partial(reads, scribes))
            found[which].append(cost.server_us)
            loads = [redisload.writes(scribes[i % len(scribes)], 1)[0] for i in range(STEPS)]
            await archived()
            cost = await redisload.measured(server, STEPS, partial(events, loads))
            found[2 + which].append(cost.server_us)
    medians = [statistics.median(one) for one in found]
    print(
        f"at {LONG:,} events and at {SHORT}, us of the server's CPU: bootstrap {medians[0]:.1f} and {medians[1]:.1f}, "
        f"event {medians[2]:.1f} and {medians[3]:.1f}"
    )
    value, peer = measure.ratio(found[0], found[1]), f"CPU of Redis, {LONG:,} events to {SHORT}"
    measure.report("bootstrap_100000_to_10", value, "x", peer=peer)
    measure.report("event_100000_to_10", measure.ratio(found[2], found[3]), "x", peer=peer)
    await store.close()


async def swallow(message: object) -> None:
    """A socket that takes everything."""


async def viewers(stack: ExitStack) -> None:
    """Connections and commands as viewers of one run grow."""
    server = stack.enter_context(Server(redisload.FLAVOR))
    record = MemoryRecord(redisload.CLOCK)
    store = await redisload.store(server)
    projector = Projector(record, store, redisload.CLOCK)
    hub = Hub(record, store, store, store.signal, projector, redisload.CLOCK)
    run = await redisload.begun(record, projector)
    scribe = Scribe(redisload.CLOCK, run.id)
    scribe.epoch, scribe.token, scribe.rev = run.epoch, run.token, run.rev

    async def resync(*_: object) -> None:
        raise AssertionError("nothing was lost")

    other = await redisload.begun(record, projector)
    hub.detach(await hub.attach(run_feed(other.id)))  # what is loaded once is no viewer's
    present = 0
    for count in (1, 100, 1_000):
        before = commands(server)
        for _ in range(count - present):
            live = await hub.attach(run_feed(run.id))
            viewer = Viewer(hub, live, swallow, abort=lambda: None, resync=resync, driven=True)
            assert live.ring is not None
            _, ends, state = live.beginning({})
            viewer.start(Place(live.ring.position, ends, state))
        joined, added, present = commands(server) - before, count - present, count
        before = commands(server)
        for write in redisload.writes(scribe, 100):
            await store.publish(write)
        await asyncio.sleep(0.3)
        sent = (commands(server) - before) / 100
        clients = int(server.ask("INFO", "clients")["connected_clients"]) - 1
        print(
            f"{count:,} viewers of a run: {clients} connections, {joined} commands for {added:,} to join, "
            f"{sent:.2f} commands an event"
        )
    await hub.close()
    await store.close()


async def memory(stack: ExitStack) -> None:
    """Bytes and keys of a run and of an event."""
    server = stack.enter_context(Server(redisload.FLAVOR))
    store = await redisload.store(server)

    def held() -> tuple[int, int]:
        return int(server.ask("INFO", "memory")["used_memory"]), int(server.ask("DBSIZE"))

    await redisload.attempt(store)  # scripts and indexes are nobody's
    count, each = 500, 20
    bytes_0, keys_0 = held()
    scribes = await redisload.attempts(store, count)
    bytes_1, keys_1 = held()
    await asyncio.gather(*(publish_all(store, redisload.writes(scribe, each)) for scribe in scribes))
    bytes_2, keys_2 = held()
    one = published(scribes[0].run_id, 1, 1, "step_done", redisload.PAYLOAD, redisload.CLOCK.wall_ms())
    print(
        f"a live run: {(bytes_1 - bytes_0) / count / 1024:.1f} KiB and {(keys_1 - keys_0) / count:.0f} keys with its "
        f"three facts; an event of {len(one.body)} bytes: {(bytes_2 - bytes_1) / count / each / 1024:.2f} KiB, "
        f"{(keys_2 - keys_1) / count / each:.0f} keys"
    )
    for scribe in scribes:
        await store.fact(scribe.epoch, scribe.final(), scribe.tag())
    bytes_3, keys_3 = held()
    for scribe in scribes:  # as when the time to live of the timelines is over
        server.ask("DEL", store._names.keys(scribe.feed)[1])
    bytes_4, keys_4 = held()
    print(
        f"a finished run with {each + 4} events: {(bytes_3 - bytes_0) / count / 1024:.1f} KiB and "
        f"{(keys_3 - keys_0) / count:.0f} keys for 1 h; then {(bytes_4 - bytes_0) / count / 1024:.1f} KiB and "
        f"{(keys_4 - keys_0) / count:.0f} key until 24 h have passed"
    )
    await store.close()


async def publish_all(store: RedisLive, loads: Sequence[Publish]) -> None:
    for write in loads:
        await store.publish(write)


async def run() -> None:
    for part in (memory, viewers, long_timelines, live_feeds):
        with ExitStack() as stack:
            await part(stack)


def main() -> None:
    logging.disable(logging.WARNING)
    uvloop.run(run())


if __name__ == "__main__":
    main()
