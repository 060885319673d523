"""The Python client against whole servers, through everything that happens to connections and servers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

import playhead
from playhead.client import Client, RunView
from playhead.client.clock import Clock
from playhead.client.following import Follower
from playhead.errors import AlreadyDecided, InvalidInput, NotFound, Unauthenticated, UnknownAgent
from playhead.gateway.auth import Principal
from playhead.testing.faults import Cut, Proxy
from tests.support.agents import counting
from tests.support.stage import BACKENDS, Gates, stage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", BACKENDS)]
PATIENCE = 30.0
# Line breaks of all kinds, what looks like framing, and characters of several bytes, also cut between pieces.
WORDS = [
    "l1\nl2\r\nl3\rl4\n\n",
    " leading space",
    ":colon",
    "",
    "data: x",
    "你好🙂é",
    "e",
    "\u0301",
    "👩\u200d",
    "👧",
    "\u2028",
]


class QuickClock(Clock):
    """Real time, with waits that nobody notices; `waits` are what they would have been."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await anyio.sleep(0.01)


def client(url: str, **options: Any) -> Client:
    return Client(url, clock=QuickClock(), **options)


def telling(gates: Gates) -> Sequence[playhead.Agent]:
    @playhead.agent
    async def tell(
        run: playhead.RunContext, n: int = 40, stops: tuple[int, ...] = (), repeat: int = 1, pad: int = 0
    ) -> str:
        said = ""
        for i in range(1, n + 1):
            if i in stops:
                await gates.wait(f"at-{i}")
            await run.event("counted", {"i": i, "words": WORDS[i % len(WORDS)], "pad": "x" * pad}, progress=100 * i / n)
            piece = WORDS[i % len(WORDS)] * repeat
            await run.text(piece)
            said += piece
        await run.flush()
        await gates.wait("end")
        return said

    return [tell]


async def watch(views: Follower, until: Any = None) -> list[RunView]:
    """Views until one is as it should be, or until there are no more."""
    seen = []
    async with asyncio.timeout(PATIENCE):
        async for view in views:
            seen.append(view)
            if until is not None and until(view):
                break
    return seen


def counted(view: RunView) -> list[int]:
    return [event["payload"]["i"] for event in view.events if event["type"] == "counted"]


def text(view: RunView) -> str:
    return "".join(part.text for part in view.text)


@pytest.mark.row("BR-13@client", "BR-58@client", "BR-59@client", "F58@client", "F59@client")
@pytest.mark.parametrize("slivers", [None, 7])
async def test_cut_at_random_points_it_shows_everything_once(backend: str, tmp_path: Path, slivers: int | None) -> None:
    chance = random.Random(f"{backend} {slivers}")
    async with stage(backend, tmp_path, telling) as s:
        async with Proxy(s.client.port) as between:
            between.down.set(cut=Cut(after=lambda: chance.randint(200, 6_000)), most=slivers)
            run = await Client(f"http://127.0.0.1:{s.client.port}").start("tell", {"n": 60})
            await s.gates.reached("end")
            said = "".join(WORDS[i % len(WORDS)] for i in range(1, 61))
            views = client(between.url).follow(run["id"], bootstrap=False)
            seen = await watch(views, lambda view: text(view) == said and len(counted(view)) == 60)
            between.down.set()
            s.gates.open("end")
            seen += await watch(views)
    last = seen[-1]
    assert between.down.cuts >= 3
    assert counted(last) == list(range(1, 61))
    assert "�" not in text(seen[-2])
    assert last.run is not None
    assert (last.status, last.run["result"], last.text) == ("succeeded", said, ())
    assert {view.status for view in seen if view.status} == {"running", "succeeded"}
    assert {view.connection for view in seen} <= {"connecting", "live", "reconnecting", "ended"}


@pytest.mark.row("BR-12@client")
async def test_whoever_joins_at_any_moment_ends_with_the_whole_text(backend: str, tmp_path: Path) -> None:
    moments = (1, 2, 60, 61, 120)
    async with stage(backend, tmp_path, telling) as s:
        c = client(f"http://127.0.0.1:{s.client.port}")
        run = await c.start("tell", {"n": 120, "stops": list(moments)})
        viewers = []
        for moment in moments:
            await s.gates.reached(f"at-{moment}")
            views = c.follow(run["id"], limit=3)
            await anext(views)
            viewers.append(views)
            s.gates.open(f"at-{moment}")
        await s.gates.reached("end")
        viewers.append(c.follow(run["id"], limit=3))
        said = "".join(WORDS[i % len(WORDS)] for i in range(1, 121))
        for views in viewers:
            shown = (await watch(views, lambda view: text(view) == said))[-1]
            assert shown.snapshot is not None
        s.gates.open("end")
        for views in viewers:
            last = (await watch(views))[-1]
            assert last.run is not None
            assert (last.status, last.run["result"]) == ("succeeded", said)


