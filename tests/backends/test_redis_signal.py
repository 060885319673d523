"""Hints through real servers: connections that break, slots that move, rules that forbid."""

import asyncio
import logging
from contextlib import asynccontextmanager
from functools import partial

import pytest
import redis.asyncio
from redis.crc import key_slot

from playhead.backends.redis import RedisLive
from playhead.core import event
from playhead.core.retention import Retention
from playhead.core.snapshot import State
from playhead.errors import StoreUnavailable
from playhead.testing.check import LiveBench, eventually
from playhead.testing.clock import FakeClock
from playhead.testing.harness.redis import Cluster, Server, Watched
from playhead.testing.ports.given import applied, live, opened, project, publish, view
from playhead.testing.ports.projection_hints import Ear, listening
from tests.support import redis_servers

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def bench(url=None, **options):
    clock = FakeClock()
    url = url or redis_servers.url("redis")
    kept = {"retention": Retention(), "prefix": redis_servers.prefix(), "deadline": redis_servers.PATIENCE}
    store = await RedisLive.at(url, clock=clock, **{**kept, **options})
    store.signal.poll = 0.02
    try:
        yield LiveBench(store, store, store.signal, clock)
    finally:
        await store.close()


def each(ears, what, count):
    """Whether everybody heard so many."""
    return all(len(getattr(ear, what)) >= count for ear in ears)


@asynccontextmanager
async def raw(url):
    client = redis.asyncio.Redis.from_url(url, protocol=2, legacy_responses=False)
    try:
        yield client
    finally:
        await client.aclose()


@pytest.fixture
def server():
    with Server("redis") as one:
        yield one


@pytest.fixture
def cluster():
    with Cluster("redis") as one:
        yield one


@pytest.mark.row("BR-73")
@pytest.mark.parametrize("kind", ["redis", pytest.param("cluster", marks=pytest.mark.wide)])
async def test_many_feeds_are_heard_on_one_connection_to_each_server(kind):
    async with bench(redis_servers.url(kind)) as b:
        scribes = [await opened(b) for _ in range(60)]
        ears = [await listening(b, scribe) for scribe in scribes]
        for scribe in scribes:
            applied(await project(b, scribe, scribe.fact(event.RUN_QUEUED)))
        await eventually(lambda: all(ear.hints for ear in ears))
        assert b.signal.connections == (1 if kind == "redis" else 3)
        assert [len(ear.hints) for ear in ears] == [1] * 60
        assert not any(ear.gaps for ear in ears)


async def test_what_another_process_writes_is_heard_and_nothing_twice():
    prefix = redis_servers.prefix()
    async with bench(prefix=prefix) as one, bench(prefix=prefix) as b:
        scribe = await live(one)
        here, there = await listening(one, scribe), await listening(b, scribe)
        await publish(one, scribe, 3, state=State(progress=1))
        await eventually(lambda: len(here.hints) >= 3 and len(there.hints) >= 3)
        assert here.hints == there.hints
        assert [hint.marks.position for hint in there.hints] == [4, 5, 6]


async def test_a_broken_connection_is_a_gap_for_every_feed_on_it(server):
    async with bench(server.url) as b:
        scribes = [await live(b) for _ in range(20)]
        ears = [await listening(b, scribe) for scribe in scribes]
        for turn in range(1, 4):
            assert server.ask("CLIENT", "KILL", "TYPE", "pubsub") >= 1
            await eventually(partial(each, ears, "gaps", turn))
            assert [set(ear.gaps) for ear in ears] == [{scribe.feed} for scribe in scribes]
            for scribe in scribes:
                await publish(b, scribe, 1)
            await eventually(partial(each, ears, "hints", turn))
        assert [len(ear.hints) for ear in ears] == [3] * 20
        assert b.signal.connections == 1


async def test_thousands_of_feeds_are_subscribed_again_at_once(server):
    async with bench(server.url) as b:
        scribes = [await opened(b) for _ in range(3)]
        ear = Ear()
        feeds = [scribe.feed for scribe in scribes] + [type(scribes[0].feed)("run", f"r{i}") for i in range(3_000)]
        await asyncio.gather(*(b.signal.add(feed, ear) for feed in feeds))
        before = server.ask("INFO", "commandstats")["cmdstat_ssubscribe"]["calls"]
        server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        await eventually(lambda: len(ear.gaps) >= len(feeds))
        assert sorted(feed.id for feed in ear.gaps) == sorted(feed.id for feed in feeds)
        assert server.ask("INFO", "commandstats")["cmdstat_ssubscribe"]["calls"] == before + len(feeds)


async def test_a_server_that_comes_back_is_listened_to_again(server):
    async with bench(server.url) as b:
        scribe = await live(b)
        ear = await listening(b, scribe)
        server.process.kill()
        with pytest.raises(StoreUnavailable):
            await b.store.publish(scribe.write(1))
        server.start()
        await eventually(lambda: ear.gaps)
        scribe.epoch += 1
        applied(await b.store.open(scribe.opening()))
        await eventually(lambda: ear.hints)


async def test_a_connection_whose_other_end_is_silent_is_given_up(server):
    async with bench(server.url, deadline=0.2) as b:
        scribe = await live(b)
        ear = await listening(b, scribe)
        server.process.pause()
        await eventually(lambda: b.signal.connections == 0)
        server.process.resume()
        await eventually(lambda: ear.gaps)


async def test_an_idle_connection_is_kept(server):
    async with bench(server.url, deadline=0.1) as b:
        ear = Ear()
        await b.signal.add((await opened(b)).feed, ear)
        await asyncio.sleep(0.5)
        assert ear.gaps == []


