"""Following a run against a server that plays a script: each connection gets the next answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from playhead.client import Client, RunView
from playhead.client.following import LAST_TRIES
from playhead.errors import Forbidden, InvalidRequest, NoServer, NotFound, NotReady, PlayheadError, Unauthenticated
from tests.client.scripted import (
    END,
    GONE,
    HEAD,
    OVER,
    RUN,
    StillClock,
    answer,
    event,
    named,
    piece,
    playing,
    refusal,
    screen,
    state,
    text,
)

pytestmark = pytest.mark.anyio
ONE = answer(screen(1, "succeeded"))


class Watched:
    """What following the run of a script gave."""

    def __init__(self, clock: StillClock) -> None:
        self.clock = clock
        self.views: list[RunView] = []
        self.news: list[tuple[str, Any]] = []
        self.trouble: list[str] = []

    @property
    def waits(self) -> list[float]:
        return self.clock.waits

    @property
    def ids(self) -> list[str]:
        return [data["id"] for name, data in self.news if name == "event"]

    @property
    def connections(self) -> list[str]:
        """How the connection looked, without repetition."""
        seen = [view.connection for view in self.views]
        return [one for n, one in enumerate(seen) if n == 0 or seen[n - 1] != one]


async def watch(url: str, *, chance: float = 0.0, **options: Any) -> Watched:
    watched = Watched(StillClock(chance))
    client = Client(url, clock=watched.clock)
    async with client.follow(RUN, **{"bootstrap": False, **options}) as views:
        async for view in views:
            watched.views.append(view)
            watched.news += [(frame.name, frame.data) for frame in views.news]
            if views.trouble is not None and str(views.trouble) not in watched.trouble[-1:]:
                watched.trouble.append(str(views.trouble))
    return watched


async def test_it_begins_with_a_bootstrap_and_ends_with_the_record() -> None:
    result = screen(3, "succeeded")
    result["run"] |= {"result": {"said": "all"}}
    async with playing(answer(screen(1)), HEAD + event(2) + event(3) + END, answer(result)) as script:
        seen = await watch(script.url, bootstrap=True, limit=7)
    assert script.asked == [
        f"GET /runs/{RUN}/bootstrap?limit=7 HTTP/1.1",
        f"GET /runs/{RUN}/stream?resync=inline&cursor=1-1.aa HTTP/1.1",
        f"GET /runs/{RUN}/bootstrap?limit=7 HTTP/1.1",
    ]
    assert [one["id"] for one in seen.views[-1].events] == ["e1", "e2", "e3"]
    assert seen.connections == ["connecting", "live", "ended"]
    last = seen.views[-1]
    assert last.run is not None
    assert (last.status, last.run["result"], seen.waits) == ("succeeded", {"said": "all"}, [])


async def test_a_run_that_has_ended_needs_no_stream() -> None:
    for told in (
        screen(2, "failed", cursor=None),
        screen(2, "succeeded", events=[{"id": "f", "type": "run_succeeded"}]),
    ):
        async with playing(answer(told)) as script:
            seen = await watch(script.url, bootstrap=True)
        assert len(script.asked) == 1
        assert seen.connections == ["ended"]


@pytest.mark.row("BR-11@client", "F59@client")
async def test_it_goes_on_from_its_newest_cursor() -> None:
    cut = event(3)[:-20]
    async with playing(HEAD + event(1) + event(2) + cut, HEAD + event(3) + END, OVER) as script:
        seen = await watch(script.url, cursor="1-0.aa")
    assert seen.ids == ["e1", "e2", "e3"]
    assert [line.partition("cursor=")[2].split()[0] for line in script.asked[:2]] == ["1-0.aa", "1-2.aa"]
    # One place and no other: the header, which would beat the address, says nothing.
    assert not any("last-event-id" in head.lower() for head in script.heads)
    assert seen.trouble == ["The connection is lost."]
    assert len(seen.waits) == 1


@pytest.mark.row("F58@client")
async def test_what_was_received_before_the_cursor_was_is_shown_once() -> None:
    async with playing(HEAD + event(1) + event(2), HEAD + event(1) + event(2) + event(3) + END, OVER) as script:
        seen = await watch(script.url)
    assert seen.ids == ["e1", "e2", "e3"]


async def test_the_ids_of_control_frames_are_no_cursors() -> None:
    resync = named("resync_required", {"reason": "expired", "bootstrap": screen(9)}, "stop")
    async with playing(HEAD + resync, HEAD + END, OVER) as script:
        await watch(script.url, cursor="1-1.aa")
    assert "cursor=1-9.aa" in script.asked[1]


async def test_a_resync_within_the_stream_shows_each_event_once() -> None:
    told = screen(3, text=[piece(0, "ab")])
    body = (
        event(1) + event(2) + named("resync_required", {"reason": "epoch", "bootstrap": told}, "1-3.aa") + text(2, "c")
    )
    async with playing(HEAD + body + event(3) + event(4) + END, OVER) as script:
        seen = await watch(script.url)
    assert seen.ids == ["e1", "e2", "e3", "e4"]
    assert [data["text"] for name, data in seen.news if name == "text"] == ["ab", "c"]
    assert seen.waits == []


async def test_a_resync_that_shows_the_end_is_read_to_the_end() -> None:
    last = {"id": "f", "type": "run_succeeded", "payload": {}}
    told = screen(2, "succeeded", events=[*screen(2)["events"], last])
    resync = named("resync_required", {"reason": "epoch", "bootstrap": told}, "1-3.aa")
    gate = asyncio.Event()
    async with playing([HEAD + event(1) + resync, gate, END]) as script:
        async with Client(script.url, clock=StillClock()).follow(RUN, bootstrap=False) as views:
            while len(views.view.events) < 3:
                await anext(views)
            gate.set()
            seen = [view.connection async for view in views]
            assert "end" in [frame.name for frame in views.news]
    assert seen[-1] == "ended"
    assert len(script.asked) == 1  # the record has spoken already


async def test_a_resync_that_is_not_inline_loads_a_bootstrap_at_once() -> None:
    stop = named("resync_required", {"reason": "epoch"}, "stop")
    async with playing(HEAD + event(1) + stop, answer(screen(2)), HEAD + event(3) + END, OVER) as script:
        seen = await watch(script.url)
    assert seen.ids == ["e1", "e2", "e3"]
    assert "cursor=1-2.aa" in script.asked[2]
    assert seen.connections == ["live", "resyncing", "live", "ended"]
    assert seen.waits == []


async def test_text_that_does_not_fit_is_asked_for_anew_and_not_by_its_end() -> None:
    other = named("text", {**piece(0, "xyz"), "part": "other"})
    async with playing(HEAD + other + text(0, "ab") + text(9, "z"), HEAD + text(0, "abcdefghiz") + END, OVER) as script:
        seen = await watch(script.url)
    assert [data["text"] for name, data in seen.news if name == "text"] == ["xyz", "ab", "abcdefghiz"]
    assert "text=1.other%3A3" in script.asked[1]
    assert "text=1.answer" not in script.asked[1]
    assert seen.waits == []


async def test_text_that_never_fits_does_not_make_it_spin() -> None:
    torn = HEAD + text(9, "z")
    async with playing(torn, torn, torn, torn, HEAD + END, OVER) as script:
        seen = await watch(script.url)
    assert len(seen.waits) == 2  # of five connections every second one comes at once


async def test_a_connection_names_the_text_that_it_holds() -> None:
    async with playing(HEAD + text(0, "añb"), HEAD + text(4, "c") + END, OVER) as script:
        seen = await watch(script.url)
    assert script.asked[1].split()[1].endswith("&text=1.answer%3A4")
    assert [data["text"] for name, data in seen.news if name == "text"] == ["añb", "c"]


@pytest.mark.row("F56@client")
async def test_a_silent_connection_is_taken_for_dead_after_two_and_a_half_keepalives() -> None:
    never, clock = asyncio.Event(), StillClock()
    async with playing([HEAD + event(1), never], HEAD + END, OVER) as script:
        async with Client(script.url, clock=clock, keepalive=15).follow(RUN, bootstrap=False) as views:
            while not views.view.events:
                await anext(views)
            before = len(clock.limits)
            waiting = asyncio.ensure_future(anext(views))
            await clock.limited(before)
            clock.advance(37.4)
            assert not clock.limits[-1][1].cancel_called
            clock.advance(0.2)
            assert (await waiting).connection == "reconnecting"
            assert str(views.trouble) == "The server has said nothing for 37.5 s."
            async for view in views:
                last = view
    assert last.connection == "ended"
    never.set()


async def test_a_comment_is_a_sign_of_life() -> None:
    more, clock = [asyncio.Event() for _ in range(4)], StillClock()
    beats = [one for gate in more for one in (gate, b":\n\n")]
    async with playing([HEAD + event(1), *beats, END], OVER) as script:
        async with Client(script.url, clock=clock, keepalive=15).follow(RUN, bootstrap=False) as views:
            while not views.view.events:
                await anext(views)
            before = len(clock.limits)
            waiting = asyncio.ensure_future(anext(views))
            for number, gate in enumerate(more):
                await clock.limited(before + number)
                clock.advance(30)
                gate.set()
            assert (await waiting).connection == "ended"
    assert clock.waits == []


@pytest.mark.row("BR-70@client")
@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
async def test_it_stays_away_as_long_as_it_is_told_and_then_some(chance: float) -> None:
    answers = (
        refusal(503, "not_ready", Retry_After=7),
        HEAD + b"retry: 2000\n\n" + event(1),
        HEAD + b"retry: 5000\n\n" + named("draining", {"retry_ms": 5000}),
        refusal(429, "too_many_streams", Retry_After=9),
        HEAD + END,
        OVER,
    )
    async with playing(*answers) as script:
        seen = await watch(script.url, chance=chance)
    assert seen.waits[:3] == [told * (1 + chance) for told in (7, 2, 5)]
    assert 9 <= seen.waits[3] <= 30
    assert seen.trouble == ["No.", "The connection is lost.", "The server is going down.", "No."]


async def test_waits_grow_while_nothing_is_heard() -> None:
    async with playing(*[refusal(503, "not_ready")] * 6, HEAD + b"retry: 1000\n\n", HEAD + END, OVER) as script:
        seen = await watch(script.url, chance=1.0)
    assert seen.waits == [3, 6, 12, 24, 30, 30, 2]


async def test_nothing_more_to_follow_is_the_end() -> None:
    async with playing(GONE, OVER) as script:
        seen = await watch(script.url, cursor="1-3.aa")
    assert [view.connection for view in seen.views] == ["ended"]
    assert seen.views[-1].status == "succeeded"


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (401, "unauthenticated", Unauthenticated),
        (403, "forbidden", Forbidden),
        (404, "not_found", NotFound),
        (400, "invalid_request", InvalidRequest),
    ],
)
@pytest.mark.parametrize("bootstrap", [True, False])
async def test_a_refusal_is_final_and_named(
    status: int, code: str, error: type[PlayheadError], bootstrap: bool
) -> None:
    async with playing(refusal(status, code), OVER) as script:
        views = Client(script.url, clock=StillClock()).follow(RUN, bootstrap=bootstrap)
        view = await anext(views)
        assert view.connection == "refused"
        assert isinstance(view.problem, error)
        with pytest.raises(error):
            await anext(views)
    assert len(script.asked) == 1


async def test_a_run_that_is_erased_while_it_is_followed_is_refused() -> None:
    async with playing(HEAD + event(1), refusal(404, "not_found")) as script:
        with pytest.raises(NotFound):
            await watch(script.url)


async def test_a_server_that_makes_mistakes_is_given_up_at_last() -> None:
    async with playing(*[refusal(500, "internal_error")] * 9) as script:
        with pytest.raises(PlayheadError, match="No"):
            await watch(script.url)
    assert len(script.asked) == 9


async def test_a_page_in_place_of_the_stream_is_tried_again() -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nhtml"
    async with playing(page, HEAD + event(1) + END, ONE) as script:
        seen = await watch(script.url)
    assert seen.ids == ["e1"]
    assert seen.trouble == ["The server answered 200."]


async def test_a_frame_that_is_no_json_is_passed_over() -> None:
    async with playing(HEAD + b"data: {\n\n" + event(1) + END, ONE) as script:
        assert (await watch(script.url)).ids == ["e1"]


@pytest.mark.row("BR-13@client")
async def test_a_run_is_never_shown_as_failed_because_its_connection_was() -> None:
    cut = [HEAD + state(n) + event(n) for n in range(1, 6)]
    refused = [refusal(503, "not_ready"), b"HTTP/1.1 garbage", b""]
    async with playing(answer(screen()), *cut, *refused, HEAD + event(6) + END, OVER) as script:
        seen = await watch(script.url, bootstrap=True)
    assert {view.status for view in seen.views} == {"running", "succeeded"}
    assert seen.connections == ["connecting", *["live", "reconnecting"] * 5, "live", "ended"]
    assert all(view.problem is None for view in seen.views)
    assert seen.ids == [f"e{n}" for n in range(1, 7)]


async def test_a_degraded_view_is_one_of_a_live_connection() -> None:
    body = state(1) + state(0, degraded="store_unavailable") + state(2) + END
    chunks = [item for block in body.split(b"\n\n") for item in (block + b"\n\n",)]
    gates = [asyncio.Event() for _ in chunks]
    async with playing([HEAD, *(one for pair in zip(gates, chunks, strict=True) for one in pair)], OVER) as script:
        views = Client(script.url, clock=StillClock()).follow(RUN, bootstrap=False)
        seen = [(await anext(views)).connection]
        for gate in gates[:-1]:
            gate.set()
            seen.append((await anext(views)).connection)
        gates[-1].set()
        await views.close()
    assert seen == ["live", "live", "degraded", "live", "ended"]


async def test_a_question_is_shown_at_once_and_then_whole() -> None:
    asked = {"interrupt_id": "q1", "kind": "approval", "key": "k", "title": "Go?", "deadline": None}
    whole = {"id": "q1", "kind": "approval", "payload": {"title": "Go?", "why": "it costs"}}
    never = asyncio.Event()
    told = answer(screen(1, interrupts=[whole], events=[]))
    async with playing([HEAD + event(1, "approval_required", asked), never], told) as script:
        views = Client(script.url, clock=StillClock()).follow(RUN, bootstrap=False)
        payloads: list[Any] = []
        while len(payloads) < 2:
            payloads += [one["payload"] for one in (await anext(views)).interrupts]
        await views.close()
        never.set()
    assert payloads == [{"title": "Go?"}, {"title": "Go?", "why": "it costs"}]


async def test_what_was_asked_while_a_screen_began_degraded_is_shown_when_the_hot_view_is_back() -> None:
    """The question is on no timeline: that one was rebuilt after it was asked."""
    whole = {"id": "q1", "kind": "approval", "payload": {"title": "Go?"}}
    never = asyncio.Event()
    first = screen(cursor=None, degraded="store_unavailable")
    stream = [HEAD + state(0, degraded="store_unavailable") + state(7, "waiting") + event(7), never]
    async with playing(answer(first), stream, answer(screen(7, "running", interrupts=[whole]))) as script:
        views = Client(script.url, clock=StillClock()).follow(RUN)
        while not (view := await anext(views)).interrupts:
            pass
        await views.close()
        never.set()
    assert view.degraded is None
    assert [one["id"] for one in view.interrupts] == ["q1"]
    assert [event["id"] for event in view.events] == [f"e{n}" for n in range(1, 8)]


async def test_a_degraded_screen_beside_a_live_stream_is_asked_for_again_and_the_stream_not_called_so() -> None:
    whole = {"id": "q1", "kind": "approval", "payload": {"title": "Go?"}}
    first = screen(cursor=None, degraded="store_unavailable")
    steps = [asyncio.Event() for _ in range(2)]
    stream = [HEAD + state(7, "waiting"), steps[0], event(8), steps[1]]
    clock = StillClock()
    async with playing(answer(first), stream, answer(first), answer(screen(8, interrupts=[whole]))) as script:
        views = Client(script.url, clock=clock).follow(RUN)
        while len(script.asked) < 3:
            view = await anext(views)
        assert (view.connection, view.interrupts) == ("live", ())
        clock.advance(6)
        steps[0].set()
        while not (view := await anext(views)).interrupts:
            pass
        await views.close()
        steps[1].set()
    assert (view.connection, view.degraded) == ("live", None)
    assert len(script.asked) == 4


async def test_a_question_that_cannot_be_read_whole_is_asked_for_again_but_not_at_once() -> None:
    asked = {"interrupt_id": "q1", "kind": "approval", "key": "k", "title": "Go?", "deadline": None}
    away = refusal(503, "not_ready")
    steps = [asyncio.Event() for _ in range(3)]
    stream = [HEAD + event(1, "approval_required", asked), steps[0], event(2), steps[1], event(3), steps[2]]
    clock = StillClock()
    async with playing(stream, away, answer(screen(2, events=[]))) as script:
        views = Client(script.url, clock=clock).follow(RUN, bootstrap=False)
        while len(script.asked) < 2:
            await anext(views)
        steps[0].set()
        while len(views.view.events) < 2:
            await anext(views)
        assert len(script.asked) == 2
        clock.advance(6)
        steps[1].set()
        while len(script.asked) < 3:
            await anext(views)
        await views.close()
        steps[2].set()


async def test_how_it_ended_is_asked_for_a_few_times_and_no_more() -> None:
    """Then it says so: the last view is to have the result, and has none."""
    clock, connections = StillClock(), []
    async with playing(HEAD + event(1) + END, *[b""] * LAST_TRIES, OVER) as script:
        with pytest.raises(NoServer):
            async with Client(script.url, clock=clock).follow(RUN, bootstrap=False) as views:
                async for view in views:
                    connections.append(view.connection)
    assert len(script.asked) == 1 + LAST_TRIES
    assert connections[-1] == "ended"
    assert len(clock.waits) == LAST_TRIES - 1


async def test_a_gateway_without_its_server_is_no_refusal_however_long() -> None:
    away = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nhtml"
    async with playing(HEAD + event(1), *[away] * 20, HEAD + event(2) + END, ONE) as script:
        seen = await watch(script.url)
    assert seen.ids == ["e1", "e2"]
    assert seen.connections == ["live", "reconnecting", "live", "ended"]


async def test_it_waits_for_a_server_that_is_not_there() -> None:
    async with playing(HEAD + event(1) + END, ONE) as script:
        tries = iter([None, None, script.url])

        def url() -> str:
            found = next(tries, script.url)
            if found is None:
                raise NoServer("No server is running.")
            return found

        seen = await watch(url)  # type: ignore[arg-type]
    assert seen.ids == ["e1"]
    assert seen.trouble == ["No server is running."]
    assert len(seen.waits) == 2


async def test_an_address_that_is_none_is_no_reason_to_wait() -> None:
    with pytest.raises(InvalidRequest):
        await watch("nowhere")


async def test_headers_go_with_every_request_and_are_made_anew() -> None:
    tokens = iter(["one", "two", "three"])

    async def headers() -> dict[str, str]:
        return {"Authorization": f"Bearer {next(tokens)}"}

    async with playing(answer(screen(1)), HEAD + END, OVER) as script:
        views = Client(script.url, headers=headers, clock=StillClock()).follow(RUN)
        async for _ in views:
            pass
    told = [
        line.split()[-1] for head in script.heads for line in head.split("\r\n") if line.startswith("Authorization")
    ]
    assert told == ["one", "two", "three"]


async def test_refresh_and_older_work_beside_the_stream() -> None:
    never = asyncio.Event()
    first = screen(5, timeline={"complete": True, "has_older": True, "oldest": "e4"})
    first["events"] = first["events"][3:]
    page = {"events": screen(3)["events"], "timeline": {"complete": True, "has_older": False, "oldest": "e1"}}
    late = screen(4, "succeeded", snapshot={"status": "running", "version": 4, "rev": 1})
    async with playing(answer(first), [HEAD + event(6), never], answer(page), answer(late)) as script:
        client = Client(script.url, clock=StillClock())
        async with client.follow(RUN) as views:
            while len(views.view.events) < 3:
                await anext(views)
            assert [one["id"] for one in (await views.older(20)).events] == [f"e{n}" for n in range(1, 7)]
            assert "before=e4" in script.asked[2]
            assert (await views.older()).timeline.has_older is False
            view = await views.refresh()
        never.set()
    assert (view.status, view.snapshot) == ("succeeded", {"status": "running", "version": 5, "rev": 1})
    assert [one["id"] for one in view.events] == [f"e{n}" for n in range(1, 7)]
    assert view.cursor == "1-6.aa"


async def test_leaving_closes_the_connection() -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + event(1))
        assert await reader.read() == b""
        left.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with client.follow(RUN, bootstrap=False) as views:
        async for view in views:
            if view.events:
                break
    await asyncio.wait_for(left.wait(), 10)
    server.close()


async def test_it_can_be_cancelled_while_it_waits() -> None:
    never, clock = asyncio.Event(), StillClock()
    async with playing([HEAD + event(1), never]) as script:
        views = Client(script.url, clock=clock).follow(RUN, bootstrap=False)
        while not views.view.events:
            await anext(views)
        before = len(clock.limits)
        waiting = asyncio.ensure_future(anext(views))
        await clock.limited(before)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(StopAsyncIteration):
            await anext(views)
        never.set()


async def test_a_stream_that_goes_away_says_so_once() -> None:
    farewell = HEAD + b"retry: 1500\n\n" + named("draining", {"retry_ms": 1500})
    async with playing(farewell, farewell, HEAD + END, OVER) as script:
        async with Client(script.url, clock=StillClock()).follow(RUN, bootstrap=False) as views:
            kinds = {type(views.trouble) async for _ in views}
    assert kinds == {type(None), NotReady}
