"""The live store on real servers: what befalls a server, and what somebody else does to its keys."""

import asyncio
import logging
import subprocess
import threading
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
import redis.asyncio

from playhead.backends.redis import RedisLive
from playhead.core import event
from playhead.core.event import UNREADABLE, Event
from playhead.core.ids import Feed, iso
from playhead.core.retention import Retention
from playhead.core.run import Status
from playhead.core.snapshot import State
from playhead.core.text import TextApplied, TextFrom
from playhead.core.transition import Already, Applied, NeedsRebuild
from playhead.errors import StoreFull, StoreUnavailable
from playhead.settings import Settings
from playhead.stores import open_live
from playhead.testing.check import LiveBench, eventually
from playhead.testing.clock import FakeClock
from playhead.testing.harness.redis import Server
from playhead.testing.ports.given import STRANGE, Scribe, applied, live, opened, project, publish, view
from playhead.testing.ports.projection_hints import Ear, listening
from tests.support import redis_servers

pytestmark = pytest.mark.anyio

WAYS = pytest.mark.parametrize("pipelined", [True, False], ids=["pipe", "pool"])
KEPT = {"retention": Retention(), "timeline_ttl": 60.0, "snapshot_ttl": 600.0}


@asynccontextmanager
async def bench(url=None, **options):
    """A store, and a client of its own on the same keys."""
    clock = FakeClock()
    url = url or redis_servers.url("redis")
    store = await RedisLive.at(
        url, clock=clock, **{"prefix": redis_servers.prefix(), "deadline": redis_servers.PATIENCE, **KEPT, **options}
    )
    try:
        yield LiveBench(store, store, store.signal, clock)
    finally:
        await store.close()


@asynccontextmanager
async def raw(url=None):
    client = redis.asyncio.Redis.from_url(url or redis_servers.url("redis"), protocol=2, legacy_responses=False)
    try:
        yield client
    finally:
        await client.aclose()


@pytest.fixture
def server():
    """One that a test may stop."""
    with Server("redis") as one:
        yield one


def keys(b, scribe):
    state, events, _, waiting, ends, oldest = b.store._names.keys(scribe.feed)
    return {"state": state, "events": events, "waiting": waiting, "ends": ends, "oldest": oldest}


# What lies in the keys.


@pytest.mark.row("R2", "R3", "R12")
@pytest.mark.wide
async def test_keys_are_readable_with_the_command_line_of_redis(server):
    async with bench(server.url) as b:
        scribe = await live(b)
        state = State(title="Reading", current_step="collect", progress=37.5)
        applied(await b.store.publish(scribe.write(1, payload={"count": 3}, state=state)))
        await b.text.append(scribe.text(0, "Grüße".encode()))

        def cli(*command):
            done = subprocess.run(
                ["redis-cli", "-p", str(server.port), "--raw", *command], capture_output=True, text=True, check=True
            )
            return done.stdout.rstrip("\n").split("\n")

        base = f"{b.store._names.prefix}:run:{{{scribe.run_id}}}"
        shown = {name: cli("HGET", f"{base}:state", name)[0] for name in cli("HKEYS", f"{base}:state")}
        assert {name: shown[name] for name in sorted(shown) if name not in ("marks", "state", "texts")} == {
            "attempt_id": f"{scribe.run_id}:1",
            "current_step": "collect",
            "fencing_token": "1",
            "guard": f"{scribe.epoch}:1:3",
            "heartbeat_at": str(b.clock.wall_ms()),
            "last_event_id": f"{scribe.epoch}-4",
            "progress": "37.5",
            "started_at": str(scribe.started_at),
            "status": "running",
            "updated_at": str(b.clock.wall_ms()),
        }
        (entry_id, *flat) = cli("XREVRANGE", f"{base}:events", "+", "-", "COUNT", "1")
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        assert entry_id == shown["last_event_id"]
        expected = {"type": "step_done", "attempt_id": f"{scribe.run_id}:1", "fencing_token": "1"}
        expected |= {"schema_version": "1", "occurred_at": iso(b.clock.wall_ms()), "payload_json": '{"count":3}'}
        assert {name: fields[name] for name in expected} == expected
        (tip,) = (await view(b, scribe.feed, limit=1)).entries
        assert (fields["tag"], fields["prev"]) == (tip.tag, tip.prev)
        assert cli("GET", f"{base}:text:1:answer") == ["Grüße"]


