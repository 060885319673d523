"""What each route takes, what it answers, and what it refuses and how."""

import asyncio
import json
from dataclasses import replace

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from playhead.core.run import Status
from playhead.errors import StoreUnavailable
from playhead.gateway import Options, reads
from playhead.gateway.metrics import MEDIA_TYPE
from tests.gateway.stub import StubEngine, ask, make, scope_of

pytestmark = pytest.mark.anyio

START = {"agent": "echo", "input": {"text": "hi"}}


async def test_a_run_is_started_and_read():
    engine, app = make()
    made = await ask(app, "POST", "/runs", {**START, "labels": {"team": "x"}, "key": "order-7"})
    assert made.status == 201
    assert made.body.startswith(b'{"id":"')
    run = made.json
    assert made.headers["location"] == f"/runs/{run['id']}"
    assert (run["status"], run["labels"], run["key"]) == ("queued", {"team": "x"}, "order-7")
    read = await ask(app, "GET", f"/runs/{run['id']}")
    assert (read.status, read.json) == (200, run)
    assert read.headers["cache-control"] == "no-store"
    assert read.headers["x-content-type-options"] == "nosniff"
    assert engine.calls[0][:3] == ("create", "echo", {"text": "hi"})


async def test_the_same_key_is_the_same_run_and_another_body_a_conflict():
    _, app = make()
    header = {"idempotency-key": "k1"}
    first = await ask(app, "POST", "/runs", START, headers=header)
    again = await ask(app, "POST", "/runs", START, headers=header)
    assert (first.status, again.status) == (201, 200)
    assert again.json["id"] == first.json["id"]
    other = await ask(app, "POST", "/runs", {**START, "agent": "nobody"}, headers=header)
    assert (other.status, other.code) == (409, "key_conflict")
    elsewhere = await ask(app, "POST", "/runs", START, headers={**header, "x-user": "b"})
    assert elsewhere.status == 201
    assert elsewhere.json["id"] != first.json["id"]


async def test_a_grant_that_was_taken_back_is_not_got_around_by_a_key():
    engine = StubEngine()
    header = {"idempotency-key": "k1"}
    await ask(make(engine)[1], "POST", "/runs", START, headers=header)
    _, app = make(engine, authorize=lambda principal, action, run: run is None)
    assert (await ask(app, "POST", "/runs", START, headers=header)).code == "forbidden"


@pytest.mark.parametrize("value", ["", "a b", "é", "x" * 256])
async def test_an_idempotency_key_has_a_form(value):
    engine, app = make()
    answer = await ask(app, "POST", "/runs", START, headers=[("idempotency-key", value)])
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert answer.json["details"]["fields"] == ["Idempotency-Key"]
    assert engine.calls == []


async def test_two_idempotency_keys_are_none():
    _, app = make()
    answer = await ask(app, "POST", "/runs", START, headers=[("idempotency-key", "a"), ("idempotency-key", "b")])
    assert answer.code == "invalid_request"


BODIES = {
    b"": "bad_json",
    b"{": "bad_json",
    b"[]": "invalid_request",
    b'"x"': "invalid_request",
    b'{"agent":"echo","input":NaN}': "bad_json",
    b'{"agent":"echo","input":1e999}': "bad_json",
    b'{"agent":"echo","agent":"echo","input":1}': "bad_json",
    b'{"agent":"echo","input":"\xff"}': "bad_json",
    b'\xef\xbb\xbf{"agent":"echo","input":1}': "bad_json",
    b'{"agent":"echo","input":' + b"[" * 10_000 + b"]" * 10_000 + b"}": "bad_json",
    b'{"agent":"echo","input":' + b"9" * 5_000 + b"}": "bad_json",
    b'{"input":1}': "invalid_request",
    b'{"agent":"echo"}': "invalid_request",
    b'{"agent":"Echo","input":1}': "invalid_request",
    b'{"agent":"a/../b","input":1}': "invalid_request",
    b'{"agent":["echo"],"input":1}': "invalid_request",
    b'{"agent":"echo","input":1,"tenant":"b"}': "invalid_request",
    b'{"agent":"echo","input":1,"labels":[]}': "invalid_request",
    b'{"agent":"echo","input":1,"labels":{"a":1}}': "invalid_request",
    b'{"agent":"echo","input":1,"labels":{"a b":"x"}}': "invalid_request",
    b'{"agent":"echo","input":1,"labels":{"a":"x\\u0000"}}': "invalid_request",
    b'{"agent":"echo","input":1,"labels":{"a":"' + b"x" * 257 + b'"}}': "invalid_request",
    b'{"agent":"echo","input":1,"key":"a b"}': "invalid_request",
    b'{"agent":"echo","input":1,"key":7}': "invalid_request",
}


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:40].decode(errors="replace"))
async def test_a_body_that_is_not_of_the_form_is_refused_before_any_store(body):
    engine, app = make()
    answer = await ask(app, "POST", "/runs", body=body)
    assert (answer.status, answer.code) == (400, BODIES[body])
    assert engine.calls == []


