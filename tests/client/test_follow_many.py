"""Several runs over one connection, against a server that plays a script."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from playhead.client import Client
from playhead.errors import Forbidden, NotFound
from tests.client.scripted import GONE, HEAD, StillClock, answer, named, piece, playing, refusal, screen

pytestmark = pytest.mark.anyio
RUNS = [f"01a20000-0000-7000-8000-00000000000{n}" for n in range(1, 4)]
A, B, C = RUNS


def of(run: str, last: int = 0, status: str = "running", **more: Any) -> bytes:
    told = screen(last, status, **more)
    told["run"] |= {"id": run}
    return answer(told)


def joined(run: str, name: str, data: Any) -> bytes:
    return named(name, {"feed": f"run:{run}", **data})


def event(run: str, number: int, cursor: str | None = "") -> bytes:
    at = f"1-{number}.aa" if cursor == "" else cursor
    told = {"id": f"e{number}", "type": "counted", "version": number, "payload": {}}
    return f"data: {json.dumps({'feed': f'run:{run}', 'cursor': at, 'event': told})}\n\n".encode()


def end(run: str) -> bytes:
    return joined(run, "end", {"run_id": run, "status": "succeeded"})


def asked_runs(line: str) -> list[str]:
    return parse_qs(urlsplit(line.split()[1]).query)["run"]


async def watch(url: str, runs: list[str]) -> tuple[dict[str, Any], list[Any], list[float]]:
    clock = StillClock()
    seen = []
    async with Client(url, clock=clock).follow_many(runs) as views:
        async for view in views:
            seen.append(view)
    return views.views, seen, clock.waits


async def test_views_come_of_the_run_that_changed_until_all_have_ended() -> None:
    body = [event(A, 1), event(B, 1), joined(A, "text", piece(0, "a")), event(A, 2), end(A), event(B, 2), end(B)]
    stream = HEAD + b"".join(body) + b"id: 1.xyz\n\n" + b"id: end\n\n"
    async with playing(of(A), of(B), stream, of(A, 2, "succeeded"), of(B, 2, "succeeded")) as script:
        views, seen, waits = await watch(script.url, [A, B])
    assert asked_runs(script.asked[2]) == [f"{A}@1-0.aa", f"{B}@1-0.aa"]
    assert {run: [one["id"] for one in view.events] for run, view in views.items()} == {
        A: ["e1", "e2"],
        B: ["e1", "e2"],
    }
    assert {view.connection for view in views.values()} == {"ended"}
    assert {view.id for view in seen} == {A, B}
    assert waits == []


async def test_a_lost_connection_goes_on_for_each_from_its_own_place_without_those_that_ended() -> None:
    first = HEAD + event(A, 1) + event(B, 1) + event(C, 1) + joined(B, "text", piece(0, "b")) + end(C)
    second = HEAD + event(A, 2) + end(A) + end(B)
    ends = [of(run, 2, "succeeded") for run in (A, B)]
    async with playing(of(A), of(B), of(C), first, of(C, 1, "succeeded"), second, *ends) as script:
        views, seen, waits = await watch(script.url, RUNS)
    again = next(line for line in script.asked[4:] if "/stream" in line)
    assert asked_runs(again) == [f"{A}@1-1.aa", f"{B}@1-1.aa"]
    assert parse_qs(urlsplit(again.split()[1]).query)["text"] == [f"run:{B}.1.answer:1"]
    assert not any("last-event-id" in head.lower() for head in script.heads)
    assert {view.connection for view in seen if view.id == C} == {"connecting", "live", "ended"}
    assert "reconnecting" in {view.connection for view in seen if view.id == A}
    assert len(waits) == 1
    assert all(view.status == "succeeded" for view in views.values())


async def test_a_run_that_cannot_be_followed_stops_none_of_the_others() -> None:
    gone = joined(B, "refused", {"code": "forbidden"})
    stream = HEAD + event(A, 1) + gone + event(B, 2) + end(A)
    async with playing(of(A), of(B), refusal(404, "not_found"), stream, of(A, 1, "succeeded")) as script:
        views, _, _ = await watch(script.url, RUNS)
    assert asked_runs(script.asked[3]) == [f"{A}@1-0.aa", f"{B}@1-0.aa"]
    assert isinstance(views[B].problem, Forbidden)
    assert isinstance(views[C].problem, NotFound)
    assert [views[run].connection for run in RUNS] == ["ended", "refused", "refused"]
    assert [one["id"] for one in views[B].events] == []


async def test_when_none_can_be_followed_that_is_the_end() -> None:
    async with playing(of(A), of(B), refusal(403, "forbidden")) as script:
        views, _, _ = await watch(script.url, [A, B])
    assert {view.connection for view in views.values()} == {"refused"}
    async with playing(of(A), GONE, of(A, 1, "succeeded")) as script:
        views, _, _ = await watch(script.url, [A])
    assert views[A].connection == "ended"


async def test_a_resync_is_of_its_run_alone() -> None:
    told = screen(9, cursor="2-9.aa")
    resync = joined(A, "resync_required", {"reason": "epoch", "cursor": "2-9.aa", "bootstrap": told})
    stream = HEAD + event(A, 1) + event(B, 1) + resync + event(B, 2)
    gate = asyncio.Event()
    async with playing(of(A), of(B), [stream, gate]) as script:
        async with Client(script.url, clock=StillClock()).follow_many([A, B]) as views:
            while len(views.views[B].events) < 2:
                await anext(views)
            shown = views.views
        gate.set()
    assert (shown[A].cursor, len(shown[A].events)) == ("2-9.aa", 9)
    assert (shown[B].cursor, len(shown[B].events)) == ("1-2.aa", 2)


async def test_a_server_that_goes_away_is_left_by_all() -> None:
    farewell = HEAD + event(A, 1) + named("draining", {"retry_ms": 7000})
    ends = [of(run, 1, "succeeded") for run in (A, B)]
    async with playing(of(A), of(B), farewell, HEAD + end(A) + end(B), *ends) as script:
        views, _, waits = await watch(script.url, [A, B])
    assert waits == [7]
    assert all(view.status == "succeeded" for view in views.values())


async def test_frames_of_other_runs_are_passed_over() -> None:
    stream = HEAD + event(C, 1) + joined(C, "refused", {"code": "not_found"}) + event(A, 1) + end(A)
    async with playing(of(A), stream, of(A, 1, "succeeded")) as script:
        views, _, _ = await watch(script.url, [A])
    assert list(views) == [A]
    assert views[A].connection == "ended"


async def test_a_server_that_is_busy_is_not_asked_for_each_run() -> None:
    ends = [of(run, 1, "succeeded", cursor=None) for run in RUNS]
    async with playing(refusal(503, "not_ready"), *ends) as script:
        views, _, waits = await watch(script.url, RUNS)
    assert [line.split("/")[2] for line in script.asked] == [A, *RUNS]
    assert len(waits) == 1
    assert all(view.ended for view in views.values())
