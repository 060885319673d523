"""Where a URL leads, and how keys are called there."""

import pytest
from redis.asyncio.connection import SSLConnection
from redis.crc import key_slot

from playhead.backends.redis import RedisLive
from playhead.backends.redis.names import INDEXES, Names
from playhead.backends.redis.target import parse
from playhead.core.ids import Feed, run_feed
from playhead.errors import StoreUnavailable
from playhead.testing.check import LiveBench, eventually
from playhead.testing.clock import FakeClock
from playhead.testing.harness.process import free_port
from playhead.testing.harness.redis import Server
from playhead.testing.ports.given import HOSTILE, live, publish
from playhead.testing.ports.projection_hints import Ear
from tests.support import redis_servers
from tests.support.certificates import self_signed


@pytest.mark.parametrize(
    ("url", "kind", "hosts", "service", "options"),
    [
        ("redis://h", "single", [("h", 6379)], None, {}),
        ("redis://h:7/3", "single", [("h", 7)], None, {"db": 3}),
        ("redis://me:s%40x@h:7", "single", [("h", 7)], None, {"username": "me", "password": "s@x"}),
        ("redis://[::1]:7", "single", [("::1", 7)], None, {}),
        ("rediss://h?ssl_ca_certs=/ca", "single", [("h", 6379)], None, {"ssl_ca_certs": "/ca"}),
        ("redis+cluster://:pw@a:1,b:2", "cluster", [("a", 1), ("b", 2)], None, {"password": "pw"}),
        ("redis+sentinel://a:1,b/live", "sentinel", [("a", 1), ("b", 6379)], "live", {}),
        ("redis+sentinel://a:1/live/2", "sentinel", [("a", 1)], "live", {"db": 2}),
        ("unix:///run/redis.sock", "single", [], None, {"path": "/run/redis.sock"}),
    ],
)
def test_a_url_says_where_and_how(url, kind, hosts, service, options):
    target = parse(url)
    assert (target.kind, list(target.hosts), target.service) == (kind, hosts, service)
    assert {name: value for name, value in target.options.items() if name != "connection_class"} == options
    assert (target.options.get("connection_class") is SSLConnection) == url.startswith("rediss")


@pytest.mark.parametrize("url", ["redis://me:secret@h", "redis+cluster://:secret@h,i", "redis+sentinel://:secret@h/s"])
def test_no_message_has_a_password(url):
    assert "secret" not in parse(url).name


@pytest.mark.parametrize(
    "url",
    ["", "h:1", "http://h", "redis://", "redis://a,b", "redis+cluster://a/1", "redis+sentinel://a", "redis://h/x"],
)
def test_what_leads_nowhere_is_refused(url):
    with pytest.raises(ValueError, match=r"Redis|sentinel|cluster"):
        parse(url)


@pytest.mark.row("A39")
@pytest.mark.parametrize("text", ["019b76da-a800-7d07-acd8-be6f9f6209c2", "acme/inbox", *HOSTILE])
def test_all_keys_of_a_feed_lie_in_one_slot(text):
    names = Names("agent", spread=True)
    feed = run_feed(text)
    keys = [*names.keys(feed), names.text(feed, "1:answer")]
    assert len({key_slot(key.encode()) for key in keys}) == 1
    assert len(set(keys)) == 7


def test_keys_are_called_as_published():
    names = Names("agent", spread=False)
    state, events, channel, *indexes = names.keys(Feed("run", "r-1"))
    assert (state, events, channel) == ("agent:run:{r-1}:state", "agent:run:{r-1}:events", "agent:run:{r-1}:hints")
    assert indexes == [f"agent:index:{{all}}:{name}" for name in INDEXES]
    assert names.text(Feed("topic", "acme/inbox"), "3:answer") == "agent:topic:{acme/inbox}:text:3:answer"


def test_feeds_that_differ_have_keys_that_differ():
    names = Names("agent", spread=False)
    feeds = [Feed(kind, text) for kind in ("run", "thread", "topic") for text in {*HOSTILE, "a", "a:state", "%", "%25"}]
    assert len({names.base(feed) for feed in feeds}) == len(feeds)


@pytest.mark.parametrize("prefix", ["", "{x}", "a b", "a}", "\n", "x" * 65])
def test_a_prefix_that_would_break_keys_is_refused(prefix):
    with pytest.raises(ValueError, match="prefix"):
        Names(prefix, spread=False)


@pytest.mark.wide
@pytest.mark.anyio
@pytest.mark.parametrize("pipelined", [True, False])
async def test_everything_goes_through_tls(tmp_path, pipelined):
    certificate, key = self_signed(tmp_path)
    port = free_port()
    options = ["--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    options += ["--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no"]
    with Server("debian", options):
        url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate}"
        clock = FakeClock()
        wait = redis_servers.PATIENCE
        store = await RedisLive.at(url, clock=clock, pipelined=pipelined, deadline=wait)
        try:
            bench = LiveBench(store, store, store.signal, clock)
            scribe, ear = await live(bench), Ear()
            await store.signal.add(scribe.feed, ear)
            await publish(bench, scribe, 2)
            await eventually(lambda: len(ear.hints) >= 2)
        finally:
            await store.close()
        stranger = await RedisLive.at(f"rediss://127.0.0.1:{port}/0", clock=clock, pipelined=pipelined, deadline=wait)
        with pytest.raises(StoreUnavailable, match="certificate"):
            await stranger.read(scribe.feed)
        await stranger.close()