async def test_unknown_fields_are_named():
    _, app = make()
    answer = await ask(app, "POST", "/runs", {**START, "lables": {}, "zz": 1})
    assert answer.json["details"]["fields"] == ["lables", "zz"]
    assert "lables, zz" in answer.json["detail"]


async def test_no_error_repeats_the_input(caplog):
    _, app = make()
    for body in (b'{"agent":"echo","input":"CANARY"', b'{"agent":"none","input":"CANARY"}', b'{"agent":"echo","CANARY'):
        answer = await ask(app, "POST", "/runs", body=body, headers={"authorization": "Bearer CANARY"})
        assert answer.status >= 400
        assert b"CANARY" not in answer.body
    refused = await ask(app, "POST", "/runs", {"agent": "echo", "input": "refuse"})
    assert (refused.status, refused.code) == (422, "invalid_input")
    assert refused.json["details"] == {"problems": [{"field": "text", "message": "is wrong"}]}
    assert "CANARY" not in caplog.text


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=utf-16"},
        {"content-type": ""},
        {"content-type": "application/json", "content-encoding": "gzip"},
        [("content-type", "application/json"), ("content-type", "text/plain")],
    ],
)
async def test_only_json_is_read(headers):
    _, app = make()
    answer = await ask(app, "POST", "/runs", START, headers=headers)
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


async def test_a_body_over_its_bound_is_refused_as_soon_as_that_is_known():
    engine, app = make(options=Options(page=False, max_body=1_000))
    told = await ask(app, "POST", "/runs", body=b"x", headers={"content-length": "9" * 400})
    assert (told.status, told.code) == (413, "payload_too_large")
    sent = await ask(app, "POST", "/runs", chunks=[b'"' + b"x" * 600, b"x" * 600, b'"'])
    assert (sent.status, sent.code) == (413, "payload_too_large")
    fits = json.dumps({"agent": "echo", "input": ""})
    body = fits.replace('""', '"' + "x" * (1_000 - len(fits)) + '"').encode()
    assert len(body) == 1_000
    assert (await ask(app, "POST", "/runs", body=body)).status == 201
    assert len(engine.calls) == 1


async def test_a_body_that_never_comes_is_not_waited_for():
    _, app = make(options=Options(page=False, body_timeout=0.05))
    sent = []

    async def receive():
        await asyncio.sleep(60)

    async def send(message):
        sent.append(message)

    await app(scope_of("POST", "/runs", {"content-type": "application/json"}), receive, send)
    assert sent[0]["status"] == 408
    assert json.loads(sent[1]["body"])["retryable"] is True


async def test_agents_are_listed_by_name():
    _, app = make()
    agents = (await ask(app, "GET", "/agents")).json["agents"]
    assert [agent["name"] for agent in agents] == ["echo", "other"]
    assert set(agents[0]) == {"name", "title", "description", "input_schema", "resumable"}


async def test_runs_are_listed_in_pages():
    engine, app = make()
    made = [engine.add().id for _ in range(7)][::-1]
    engine.add("b")
    seen, after = [], ""
    while after is not None:
        page = (await ask(app, "GET", f"/runs?limit=3&after={after}")).json
        seen.append([run["id"] for run in page["runs"]])
        after = page["next"]
    assert seen == [made[:3], made[3:6], made[6:]]
    exact = (await ask(app, "GET", "/runs?limit=7")).json
    assert (len(exact["runs"]), exact["next"]) == (7, None)


