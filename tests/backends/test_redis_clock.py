"""The clock of the server: no act goes by it, and so it may be set to whatever, at any moment."""

import threading
from contextlib import asynccontextmanager, contextmanager

import pytest

from playhead.backends.redis import RedisLive
from playhead.core.retention import Retention
from playhead.core.run import Status
from playhead.core.snapshot import State
from playhead.testing.check import LiveBench, eventually
from playhead.testing.clock import FakeClock
from playhead.testing.harness.redis import Server
from playhead.testing.ports.given import applied, live, project, publish, view
from playhead.testing.ports.projection_hints import listening
from tests.support import redis_servers

pytestmark = pytest.mark.anyio

DAY = 86_400.0
READS_THE_CLOCK = ("TIME", "LASTSAVE", "EXPIRETIME", "PEXPIRETIME")
SETS_A_TIME = ("EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT")


@asynccontextmanager
async def bench(server):
    clock = FakeClock()
    store = await RedisLive.at(
        server.url, clock=clock, retention=Retention(count=5, age=3_600.0), deadline=redis_servers.PATIENCE
    )
    try:
        yield LiveBench(store, store, store.signal, clock)
    finally:
        await store.close()


@contextmanager
def monitored(server):
    """All commands that the server carries out meanwhile, those of scripts too, as they are written."""
    from redis import Redis

    seen: list[list[str]] = []
    with Redis(host="127.0.0.1", port=server.port) as client, client.monitor() as monitor:

        def read():
            for told in monitor.listen():
                if told["command"] == "ECHO over":
                    return
                seen.append(told["command"].split(" "))

        reader = threading.Thread(target=read)
        reader.start()
        yield seen
        server.ask("ECHO", "over")
        reader.join(redis_servers.PATIENCE)


@pytest.mark.row("F36")
async def test_no_act_goes_by_the_clock_of_the_server():
    """A whole life, from its opening to its expiry, while the two clocks drift apart by days in both directions."""
    with Server("redis") as server:
        with monitored(server) as seen:
            async with bench(server) as b:
                scribe = await live(b)
                ear = await listening(b, scribe)
                for step in (2 * DAY, -5 * DAY, 0.0):
                    b.clock.step_wall(step)
                    await publish(b, scribe, 2, state=State(progress=1))
                    await b.text.append(scribe.text(0, b"said", part=f"part_{scribe.n}"))
                    await b.store.aged(10)
                    await b.store.trim(scribe.feed)
                    whole = await view(b, scribe.feed)
                await eventually(lambda: len(ear.hints) >= 9)
                places = [hint.marks.position for hint in ear.hints]
                assert places == sorted(places)
                assert whole.marks.position == 3 + 6
                await b.store.archived(scribe.feed, scribe.epoch, whole.marks.position)
                before_the_end = len(seen)
                ids = [key for key, _ in server.ask("XRANGE", f"agent:run:{{{scribe.run_id}}}:events", "-", "+")]
                first = whole.marks.position - len(ids) + 1
                assert ids == [f"{scribe.epoch}-{first + i}".encode() for i in range(len(ids))]
                applied(await project(b, scribe, scribe.final(Status.SUCCEEDED)))
                await b.clock.advance(3 * DAY)
                await b.store.expire()
                await b.store.expire()
                assert await b.store.read(scribe.feed) is None
        names = [command[0].upper() for command in seen]
        assert {"EVALSHA", "XADD", "HSET", "XRANGE"} <= set(names)  # what scripts do is seen
        assert not set(READS_THE_CLOCK) & set(names)
        assert not set(SETS_A_TIME) & set(names[:before_the_end])
        assert all("*" not in command[1:4] for command in seen if command[0].upper() == "XADD")
