"""The scripts decide as core does: on marks and writes of every kind, on a real server, they say the same."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from playhead.backends.memory import MemoryLive
from playhead.backends.redis import scripts
from playhead.backends.redis.rows import joined, marks, split
from playhead.core import event, retention, transition
from playhead.core.event import FactDraft
from playhead.core.ids import LIMIT
from playhead.core.retention import Retention
from playhead.core.run import Status
from playhead.core.snapshot import EMPTY, State
from playhead.core.text import TextApplied, TextPart, TextWrite, judge_text
from playhead.core.transition import Already, Applied, Guard, Marks, Opening, Publish
from playhead.testing.check import LiveBench
from playhead.testing.clock import FakeClock
from playhead.testing.ports.given import Scribe
from tests.support import redis_servers

pytestmark = pytest.mark.filterwarnings("default::hypothesis.errors.NonInteractiveExampleWarning")

# Small ones, so that two of them are often equal or next to each other, and those where doubles and digits go wrong.
NUMBERS = st.one_of(st.integers(0, 4), st.sampled_from([9, 10, 99, 100, 10**15, 10**15 + 1, LIMIT - 3, LIMIT - 2]))
COUNTS = st.one_of(st.integers(0, 4), st.sampled_from([9, 10, 99, 100, 10**15, 10**15 + 1]))
PLAIN = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), database=None)


@pytest.fixture(scope="module")
def play():
    """Runs coroutines against one store; `play.store`, `play.clock`."""
    with asyncio.Runner() as runner:

        class Play:
            clock = FakeClock()
            run = staticmethod(runner.run)
            store = runner.run(redis_servers.live("redis", clock, retention=Retention(count=10**6)))

            def bench(self):
                return LiveBench(self.store, self.store, self.store.signal, self.clock)

        yield Play()
        runner.run(Play.store.close())


@st.composite
def standings(draw):
    """Marks with an empty timeline, or none at all."""
    if draw(st.integers(0, 9)) == 0:
        return None
    position, archived = sorted([draw(COUNTS), draw(COUNTS)], reverse=True)
    return Marks(
        epoch=draw(NUMBERS),
        rev=draw(NUMBERS),
        token=draw(NUMBERS),
        final=draw(st.integers(0, 5)) == 0,
        position=position,
        tag="0" * 12,
        floor=position,
        archived=archived,
        n=draw(COUNTS),
        state_version=draw(COUNTS),
        version=draw(COUNTS),
    )


@st.composite
def near(draw, number):
    """Mostly this number or one beside it, so that what decides is often the one thing that differs."""
    chance = draw(st.integers(0, 19))
    beside = {17: max(0, number - 1), 18: number + 1}
    return draw(NUMBERS) if chance == 19 else min(LIMIT - 1, beside.get(chance, number))  # there is none above


@st.composite
def guarded(draw):
    """Marks, and what an attempt claims to know of them."""
    standing = draw(standings())
    held = standing or Marks(1, 1, 1, False, 0, "0" * 12)
    guard = Guard(
        draw(near(held.epoch)),
        draw(near(held.token)),
        draw(near(held.rev)),
        draw(near(held.n)),
        draw(near(held.state_version)),
    )
    return standing, guard


@st.composite
def publishes(draw):
    standing, guard = draw(guarded())
    held = standing or Marks(1, 1, 1, False, 0, "0" * 12)
    first = max(0, held.n + draw(st.integers(-2, 2)))
    version = draw(st.none() | st.integers(-1, 2).map(lambda more: max(0, held.state_version + more)))
    return standing, guard, first, draw(st.integers(0, 3)), version


async def planted(play, scribe, standing, texts=""):
    """Have the store hold these marks, as a script would have written them."""
    names = play.store._names.keys(scribe.feed)
    await play.store._nodes.execute(["DEL", *names])
    if standing is None:
        return
    ended = "0" if standing.final else "-"
    line = [standing.position, standing.tag, standing.floor, standing.archived, standing.n, standing.state_version]
    line += [standing.version, 0, 0, 0, ended]
    fields = {
        "guard": f"{standing.epoch}:{standing.token}:{standing.rev}",
        "marks": ":".join(map(str, line)),
        "status": "failed" if standing.final else "running",
        "updated_at": 0,
        "state": EMPTY,
        "texts": texts,
    }
    await play.store._nodes.execute(["HSET", names[0], *(one for pair in fields.items() for one in pair)])


async def left(play, scribe):
    return (await play.store.stand([scribe.feed])).get(scribe.feed)


@PLAIN
@given(drawn=publishes())
def test_publish(play, drawn):
    standing, guard, first, count, version = drawn

    async def body():
        scribe = Scribe(play.clock)
        events = tuple(event.published(scribe.run_id, guard.token, first + i, "x", None, 0) for i in range(count))
        state = None if version is None else State().encode()
        tags = tuple(scribe.tag() for _ in events)
        try:
            write = Publish(scribe.feed, guard, first, events, tags, state, version or 0, 0)
        except ValueError:  # its last n would be one that is none
            return
        await planted(play, scribe, standing)
        expected = transition.judge_publish(standing, write)
        found = await play.store.publish(write)
        if expected is not None:
            assert found == expected
            assert await left(play, scribe) == standing
        else:
            moved, entries = transition.after_publish(standing, write)
            assert found == Applied(moved.cursor, moved.version)
            view = await play.store.read(scribe.feed)
            assert (view.marks, view.entries) == (moved, entries)

    play.run(body())


@PLAIN
@given(standing=standings(), data=st.data(), starts=st.booleans(), ends=st.booleans())
def test_fact(play, standing, data, starts, ends):
    held = standing or Marks(1, 1, 1, False, 0, "0" * 12)
    epoch, rev = data.draw(near(held.epoch)), data.draw(near(held.rev + 1))
    token = data.draw(near(held.token))

    async def body():
        scribe = Scribe(play.clock)
        status = Status.SUCCEEDED if ends else Status.RUNNING
        draft = FactDraft(event.ATTEMPT_STARTED if starts else event.CANCEL_REQUESTED, {}, status, token)
        fact = event.numbered(draft, scribe.feed, rev, started_at=None, at=0)
        await planted(play, scribe, standing)
        expected = transition.judge_fact(standing, epoch, fact)
        tag = scribe.tag()
        found = await play.store.fact(epoch, fact, tag)
        if expected is not None:
            assert found == expected
            assert await left(play, scribe) == standing
        else:
            moved, entry = transition.after_fact(standing, fact, tag)
            assert found == Applied(moved.cursor, moved.version)
            view = await play.store.read(scribe.feed)
            kept = retention.new_floor(moved, play.store.retention, aged=moved.floor, heavy=moved.floor)
            assert (view.marks, view.entries) == (replace(moved, floor=kept), (entry,))

    play.run(body())


@PLAIN
@given(standing=standings(), data=st.data(), tag=st.sampled_from([None, None, "0" * 12, "0" * 12, "1" * 12]))
def test_open(play, standing, data, tag):
    seen = data.draw(near(standing.epoch if standing else 0))
    epoch = data.draw(near(seen + 1))

    async def body():
        scribe = Scribe(play.clock)
        opening = Opening(scribe.feed, seen, epoch, scribe.tag(), 3, 2, Status.RUNNING, None, None, 0, tag)
        await planted(play, scribe, standing)
        expected = transition.judge_opening(standing, opening)
        found = await play.store.open(opening)
        if expected is not None:
            assert found == expected
            assert await left(play, scribe) == standing
        else:
            moved = transition.after_opening(opening)
            assert found == Applied(moved.cursor, moved.version)
            assert await left(play, scribe) == moved

    play.run(body())


@PLAIN
@given(
    drawn=guarded(),
    held=st.none() | st.tuples(st.integers(0, 4), st.booleans()),
    offset=st.integers(0, 5) | NUMBERS,
    size=st.integers(0, 4),
    final=st.booleans(),
)
def test_append(play, drawn, held, offset, size, final):
    standing, guard = drawn

    async def body():
        scribe = Scribe(play.clock)
        try:
            write = TextWrite(scribe.feed, guard, "answer", offset, b"x" * size, final)
        except ValueError:
            return
        part = None
        if held is not None:
            part = TextPart("answer", guard.token, held[0], held[1], False)
            key = play.store._names.text(scribe.feed, f"{guard.token}:answer")
            await play.store._nodes.execute(["SET", key, b"x" * held[0]])
        texts = "" if held is None else f"{guard.token}:answer:{held[0] if held[1] else '-'}:0"
        await planted(play, scribe, standing, texts)
        expected = judge_text(standing, part if standing else None, write)
        found = await play.store.append(write)
        assert found == (expected or TextApplied(write.end))
        assert await left(play, scribe) == standing
        if standing is not None:
            lengths = (await play.store.lengths([scribe.feed]))[scribe.feed]
            length = write.end if expected is None else part.length if part else None
            assert lengths.get((guard.token, "answer")) == length

    play.run(body())


ONE = len(event.published(Scribe(FakeClock()).run_id, 1, 1, "step_done", {"t": ""}, 0).body)  # bytes of a small event
SIZES = st.sampled_from([0, 0, 0, 0, 300, 900])
DEEDS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 4), SIZES),
    st.tuples(st.just("publish"), st.integers(1, 4), SIZES),
    st.tuples(st.just("again"), st.integers(1, 5), st.just(0)),
    st.tuples(st.just("archived"), st.integers(0, 60), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([5, 10, 20, 40]), st.just(0)),
    st.tuples(st.just("trim"), st.just(0), st.just(0)),
    st.tuples(st.just("fact"), st.sampled_from([event.ATTEMPT_STARTED, event.CANCEL_REQUESTED]), st.just(0)),
    st.tuples(st.just("end"), st.just(0), st.just(0)),
    st.tuples(st.just("expire"), st.just(0), st.just(0)),
)
KEEPS = st.builds(
    Retention,
    count=st.sampled_from([1, 3, 8, 100]),
    age=st.sampled_from([None, 20.0]),
    max_bytes=st.sampled_from([3 * ONE, 4_000, 1 << 20]),
    archive=st.booleans(),
)


@settings(PLAIN, max_examples=25)
@given(keep=KEEPS, deeds=st.lists(DEEDS, min_size=5, max_size=40))
def test_a_life_is_kept_as_in_memory(keep, deeds):
    """What is trimmed when, where known events stand, and what expires."""

    async def body():
        clock = FakeClock()
        times = {"timeline_ttl": 50.0, "snapshot_ttl": 100.0}
        real = await redis_servers.live("redis", clock, retention=keep, **times)
        model = MemoryLive(clock, keep, **times)
        scribe, writes, ended = Scribe(clock), [], False
        try:

            async def both(act):
                answers = [await act(store) for store in (real, model)]
                assert answers[0] == answers[1]
                return answers[0]

            opening = scribe.opening()
            await both(lambda store: store.open(opening))
            for deed, this, that in [("fact", event.ATTEMPT_STARTED, 0), *deeds]:
                if deed == "publish":
                    write = scribe.write(this, payload={"t": "x" * that}, state=State(done=this))
                    writes.append(write)
                    await both(lambda store, write=write: store.publish(write))
                elif deed == "again" and writes:
                    write = scribe.again(writes[-1 - this % len(writes)])
                    await both(lambda store, write=write: store.publish(write))
                elif deed == "archived":
                    await both(lambda store, this=this: store.archived(scribe.feed, scribe.epoch, this))
                elif deed == "wait":
                    await clock.advance(this)
                elif deed == "trim":
                    await both(lambda store: store.trim(scribe.feed))
                elif deed in ("fact", "end") and not ended:
                    fact, tag, ended = (
                        scribe.final() if deed == "end" else scribe.fact(this),
                        scribe.tag(),
                        deed == "end",
                    )
                    await both(lambda store, fact=fact, tag=tag: store.fact(scribe.epoch, fact, tag))
                elif deed == "expire":
                    await both(lambda store: store.expire())
                await both(lambda store: store.read(scribe.feed, limit=1_000))
                await both(lambda store: store.unarchived(5))
                assert set(await real.aged(5)) == set(await model.aged(5))
                for one in [*writes[:1], *writes[-1:]]:
                    await both(lambda store, one=one: store.find(scribe.feed, one.events[-1].id))
        finally:
            await real.close()

    asyncio.run(body())


BODIES = [b'{"a":1,"payload":{}}', b'{"a":1,"payload":}', b',"payload":1}', b',"payload":1']


@given(st.binary() | st.sampled_from(BODIES))
def test_every_body_comes_back_as_it_was(body):
    assert joined(*split(body)) == body


@given(st.binary(max_size=40), st.binary(max_size=80))
def test_marks_of_anything_are_marks_or_none(guard, line):
    try:
        found = marks(guard, line)
    except ValueError:
        return
    assert found is None or isinstance(found, Marks)


def test_a_known_write_is_told_its_place_by_its_number(play):
    """Also where facts, other attempts and left-out numbers stand between."""

    async def body():
        scribe = Scribe(play.clock)
        await play.store.open(scribe.opening())
        places = {}
        for turn in range(4):
            await play.store.fact(scribe.epoch, scribe.fact(event.ATTEMPT_STARTED), scribe.tag())
            for _ in range(5):
                scribe.n += turn
                write = scribe.write(2)
                places[write.last_n] = write, (await play.store.publish(write)).cursor
                await play.store.fact(scribe.epoch, scribe.fact(event.CANCEL_REQUESTED), scribe.tag())
            for write, place in places.values():
                assert await play.store.publish(scribe.again(write)) == Already(place)
            places.clear()
        seen = await play.store.read(scribe.feed, limit=1_000)
        for entry in seen.entries:
            assert await play.store.find(scribe.feed, entry.event.id) == entry.position

    play.run(body())


def test_every_script_is_one_of_an_act_and_uses_what_it_names():
    folder = Path(scripts.__file__).with_name("lua")
    for path in folder.glob("*.lua"):
        flags, uses, _ = path.read_text().split("\n", 2)
        assert re.fullmatch(r"#!lua( flags=(no-writes|allow-oom))?", flags)
        assert uses.startswith("-- uses: projection")
        text = scripts.load(path.stem).text.decode()
        assert "math.random" not in text
        assert "cjson" not in text
        assert len(scripts.load(path.stem).sha) == 40