async def test_what_is_too_much_for_a_hint_has_to_be_read():
    """A large write is told by its marks; of large text, which moves no mark, the listener is told to read."""
    async with bench(hint_bytes=2_000) as b:
        scribe = await live(b)
        ear = await listening(b, scribe)
        await publish(b, scribe, 1, payload={"t": "x" * 3_000})
        await eventually(lambda: ear.hints)
        (hint,) = ear.hints
        assert (hint.marks, hint.snapshot, hint.entries) == ((await view(b, scribe.feed)).marks, None, ())
        await b.text.append(scribe.text(0, b"x" * 3_000))
        await eventually(lambda: ear.gaps)
        assert len(ear.hints) == 1


@pytest.mark.row("A11")
@pytest.mark.parametrize(
    "message", [b"", b"\x00\xff", b"1:2:3 4 5", b"1:1:1 " + b"9" * 90_000, b"a b c d e f g h i j\n"]
)
async def test_whatever_else_is_said_on_a_channel_is_a_gap(message):
    async with bench() as b, raw(redis_servers.url("redis")) as client:
        scribe = await live(b)
        ear = await listening(b, scribe)
        await client.execute_command("SPUBLISH", b.store._names.channel(scribe.feed), message)
        await eventually(lambda: ear.gaps)
        assert ear.hints == []
        await publish(b, scribe, 1)
        await eventually(lambda: ear.hints)


async def test_add_and_remove_may_race():
    async with bench() as b:
        scribe = await live(b)
        for turn in range(30):
            ear = Ear()
            adding = asyncio.ensure_future(b.signal.add(scribe.feed, ear))
            for _ in range(turn % 7):
                await asyncio.sleep(0)
            if turn % 3 == 0:
                adding.cancel()
            await asyncio.gather(adding, return_exceptions=True)
            await b.signal.remove(scribe.feed, ear)
        ear = await listening(b, scribe)
        await publish(b, scribe, 1)
        await eventually(lambda: ear.hints)
        assert len(ear.hints) == 1


# Servers that allow less.


def restricted(server, *rules):
    server.ask("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", *rules)
    return f"redis://app:pw@127.0.0.1:{server.port}/0"


@pytest.mark.parametrize("rules", [("-spublish",), ("-ssubscribe", "-spublish")])
async def test_plain_pubsub_where_sharded_is_not_allowed(server, rules):
    async with bench(restricted(server, *rules)) as b:
        scribe = await live(b)
        ear = await listening(b, scribe)
        await publish(b, scribe, 2)
        await eventually(lambda: len(ear.hints) >= 2)
        assert server.ask("INFO", "commandstats")["cmdstat_publish"]["calls"] >= 2


@pytest.mark.parametrize(
    "rules",
    [("-@pubsub",), ("resetchannels",), ("-ssubscribe", "-subscribe")],
    ids=["no command", "no channel", "no listening"],
)
async def test_without_pubsub_feeds_are_looked_at(server, rules):
    async with bench(restricted(server, *rules)) as b:
        scribe, other = await live(b), await live(b)
        ear, quiet = await listening(b, scribe), await listening(b, other)
        await eventually(lambda: ear.gaps and quiet.gaps)  # the first look
        for act in (
            lambda: publish(b, scribe, 1),
            lambda: b.text.append(scribe.text(0, b"x")),
            lambda: b.store.drop(scribe.feed),
        ):
            before = len(ear.gaps)
            await act()
            await eventually(partial(each, [ear], "gaps", before + 1))
        assert (ear.hints, len(quiet.gaps)) == ([], 1)
        await b.signal.remove(scribe.feed, ear)
        before = len(ear.gaps)
        await publish(b, other, 1)
        await eventually(lambda: len(quiet.gaps) > 1)
        assert len(ear.gaps) == before


# Servers that change places.


@pytest.mark.wide
async def test_a_feed_whose_slot_moves_is_followed(cluster):
    async with bench(cluster.url) as b:
        scribe, other = await live(b), await live(b)
        ear, quiet = await listening(b, scribe), await listening(b, other)
        await b.text.append(scribe.text(0, b"so far"))
        slot = key_slot(scribe.run_id.encode())
        for turn in range(1, 4):
            await asyncio.to_thread(cluster.move, slot)
            await eventually(partial(each, [ear], "gaps", turn))
            seen = len(ear.hints)
            await publish(b, scribe, 1)
            await eventually(partial(each, [ear], "hints", seen + 1))
            assert (await view(b, scribe.feed)).marks == ear.hints[-1].marks
        assert set(ear.gaps) == {scribe.feed}
        assert quiet.gaps == []
        assert [part.data for part in await b.text.read_text(scribe.feed)] == [b"so far"]


@pytest.mark.wide
async def test_a_master_that_sentinels_replace_is_replaced_here_too():
    with Watched("redis") as servers:
        async with bench(servers.url) as b:
            scribe = await live(b)
            ear = await listening(b, scribe)
            await publish(b, scribe, 2)
            await eventually(lambda: servers.replica.ask("EXISTS", b.store._names.keys(scribe.feed)[0]))
            servers.master.process.kill()
            with pytest.raises(StoreUnavailable):
                await b.store.publish(scribe.write(1))

            async def back():
                while True:
                    try:
                        return await b.store.read(scribe.feed)
                    except StoreUnavailable:
                        await asyncio.sleep(0.05)

            assert (await back()).marks.position <= 5
            await eventually(lambda: ear.gaps, within=30.0)

            async def write():
                while True:
                    try:
                        return await b.store.publish(scribe.write(1))
                    except StoreUnavailable:
                        await asyncio.sleep(0.05)

            applied(await write())
            await eventually(lambda: ear.hints and ear.hints[-1].marks.position >= 5, within=30.0)


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level(logging.WARNING)
