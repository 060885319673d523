"""Another's run, a hostile id and a run that never was are one and the same answer, on every route."""

import pytest

from playhead.gateway import Principal, auth
from playhead.gateway.routes import GUARDED, STREAM
from tests.gateway.stub import StubEngine, ask, make

pytestmark = pytest.mark.anyio

NEVER = "01890abc-0000-7000-8000-00000000000f"
BODIES = {"/runs/{run_id}/interrupts/{interrupt_id}/decision": {"approved": True}}
ROUTES = [
    (method, path)
    for path, handlers in {**GUARDED, STREAM: {"GET": None}}.items()
    for method in handlers
    if "{run_id}" in path
]
HOSTILE = [
    "",
    ".",
    "..",
    "%2e%2e",
    "}x",
    "a}b",
    "{x}",
    "*",
    "$",
    "+",
    "0-0",
    "null",
    "' OR 1=1 --",
    "\x00",
    "a\r\nb",
    "a\nset-cookie: x=y",
    "\u2028",
    "ünïcode",
    "😀",
    "\ud800",
    "x" * 4096,
    NEVER.upper(),
    NEVER + "\n",
    " " + NEVER,
    NEVER + " ",
    "{" + NEVER + "}",
    NEVER.replace("-", ""),
    NEVER.replace("-7", "-4"),
    NEVER[:-1] + "\u0660",
    NEVER + ".",
    "..%2f" + NEVER,
]


def path_of(path, run_id, interrupt_id=NEVER):
    return path.replace("{run_id}", run_id).replace("{interrupt_id}", interrupt_id)


async def absent(app):
    return await ask(app, "GET", f"/runs/{NEVER}")


@pytest.mark.row("A39")
@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
async def test_a_hostile_id_is_a_run_that_is_not_there(name):
    engine, app = make()
    expected = await absent(app)
    engine.calls.clear()
    for method, path in ROUTES:
        answer = await ask(app, method, path_of(path, name), BODIES.get(path))
        assert (answer.status, answer.body) == (404, expected.body), (method, path)
    assert engine.calls == []


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
async def test_a_hostile_interrupt_is_one_that_is_not_there(name):
    engine, app = make()
    run = engine.begin(engine.add())
    path = f"/runs/{run.id}/interrupts/{name}/decision"
    answer = await ask(app, "POST", path, {"approved": True})
    never = await ask(app, "POST", f"/runs/{run.id}/interrupts/{NEVER}/decision", {"approved": True})
    assert (answer.status, answer.body) == (never.status, never.body)
    assert all(call[0] != "decide" or call[3] == NEVER for call in engine.calls)


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_anothers_run_is_one_that_is_not_there(method, path):
    engine, app = make()
    run = engine.begin(engine.add("a"))
    question = engine.ask(run)
    before = dict(engine.rows)
    user = {"x-user": "b"}
    theirs = await ask(app, method, path_of(path, run.id, question.id), BODIES.get(path), headers=user)
    never = await ask(app, method, path_of(path, NEVER, NEVER), BODIES.get(path), headers=user)
    assert theirs.status == never.status == 404
    assert theirs.body == never.body
    assert theirs.headers.keys() == never.headers.keys()
    assert engine.rows == before
    assert engine.asked[run.id] == [question]


async def test_ids_in_queries_and_bodies_are_no_way_around():
    engine, app = make()
    run = engine.begin(engine.add("a", key="k"))
    question = engine.ask(run)
    own = engine.begin(engine.add("b"))
    user = {"x-user": "b"}
    for path in ("/interrupts?run={}", "/runs?after={}"):
        theirs = await ask(app, "GET", path.format(run.id), headers=user)
        never = await ask(app, "GET", path.format(NEVER), headers=user)
        assert (theirs.status, theirs.body) == (never.status, never.body)
        assert theirs.status in (400, 404)
    listed = await ask(app, "GET", "/runs?key=k", headers=user)
    assert listed.json == {"runs": [], "next": None}
    assert [one["id"] for one in (await ask(app, "GET", "/runs", headers=user)).json["runs"]] == [own.id]
    assert (await ask(app, "GET", "/interrupts", headers=user)).json == {"interrupts": []}
    # Their question through an own run.
    path = f"/runs/{own.id}/interrupts/{question.id}/decision"
    assert (await ask(app, "POST", path, {"approved": True}, headers=user)).status == 404
    # Their event as a place in an own run's history.
    answer = await ask(app, "GET", f"/runs/{own.id}/events?before={run.id}:1:1", headers=user)
    assert answer.status == 400


