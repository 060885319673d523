"""A slot of a cluster moves while its feed is written to and read: every call is answered, and each counts once."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import pytest
from redis.crc import key_slot

from playhead.backends.redis import RedisLive
from playhead.core.retention import Retention
from playhead.core.snapshot import State
from playhead.core.text import TextApplied
from playhead.testing.check import LiveBench, eventually
from playhead.testing.clock import FakeClock
from playhead.testing.harness.redis import Cluster
from playhead.testing.ports.given import applied, live, view
from playhead.testing.ports.projection_hints import listening
from tests.support import redis_servers

pytestmark = [pytest.mark.anyio, pytest.mark.wide]

SAID = ("MOVED", "ASK", "TRYAGAIN")


def told(servers):
    """How often they have said each of these."""
    stats = [server.ask("INFO", "errorstats") for server in servers]
    return [sum(int(one.get(f"errorstat_{name}", {"count": 0})["count"]) for one in stats) for name in SAID]


@asynccontextmanager
async def bench(url):
    clock = FakeClock()
    kept = {"retention": Retention(age=60.0), "prefix": redis_servers.prefix(), "deadline": redis_servers.PATIENCE}
    store = await RedisLive.at(url, clock=clock, **kept)
    try:
        yield LiveBench(store, store, store.signal, clock)
    finally:
        await store.close()


@pytest.mark.row("F32")
async def test_every_call_is_answered_while_a_slot_moves_key_by_key():
    cluster = redis_servers.started("cluster")
    assert isinstance(cluster, Cluster)
    async with bench(cluster.url) as b:
        await under_load(cluster, b, b.store)


async def under_load(cluster, b, store):
    scribe = await live(b)
    ear = await listening(b, scribe)
    before, over, said = await asyncio.to_thread(told, cluster.servers), False, 0

    async def publish():
        while not over:
            applied(await store.publish(scribe.write(1, state=State(progress=1))))
            await asyncio.sleep(0)

    async def say():
        nonlocal said
        while not over:
            assert isinstance(await store.append(scribe.text(said, b"word ")), TextApplied)
            said += 5

    async def read():
        while not over:
            await view(b, scribe.feed)
            assert scribe.feed in await store.unarchived(10)
            await store.aged(10)

    def further(n):
        return scribe.n >= n or any(task.done() for task in working)

    loop = asyncio.get_running_loop()

    def still_found():
        """The index is one key, which is served where it is by now."""
        asked = asyncio.run_coroutine_threadsafe(store._due("waiting", 10, 0), loop)
        assert scribe.feed in asked.result(redis_servers.PATIENCE)

    def move():
        cluster.move(key_slot(scribe.run_id.encode()), at_once=1, pause=0.01, moved=still_found)

    working = [asyncio.create_task(work()) for work in (publish, say, read)]
    try:
        for _ in range(2):
            await asyncio.to_thread(move)
            await eventually(partial(further, scribe.n + 20), 30.0)
    finally:
        over = True
        await asyncio.gather(*working)
    after = await asyncio.to_thread(told, cluster.servers)
    assert all(then < now for then, now in zip(before, after, strict=True)), dict(zip(SAID, after, strict=True))
    whole = await view(b, scribe.feed)
    assert (whole.marks.position, whole.marks.n) == (3 + scribe.n, scribe.n)
    assert [len(part.data) for part in await store.read_text(scribe.feed)] == [said]
    await eventually(lambda: ear.hints and ear.hints[-1].marks.position == whole.marks.position)
