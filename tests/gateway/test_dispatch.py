"""The stream route: straight to the server's own `send`, after the same checks as everywhere, and checked again."""

import time
from dataclasses import replace

import pytest

from playhead.errors import NotFound, NotReady, StoreUnavailable, TooManyStreams, Unauthenticated
from playhead.gateway import Options, Principal, routes
from playhead.gateway.stream import StreamOptions
from tests.gateway.stub import StubEngine, ask, by_header, make, scope_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def served(monkeypatch):
    calls = []

    async def serve_stream(scope, receive, send, **more):
        calls.append({"scope": scope, "receive": receive, "send": send, **more})
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b":\n\n"})
        return 200

    monkeypatch.setattr(routes, "serve_stream", serve_stream)
    return calls


async def test_the_servers_own_send_reaches_the_stream(served):
    engine, app = make()
    run = engine.add()
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = scope_of("GET", f"/sub/runs/{run.id}/stream?cursor=x", root_path="/sub")
    await app(scope, receive, send)
    assert served[0]["scope"] is scope
    assert served[0]["send"] is send
    assert served[0]["receive"] is receive
    assert served[0]["run"] == run
    assert served[0]["hub"] is engine.hub
    assert served[0]["screens"] is engine.screens
    assert len(sent) == 2


async def test_not_ready_is_said_by_the_stream_itself(served):
    engine, app = make()
    engine.ready = False
    await ask(app, "GET", f"/runs/{engine.add().id}/stream")
    assert served[0]["ready"] is False


@pytest.mark.parametrize("path", ["/runs/{id}/stream", "/stream?run={id}"])
async def test_a_record_that_does_not_answer_is_no_end_for_a_native_client(path):
    """An EventSource that is answered with any other status than 200 never comes back."""
    engine, app = make()
    address = path.format(id=engine.add().id)
    engine.raises = StoreUnavailable()
    native = await ask(app, "GET", address)
    assert (native.status, native.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert native.body == b'retry: 30000\n\nevent: draining\ndata: {"retry_ms":30000}\n\n'
    ours = await ask(app, "GET", address, headers=[("accept", "text/event-stream; client=playhead")])
    assert (ours.status, ours.code) == (503, "store_unavailable")
    assert int(ours.headers["retry-after"]) > 0


async def test_grants_are_looked_at_again_with_the_same_request(served):
    engine = StubEngine()
    allowed = True
    _, app = make(engine, authorize=lambda principal, action, row: allowed)
    run = engine.add()
    await ask(app, "GET", f"/runs/{run.id}/stream")
    recheck = served[0]["recheck"]
    assert await recheck() is True
    allowed = False
    assert await recheck() is False
    allowed = True
    engine.raises = StoreUnavailable()
    with pytest.raises(StoreUnavailable):
        await recheck()
    engine.raises = ZeroDivisionError()
    assert await recheck() is False
    engine.raises = None
    del engine.rows[run.id]
    assert await recheck() is False


async def test_grants_are_looked_at_again_when_the_token_ends(served):
    expires = time.time() + 30
    valid = True

    def authenticate(request):
        if not valid:
            raise Unauthenticated
        return Principal("a", "a", expires)

    engine, app = make(authenticate=authenticate)
    run = engine.add()
    await ask(app, "GET", f"/runs/{run.id}/stream")
    assert 25 < served[0]["options"].recheck <= 30
    valid = False
    assert await served[0]["recheck"]() is False


async def test_the_sooner_of_both_checks_counts(served):
    options = Options(page=False, stream=StreamOptions(recheck=5))
    engine, app = make(
        options=options, authenticate=lambda request: replace(by_header(request), expires_at=time.time() + 99)
    )
    await ask(app, "GET", f"/runs/{engine.add().id}/stream")
    assert served[0]["options"].recheck == 5


@pytest.mark.parametrize(("error", "status"), [(TooManyStreams, 429), (NotReady, 503), (NotFound, 404)])
async def test_a_refusal_before_the_first_byte_is_a_problem(monkeypatch, error, status):
    async def refuse(*args, **more):
        raise error

    monkeypatch.setattr(routes, "serve_stream", refuse)
    engine, app = make()
    answer = await ask(app, "GET", f"/runs/{engine.add().id}/stream")
    assert (answer.status, answer.code) == (status, error.code)
    assert ("retry-after" in answer.headers) is error.retryable


async def test_a_fault_in_the_middle_is_logged_without_its_words(monkeypatch, caplog):
    async def fail(scope, receive, send, **more):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("CANARY")

    monkeypatch.setattr(routes, "serve_stream", fail)
    engine, app = make()
    await ask(app, "GET", f"/runs/{engine.add().id}/stream")
    assert "ValueError" in caplog.text
    assert "CANARY" not in caplog.text


async def test_streams_are_counted_while_they_are_open(monkeypatch):
    seen = []

    async def look(scope, receive, send, **more):
        seen.append((await ask(app, "GET", "/metrics")).body)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        return 200

    monkeypatch.setattr(routes, "serve_stream", look)
    engine, app = make()
    await ask(app, "GET", f"/runs/{engine.add().id}/stream")
    assert b"playhead_streams_open 1.0" in seen[0]
    after = (await ask(app, "GET", "/metrics")).body
    assert b"playhead_streams_open 0.0" in after
    assert b'playhead_http_requests_total{method="GET",route="/runs/{run_id}/stream",status="200"} 1.0' in after


# Several runs on one connection.


@pytest.fixture
def several(monkeypatch):
    calls = []

    async def serve_feeds(receive, send, **more):
        calls.append({"send": send, **more})
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b":\n\n"})
        return 200

    monkeypatch.setattr(routes, "serve_feeds", serve_feeds)
    return calls


