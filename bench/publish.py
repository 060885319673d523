"""Publishing through Redis, against redis-benchmark with the same script, server and arguments.

    python3 dev.py bench publish [-- IN_FLIGHT...]

Each of N attempts publishes one event after the other, with its state, so N writes are in flight. redis-benchmark
cannot count, and the script refuses what it has already: the peer's copy of it has one line more, which numbers its
writes.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import uvloop

from bench import measure, redisload
from bench.redisload import Cost
from playhead.backends.redis.nodes import Command
from playhead.backends.redis.scripts import load
from playhead.core.transition import Applied, Publish
from playhead.testing.harness.redis import Server

ROUNDS = 5
# In flight here → the peer's connections and commands in one write.
LOADS = {1: (1, 1), 16: (1, 16), 64: (50, 64), 1_000: (50, 64)}
EVENTS = {1: 2_000, 16: 6_400, 64: 9_600, 1_000: 10_000}
LOADED = "local p = load()\n"
COUNTING = "first_n, last_n, state_version = p.n + 1, p.n + 1, p.state_version + 1\n"


def ours(server: Server, flying: int, *, pipelined: bool, events: int) -> Cost:
    async def run() -> Cost:
        store, other = await redisload.store(server, pipelined=pipelined), await redisload.store(server)
        scribes = await redisload.attempts(other, flying)
        await other.close()
        loads = [redisload.writes(scribe, events // flying) for scribe in scribes]

        async def publisher(load: Sequence[Publish]) -> None:
            for write in load:
                reply = await store.publish(write)
                assert isinstance(reply, Applied), reply

        async def all_of_them() -> None:
            await asyncio.gather(*map(publisher, loads))

        cost = await redisload.measured(server, events // flying * flying, all_of_them)
        await store.close()
        return cost

    server.ask("FLUSHALL")
    return uvloop.run(run())


def peer(server: Server, connections: int, pipeline: int, events: int) -> Cost:
    """redis-benchmark, by its own count."""

    async def command() -> list[str]:
        store = await redisload.store(server)
        scribe = await redisload.attempt(store)
        sent: list[Command] = []
        assert store._pipes is not None
        begin = store._pipes.begin

        def listen(command: Command) -> asyncio.Future[Any] | None:
            sent.append(command)
            return begin(command)

        store._pipes.begin = listen  # type: ignore[method-assign]  # what goes out is what is wanted
        (write,) = redisload.writes(scribe, 1)
        await store.publish(write)
        await store.close()
        text = load("publish").text.decode()
        assert text.count(LOADED) == 1
        sha = server.ask("SCRIPT", "LOAD", text.replace(LOADED, LOADED + COUNTING))
        rest = [one.decode() if isinstance(one, bytes) else str(one) for one in sent[0][2:]]
        return ["EVALSHA", sha if isinstance(sha, str) else sha.decode(), *rest]

    server.ask("FLUSHALL")
    words = uvloop.run(command())
    call = ["redis-benchmark", "-p", str(server.port), "-c", str(connections), "-P", str(pipeline), "-n", str(events)]
    busy, cpu, start = redisload.server_cpu(server), redisload.children_cpu(), time.perf_counter()
    subprocess.run([*call, "-q", *words], check=True, stdout=subprocess.DEVNULL)
    wall, client = time.perf_counter() - start, redisload.children_cpu() - cpu
    busy = redisload.server_cpu(server) - busy
    done = server.ask("XLEN", words[4]) - 4  # a little more than asked for: whole pipelines
    assert done >= events, f"{done} of {events}: the peer did not publish"
    return Cost(done, wall, client, busy)


def line(name: str, costs: Sequence[Cost]) -> str:
    return (
        f"  {name}: {statistics.median(one.rate for one in costs):,.0f}/s, CPU an event: client "
        f"{statistics.median(one.client_us for one in costs):.1f} us, "
        f"server {statistics.median(one.server_us for one in costs):.1f} us"
    )


def main() -> None:
    logging.disable(logging.WARNING)
    with Server(redisload.FLAVOR) as server:
        for flying in map(int, sys.argv[1:] or LOADS):
            connections, pipeline = LOADS[flying]
            count = EVENTS[flying]
            variants: dict[str, Callable[[], Cost]] = {
                "piped": partial(ours, server, flying, pipelined=True, events=count),
                "driver's pool": partial(ours, server, flying, pipelined=False, events=max(count // 8, flying)),
                f"redis-benchmark c{connections} P{pipeline}": partial(peer, server, connections, pipeline, count),
            }
            found: dict[str, list[Cost]] = {name: [] for name in variants}
            for _ in range(ROUNDS):
                for name, variant in variants.items():
                    found[name].append(variant())
            print(f"{flying} in flight:")
            for name, costs in found.items():
                print(line(name, costs), flush=True)
            piped, pool, bench = found.values()
            ratio = measure.ratio([one.rate for one in piped], [one.rate for one in bench])
            measure.report(f"publish_{flying}_to_redis_benchmark", ratio, "x", peer=f"c{connections} P{pipeline}")
            busy = measure.ratio([one.busy_us(flying) for one in bench], [one.busy_us(flying) for one in piped])
            other = measure.ratio([one.rate for one in pool], [one.rate for one in bench])
            print(f"  by CPU {busy:.3g} x, with the driver's pool {other:.3g} x", flush=True)


if __name__ == "__main__":
    main()