@pytest.mark.row("A15", "R3")
async def test_keys_live_for_ever_until_the_final_fact_and_then_by_the_servers_clock():
    async with bench() as b, raw() as client:
        scribe = await live(b)
        await b.text.append(scribe.text(0, b"x"))
        text = b.store._names.text(scribe.feed, "1:answer")
        held = [*(keys(b, scribe)[name] for name in ("state", "events")), text]
        assert [await client.pttl(key) for key in held] == [-1, -1, -1]
        applied(await project(b, scribe, scribe.final()))
        lasting = [await client.pttl(key) for key in held]
        for left, most in zip(lasting, (600_000, 60_000, 600_000), strict=True):
            assert most / 2 < left <= most
        before = await view(b, scribe.feed)
        await client.delete(held[1])  # as its time to live does
        seen = await view(b, scribe.feed)
        assert (seen.entries, seen.snapshot) == ((), before.snapshot)
        assert seen.marks == replace(before.marks, floor=before.marks.position)
        assert await b.store.stand([scribe.feed]) == {scribe.feed: seen.marks}
        await client.delete(held[0])
        assert await b.store.read(scribe.feed) is None
        assert await b.text.read_text(scribe.feed) == []
        await b.clock.advance(10_000)
        assert await b.store.expire() == 0
        assert await client.exists(keys(b, scribe)["ends"]) == 0


async def test_keys_of_a_thread_have_their_time_anew_with_each_use():
    async with bench(idle_ttl=100.0) as b, raw() as client:
        scribe = Scribe(b.clock)
        scribe.feed = Feed("thread", scribe.run_id)
        held = [keys(b, scribe)[name] for name in ("state", "events")]

        async def left(*shown):
            for key in shown:
                assert 50_000 < await client.pttl(key) <= 100_000
                await client.persist(key)

        applied(await b.store.open(scribe.opening()))
        await left(held[0])
        applied(await project(b, scribe, scribe.fact("message_received")))
        await left(*held)
        await b.store.watched([scribe.feed])
        await left(*held)
        await client.delete(*held)
        await b.store.watched([scribe.feed])
        assert await client.exists(*held) == 0


async def test_an_opened_projection_of_an_ended_run_expires():
    async with bench() as b, raw() as client:
        scribe = Scribe(b.clock)
        scribe.status, scribe.rev = Status.FAILED, 4
        applied(await b.store.open(scribe.opening()))
        assert await client.pttl(keys(b, scribe)["state"]) > 0
        await b.clock.advance(601)
        assert await b.store.expire() == 1
        assert await b.store.read(scribe.feed) is None


# What somebody does to them.


@pytest.mark.row("A8")
@pytest.mark.parametrize("kind", ["one", pytest.param("cluster", marks=pytest.mark.wide)])
async def test_a_flushed_store_is_a_lost_projection(server, kind):
    async with bench(server.url if kind == "one" else redis_servers.url(kind)) as b:
        scribe = await live(b)
        await b.text.append(scribe.text(0, b"so far"))
        for node in await b.store._nodes.everywhere(["FLUSHALL"]):
            assert node
        assert await b.store.read(scribe.feed) is None
        assert await b.store.stand([scribe.feed]) == {}
        assert await b.text.read_text(scribe.feed) == []
        assert await b.text.lengths([scribe.feed]) == {}
        assert await b.store.unarchived(10) == []
        assert await b.store.publish(scribe.write(1)) == NeedsRebuild(0)
        assert await b.text.append(scribe.text(6, b"x")) == NeedsRebuild(0)
        assert await project(b, scribe, scribe.final()) == NeedsRebuild(0)
        await b.store.archived(scribe.feed, scribe.epoch, 3)
        await b.store.trim(scribe.feed)
        await b.store.drop(scribe.feed)
        again = Scribe(b.clock, scribe.run_id)
        again.epoch = scribe.epoch + 1
        applied(await b.store.open(again.opening()))


async def dumped(client, *names):
    return {name: await client.dump(name) for name in names}


async def restored(client, dump):
    for name, value in dump.items():
        await client.restore(name, 0, value, replace=True)