async def test_a_server_that_restarts_elsewhere_is_found_again(backend: str, tmp_path: Path) -> None:
    def steady(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent(resumable=True)
        async def steady(run: playhead.RunContext) -> int:
            for i in range(1, 6):
                await run.event("counted", {"i": i})
            await gates.wait("end")
            return run.attempt

        return [steady]

    urls: list[str] = []
    seen: list[RunView] = []
    c = Client(lambda: urls[-1], clock=QuickClock())
    async with stage(backend, tmp_path, steady) as s:
        urls.append(f"http://127.0.0.1:{s.client.port}")
        run = await c.start("steady")
        views = c.follow(run["id"])
        # Also live: the five may all be in the bootstrap, and what never was connected does not reconnect.
        seen += await watch(views, lambda view: len(counted(view)) == 5 and view.connection == "live")
        kept = s.engine.ports
        # The farewell is read while the server still goes.
        leaving = asyncio.ensure_future(watch(views, lambda view: view.connection == "reconnecting"))
        await asyncio.sleep(0)
    seen += await leaving
    async with stage(backend, tmp_path, steady, kept=kept) as s:
        urls.append(f"http://127.0.0.1:{s.client.port}")
        s.gates.open("end")
        seen += await watch(views)
    last = seen[-1]
    assert last.run is not None
    assert (last.status, last.run["result"]) == ("succeeded", 2)
    assert len({event["id"] for event in last.events}) == len(last.events)
    assert [event["type"] for event in last.events].count("attempt_started") == 2
    assert last.timeline.complete


async def test_a_run_that_is_over_shows_its_record_at_once(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        c = client(f"http://127.0.0.1:{s.client.port}")
        run = await c.start("count", {"n": 2})
        await s.client.ended(run["id"])
        seen = await watch(c.follow(run["id"]))
        assert [(view.connection, view.status) for view in seen] == [("ended", "succeeded")]
        assert seen[0].run is not None
        assert seen[0].run["result"] == {"counted": 2}
        # By the stream alone, and from its very end.
        alone = await watch(c.follow(run["id"], bootstrap=False))
        assert counted(alone[-1]) == [1, 2]
        at_the_end = await watch(c.follow(run["id"], bootstrap=False, cursor=seen[0].cursor))
        assert [view.connection for view in at_the_end] == ["ended"]
        assert await watch(c.follow(run["id"], bootstrap=False, cursor="nonsense"))


async def test_what_may_not_be_followed_is_named(backend: str, tmp_path: Path) -> None:
    allowed = True

    def authenticate(request: Any) -> Principal:
        if not allowed:
            raise Unauthenticated
        return Principal("ann", "local")

    async with stage(backend, tmp_path, counting, authenticate=authenticate) as s:
        c = client(f"http://127.0.0.1:{s.client.port}")
        with pytest.raises(NotFound):
            await watch(c.follow("01890abc-0000-7000-8000-00000000000f"))
        run = await c.start("count", {"hold": True})
        views = c.follow(run["id"])
        await watch(views, lambda view: view.connection == "live")
        await views.close()
        allowed = False
        views = c.follow(run["id"], bootstrap=False)
        assert isinstance((await anext(views)).problem, Unauthenticated)
        with pytest.raises(Unauthenticated):
            await anext(views)
        s.gates.open("end")


@pytest.mark.row("BR-70@client")
async def test_above_the_cap_it_stays_away_as_it_is_told(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting, settings={"max_streams": 1}) as s:
        run_id = await s.client.start("count", {"hold": True})
        await s.gates.reached("end")
        first = await s.client.open(run_id)
        clock = QuickClock()
        views = Client(f"http://127.0.0.1:{s.client.port}", clock=clock).follow(run_id)
        while len(clock.waits) < 3:
            await asyncio.wait_for(anext(views), PATIENCE)
        assert views.trouble is not None
        assert views.trouble.code == "too_many_streams"
        assert min(clock.waits) >= 1
        await first.close()
        await watch(views, lambda view: view.connection == "live")
        assert views.trouble is None
        s.gates.open("end")
        assert (await watch(views))[-1].status == "succeeded"


@pytest.mark.row("F55@client", "F65@client")
async def test_one_that_does_not_read_is_cut_off_and_lacks_nothing(backend: str, tmp_path: Path) -> None:
    """Megabytes of events and text come while it looks away. A part of text holds one of them; the record has all."""
    settings = {"viewer_bytes": 64 << 10, "ring_bytes": 64 << 10}
    async with stage(backend, tmp_path, telling, settings=settings) as s:
        c = client(f"http://127.0.0.1:{s.client.port}")
        run = await c.start("tell", {"n": 200, "stops": [2], "repeat": 1_000, "pad": 30_000})
        views = c.follow(run["id"])
        await watch(views, lambda view: view.connection == "live" and counted(view) == [1])
        s.gates.open("at-2")
        async with asyncio.timeout(PATIENCE):
            while not s.engine.hub.statistics.get("lagging"):
                await asyncio.sleep(0.01)
        await s.gates.reached("end")
        said = "".join(WORDS[i % len(WORDS)] * 1_000 for i in range(1, 201))
        seen = await watch(views, lambda view: len(counted(view)) == 200)
        s.gates.open("end")
        seen += await watch(views)
    assert [view.connection for view in seen].count("reconnecting") == 1
    assert all(said.startswith(text(view)) for view in seen)
    last = seen[-1]
    assert counted(last) == list(range(1, 201))
    assert last.timeline.complete
    assert last.run is not None
    assert last.run["result"] == said


async def test_many_runs_over_one_cut_connection(backend: str, tmp_path: Path) -> None:
    chance = random.Random(backend)
    async with stage(backend, tmp_path, counting) as s:
        c = client(f"http://127.0.0.1:{s.client.port}")
        runs = [(await c.start("count", {"n": n, "stops": [3]}))["id"] for n in (5, 10, 15)]
        async with Proxy(s.client.port) as between:
            between.down.set(cut=Cut(after=lambda: chance.randint(3_000, 9_000)))
            views = client(between.url).follow_many(runs)
            while not all(len(counted(view)) == 2 for view in views.views.values()):
                await asyncio.wait_for(anext(views), PATIENCE)
            s.gates.open("at-3")
            await watch(views)
    assert between.down.cuts >= 1
    for run_id, n in zip(runs, (5, 10, 15), strict=True):
        view = views.views[run_id]
        assert view.run is not None
        assert (view.status, view.run["result"]) == ("succeeded", {"counted": n})
        assert counted(view) == list(range(1, n + 1))


async def test_calls_do_what_they_say(backend: str, tmp_path: Path) -> None:
    def asking(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def ask(run: playhead.RunContext, what: str = "Go on?") -> list[Any]:
            decision = await run.ask({"title": what, "why": "it costs"})
            return [decision.approved, decision.note]

        return [ask]

    async with stage(backend, tmp_path, asking) as s:
        c = client(f"http://127.0.0.1:{s.client.port}")
        assert [one["name"] for one in await c.agents()] == ["ask"]
        once: dict[str, Any] = {"labels": {"team": "legal"}, "key": "k", "idempotency_key": "once"}
        run = await c.start("ask", {"what": "Sure?"}, **once)
        assert (await c.start("ask", {"what": "Sure?"}, **once))["id"] == run["id"]
        views = c.follow(run["id"])
        seen = await watch(views, lambda view: any("why" in one["payload"] for one in view.interrupts))
        question = seen[-1].interrupts[0]
        assert question["payload"] == {"title": "Sure?", "why": "it costs"}
        assert [one["id"] for one in await c.interrupts(run["id"])] == [question["id"]]
        assert (await c.interrupts())[0]["run_id"] == run["id"]
        await c.decide(run["id"], question["id"], True, note="fine")
        with pytest.raises(AlreadyDecided) as refused:
            await c.decide(run["id"], question["id"], False)
        assert refused.value.details["decision"] == {"approved": True, "note": "fine", "value": None}
        last = (await watch(views))[-1]
        assert (last.interrupts, last.run["result"] if last.run else None) == ((), [True, "fine"])
        assert (await c.list(labels={"team": "legal"}, status=["succeeded"]))["runs"][0]["id"] == run["id"]
        page = await c.earlier(run["id"], last.events[-1]["id"], limit=2)
        assert [one["id"] for one in page["events"]] == [one["id"] for one in last.events[-3:-1]]
        with pytest.raises(UnknownAgent):
            await c.start("nobody")
        with pytest.raises(InvalidInput) as invalid:
            await c.start("ask", {"what": 7})
        assert invalid.value.details["problems"]
        other = await c.start("ask")
        assert (await c.cancel(other["id"], "enough"))["cancel_requested"]["reason"] == "enough"
        await s.client.ended(other["id"])
        await c.remove(other["id"])
        with pytest.raises(NotFound):
            await c.get(other["id"])