def may_not_stream(run_id):
    """An authorizer under which this run may be read and not followed."""
    return lambda principal, action, row: not (action == "run.stream" and row.id == run_id)


async def test_each_run_of_a_stream_is_looked_at_for_itself(several):
    engine = StubEngine()
    mine, hidden, anothers = engine.add(), engine.add(), engine.add(tenant="b")
    _, app = make(engine, authorize=may_not_stream(hidden.id))
    never = engine.new_id()
    path = f"/stream?run={never}&run={mine.id}@1-1.0123456789ab&run={hidden.id}&run={anothers.id}&run=%00&run="
    assert (await ask(app, "GET", path)).status == 200
    assert several[0]["runs"] == [mine]
    refusals = {
        never: "not_found",
        hidden.id: "forbidden",
        anothers.id: "not_found",
        "\0": "not_found",
        "": "not_found",
    }
    assert several[0]["refusals"] == refusals
    assert several[0]["asked"].runs[mine.id].cursor == "1-1.0123456789ab"
    assert several[0]["hub"] is engine.hub
    asked = {call[2] for call in engine.calls if call[0] == "run"}
    assert asked == {never, mine.id, hidden.id, anothers.id}  # what is no id reaches no store


async def test_a_stream_of_which_nothing_may_be_followed_is_the_first_one_s_problem(several):
    engine = StubEngine()
    hidden, anothers = engine.add(), engine.add(tenant="b")
    _, app = make(engine, authorize=may_not_stream(hidden.id))
    never = await ask(app, "GET", f"/stream?run={engine.new_id()}")
    for path, status in (
        (f"/stream?run={anothers.id}&run={hidden.id}", 404),
        (f"/stream?run={hidden.id}&run={anothers.id}", 403),
        ("/stream?run=nonsense", 404),
    ):
        answer = await ask(app, "GET", path)
        assert answer.status == status
        assert (answer.body == never.body) is (status == 404)
    assert several == []


async def test_without_the_record_no_stream_begins(several):
    engine, app = make()
    run = engine.add()
    engine.raises = StoreUnavailable()
    ours = [("accept", "text/event-stream; client=playhead")]
    answer = await ask(app, "GET", f"/stream?run={run.id}&run=nonsense", headers=ours)
    assert (answer.status, answer.code) == (503, "store_unavailable")
    assert several == []


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/stream", ["run"]),
        ("/stream?cursor=x", ["run"]),
        ("/stream?run=x&thread=y", ["thread"]),
        ("/stream?topic=y", ["topic"]),
        ("/stream?" + "&".join(f"run={n}" for n in range(33)), ["run"]),
    ],
)
async def test_a_stream_that_is_not_asked_for_rightly_names_what_is_wrong(several, path, fields):
    engine, app = make()
    answer = await ask(app, "GET", path)
    assert (answer.status, answer.code, answer.json["details"]["fields"]) == (400, "invalid_request", fields)
    assert engine.calls == []


async def test_the_query_of_a_stream_has_a_bound_of_its_own(several):
    engine, app = make()
    run = engine.add()
    assert (await ask(app, "GET", f"/stream?run={run.id}&cursor={'x' * 7_900}")).status == 200
    assert (await ask(app, "GET", f"/stream?run={run.id}&cursor={'x' * 8_000}")).code == "invalid_request"


async def test_grants_of_each_run_are_looked_at_again(several):
    engine = StubEngine()
    mine, other = engine.add(), engine.add()
    hidden = []
    known = True

    def authenticate(request):
        if not known:
            raise Unauthenticated
        return by_header(request)

    def authorize(principal, action, row):
        return not (action == "run.stream" and row.id in hidden)

    _, app = make(engine, authenticate=authenticate, authorize=authorize)
    await ask(app, "GET", f"/stream?run={mine.id}&run={other.id}")
    recheck = several[0]["recheck"]
    assert (await recheck(mine), await recheck(other)) == (None, None)
    hidden.append(mine.id)
    assert (await recheck(mine), await recheck(other)) == ("forbidden", None)
    del engine.rows[other.id]
    assert await recheck(other) == "not_found"
    engine.raises = ZeroDivisionError()
    assert await recheck(mine) == "internal_error"
    engine.raises = StoreUnavailable()
    with pytest.raises(StoreUnavailable):
        await recheck(mine)
    known = False
    assert await recheck(mine) == "unauthenticated"


async def test_a_stream_of_several_takes_get_alone_and_is_counted_by_its_route(several):
    engine, app = make()
    run = engine.add()
    for method in ("POST", "HEAD", "DELETE"):
        answer = await ask(app, method, f"/stream?run={run.id}")
        assert (answer.status, answer.headers["allow"]) == (405, "GET, OPTIONS")
    assert (await ask(app, "OPTIONS", "/stream")).status == 204
    assert (await ask(app, "GET", f"/stream/?run={run.id}")).status == 404
    assert several == []
    await ask(app, "GET", f"/sub/stream?run={run.id}", scope={"root_path": "/sub"})
    assert len(several) == 1
    counted = (await ask(app, "GET", "/metrics")).body
    assert b'playhead_http_requests_total{method="GET",route="/stream",status="200"} 1.0' in counted
    assert b"playhead_streams_open 0.0" in counted


@pytest.mark.parametrize(("error", "status"), [(TooManyStreams, 429), (NotReady, 503)])
async def test_a_refusal_of_several_is_a_problem_too(monkeypatch, error, status):
    async def refuse(*args, **more):
        raise error

    monkeypatch.setattr(routes, "serve_feeds", refuse)
    engine, app = make()
    answer = await ask(app, "GET", f"/stream?run={engine.add().id}")
    assert (answer.status, answer.code) == (status, error.code)
    assert "retry-after" in answer.headers
