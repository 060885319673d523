"""Bad input to every call, and a bad place to start in: a typed refusal each, and the record is as it was before."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import playhead
from playhead.cli.listen import listen
from playhead.core.ids import run_feed
from playhead.errors import DataLocked, FolderUnusable, PlayheadError, PortInUse, StoreCorrupt
from playhead.gateway.auth import Principal
from playhead.gateway.problems import STATUS
from playhead.gateway.routes import GUARDED, STREAM
from playhead.settings import Settings
from tests.support.agents import counting
from tests.support.stage import BACKENDS, QUICK, Gates, Stage, stage
from tests.support.wire import Answer

pytestmark = [pytest.mark.anyio, pytest.mark.row("H-bad-input")]

both = pytest.mark.parametrize("backend", BACKENDS)

UNKNOWN = "01890abc-0000-7000-8000-00000000000f"

# Routes with every method that each takes.
ROUTES = [(method, path) for path, methods in {**GUARDED, STREAM: {"GET": None}}.items() for method in methods]

HOSTILE = [
    "x",
    "..",
    ".",
    "%",
    "*",
    "$",
    "{x}:state",
    "a}b",
    "' OR 1=1 --",
    "../../etc/passwd",
    "\0",
    "\r\nSet-Cookie: a=b",
    "\u2028",
    "🙂",
    "１",
    UNKNOWN.upper(),
    UNKNOWN + "\n",
    UNKNOWN + "/",
    " " + UNKNOWN,
    "run:" + UNKNOWN,
    "0" * 36,
    "00000000-0000-4000-8000-000000000000",
    "a" * 4_096,
]


def working(gates: Gates) -> Sequence[playhead.Agent]:
    @playhead.agent
    async def asker(run: playhead.RunContext, words: str = "", amount: int = 0) -> list[Any]:
        await run.event("begun", {"words": words})
        decision = await run.ask({"title": "Go on?"})
        return [decision.approved, words, amount]

    @playhead.agent
    async def echo(run: playhead.RunContext, value: Any = None) -> Any:
        await run.event("heard", {"value": value})
        return value

    return [asker, echo, *counting(gates)]


async def everything(s: Stage) -> list[Any]:
    """All that the record holds, but for the time of the last heartbeat."""
    record, archive = s.engine.ports.record, s.engine.ports.archive
    found: list[Any] = []
    for run in sorted(await record.list_runs("*", limit=200), key=lambda one: one.seq):
        page = await record.facts(run_feed(run.id), 0)
        found += [
            replace(run, heartbeat_at=None),
            page.facts,
            await record.interrupts("*", run.id, open_only=False),
            await record.audit("*", run.id),
            await archive.read(run_feed(run.id), None, 1_000),
        ]
    return found


def code(answer: Answer) -> str:
    """The code of a refusal, which is a problem as documented: known, of its status, and not our fault."""
    problem = answer.json()
    assert answer.headers["content-type"].startswith("application/problem+json"), answer
    assert problem["status"] == answer.status == STATUS[problem["code"]]
    assert answer.status < 500, answer
    assert problem["detail"]
    return str(problem["code"])


async def waiting(s: Stage) -> tuple[str, str]:
    """A run that waits, and its question."""
    run_id = await s.client.start("asker", {"words": "quiet"})
    async with s.client.stream(run_id) as stream:
        await stream.type("approval_required")
    [question] = (await s.client.bootstrap(run_id))["interrupts"]
    await s.archived(run_id)
    return run_id, question["id"]


def at(route: str, run_id: str, interrupt_id: str) -> str:
    return route.replace("{run_id}", quote(run_id, safe="")).replace("{interrupt_id}", quote(interrupt_id, safe=""))


def body_of(route: str) -> Any:
    """A body that the route would take, were the rest in order."""
    return {"approved": True} if route.endswith("decision") else {} if route.endswith("cancel") else None


@both
async def test_an_id_that_is_none_is_absent_on_every_route(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, working) as s:
        run_id, question = await waiting(s)
        before = await everything(s)
        for method, route in ROUTES:
            if "{run_id}" not in route:
                continue
            absent = await s.client.call(method, at(route, UNKNOWN, UNKNOWN), body_of(route))
            assert (absent.status, code(absent)) == (404, "not_found")
            for name in HOSTILE:
                answer = await s.client.call(method, at(route, name, question), body_of(route))
                assert (answer.status, answer.body) == (404, absent.body), (method, route, name[:40])
                if "{interrupt_id}" in route:
                    answer = await s.client.call(method, at(route, run_id, name), body_of(route))
                    assert (answer.status, code(answer)) == (404, "not_found"), name[:40]
        for name in HOSTILE[:-1]:  # the last one is longer than a query may be
            listed = await s.client.get(f"/interrupts?run={quote(name, safe='')}")
            assert (listed.status, code(listed)) == (404, "not_found")
            after = await s.client.get(f"/runs?after={quote(name, safe='')}")
            assert (after.status, code(after)) == (400, "invalid_request")
            older = await s.client.get(f"/runs/{run_id}/events?before={quote(name, safe='')}")
            assert (older.status, code(older)) == (400, "invalid_request")
        assert await everything(s) == before
        # It is all still there, and goes on.
        answer = await s.client.post(at(ROUTES[-2][1], run_id, question), body_of("decision"))
        assert (await s.client.ended(run_id))["result"] == [True, "quiet", 0], answer


BODIES: list[tuple[bytes, str]] = [
    (b"", "bad_json"),
    (b"{", "bad_json"),
    (b"nonsense", "bad_json"),
    (b"\xff\xfe", "bad_json"),
    (b"\xef\xbb\xbf{}", "bad_json"),
    (b"[" * 10_000, "bad_json"),
    (b"[" * 10_000 + b"]" * 10_000, "bad_json"),
    (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "bad_json"),
    (b'{"approved":NaN}', "bad_json"),
    (b'{"approved":Infinity}', "bad_json"),
    (b'{"approved":1e999}', "bad_json"),
    (b'{"approved":true,"approved":false}', "bad_json"),
    (b"{'approved':true}", "bad_json"),
    (b'{"approved":true}{}', "bad_json"),
    (b'{"approved":true,}', "bad_json"),
    (b"1" * 5_000, "bad_json"),
    (b"[]", "invalid_request"),
    (b"null", "invalid_request"),
    (b'"text"', "invalid_request"),
    (b'{"__proto__":{}}', "invalid_request"),
    (b'{"' + b"a" * 100_000 + b'":1}', "invalid_request"),
    (b" " * ((1 << 20) + 1), "payload_too_large"),
    (b'{"note":"' + b"x" * (1 << 20) + b'"}', "payload_too_large"),
]


@both
async def test_a_body_that_is_none_changes_nothing(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, working) as s:
        run_id, question = await waiting(s)
        before = await everything(s)
        posts = [at(route, run_id, question) for method, route in ROUTES if method == "POST"]
        assert len(posts) == 3
        for path in posts:
            for raw, expected in BODIES:
                if not raw and path.endswith("cancel"):
                    continue  # it needs none
                answer = await s.client.post(path, raw=raw)
                assert code(answer) == expected, (path, raw[:40], answer.body)
                assert b"Traceback" not in answer.body
        assert await everything(s) == before


@both
async def test_only_json_changes_anything(backend: str, tmp_path: Path) -> None:
    def anybody(request: Any) -> Principal:
        return Principal("ann", "local")

    for authenticate, expected in ((None, "forbidden"), (anybody, "unsupported_media_type")):
        async with stage(backend, tmp_path / expected, working, authenticate=authenticate) as s:
            run_id, question = await waiting(s)
            before = await everything(s)
            bodies: Mapping[str, bytes] = {
                "/runs": b'{"agent":"echo","input":{}}',
                f"/runs/{run_id}/cancel": b"{}",
                f"/runs/{run_id}/interrupts/{question}/decision": b'{"approved":true}',
            }
            for path, raw in bodies.items():
                for kind in (
                    "text/plain",
                    "application/x-www-form-urlencoded",
                    "multipart/form-data; boundary=x",
                    "application/json; charset=latin-1",
                    "application/jsonp",
                    "",
                ):
                    answer = await s.client.post(path, raw=raw, headers={"content-type": kind})
                    assert code(answer) == expected, (path, kind)
                squeezed = {"content-type": "application/json", "content-encoding": "gzip"}
                answer = await s.client.post(path, raw=raw, headers=squeezed)
                assert code(answer) == "unsupported_media_type"
            assert await everything(s) == before


@both
async def test_what_cannot_be_asked_for_is_refused_by_name(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, working) as s:
        run_id, question = await waiting(s)
        decision = f"/runs/{run_id}/interrupts/{question}/decision"
        other, _ = await waiting(s)
        before = await everything(s)
        good = {"agent": "echo", "input": {"value": 1}}
        refused: list[tuple[str, str, Any, int, str]] = [
            ("POST", "/runs", {"agent": "nobody", "input": {}}, 422, "unknown_agent"),
            ("POST", "/runs", {"agent": "Two Words", "input": {}}, 400, "invalid_request"),
            ("POST", "/runs", {"agent": "a\nb", "input": {}}, 400, "invalid_request"),
            ("POST", "/runs", {"agent": "asker", "input": {"amount": "many"}}, 422, "invalid_input"),
            ("POST", "/runs", {"agent": "asker", "input": {"unknown": 1}}, 422, "invalid_input"),
            ("POST", "/runs", {"agent": "asker", "input": [1]}, 422, "invalid_input"),
            ("POST", "/runs", {**good, "key": "a b"}, 400, "invalid_request"),
            ("POST", "/runs", {**good, "key": "x" * 256}, 400, "invalid_request"),
            ("POST", "/runs", {**good, "labels": {"a": "b\n"}}, 400, "invalid_request"),
            ("POST", "/runs", {**good, "labels": {"a": "x" * 257}}, 400, "invalid_request"),
            ("POST", "/runs", {**good, "tenant": "other"}, 400, "invalid_request"),
            ("POST", decision, {"approved": 1}, 400, "invalid_request"),
            ("POST", decision, {"approved": True, "note": "x" * 2_001}, 400, "invalid_request"),
            ("POST", decision, {"approved": True, "value": "x" * 300_000}, 400, "invalid_request"),
            ("POST", f"/runs/{other}/interrupts/{question}/decision", {"approved": True}, 404, "not_found"),
            ("POST", f"/runs/{run_id}/cancel", {"reason": "x" * 501}, 400, "invalid_request"),
            ("GET", f"/runs?{'x' * 5_000}", None, 400, "invalid_request"),
            ("GET", "/runs?limit=201", None, 400, "invalid_request"),
            ("GET", f"/runs/{run_id}/bootstrap?limit=%EF%BC%91", None, 400, "invalid_request"),
            ("GET", f"/runs/{run_id}/events?before={other}:1:1", None, 400, "invalid_request"),
            ("DELETE", f"/runs/{run_id}", None, 409, "run_not_free"),
            ("PUT", f"/runs/{run_id}", None, 405, "method_not_allowed"),
            ("POST", f"/runs/{run_id}/stream", None, 405, "method_not_allowed"),
            ("GET", "/nowhere", None, 404, "not_found"),
        ]
        for method, path, given, status, expected in refused:
            answer = await s.client.call(method, path, given)
            assert (answer.status, code(answer)) == (status, expected), (method, path[:80], given)
        for key in ("", "a b", "x" * 256, "\u00e9"):
            answer = await s.client.post("/runs", good, headers={"idempotency-key": key})
            if key:
                assert code(answer) == "invalid_request"
        assert (await everything(s))[: len(before)] == before


@both
async def test_hostile_values_are_kept_as_documented_and_stop_nothing(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, working) as s:
        given = {
            "nul": "\0",
            "lines": "\r\n\r\nevent: end\ndata: {}\n\n",
            "odd": "\ufeff\u2028\u2029\u0085\x1b[31m",
            "large": 2**63,
            "tiny": 5e-324,
            "deep": [[[[[[[[[[1]]]]]]]]]],
            "": {"__proto__": None, "constructor": "x"},
            "html": "<script>alert(1)</script>",
            "wide": ["你🙂"] * 2_000,
        }
        raw = json.dumps({"agent": "echo", "input": {"value": given}}).replace('"\\u0000"', '"\\u0000\\ud800"')
        made = await s.client.post("/runs", raw=raw.encode())
        assert made.status == 201, made
        run = await s.client.ended(made.json()["id"])
        expected = {**given, "nul": "\0\ufffd", "large": str(2**63)}
        assert (run["status"], run["result"]) == ("succeeded", expected)
        async with s.client.stream(run["id"]) as stream:
            await stream.end()
        assert [event["payload"] for event in stream.events if event["type"] == "heard"] == [{"value": expected}]
        assert stream.types == ["run_queued", "run_started", "attempt_started", "heard", "run_succeeded"]


@both
async def test_another_runs_cursor_is_told_so_and_tells_nothing(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, working) as s:
        ids = [await s.client.start("count", {"n": 3, "hold": True}) for _ in range(2)]
        before = None
        cursors = []
        for run_id in ids:
            async with s.client.stream(run_id) as stream:
                await stream.until(lambda one: one.types.count("counted") == 3)
                cursors.append([str(frame.id) for frame in stream.frames if frame.event == "message"])
            await s.archived(run_id)
        before = await everything(s)
        for run_id, theirs, mine in zip(ids, reversed(cursors), cursors, strict=True):
            for cursor in theirs:
                async with s.client.stream(run_id, cursor) as stream:
                    assert stream.status == 200
                    await stream.end(1.0)
                assert stream.events == []
                [told] = stream.named("resync_required")
                assert told["reason"] in ("epoch", "foreign")
                assert (told["requested"], told["newest"]) == (cursor, mine[-1])
            for cursor in (f"{theirs[-1]}0", "x" * 5_000, "é", "0-0", "-"):
                async with s.client.stream(run_id, cursor) as stream:
                    assert stream.status == 200
                    await stream.end(1.0)
                assert [told["reason"] for told in stream.named("resync_required")] == ["malformed"]
        after = await everything(s)
        assert after == before


# A bad place to start in.


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=str(port)) as caught:
            listen("127.0.0.1", port, send_buffer=65_536, silence=30.0)
    assert caught.value.code == "port_in_use"


async def start(data: Path) -> None:
    async with playhead.App(counting(Gates()), settings=Settings.load(data=data, environ={}, **QUICK)):
        pass


async def test_a_folder_that_cannot_be_written_is_named_and_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "taken" / "server.lock").mkdir(parents=True)
    for data in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/playhead"), tmp_path / "taken"):
        with pytest.raises(FolderUnusable) as caught:
            await start(data)
        assert caught.value.code == "folder_unusable"
        assert str(data) in caught.value.message
    assert (tmp_path / "file").read_text() == "mine"
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["server.lock"]


async def kept(s: Stage) -> list[Any]:
    run_id = await s.client.start("count", {"n": 3})
    await s.client.ended(run_id)
    await s.archived(run_id)
    return await everything(s)


async def test_a_second_server_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async with stage("sqlite", tmp_path, counting) as s:
        before = await kept(s)
        with pytest.raises(DataLocked) as caught:
            await start(tmp_path)
        assert caught.value.code == "data_locked"
        assert await everything(s) == before
        again = await s.client.start("count", {"n": 1})
        assert (await s.client.ended(again))["status"] == "succeeded"


@pytest.mark.parametrize("damage", ["header", "text", "empty", "folder"])
async def test_a_corrupt_record_stops_the_start_and_loses_nothing(tmp_path: Path, damage: str) -> None:
    record, aside = tmp_path / "record.db", tmp_path / "aside"
    async with stage("sqlite", tmp_path, counting) as s:
        before = await kept(s)
    whole = record.read_bytes()
    record.rename(aside)
    match damage:
        case "header":
            record.write_bytes(b"\xff" * 100 + whole[100:])
        case "text":
            record.write_text("this is no database\n" * 500)
        case "empty":
            record.write_bytes(b"")
            record.with_name("record.db-wal").write_bytes(b"\x37\x7f\x06\x82" + bytes(5_000))
        case "folder":
            record.mkdir()
    spoilt = record.read_bytes() if record.is_file() else None
    for _ in range(2):
        with pytest.raises(PlayheadError) as caught:
            await start(tmp_path)
        assert str(record) in caught.value.message
        assert caught.value.code == ("store_unavailable" if damage == "folder" else "store_corrupt")
        assert isinstance(caught.value, StoreCorrupt) is (damage != "folder")
        assert (record.read_bytes() if record.is_file() else None) == spoilt
    if damage == "folder":
        record.rmdir()
    record.with_name("record.db-wal").unlink(missing_ok=True)
    aside.rename(record)
    async with stage("sqlite", tmp_path, counting) as s:
        assert await everything(s) == before


@both
async def test_requests_that_break_off_leave_nothing(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, working) as s:
        run_id, question = await waiting(s)
        before = await everything(s)
        port = s.client.port
        for head in (
            b"POST /runs HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
            b"Content-Type: application/json\r\nContent-Length: 500\r\n\r\n{",
            b"POST /runs/" + run_id.encode() + b"/cancel HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
            b"Content-Type: application/json\r\nContent-Length: 500\r\n\r\n{}",
            b"GET /runs/" + run_id.encode() + b"/stream HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01",
            b"GET / HTTP/9.9\r\n\r\n",
        ):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head % port if b"%d" in head else head)
            await writer.drain()
            await asyncio.sleep(0.02)
            writer.transport.abort()
        await asyncio.sleep(0.1)
        assert await everything(s) == before
        answer = await s.client.post(f"/runs/{run_id}/interrupts/{question}/decision", {"approved": True})
        assert answer.status == 200
        assert (await s.client.ended(run_id))["status"] == "succeeded"