@pytest.mark.row("A8")
async def test_a_store_that_went_back_is_noticed_by_what_was_acknowledged():
    async with bench() as b, raw() as client:
        scribe = await live(b)
        held = keys(b, scribe)
        applied(await b.store.publish(scribe.write(1, state=State(progress=1))))
        await b.text.append(scribe.text(0, b"one "))
        names = [held["state"], held["events"], b.store._names.text(scribe.feed, "1:answer")]
        earlier = await dumped(client, *names)
        before = await view(b, scribe.feed)
        applied(await b.store.publish(scribe.write(1)))
        await b.text.append(scribe.text(4, b"two"))
        await restored(client, earlier)
        assert await view(b, scribe.feed) == before
        assert await b.text.append(scribe.text(7, b"!")) == TextFrom(4)
        late = scribe.write(1, guard=scribe.guard(acked_n=2))
        assert await b.store.publish(late) == NeedsRebuild(scribe.epoch)


@pytest.mark.row("A3", "A16")
@pytest.mark.parametrize("which", ["state", "events"])
async def test_one_key_that_went_back_alone_makes_the_projection_missing(which):
    """So does one that was lost alone."""
    async with bench() as b, raw() as client:
        for turn in ("back", "lost"):
            scribe = await live(b)
            name = keys(b, scribe)[which]
            earlier = await dumped(client, name)
            await publish(b, scribe, 2)
            if turn == "back":
                await restored(client, earlier)
            else:
                await client.delete(name)
            await _is_missing(b, scribe)


async def _is_missing(b, scribe):
    """For every call alike; and it can be opened anew."""
    assert await b.store.stand([scribe.feed]) == {}
    assert await b.store.publish(scribe.write(1)) == NeedsRebuild(0)
    assert await b.text.append(scribe.text(0, b"x")) == NeedsRebuild(0)
    assert await b.store.find(scribe.feed, f"{scribe.run_id}:1:1") is None
    assert await project(b, scribe, scribe.fact(event.CANCEL_REQUESTED)) == NeedsRebuild(0)
    assert await b.store.read(scribe.feed) is None
    assert await b.text.read_text(scribe.feed) == []
    again = Scribe(b.clock, scribe.run_id)
    again.epoch, again.rev, again.token = scribe.epoch + 1, scribe.rev, scribe.token
    applied(await b.store.open(again.opening()))
    applied(await b.store.publish(again.write(2, state=State(title="again"))))
    await b.text.append(again.text(0, b"again"))
    assert len((await view(b, again.feed)).entries) == 2


@pytest.mark.row("A3")
async def test_a_timeline_with_other_entries_of_the_same_number_is_dropped(caplog):
    async with bench() as b, raw() as client:
        scribe = await live(b)
        events = keys(b, scribe)["events"]
        await client.xdel(events, f"{scribe.epoch}-2")
        await client.xadd(events, {"type": "x"}, id=f"{scribe.epoch}-9")
        assert await b.store.publish(scribe.write(1)) == NeedsRebuild(scribe.epoch)
        assert await b.store.read(scribe.feed) is None
        assert "was damaged and is dropped" in caplog.text
        assert await b.store.stand([scribe.feed]) == {}


@pytest.mark.row("A3")
@pytest.mark.parametrize("name", [b"prev", b"tag", b"version", b"head", b"id"])
async def test_a_timeline_with_a_foreign_entry_in_it_is_dropped(name):
    async with bench() as b, raw() as client:
        scribe = await live(b)
        events = keys(b, scribe)["events"]
        held = await client.execute_command("XRANGE", events, "-", "+")
        await client.delete(events)
        for number, (entry_id, fields) in enumerate(held):
            found = dict(fields) if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
            if number == 1:
                found[name] = b"0" * 12 if name in (b"prev", b"tag") else b"\xff"
            await client.xadd(events, found, id=entry_id)
        seen = await b.store.read(scribe.feed)
        if name == b"head":  # the chain is whole, and what stands in its place cannot be read
            assert [entry.event.type for entry in seen.entries][1] == UNREADABLE
        else:
            assert seen is None
            assert await b.store.stand([scribe.feed]) == {}


@pytest.mark.row("A11")
@pytest.mark.parametrize("which", ["state", "events"])
@pytest.mark.parametrize("planted", ["string", "list", "garbage"])
async def test_what_is_of_another_type_counts_as_missing(which, planted):
    async with bench() as b, raw() as client:
        scribe = await live(b)
        name = keys(b, scribe)[which]
        if planted == "garbage":
            if which == "events":
                await client.xtrim(name, maxlen=1, approximate=False)
            else:
                await client.hset(name, "marks", "1:zz:" + "9" * 400)
        else:
            await client.delete(name)
            await (client.set(name, b"\x00") if planted == "string" else client.rpush(name, "x"))
        await _is_missing(b, scribe)