async def test_filters_reach_the_record():
    engine, app = make()
    engine.add(labels={"team": "x", "time": "1:2"}, key="k")
    path = "/runs?status=queued&status=running&status=queued&agent=echo&label=team:x&label=time:1:2&key=k"
    answer = await ask(app, "GET", path)
    assert len(answer.json["runs"]) == 1
    wanted = engine.calls[-1][2]
    assert wanted["status"] == (Status.QUEUED, Status.RUNNING)
    assert wanted["labels"] == {"team": "x", "time": "1:2"}
    assert (wanted["agent"], wanted["key"], wanted["limit"]) == ("echo", "k", 51)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=done", "status"),
        ("agent=Echo", "agent"),
        ("label=x", "label"),
        ("label=x:1&label=x:2", "label"),
        ("label=a%20b:1", "labels"),
        ("label=a:%00", "labels"),
        ("key=a%20b", "key"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=-1", "limit"),
        ("limit=1.0", "limit"),
        ("limit=%D9%A1", "limit"),
        ("limit=1&limit=2", "limit"),
        ("limit=" + "9" * 999, "limit"),
        ("after=x", "after"),
        ("after=01890000-0000-7000-8000-000000000000", "after"),
        ("offset=3", "offset"),
        ("stauts=queued", "stauts"),
    ],
)
async def test_a_query_that_is_not_of_the_form_names_the_parameter(query, field):
    _, app = make()
    answer = await ask(app, "GET", f"/runs?{query}")
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert answer.json["details"]["fields"] == [field]


async def test_a_query_has_a_bound():
    _, app = make()
    assert (await ask(app, "GET", "/runs?key=" + "x" * 5_000)).code == "invalid_request"


async def test_a_page_of_large_runs_ends_early(monkeypatch):
    monkeypatch.setattr(reads, "MAX_PAGE_BYTES", 1_000)
    engine, app = make()
    made = [engine.add().id for _ in range(5)][::-1]
    seen, after = [], ""
    while after is not None:
        page = (await ask(app, "GET", f"/runs?after={after}")).json
        assert 1 <= len(page["runs"]) < 5
        seen += [run["id"] for run in page["runs"]]
        after = page["next"]
    assert seen == made


async def test_no_more_large_runs_are_read_than_a_page_shows(monkeypatch):
    monkeypatch.setattr(reads, "MAX_PAGE_BYTES", 1_000)
    engine = StubEngine()
    made = [engine.add() for _ in range(6)][::-1]
    for one in made[:4]:
        engine.rows[one.id] = replace(engine.rows[one.id], result=b'"%b"' % (b"x" * 1_000))
    read, runs = [], engine.runs

    async def weighed(tenant, **wanted):
        found = await runs(tenant, **wanted)
        read.append(sum(run.weight for run in found))
        return found

    monkeypatch.setattr(engine, "runs", weighed)
    _, app = make(engine, authorize=lambda principal, action, row: row is None or row.id != made[1].id)
    after: str | None = ""
    pages = []
    while after is not None:
        page = (await ask(app, "GET", f"/runs?after={after}")).json
        after = page["next"]
        pages.append([run["id"] for run in page["runs"]])
    # The second one may not be read, and is no end of a page.
    assert pages == [[made[0].id], [made[2].id], [made[3].id], [made[4].id, made[5].id]]
    assert max(read) < 2 * 1_000


async def test_bootstrap_and_older_events():
    engine, app = make()
    run = engine.add()
    assert (await ask(app, "GET", f"/runs/{run.id}/bootstrap")).json == {"limit": 50}
    assert (await ask(app, "GET", f"/runs/{run.id}/bootstrap?limit=0")).json == {"limit": 0}
    assert (await ask(app, "GET", f"/runs/{run.id}/bootstrap?limit=201")).code == "invalid_request"
    assert (await ask(app, "GET", f"/runs/{run.id}/events")).json == {"before": None, "limit": 50}
    for event in (f"run:{run.id}:3", f"{run.id}:1:7", f"{run.id}:step-1:done"):
        answer = await ask(app, "GET", f"/runs/{run.id}/events?before={event}&limit=10")
        assert answer.json == {"before": event, "limit": 10}


@pytest.mark.parametrize(
    "before", ["x", "{other}:1:1", "run:{other}:1", "{run}", "{run}:", "run:{run}:", "{run}:%0a", "{run}:%2b"]
)
async def test_the_place_in_older_events_is_an_event_of_the_run(before):
    engine, app = make()
    run, other = engine.add(), engine.add()
    path = f"/runs/{run.id}/events?before={before.format(run=run.id, other=other.id)}"
    assert (await ask(app, "GET", path)).json["details"]["fields"] == ["before"]


