"""The calls, against a server that plays a script."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anyio
import pytest

from playhead.client import Client
from playhead.client.clock import Clock
from playhead.errors import AlreadyDecided, InvalidRequest, NoServer, NotFound, NotReady, PlayheadError, RunNotFree
from tests.client.scripted import RUN, StillClock, answer, playing, refusal, screen

pytestmark = pytest.mark.anyio
LOST = b""


def client(url: str, **options: Any) -> Client:
    return Client(url, clock=StillClock(), **options)


async def test_every_call_is_one_of_the_protocol() -> None:
    calls: list[tuple[str, Any, str, Any]] = [
        ("agents", (), "GET /agents", None),
        ("start", ("echo",), "POST /runs", {"agent": "echo", "input": {}, "labels": {}, "key": None}),
        ("get", (RUN,), f"GET /runs/{RUN}", None),
        ("get", ("a/../b?",), "GET /runs/a%2F..%2Fb%3F", None),
        ("list", (), "GET /runs?limit=50", None),
        ("cancel", (RUN, "why"), f"POST /runs/{RUN}/cancel", {"reason": "why"}),
        ("decide", (RUN, "q", True), f"POST /runs/{RUN}/interrupts/q/decision", {"approved": True, "note": None}),
        ("remove", (RUN,), f"DELETE /runs/{RUN}", None),
        ("interrupts", (), "GET /interrupts", None),
        ("interrupts", (RUN,), f"GET /interrupts?run={RUN}", None),
        ("bootstrap", (RUN, 7), f"GET /runs/{RUN}/bootstrap?limit=7", None),
        ("earlier", (RUN, "e/1"), f"GET /runs/{RUN}/events?limit=50&before=e%2F1", None),
        ("earlier", (RUN,), f"GET /runs/{RUN}/events?limit=50", None),
    ]
    told = {"id": RUN, "agents": [], "interrupts": [], "runs": []}
    async with playing(*[answer(told)] * len(calls)) as script:
        for name, arguments, _, _ in calls:
            await getattr(client(script.url), name)(*arguments)
    assert [line.removesuffix(" HTTP/1.1") for line in script.asked] == [line for _, _, line, _ in calls]
    assert [json.loads(body) if body else None for body in script.bodies] == [body for _, _, _, body in calls]


async def test_what_may_be_given_is_sent() -> None:
    async with playing(*[answer({"id": RUN})] * 3) as script:
        c = client(script.url)
        await c.start("echo", {"x": 1}, labels={"team": "legal"}, key="order-7", idempotency_key="once")
        await c.decide(RUN, "q", False, note="no", value=[1])
        await c.list(status=["queued", "running"], agent="echo", labels={"a": "b:c"}, key="k", limit=5, after="next")
    assert json.loads(script.bodies[0]) == {
        "agent": "echo",
        "input": {"x": 1},
        "labels": {"team": "legal"},
        "key": "order-7",
    }
    assert "Idempotency-Key: once\r\n" in script.heads[0]
    assert json.loads(script.bodies[1]) == {"approved": False, "note": "no", "value": [1]}
    query = "limit=5&status=queued&status=running&label=a%3Ab%3Ac&agent=echo&key=k&after=next"
    assert script.asked[2] == f"GET /runs?{query} HTTP/1.1"


async def test_a_call_whose_answer_was_lost_is_sent_again_and_starts_one_run() -> None:
    async with playing(LOST, LOST, answer({"id": RUN})) as script:
        assert (await client(script.url).start("echo"))["id"] == RUN
    keys = {line for head in script.heads for line in head.split("\r\n") if line.startswith("Idempotency-Key: ")}
    assert len(script.heads) == 3
    assert len(keys) == 1


async def test_a_busy_server_is_asked_again_when_it_says() -> None:
    async with playing(refusal(503, "not_ready", Retry_After=4), answer({"id": RUN})) as script:
        c = client(script.url)
        await c.get(RUN)
    clock: Any = c.clock
    assert clock.waits == [4]


async def test_patience_ends() -> None:
    async with playing(*[refusal(503, "not_ready", Retry_After=4)] * 9) as script:
        with pytest.raises(NotReady):
            await client(script.url).get(RUN)
    assert len(script.asked) == 3  # at 0, 4 and 8 of its ten seconds
    with pytest.raises(NoServer, match="does not answer"):
        await client("http://127.0.0.1:1", patience=0.1).get(RUN)


async def test_where_there_is_no_server_nobody_waits() -> None:
    def nowhere() -> str:
        raise NoServer("None is running.")

    clock = StillClock()
    with pytest.raises(NoServer, match=r"None is running\."):
        await Client(nowhere, clock=clock).get(RUN)
    assert clock.waits == []


async def test_a_server_that_moves_is_found_again() -> None:
    async with playing(refusal(503, "not_ready")) as first, playing(answer({"id": RUN})) as second:
        urls = iter([first.url, first.url, second.url])
        await Client(lambda: next(urls), clock=StillClock()).get(RUN)
    assert (len(first.asked), len(second.asked)) == (1, 1)


@pytest.mark.parametrize(
    ("answered", "error"),
    [
        (refusal(404, "not_found"), NotFound),
        (refusal(409, "already_decided"), AlreadyDecided),
        (refusal(409, "run_not_free"), RunNotFree),
        (refusal(400, "invalid_request"), InvalidRequest),
        (refusal(500, "internal_error"), PlayheadError),
        (answer([1]), PlayheadError),
    ],
)
async def test_what_was_refused_is_not_sent_again(answered: bytes, error: type[PlayheadError]) -> None:
    async with playing(answered, answer({})) as script:
        with pytest.raises(error):
            await client(script.url).get(RUN)
    assert len(script.asked) == 1


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
async def test_a_server_that_is_busy_or_away_is_asked_again(status: int) -> None:
    page = b"HTTP/1.1 %d Later\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nhtml" % status
    async with playing(page, page, answer({"id": RUN})) as script:
        assert await client(script.url).get(RUN) == {"id": RUN}


async def test_an_erasure_whose_answer_was_lost_is_one() -> None:
    async with playing(LOST, refusal(404, "not_found"), refusal(404, "not_found")) as script:
        await client(script.url).remove(RUN)
        with pytest.raises(NotFound):
            await client(script.url).remove(RUN)


async def test_an_answer_has_so_long_to_come() -> None:
    never = asyncio.Event()
    async with playing([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", never]) as script:
        clock = StillClock()
        waiting = asyncio.ensure_future(Client(script.url, clock=clock, timeout=3, patience=0).get(RUN))
        await clock.limited(1)  # the head is there, and the body is waited for
        clock.advance(2.9)
        assert not clock.limits[1][1].cancel_called
        clock.advance(0.2)
        with pytest.raises(NoServer, match="nothing for 3 s"):
            await waiting
        never.set()


async def test_headers_are_given_or_made() -> None:
    async with playing(*[answer({"id": RUN})] * 2) as script:
        await client(script.url, headers={"Authorization": "Bearer a"}).get(RUN)
        await client(script.url, headers=lambda: {"Authorization": "Bearer b"}).get(RUN)
    assert ["Bearer a" in script.heads[0], "Bearer b" in script.heads[1]] == [True, True]


async def test_how_many_can_be_followed_is_bounded() -> None:
    for runs in ([], [f"r{n}" for n in range(33)]):
        with pytest.raises(InvalidRequest):
            client("http://h").follow_many(runs)


async def test_a_bootstrap_can_be_read_by_itself() -> None:
    async with playing(answer(screen(2))) as script:
        assert (await client(script.url).bootstrap(RUN))["cursor"] == "1-2.aa"


async def test_the_machines_clock() -> None:
    clock = Clock()
    begin = clock.now()
    with clock.limit(0.01) as scope:
        await anyio.sleep(5)
    assert scope.cancelled_caught
    await clock.sleep(0)
    assert clock.now() >= begin
    assert 0 <= clock.random() <= 1