@pytest.mark.row("A11")
@pytest.mark.parametrize("which", ["waiting", "ends", "oldest"])
async def test_an_index_of_another_type_is_made_anew(which):
    async with bench(retention=Retention(age=5.0)) as b, raw() as client:
        scribe = await live(b)
        name = keys(b, scribe)[which]
        await client.delete(name)
        await client.set(name, "x")
        assert await b.store.unarchived(10) == ([] if which == "waiting" else [scribe.feed])
        assert await b.store.expire() == 0
        await publish(b, scribe, 1)
        await b.store.archived(scribe.feed, scribe.epoch, 4)
        applied(await project(b, scribe, scribe.final()))
        assert await b.store.unarchived(10) == [scribe.feed]
        await b.clock.advance(700)
        assert await b.store.aged(10) == [scribe.feed]
        assert await b.store.expire() == 1
        assert await b.store.read(scribe.feed) is None


@pytest.mark.row("A11")
async def test_a_text_key_of_another_type_begins_again():
    async with bench() as b, raw() as client:
        scribe = await live(b)
        await b.text.append(scribe.text(0, b"hello"))
        name = b.store._names.text(scribe.feed, "1:answer")
        await client.delete(name)
        await client.rpush(name, "x")
        assert await b.text.append(scribe.text(5, b"!")) == TextFrom(0)
        assert await b.text.append(scribe.text(0, b"hello!")) == TextApplied(6)
        assert [part.data for part in await b.text.read_text(scribe.feed)] == [b"hello!"]


async def test_a_closed_part_that_lost_its_text_is_taken_again():
    async with bench() as b, raw() as client:
        scribe = await live(b)
        await b.text.append(scribe.text(0, b"hello", final=True))
        await client.delete(b.store._names.text(scribe.feed, "1:answer"))
        assert await b.text.append(scribe.text(0, b"hello", final=True)) == TextApplied(5)
        assert [(part.data, part.final) for part in await b.text.read_text(scribe.feed)] == [(b"hello", True)]


async def test_a_closed_part_that_lost_its_text_takes_the_projection_with_it(caplog):
    async with bench() as b, raw() as client:
        scribe = await live(b)
        await b.text.append(scribe.text(0, b"hello", final=True))
        await client.delete(b.store._names.text(scribe.feed, "1:answer"))
        assert await b.text.read_text(scribe.feed) == []
        assert await b.store.stand([scribe.feed]) == {}
        assert "was damaged" in caplog.text


@pytest.mark.row("BR-60")
async def test_an_event_that_cannot_be_read_is_told_as_a_placeholder(caplog):
    async with bench() as b:
        scribe = await live(b)
        sound = scribe.write(3)
        broken = replace(
            sound, events=(sound.events[0], Event(sound.events[1].id, "step_done", b"\xffnone"), sound.events[2])
        )
        applied(await b.store.publish(broken))
        ear = await listening(b, scribe)
        seen = await view(b, scribe.feed)
        assert [entry.event.type for entry in seen.entries[3:]] == ["step_done", UNREADABLE, "step_done"]
        assert seen.entries[4].event.id == sound.events[1].id
        assert b.store.unreadable == 1
        again = replace(scribe.write(1), events=(Event(f"{scribe.run_id}:1:4", "step_done", b"{"),))
        applied(await b.store.publish(again))
        await eventually(lambda: ear.hints)
        assert ear.hints[0].entries[0].event.type == UNREADABLE


async def test_scripts_that_are_flushed_are_loaded_again():
    async with bench() as b, raw() as client:
        scribe = await live(b)
        await client.script_flush()
        await publish(b, scribe, 1)
        await client.script_flush()
        others = [await opened(b) for _ in range(3)]
        await client.script_flush()
        assert len(await b.store.stand([one.feed for one in (scribe, *others)])) == 4


async def test_a_server_without_memory_is_full_and_is_read_from(server):
    async with bench(server.url) as b:
        scribe = await live(b)
        await publish(b, scribe, 2)
        before = await view(b, scribe.feed)
        server.ask("CONFIG", "SET", "maxmemory", "1mb")
        for act in (
            b.store.publish(scribe.write(1)),
            b.store.fact(scribe.epoch, scribe.fact(event.CANCEL_REQUESTED), scribe.tag()),
            b.text.append(scribe.text(0, b"x")),
            b.store.open(Scribe(b.clock).opening()),
        ):
            with pytest.raises(StoreFull):
                await act
        assert await view(b, scribe.feed) == before
        await b.store.archived(scribe.feed, scribe.epoch, 3)
        await b.store.drop(scribe.feed)
        assert await b.store.read(scribe.feed) is None