async def test_the_authorizer_is_asked_with_the_row_for_each_action():
    engine = StubEngine()
    run = engine.begin(engine.add("a"))
    question = engine.ask(run)
    asked = []

    def authorize(principal, action, row):
        asked.append((principal.subject, action, row))
        return False

    _, app = make(engine, authorize=authorize)
    actions = {
        ("GET", "/agents"): auth.LIST_AGENTS,
        ("GET", "/runs"): auth.LIST_RUNS,
        ("POST", "/runs"): auth.CREATE,
        ("GET", "/interrupts"): auth.LIST_INTERRUPTS,
        ("GET", "/runs/{run_id}"): auth.READ,
        ("DELETE", "/runs/{run_id}"): auth.DELETE,
        ("GET", "/runs/{run_id}/bootstrap"): auth.READ,
        ("GET", "/runs/{run_id}/events"): auth.READ,
        ("GET", "/runs/{run_id}/stream"): auth.STREAM,
        ("POST", "/runs/{run_id}/cancel"): auth.CANCEL,
        ("POST", "/runs/{run_id}/interrupts/{interrupt_id}/decision"): auth.DECIDE,
    }
    for (method, path), action in actions.items():
        asked.clear()
        answer = await ask(app, method, path_of(path, run.id, question.id), BODIES.get(path))
        assert answer.status == (404 if "{run_id}" in path else 403)
        row = engine.rows[run.id] if "{run_id}" in path else None
        assert asked[0] == ("a", action, row)
    assert set(actions.values()) == set(auth.ACTIONS)


@pytest.mark.parametrize("verdict", [True, 1, None, "yes"])
async def test_anything_but_true_is_no(verdict):
    async def authorize(principal, action, row):
        return verdict

    _, app = make(authorize=authorize)
    assert (await ask(app, "GET", "/agents")).status == (200 if verdict is True else 403)


async def test_who_may_read_is_told_what_they_may_not():
    engine = StubEngine()
    run = engine.begin(engine.add("a"))
    _, app = make(engine, authorize=lambda principal, action, row: action == auth.READ)
    assert (await ask(app, "GET", f"/runs/{run.id}")).status == 200
    answer = await ask(app, "POST", f"/runs/{run.id}/cancel")
    assert (answer.status, answer.code) == (403, "forbidden")
    assert engine.rows[run.id] == run


async def test_lists_leave_out_what_may_not_be_read():
    engine = StubEngine()
    shown, hidden = engine.begin(engine.add("a")), engine.begin(engine.add("a"))
    questions = {one.run_id: one.id for one in (engine.ask(shown), engine.ask(hidden))}
    _, app = make(engine, authorize=lambda principal, action, row: row is None or row.id == shown.id)
    assert [run["id"] for run in (await ask(app, "GET", "/runs")).json["runs"]] == [shown.id]
    found = (await ask(app, "GET", "/interrupts")).json["interrupts"]
    assert [one["id"] for one in found] == [questions[shown.id]]
    assert (await ask(app, "GET", f"/interrupts?run={hidden.id}")).status == 404


@pytest.mark.parametrize("tenant", ["*", "", "a b", "a/b", "\n"])
async def test_an_authenticator_cannot_name_every_tenant(tenant):
    engine, app = make(authenticate=lambda request: Principal("a", tenant))
    assert (await ask(app, "GET", "/runs")).code == "unauthenticated"
    assert engine.calls == []


async def test_a_principal_that_is_over_is_nobody():
    _, app = make(authenticate=lambda request: Principal("a", "a", expires_at=1.0))
    assert (await ask(app, "GET", "/runs")).code == "unauthenticated"


async def test_an_authenticator_that_fails_lets_nobody_in():
    def authenticate(request):
        raise KeyError("CANARY")

    engine, app = make(authenticate=authenticate)
    for path in ("/runs", f"/runs/{NEVER}/stream", f"/stream?run={NEVER}"):
        answer = await ask(app, "GET", path)
        assert (answer.status, answer.code) == (500, "internal_error")
        assert b"CANARY" not in answer.body
    assert engine.calls == []


async def test_the_default_is_this_machine_alone():
    engine, app = make(authenticate=None)
    run = engine.add("local")
    assert (await ask(app, "GET", f"/runs/{run.id}")).status == 200
    assert (await ask(app, "GET", f"/runs/{run.id}", scope={"client": ("10.0.0.9", 1)})).status == 403
    assert (await ask(app, "GET", f"/runs/{run.id}", headers={"host": "evil.test"})).status == 403
    for path in (f"/runs/{run.id}/stream", f"/stream?run={run.id}"):
        stream = await ask(app, "GET", path, headers={"sec-fetch-site": "cross-site"})
        assert (stream.status, stream.code) == (403, "forbidden")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_another_sites_page_is_refused_whoever_is_logged_in(method):
    engine, app = make()
    headers = {"sec-fetch-site": "cross-site", "origin": "https://evil.test"}
    answer = await ask(app, method, "/runs", {"agent": "echo", "input": 1}, headers=headers)
    assert (answer.status, answer.code) == (403, "forbidden")
    assert "access-control-allow-origin" not in answer.headers
    assert engine.calls == []
