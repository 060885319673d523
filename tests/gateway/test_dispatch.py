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