# When the server is not there.


@WAYS
async def test_a_store_can_be_made_before_its_server(server, pipelined):
    server.process.kill()
    async with bench(server.url, pipelined=pipelined) as b:
        scribe = Scribe(b.clock)
        for act in (
            lambda: b.store.open(scribe.opening()),
            lambda: b.store.read(scribe.feed),
            lambda: b.store.stand([scribe.feed]),
            lambda: b.signal.add(scribe.feed, Ear()),
            lambda: b.store.findings(),
            b.store.expire,
        ):
            with pytest.raises(StoreUnavailable):
                await act()
        server.start()
        ear = await listening(b, scribe)
        applied(await b.store.open(scribe.opening()))
        await eventually(lambda: ear.hints)


@pytest.mark.row("BR-75")
@WAYS
async def test_a_call_ends_within_its_time_and_leaves_no_answer_to_another(server, pipelined):
    """The server holds still; each call gives up; afterwards everybody gets his own answer."""
    async with bench(server.url, deadline=0.3, pipelined=pipelined) as b:
        scribes = [await live(b) for _ in range(8)]
        server.process.pause()
        calls = [b.store.read(scribe.feed) for scribe in scribes]
        replies = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(reply, StoreUnavailable) for reply in replies)
        server.process.resume()
        await _answers(b)
        for scribe in scribes:
            seen = await b.store.read(scribe.feed)
            assert seen.entries[0].event.id == f"run:{scribe.run_id}:1"


async def _answers(b):
    while True:
        with suppress(StoreUnavailable):
            await b.store.stand([Scribe(b.clock).feed])
            return


@WAYS
async def test_a_connection_that_owes_an_answer_for_too_long_is_given_up(server, pipelined):
    """It may be one behind which nobody is any more."""

    def connections():
        return server.ask("INFO", "stats")["total_connections_received"]

    async with bench(server.url, deadline=0.3, pipelined=pipelined) as b:
        await _answers(b)
        before = connections()
        server.process.pause()
        with pytest.raises(StoreUnavailable):
            await b.store.stand([Scribe(b.clock).feed])
        server.process.resume()
        await _answers(b)
        assert connections() >= before + 2  # ours that asks is one


