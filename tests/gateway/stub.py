"""An engine in a dictionary that decides as the real one does, and an ASGI client that can send anything."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from starlette.types import Message

from playhead.core import decision as decisions
from playhead.core import lifecycle
from playhead.core import payload as payloads
from playhead.core.ids import uuid7
from playhead.core.interrupt import Interrupt, Question
from playhead.core.run import Change, NewRun, Policy, Run
from playhead.errors import InvalidInput, KeyConflict, NotFound, RunNotFree, UnknownAgent
from playhead.gateway import Options, Principal, build

NOW = 1_800_000_000_000
HEADER = "x-user"


@dataclass
class StubAgent:
    name: str = "echo"
    title: str = "Echo"
    description: str = "Says it again."
    policy: Policy = field(default_factory=Policy)
    input_schema: dict[str, Any] = field(default_factory=lambda: {"type": "object"})


class StubEngine:
    """Each call is noted in `calls`, so that a test can see what never reached a store."""

    def __init__(self) -> None:
        self.agents = {"echo": StubAgent(), "other": StubAgent("other")}
        self.ready, self.draining = True, False
        pulse = SimpleNamespace(blocked=1)
        self.hub = SimpleNamespace(
            feeds=3, statistics={"lagging": 2}, pulse=pulse, jitter=lambda seconds: round(1_000 * seconds)
        )
        self.screens = SimpleNamespace()
        self.unreadable = 4
        self.calls: list[tuple[Any, ...]] = []
        self.rows: dict[str, Run] = {}
        self.asked: dict[str, list[Interrupt]] = {}
        self._keys: dict[tuple[str, str, str], str] = {}
        self._made = 0
        self.raises: Exception | None = None

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if self.raises is not None:
            raise self.raises

    def new_id(self) -> str:
        self._made += 1
        return uuid7(NOW + self._made, self._made.to_bytes(10))

    def add(self, tenant: str = "a", agent: str = "echo", **more: Any) -> Run:
        new = NewRun(self.new_id(), tenant, agent, b'{"text":"secret-of-a"}', Policy(), more.pop("labels", {}), **more)
        run = lifecycle.create(new, self._made, NOW).run
        self.rows[run.id] = run
        return run

    def begin(self, run: Run) -> Run:
        return self._apply(lifecycle.start(self.rows[run.id], "p", NOW))

    def ask(self, run: Run, within: int | None = None) -> Interrupt:
        question = Question("k", "approval", b'{"title":"Go?"}', within)
        row = self.rows[run.id]
        change, found = decisions.ask(row, row.token, question, self.asked.get(run.id, []), self.new_id(), None, NOW)
        self._apply(change)
        return found

    def _apply(self, change: Change) -> Run:
        self.rows[change.run.id] = change.run
        kept = {one.id: one for one in (*self.asked.get(change.run.id, ()), *change.interrupts)}
        self.asked[change.run.id] = list(kept.values())
        return change.run

    async def create(self, agent: str, given: object, **more: Any) -> tuple[Run, bool]:
        self._note("create", agent, given, more)
        body = json.dumps([agent, given, more["labels"], more["key"]], sort_keys=True)
        digest = hashlib.sha256(body.encode()).hexdigest()
        scope = (more["tenant"], more["subject"], more["dedupe"])
        if more["dedupe"] is not None and scope in self._keys:
            known = self.rows[self._keys[scope]]
            if known.digest != digest:
                raise KeyConflict(run_id=known.id)
            return known, False
        if agent not in self.agents:
            raise UnknownAgent(agent=agent)
        if given == "refuse":
            raise InvalidInput("No.", problems=[{"field": "text", "message": "is wrong", "input": "CANARY"}])
        run = replace(self.add(more["tenant"], agent, labels=more["labels"], key=more["key"]), digest=digest)
        self.rows[run.id] = run
        if more["dedupe"] is not None:
            self._keys[scope] = run.id
        return run, True

    async def run(self, tenant: str, run_id: str) -> Run:
        self._note("run", tenant, run_id)
        run = self.rows.get(run_id)
        if run is None or run.tenant != tenant:
            raise NotFound("There is no such run.")
        return run

    async def runs(self, tenant: str, **wanted: Any) -> list[Run]:
        self._note("runs", tenant, wanted)
        found = [
            run
            for run in sorted(self.rows.values(), key=lambda run: -run.seq)
            if run.tenant == tenant
            and (not wanted["status"] or run.status in wanted["status"])
            and wanted["agent"] in (None, run.agent)
            and wanted["key"] in (None, run.key)
            and wanted["labels"].items() <= dict(run.labels).items()
            and (wanted["before_seq"] is None or run.seq < wanted["before_seq"])
        ]
        found = found[: wanted["limit"]]
        newer = [sum(run.weight for run in found[:place]) for place in range(len(found))]
        return [run for run, held in zip(found, newer, strict=True) if held < wanted["most_bytes"]]

    async def cancel(self, tenant: str, run_id: str, *, by: str, reason: str | None) -> Run:
        self._note("cancel", tenant, run_id, by, reason)
        run = await self.run(tenant, run_id)
        return self._apply(lifecycle.cancel(run, self.asked.get(run_id, []), by, reason, NOW))

    async def decide(
        self, tenant: str, run_id: str, interrupt_id: str, decision: dict[str, Any], *, by: str
    ) -> Interrupt:
        self._note("decide", tenant, run_id, interrupt_id, decision)
        run = await self.run(tenant, run_id)
        asked = self.asked.get(run_id, [])
        change, found = decisions.decide(run, asked, interrupt_id, payloads.encode(decision), by, NOW)
        self._apply(change)
        return found

    async def interrupts(self, tenant: str, run_id: str | None = None) -> list[Interrupt]:
        self._note("interrupts", tenant, run_id)
        every = [one for asked in self.asked.values() for one in asked]
        return [one for one in every if one.tenant == tenant and one.open and run_id in (None, one.run_id)]

    async def delete(self, tenant: str, run_id: str) -> None:
        self._note("delete", tenant, run_id)
        if not (await self.run(tenant, run_id)).status.final:
            raise RunNotFree
        del self.rows[run_id]

    async def bootstrap(self, run: Run, limit: int) -> bytes:
        self._note("bootstrap", run.id, limit)
        return b'{"limit":%d}' % limit

    async def earlier(self, run: Run, before: str | None, limit: int) -> bytes:
        self._note("earlier", run.id, before, limit)
        return payloads.encode({"before": before, "limit": limit})


def by_header(request: Any) -> Principal:
    """Whoever the header names, in the tenant of that name."""
    name = request.headers.get(HEADER, "a")
    return Principal(name, name)


def make(engine: StubEngine | None = None, **more: Any) -> tuple[StubEngine, Any]:
    engine = engine or StubEngine()
    more.setdefault("authenticate", by_header)
    more.setdefault("options", Options(page=False))
    return engine, build(engine, **more)  # type: ignore[arg-type]


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return payloads.parse(self.body)

    @property
    def code(self) -> str:
        assert self.headers["content-type"] == "application/problem+json"
        return str(self.json["code"])


def scope_of(method: str, path: str, headers: Any = (), **more: Any) -> dict[str, Any]:
    path, _, query = path.partition("?")
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers)
    if not any(name.lower() == "host" for name, _ in pairs):
        pairs.insert(0, ("host", "127.0.0.1:8700"))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "surrogatepass"),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8700),
        **more,
    }


async def ask(app: Any, method: str, path: str, json_body: Any = None, **more: Any) -> Answer:
    """Send one request; `body` sends bytes as they are, `chunks` in several messages, `scope` changes the scope."""
    headers = more.get("headers", ())
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers)
    data = more.get("body")
    if json_body is not None:
        data = json.dumps(json_body).encode()
    chunks = more.get("chunks") or [data or b""]
    named = {name.lower() for name, _ in pairs}
    if (data or more.get("chunks")) and "content-type" not in named:
        pairs.append(("content-type", "application/json"))
    if data is not None and "content-length" not in named:
        pairs.append(("content-length", str(len(data))))
    messages: list[Message] = [
        {"type": "http.request", "body": chunk, "more_body": index < len(chunks) - 1}
        for index, chunk in enumerate(chunks)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope_of(method, path, pairs, **more.get("scope", {})), receive, send)
    start, *bodies = sent
    found = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(message.get("body", b"") for message in bodies))
