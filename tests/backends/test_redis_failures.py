"""One of several servers fails, or the store is closed: who is told so, and who notices nothing."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
from redis.crc import key_slot

from playhead.backends.redis import RedisLive
from playhead.backends.redis import signal as signals
from playhead.core.ids import run_feed
from playhead.errors import StoreUnavailable
from playhead.testing.check import eventually
from playhead.testing.clock import FakeClock
from playhead.testing.harness.process import free_port
from playhead.testing.harness.redis import Cluster, Server, Watched
from playhead.testing.ports.projection_hints import Ear
from tests.support import redis_servers

pytestmark = pytest.mark.anyio

WAYS = pytest.mark.parametrize("pipelined", [True, False], ids=["pipe", "pool"])
FEEDS = [run_feed(f"0190163d-8694-739b-aea5-{number:012d}") for number in range(400)]


@asynccontextmanager
async def opened(url, **options):
    store = await RedisLive.at(url, clock=FakeClock(), **{"deadline": redis_servers.PATIENCE, **options})
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def server():
    with Server("redis") as one:
        yield one


@pytest.fixture
def cluster():
    """Whose masters serve what they have, whatever became of the others."""
    with Cluster("redis") as one:
        for each in one.servers:
            each.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
        yield one


@pytest.fixture(autouse=True)
def _heard(caplog):
    caplog.set_level(logging.DEBUG, "playhead.backends.redis.signal")


def everywhere(cluster):
    """Its URL, with every master in it."""
    return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in cluster.servers)


def of_master(number):
    """Feeds that lie on this one of three."""
    return [feed for feed in FEEDS if key_slot(feed.id.encode()) * 3 // 16_384 == number]


def ours(server):
    """The connections of this project that a server has."""
    return server.ask("CLIENT", "LIST").count(b"name=playhead")


# Calls that wait for what is ended under them.


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
async def test_a_call_that_waits_for_a_connection_while_the_store_is_closed_is_told_so(scheme):
    """It was not cancelled, and whoever made it must not believe that."""
    taken = asyncio.Event()

    async def silent(reader, writer):
        taken.set()
        while await reader.read(1_024):
            pass
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", port := free_port()):
        async with opened(f"{scheme}://127.0.0.1:{port}{'/live' if 'sentinel' in scheme else ''}") as store:
            calls = [asyncio.ensure_future(store.stand([feed])) for feed in FEEDS[:3]]
            await taken.wait()
            await store.close()
            told = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(one) for one in told] == [StoreUnavailable] * 3


@pytest.mark.wide
async def test_a_call_that_waits_for_a_master_when_another_takes_its_place_is_told_so():
    with Cluster("redis", replicated=True) as cluster:
        async with opened(everywhere(cluster)) as store:
            await store.stand(of_master(0)[:1])
            cluster.servers[2].process.pause()
            calls = [asyncio.ensure_future(store.stand([feed])) for feed in of_master(2)[:3]]

            def replaced():
                told = cluster.servers[0].ask("CLUSTER", "SLOTS")
                return any(master[1] == cluster.replicas[2].port for _, _, master, *_ in told)

            await eventually(replaced, within=redis_servers.PATIENCE)
            assert not any(call.done() for call in calls)
            await store._nodes.refresh()
            told = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(one) for one in told] == [StoreUnavailable] * 3
            assert await store.stand(of_master(2)) == {}


@WAYS
async def test_a_store_that_is_closed_answers_no_call_and_holds_no_connection(server, pipelined):
    async with opened(server.url, pipelined=pipelined, connections=2) as store:
        await store.signal.add(FEEDS[0], Ear())

        async def busy(feed):
            while True:
                await store.read(feed)
                await asyncio.sleep(0)

        calls = [asyncio.ensure_future(busy(feed)) for feed in FEEDS[:8]]
        await eventually(lambda: ours(server) >= 2)
        await store.close()
        async with asyncio.timeout(redis_servers.PATIENCE):
            told = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in told] == [StoreUnavailable] * 8
        for late in (
            lambda: store.read(FEEDS[0]),
            lambda: store.stand(FEEDS[:3]),
            lambda: store.signal.add(FEEDS[1], Ear()),
            lambda: store.signal.ring(FEEDS[0]),
            store.expire,
            store.findings,
        ):
            with pytest.raises(StoreUnavailable):
                await late()
        await eventually(lambda: ours(server) == 0)


# Commands, while a cluster changes.


@pytest.mark.wide
@WAYS
async def test_a_slot_that_moved_is_followed_while_another_master_is_gone(cluster, pipelined):
    feed, lost = of_master(1)[0], of_master(0)[0]
    async with opened(everywhere(cluster), pipelined=pipelined) as store:
        await store.stand([lost, feed])
        await asyncio.to_thread(cluster.move, key_slot(feed.id.encode()))
        cluster.servers[0].process.kill()
        with pytest.raises(StoreUnavailable):
            await store.stand([lost, feed])
        assert await store.stand([feed]) == {}


@pytest.mark.wide
async def test_a_call_to_a_sound_master_never_waits_for_what_became_of_another(cluster):
    async with opened(everywhere(cluster)) as store:
        for master in (0, 1, 2):
            await store.stand(of_master(master)[:1])
        cluster.servers[0].process.pause()  # who is asked first where everything is
        cluster.servers[2].process.kill()
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(store.stand(of_master(2)[:1]), redis_servers.PATIENCE)
        lost = asyncio.ensure_future(store.stand(of_master(0)[:1]))
        sound = asyncio.ensure_future(store.stand(of_master(1)[:1]))
        done, _ = await asyncio.wait({lost, sound}, return_when=asyncio.FIRST_COMPLETED)
        assert done == {sound}
        assert await sound == {}
        lost.cancel()


@pytest.mark.wide
@WAYS
async def test_a_cluster_whose_masters_do_not_know_where_they_are_is_used(cluster, pipelined):
    for server in cluster.servers:
        server.ask("CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint")
    async with opened(cluster.url, pipelined=pipelined) as store:
        feed, *others = (of_master(number)[0] for number in (1, 0, 2))
        assert await store.stand([feed, *others]) == {}
        if pipelined:  # the driver's own client follows no server to a place without a name
            await store.signal.add(feed, ear := Ear())
            await asyncio.to_thread(cluster.move, key_slot(feed.id.encode()))
            assert await store.stand([feed]) == {}
            await eventually(lambda: ear.gaps)


@pytest.mark.wide
@WAYS
async def test_any_number_of_calls_at_once_find_the_master_with_few_connections_to_the_sentinel(pipelined):
    servers = redis_servers.started("sentinel")
    assert isinstance(servers, Watched)

    def clients():
        return servers.sentinel.ask("INFO", "clients")["connected_clients"]

    before = clients()
    async with opened(servers.url, pipelined=pipelined, connections=20) as store:
        ear = Ear()
        calls = [store.read(feed) for feed in FEEDS] + [store.signal.add(feed, ear) for feed in FEEDS]
        assert set(await asyncio.gather(*calls)) == {None}
        assert clients() - before <= (1 if pipelined else 21)
    await eventually(lambda: clients() <= before)


# Subscriptions.


@pytest.mark.wide
@WAYS
async def test_a_master_that_is_gone_keeps_no_viewer_of_another_waiting(cluster, pipelined, monkeypatch, caplog):
    """Not while it pauses before the next try there either; and the next viewer of it ends that pause."""
    monkeypatch.setattr(signals, "_PAUSES", (0.0, 3_600.0))
    async with opened(everywhere(cluster), pipelined=pipelined) as store:
        ears = [Ear() for _ in range(3)]
        for master, ear in enumerate(ears):
            await store.signal.add(of_master(master)[0], ear)
        cluster.servers[2].process.kill()
        await eventually(lambda: "no subscription" in caplog.text)
        for master in (0, 1):
            await store.signal.add(of_master(master)[1], Ear())
        cluster.servers[2].start()
        await eventually(lambda: cluster._agree(cluster.servers), within=redis_servers.PATIENCE)
        await store.signal.add(of_master(2)[1], Ear())
        await eventually(lambda: ears[2].gaps)
        assert [ear.gaps for ear in ears[:2]] == [[], []]


@pytest.mark.wide
@WAYS
async def test_a_master_that_hangs_keeps_no_viewer_of_another_waiting(cluster, pipelined, monkeypatch):
    async with opened(everywhere(cluster), pipelined=pipelined) as store:
        await store.signal.add(of_master(0)[0], Ear())
        tried, make = [], store._nodes.subscriber

        def subscriber(place):
            tried.append(place[1])
            return make(place)

        monkeypatch.setattr(store._nodes, "subscriber", subscriber)
        cluster.servers[2].process.pause()
        stuck = asyncio.ensure_future(store.signal.add(of_master(2)[0], Ear()))
        await eventually(lambda: cluster.servers[2].port in tried)
        sound = asyncio.ensure_future(store.signal.add(of_master(1)[0], Ear()))
        done, _ = await asyncio.wait({stuck, sound}, return_when=asyncio.FIRST_COMPLETED)
        assert done == {sound}
        await sound
        stuck.cancel()


@pytest.mark.wide
async def test_how_hints_travel_is_found_out_where_the_feed_lies(cluster):
    cluster.servers[0].process.kill()
    async with opened(everywhere(cluster)) as store:
        for master in (1, 2):
            await store.signal.add(of_master(master)[0], Ear())


async def test_who_gave_up_before_the_confirmation_leaves_no_subscription(server, caplog):
    async with opened(server.url, deadline=1.0) as store:
        ear = Ear()
        await store.signal.add(FEEDS[0], ear)
        server.process.pause()
        calls = [store.signal.add(feed, ear) for feed in FEEDS[1:60]]
        told = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(one) for one in told} == {StoreUnavailable}
        await eventually(lambda: "no subscription" in caplog.text)
        server.process.resume()
        await _added(store, FEEDS[61], ear)
        kept = [store._names.channel(feed).encode() for feed in (FEEDS[0], FEEDS[61])]
        await eventually(lambda: sorted(server.ask("PUBSUB", "SHARDCHANNELS")) == kept)


async def _added(store, feed, ear):
    while True:
        try:
            return await store.signal.add(feed, ear)
        except StoreUnavailable:
            await asyncio.sleep(0)


async def test_a_slot_elsewhere_is_followed_where_one_member_of_a_cluster_was_given(cluster):
    async with opened(f"redis://127.0.0.1:{cluster.servers[0].port}", pipelined=True) as store:
        for number in range(8):
            assert await store._nodes.execute(["SET", f"k{number}", "x"]) == b"OK"
