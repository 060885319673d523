"""The gateway over the real engine and each store: strangers find nothing, bad input names its field, answers fit the
schemas."""

import asyncio
from typing import Any

import pytest

import playhead
from playhead.gateway.routes import GUARDED, STREAM
from playhead.settings import Settings
from tests.gateway.stub import ask, by_header
from tests.gateway.test_spec import check
from tests.support.behind import flush
from tests.support.stage import BACKENDS, QUICK, MemoryApp, where

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", BACKENDS)]

NEVER = "01890abc-0000-7000-8000-00000000000f"
ANN, BOB = {"x-user": "ann"}, {"x-user": "bob"}


@playhead.agent
async def asks(run: playhead.RunContext, times: int = 1, words: str = "") -> dict[str, Any]:
    """Publish some events, say a word, and ask."""
    for number in range(times):
        await run.event("counted", {"number": number}, done=number + 1)
    await run.text("Hello", "answer")
    decision = await run.ask({"title": "Go on?"})
    return {"approved": decision.approved, "words": words}


@pytest.fixture
async def app(backend, tmp_path):
    kind = MemoryApp if backend == "memory" else playhead.App
    made = Settings.load(data=tmp_path, environ={}, **QUICK, **where(backend, tmp_path))
    async with kind([asks], settings=made, authenticate=by_header) as running:
        yield running


async def waiting(app, given=None, headers=ANN):
    made = await ask(app, "POST", "/runs", {"agent": "asks", "input": given}, headers=headers)
    assert made.status == 201, made
    run_id = made.json["id"]
    async with asyncio.timeout(20):
        while not (found := (await ask(app, "GET", f"/interrupts?run={run_id}", headers=headers)).json["interrupts"]):
            await asyncio.sleep(0.02)
    return run_id, found[0]["id"]


async def ended(app, run_id, headers=ANN):
    async with asyncio.timeout(20):
        while (run := (await ask(app, "GET", f"/runs/{run_id}", headers=headers)).json)["ended_at"] is None:
            await asyncio.sleep(0.02)
    return run


@pytest.mark.row("BR-80")
async def test_anothers_run_looks_like_none_on_every_route(app):
    run_id, question = await waiting(app)
    routes = [(m, p) for p, ms in {**GUARDED, STREAM: {"GET": None}}.items() for m in ms if "{run_id}" in p]
    assert len(routes) == 7

    def path(route, run, interrupt):
        return route.replace("{run_id}", run).replace("{interrupt_id}", interrupt)

    async def compare():
        for method, route in routes:
            body = {"approved": True} if route.endswith("decision") else None
            theirs = await ask(app, method, path(route, run_id, question), body, headers=BOB)
            never = await ask(app, method, path(route, NEVER, NEVER), body, headers=BOB)
            assert (theirs.status, theirs.body) == (never.status, never.body), (method, route)
            assert theirs.status == 404
        for listing in ("/runs", "/interrupts"):
            assert b"asks" not in (await ask(app, "GET", listing, headers=BOB)).body
        for query in ("/interrupts?run={}", "/runs?after={}", "/stream?run={}", "/stream?run={}&run=x"):
            theirs = await ask(app, "GET", query.format(run_id), headers=BOB)
            assert theirs.body == (await ask(app, "GET", query.format(NEVER), headers=BOB)).body

    before = (await ask(app, "GET", f"/runs/{run_id}", headers=ANN)).json
    await compare()
    await flush(app)  # the hot view is gone, the record decides all the same
    await compare()
    after = (await ask(app, "GET", f"/runs/{run_id}", headers=ANN)).json
    assert (after["status"], after["rev"]) == (before["status"], before["rev"]) == ("waiting", before["rev"])
    await ask(app, "POST", f"/runs/{run_id}/interrupts/{question}/decision", {"approved": True}, headers=ANN)
    await ended(app, run_id)
    await compare()


@pytest.mark.row("R1")
async def test_a_lost_hot_view_is_no_404_and_shows_nobody_more(app):
    run_id, question = await waiting(app)
    await flush(app)
    for path in ("", "/bootstrap", "/events"):
        assert (await ask(app, "GET", f"/runs/{run_id}{path}", headers=ANN)).status == 200
        assert (await ask(app, "GET", f"/runs/{run_id}{path}", headers=BOB)).status == 404
    screen = (await ask(app, "GET", f"/runs/{run_id}/bootstrap", headers=ANN)).json
    assert (screen["run"]["status"], screen["snapshot"]["status"]) == ("waiting", "waiting")
    assert [one["id"] for one in screen["interrupts"]] == [question]