async def test_cancel_is_accepted_with_and_without_a_body():
    engine, app = make()
    run = engine.begin(engine.add())
    first = await ask(app, "POST", f"/runs/{run.id}/cancel", {"reason": "enough"})
    assert first.status == 202
    assert first.json["cancel_requested"]["reason"] == "enough"
    assert first.json["cancel_requested"]["by"] == "a"
    again = await ask(app, "POST", f"/runs/{run.id}/cancel")
    assert (again.status, again.json) == (202, first.json)
    bodies: list[object] = [{"reason": 1}, {"reason": "x" * 501}, {"why": "x"}, []]
    for wrong in bodies:
        assert (await ask(app, "POST", f"/runs/{run.id}/cancel", wrong)).code == "invalid_request"


async def test_the_first_decision_counts():
    engine, app = make()
    run = engine.begin(engine.add())
    question = engine.ask(run)
    path = f"/runs/{run.id}/interrupts/{question.id}/decision"
    waiting = (await ask(app, "GET", "/interrupts")).json["interrupts"]
    assert [one["id"] for one in waiting] == [question.id]
    assert (await ask(app, "GET", f"/interrupts?run={run.id}")).json["interrupts"] == waiting
    first = await ask(app, "POST", path, {"approved": True, "note": "ok", "value": {"a": [1]}})
    assert (first.status, first.json["status"], first.json["decided_by"]) == (200, "decided", "a")
    assert first.json["decision"] == {"approved": True, "note": "ok", "value": {"a": [1]}}
    again = await ask(app, "POST", path, {"approved": True, "note": "ok", "value": {"a": [1]}})
    assert (again.status, again.body) == (200, first.body)
    other = await ask(app, "POST", path, {"approved": False})
    assert (other.status, other.code) == (409, "already_decided")
    assert other.json["details"]["decision"]["approved"] is True
    assert (await ask(app, "GET", "/interrupts")).json == {"interrupts": []}


async def test_a_decision_after_deadline_or_cancel_is_refused():
    engine, app = make()
    run = engine.begin(engine.add())
    late = engine.ask(run, within=0)
    path = f"/runs/{run.id}/interrupts/{late.id}/decision"
    assert (await ask(app, "POST", path, {"approved": True})).code == "approval_expired"
    await ask(app, "POST", f"/runs/{run.id}/cancel")
    answer = await ask(app, "POST", path, {"approved": True})
    assert (answer.status, answer.code) == (409, "approval_cancelled")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"approved": 1},
        {"approved": "true"},
        {"approved": None},
        {"approved": True, "note": 1},
        {"approved": True, "x": 1},
    ],
)
async def test_a_decision_has_a_form(body):
    engine, app = make()
    run = engine.begin(engine.add())
    answer = await ask(app, "POST", f"/runs/{run.id}/interrupts/{engine.ask(run).id}/decision", body)
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert answer.json["details"]["fields"]


async def test_a_decision_has_a_bound():
    engine, app = make()
    run = engine.begin(engine.add())
    path = f"/runs/{run.id}/interrupts/{engine.ask(run).id}/decision"
    assert (await ask(app, "POST", path, {"approved": True, "value": "x" * (300 << 10)})).code == "invalid_request"


async def test_only_an_ended_run_is_erased():
    engine, app = make()
    run = engine.add()
    going = await ask(app, "DELETE", f"/runs/{run.id}")
    assert (going.status, going.code) == (409, "run_not_free")
    await ask(app, "POST", f"/runs/{run.id}/cancel")
    gone = await ask(app, "DELETE", f"/runs/{run.id}")
    assert (gone.status, gone.body) == (204, b"")
    assert (await ask(app, "DELETE", f"/runs/{run.id}")).status == 404
    assert (await ask(app, "GET", f"/runs/{run.id}")).status == 404


async def test_methods_are_told():
    engine, app = make()
    run = engine.add()
    for path, allow in {
        "/runs": "GET, HEAD, OPTIONS, POST",
        f"/runs/{run.id}": "DELETE, GET, HEAD, OPTIONS",
        f"/runs/{run.id}/stream": "GET, OPTIONS",
        "/stream": "GET, OPTIONS",
        f"/runs/{run.id}/cancel": "OPTIONS, POST",
        "/healthz": "GET, HEAD, OPTIONS",
    }.items():
        answer = await ask(app, "PUT", path)
        assert (answer.status, answer.code, answer.headers["allow"]) == (405, "method_not_allowed", allow)
        assert (await ask(app, "OPTIONS", path)).headers["allow"] == allow


async def test_head_is_get_without_a_body():
    engine, app = make()
    run = engine.add()
    whole = await ask(app, "GET", f"/runs/{run.id}")
    head = await ask(app, "HEAD", f"/runs/{run.id}")
    assert (head.status, head.headers, head.body) == (200, whole.headers, b"")