@pytest.mark.row("BR-75")
@WAYS
async def test_a_storm_of_cancelled_calls_mixes_no_answers(pipelined):
    async with bench(connections=1, pipelined=pipelined) as b:
        scribes = [await live(b) for _ in range(6)]
        for scribe in scribes:
            await publish(b, scribe, 3, payload={"of": scribe.run_id})
        stopped = turn = 0
        while turn < 250 or stopped < 300:  # how many come too late depends on how quick the server is
            tasks = [asyncio.ensure_future(b.store.read(scribe.feed)) for scribe in scribes]
            for _ in range(turn % 9):
                await asyncio.sleep(0)
            for task in tasks[turn % 3 :: 3]:
                task.cancel()
            for scribe, done in zip(scribes, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
                if isinstance(done, asyncio.CancelledError):
                    stopped += 1
                else:
                    assert not isinstance(done, BaseException), done
                    assert {entry.event.id.rpartition(":")[0] for entry in done.entries[3:]} == {f"{scribe.run_id}:1"}
            turn += 1


@WAYS
async def test_a_server_that_dies_under_a_call_is_unavailable_and_comes_back_empty(server, pipelined):
    async with bench(server.url, pipelined=pipelined) as b:
        scribe = await live(b)
        server.process.pause()
        write = asyncio.ensure_future(b.store.publish(scribe.write(1)))
        await asyncio.sleep(0.05)
        server.process.kill()
        with pytest.raises(StoreUnavailable):
            await write
        with pytest.raises(StoreUnavailable):
            await b.store.publish(scribe.write(1))
        server.start()
        assert await b.store.publish(scribe.write(1)) == NeedsRebuild(0)


async def test_errors_of_the_server_say_nothing_of_passwords(server):
    server.ask("CONFIG", "SET", "requirepass", "s3cret-word")
    async with bench(f"redis://:wr0ng-word@127.0.0.1:{server.port}/0") as b:
        with pytest.raises(StoreUnavailable) as caught:
            await b.store.read(Scribe(b.clock).feed)
        assert "wr0ng" not in str(caught.value)
        assert "wr0ng" not in b.store._what


@WAYS
async def test_a_setting_says_whether_calls_share_a_connection(server, pipelined):
    given = {"record": "postgresql://127.0.0.1/none", "live": server.url, "live_pipelined": str(pipelined)}
    store = await open_live(Settings.load(environ={}, **given), FakeClock())

    def connections():
        return server.ask("INFO", "stats")["total_connections_received"]

    before = connections()
    await asyncio.gather(*(store.stand([Scribe(FakeClock()).feed]) for _ in range(8)))
    made = connections() - before - 1  # one is ours that asks
    assert (made == 1) is pipelined
    await store.close()


# From several loops.


async def test_any_loop_may_use_it():
    async with bench() as b:
        scribe = await live(b)
        heard = []

        async def elsewhere():
            ear = await listening(b, scribe)
            await publish(b, scribe, 2)
            await eventually(lambda: len(ear.hints) >= 2)
            await b.signal.remove(scribe.feed, ear)
            heard.extend(ear.hints)
            return (await b.store.read(scribe.feed)).marks

        marks = await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
        assert heard[-1].marks == marks
        assert threading.active_count() < 50


# Whoever wrote it, it is found.


@pytest.mark.parametrize("kind", ["redis", pytest.param("cluster", marks=pytest.mark.wide)])
async def test_another_process_finds_what_waits(kind):
    """In a cluster, where each slot has its own index, after some looks."""
    prefix = redis_servers.prefix()
    async with bench(redis_servers.url(kind), prefix=prefix) as one, bench(redis_servers.url(kind), prefix=prefix) as b:
        scribe = await live(one)
        for _ in range(b.store._names.buckets // 256 + 1):
            if found := await b.store.unarchived(5):
                break
        assert found == [scribe.feed]
        applied(await project(one, scribe, scribe.final()))
        await b.clock.advance(700)
        gone = [await b.store.expire() for _ in range(b.store._names.buckets // 256 + 1)]
        assert sum(gone) == 1


@pytest.mark.parametrize("name", ["waiting", "ends"])
async def test_an_index_with_members_that_nobody_of_ours_wrote_is_cleaned(name):
    async with bench() as b, raw() as client:
        scribe = await live(b)
        applied(await project(b, scribe, scribe.final()))
        strangers = [b"\xff\xfe", b"", b"run", b"topic", *(b"%d" % i for i in range(60))]
        index = keys(b, scribe)[name]
        await (client.sadd(index, *strangers) if name == "waiting" else client.zadd(index, dict.fromkeys(strangers, 1)))
        await b.clock.advance(61)
        assert await b.store.expire() == 1
        assert await b.store.unarchived(40) == []
        left = await (client.smembers(index) if name == "waiting" else client.zrange(index, 0, -1))
        assert set(left) <= {scribe.feed.key.encode()}


async def test_findings_name_what_would_break_a_promise(server):
    async with bench(server.url) as b:
        b.clock.step_wall(-3_600)
        told = await b.store.findings()
        assert [one.text for one in told if one.level == "error"] == []
        assert any("Redis 8" in one.text for one in told)
        assert any("clock differs" in one.text for one in told)
        server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        (bad,) = [one for one in await b.store.findings() if one.level == "error"]
        assert "noeviction" in bad.text


async def test_a_write_known_in_part_is_hinted_with_the_rest():
    async with bench() as b:
        scribe = await live(b)
        whole = scribe.write(3, payload={"t": STRANGE})
        applied(await b.store.publish(replace(whole, events=whole.events[:1], tags=whole.tags[:1])))
        ear = await listening(b, scribe)
        reply = await b.store.publish(scribe.again(whole))
        assert isinstance(reply, Applied)
        await eventually(lambda: ear.hints)
        assert [entry.event for entry in ear.hints[0].entries] == list(whole.events[1:])
        assert isinstance(await b.store.publish(scribe.again(whole)), Already)


async def test_a_name_that_is_none_is_no_part():
    async with bench() as b:
        scribe = await live(b)
        for name in ("", "a b", "a:b", "A", "x" * 65):
            with pytest.raises(ValueError, match="part"):
                await b.text.append(scribe.text(0, b"x", name))


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level(logging.WARNING)