@pytest.mark.row("H-bad-input")
async def test_bad_input_to_any_call_names_what_is_wrong(app):
    run_id, question = await waiting(app)
    decision = f"/runs/{run_id}/interrupts/{question}/decision"
    start = {"agent": "asks", "input": {}}
    cases: list[tuple[str, str, Any, int, list[str]]] = [
        ("POST", "/runs", {"agent": "asks"}, 400, ["input"]),
        ("POST", "/runs", {**start, "agent": 1}, 400, ["agent"]),
        ("POST", "/runs", {**start, "agent": "A b"}, 400, ["agent"]),
        ("POST", "/runs", {**start, "extra": 1}, 400, ["extra"]),
        ("POST", "/runs", {**start, "labels": {"a b": "x"}}, 400, ["labels"]),
        ("POST", "/runs", {**start, "labels": {f"l{n}": "x" for n in range(17)}}, 400, ["labels"]),
        ("POST", "/runs", {**start, "key": "\n"}, 400, ["key"]),
        ("GET", "/runs?status=gone", None, 400, ["status"]),
        ("GET", "/runs?label=x", None, 400, ["label"]),
        ("GET", "/runs?after=%00", None, 400, ["after"]),
        ("GET", "/interrupts?x=1", None, 400, ["x"]),
        ("GET", "/agents?x=1", None, 400, ["x"]),
        ("GET", f"/runs/{run_id}?x=1", None, 400, ["x"]),
        ("GET", f"/runs/{run_id}/bootstrap?limit=-1", None, 400, ["limit"]),
        ("GET", f"/runs/{run_id}/events?before=%00", None, 400, ["before"]),
        ("DELETE", f"/runs/{run_id}?force=1", None, 400, ["force"]),
        ("POST", f"/runs/{run_id}/cancel", {"reason": []}, 400, ["reason"]),
        ("POST", decision, {}, 400, ["approved"]),
        ("POST", decision, {"approved": "yes"}, 400, ["approved"]),
        ("POST", decision, {"approved": True, "note": 1}, 400, ["note"]),
    ]
    for method, path, body, status, fields in cases:
        answer = await ask(app, method, path, body, headers=ANN)
        assert (answer.status, answer.json["details"]["fields"]) == (status, fields), (method, path, body)
    for given, field in (({"times": "CANARY"}, "times"), ({"wrods": "CANARY"}, "wrods"), ("CANARY", "")):
        answer = await ask(app, "POST", "/runs", {**start, "input": given}, headers=ANN)
        assert (answer.status, answer.code) == (422, "invalid_input")
        assert [one["field"] for one in answer.json["details"]["problems"]] == [field]
        assert b"CANARY" not in answer.body
    unknown = await ask(app, "POST", "/runs", {**start, "agent": "nobody"}, headers=ANN)
    assert (unknown.status, unknown.code) == (422, "unknown_agent")
    for raw in (b"", b"{", b"\xff", b"[" * 100_000, b'{"agent":1e999}', b'{"a":1,"a":1}'):
        for path in ("/runs", decision):
            assert (await ask(app, "POST", path, body=raw, headers=ANN)).code == "bad_json"
    assert len((await ask(app, "GET", "/runs", headers=ANN)).json["runs"]) == 1


async def test_odd_text_in_an_input_is_no_server_error(app):
    for words in ("\x00", "\ud800", "\u2028", "\ufeff", "😀" * 1000):
        run_id, _ = await waiting(app, {"words": words})
        told = (await ask(app, "GET", f"/runs/{run_id}", headers=ANN)).json["input"]["words"]
        assert told == words.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


async def test_answers_are_as_the_schemas_say(app):
    run_id, question = await waiting(app, {"times": 5})
    screen = (await ask(app, "GET", f"/runs/{run_id}/bootstrap", headers=ANN)).json
    check("bootstrap", screen)
    assert [one["id"] for one in screen["interrupts"]] == [question]
    assert screen["text"][0]["text"] == "Hello"
    page = (
        await ask(app, "GET", f"/runs/{run_id}/events?before={screen['events'][3]['id']}&limit=2", headers=ANN)
    ).json
    assert [one["id"] for one in page["events"]] == [one["id"] for one in screen["events"][1:3]]
    path = f"/runs/{run_id}/interrupts/{question}/decision"
    decided = await ask(app, "POST", path, {"approved": True}, headers=ANN)
    check("interrupt", decided.json)
    assert (await ask(app, "POST", path, {"approved": True}, headers=ANN)).body == decided.body
    other = await ask(app, "POST", path, {"approved": False}, headers=ANN)
    assert (other.code, other.json["details"]["decision"]["approved"]) == ("already_decided", True)
    check("problem", other.json)
    run = await ended(app, run_id)
    check("run", run)
    assert run["result"] == {"approved": True, "words": ""}
    screen = (await ask(app, "GET", f"/runs/{run_id}/bootstrap?limit=200", headers=ANN)).json
    check("bootstrap", screen)
    for event in screen["events"]:
        if event["type"] != "counted":
            check(f"events/{event['type']}", event)
    for agent_ in (await ask(app, "GET", "/agents", headers=ANN)).json["agents"]:
        check("agent", agent_)
    await flush(app)
    screen = (await ask(app, "GET", f"/runs/{run_id}/bootstrap", headers=ANN)).json
    check("bootstrap", screen)
    assert screen["snapshot"]["status"] == "succeeded"
    assert (await ask(app, "DELETE", f"/runs/{run_id}", headers=ANN)).status == 204
    assert (await ask(app, "GET", f"/runs/{run_id}/bootstrap", headers=ANN)).status == 404


async def test_many_requests_with_one_key_are_one_run(app):
    headers = [*ANN.items(), ("idempotency-key", "k")]
    body = {"agent": "asks", "input": {}}
    answers = await asyncio.gather(*(ask(app, "POST", "/runs", body, headers=headers) for _ in range(30)))
    assert sorted(answer.status for answer in answers) == [200] * 29 + [201]
    assert len({answer.json["id"] for answer in answers}) == 1
    other = await ask(app, "POST", "/runs", {**body, "input": {"nonsense": 1}}, headers=headers)
    assert (other.status, other.code) == (409, "key_conflict")
    elsewhere = await ask(app, "POST", "/runs", body, headers=[*BOB.items(), ("idempotency-key", "k")])
    assert elsewhere.status == 201