@pytest.mark.parametrize(
    "path", ["", "/", "/nothing", "/runs/", "/agents/", "/threads", "/stream/", "/runs/x/resume", "//runs"]
)
async def test_what_there_is_not_is_not_found(path):
    _, app = make()
    assert (await ask(app, "GET", path)).code == "not_found"


async def test_a_websocket_is_closed():
    _, app = make()
    sent = []

    async def send(message):
        sent.append(message)

    await app({"type": "websocket", "path": "/runs", "root_path": "", "headers": []}, None, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_ready_and_draining():
    engine, app = make()
    assert (await ask(app, "GET", "/healthz")).status == 200
    assert (await ask(app, "GET", "/readyz")).status == 200
    engine.ready, engine.draining = False, True
    run = engine.add()
    for answer in (await ask(app, "GET", "/readyz"), await ask(app, "POST", "/runs", START)):
        assert (answer.status, answer.code) == (503, "not_ready")
        assert int(answer.headers["retry-after"]) >= 5
    assert (await ask(app, "GET", "/healthz")).status == 200
    assert (await ask(app, "GET", f"/runs/{run.id}")).status == 200
    assert (await ask(app, "POST", f"/runs/{run.id}/cancel")).status == 202


async def test_a_store_that_is_down_is_503_and_a_fault_of_ours_500():
    engine, app = make()
    engine.raises = StoreUnavailable("host=CANARY")
    answer = await ask(app, "GET", "/runs")
    assert (answer.status, answer.code) == (503, "store_unavailable")
    engine.raises = ZeroDivisionError("CANARY")
    failed = await ask(app, "GET", "/runs")
    assert (failed.status, failed.code) == (500, "internal_error")
    assert b"CANARY" not in answer.body + failed.body


async def test_metrics_hold_no_ids_and_can_be_switched_off():
    engine, app = make()
    run = engine.begin(engine.add("tenant-canary", labels={"label": "label-canary"}))
    question = engine.ask(run)
    user = {"x-user": "tenant-canary"}
    await ask(app, "GET", f"/runs/{run.id}", headers=user)
    await ask(app, "GET", f"/runs/{run.id}/stream/nothing-canary", headers=user)
    await ask(app, "POST", f"/runs/{run.id}/interrupts/{question.id}/decision", {"approved": True}, headers=user)
    await ask(app, "BREW-canary", "/runs", headers=user)
    answer = await ask(app, "GET", "/metrics")
    assert answer.headers["content-type"] == MEDIA_TYPE
    text = answer.body.decode()
    assert 'playhead_http_requests_total{method="GET",route="/runs/{run_id}",status="200"} 1.0' in text
    assert 'method="other"' in text
    assert 'playhead_hub_total{kind="lagging"} 2.0' in text
    assert "playhead_feeds_live 3.0" in text
    assert "playhead_loop_blocked_total 1.0" in text
    assert "playhead_events_unreadable_total 4.0" in text
    for hidden in (run.id, question.id, "canary"):
        assert hidden not in text
    _, without = make(options=Options(page=False, metrics=False))
    assert (await ask(without, "GET", "/metrics")).status == 404


async def test_mounted_below_another_path():
    engine, app = make(options=Options(page=True))
    outer = Starlette(routes=[Mount("/tools/agents", app=app)])
    run = engine.add()
    assert (await ask(outer, "GET", f"/tools/agents/runs/{run.id}")).status == 200
    made = await ask(outer, "POST", "/tools/agents/runs", START)
    assert made.headers["location"] == f"/tools/agents/runs/{made.json['id']}"
    put = await ask(outer, "PUT", "/tools/agents/runs")
    assert (put.status, put.code) == (405, "method_not_allowed")
    bare = await ask(app, "GET", "/x/agents", scope={"root_path": "/x/agents"})
    assert (bare.status, bare.headers["location"]) == (308, "./agents/")
    trick = await ask(app, "GET", "//evil.test", scope={"root_path": "//evil.test"})
    assert trick.headers["location"] == "./evil.test/"


async def test_an_ordinary_client_reads_it():
    engine, app = make()
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as client:
        made = await client.post("/runs", json=START)
        assert made.status_code == 201
        listed = await client.get("/runs", params={"status": ["queued", "running"]})
        assert [run["id"] for run in listed.json()["runs"]] == [made.json()["id"]]
    assert len(engine.rows) == 1
