"""What only looks: agents, runs, a run's screen and its older events, and everything that waits for a person."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from playhead.core import payload as payloads
from playhead.core.ids import is_id, is_name
from playhead.core.interrupt import Interrupt
from playhead.core.run import Run, Status
from playhead.errors import Forbidden, InvalidRequest, NotFound, NotReady
from playhead.gateway import auth, wire
from playhead.gateway.gate import Call
from playhead.gateway.metrics import MEDIA_TYPE
from playhead.runtime.documents import interrupt_document, run_document
from playhead.runtime.setup import AgentCard

MAX_PAGE = 200
DEFAULT_PAGE = 50
MAX_PAGE_BYTES = 4 << 20  # a page of runs ends early beyond this; it has at least one


async def agents(call: Call) -> Response:
    """The agents that can be started, by name."""
    wire.query(call.request)
    await call.gate.permit(call.principal, auth.LIST_AGENTS)
    found = [_agent(call.engine.agents[name]) for name in sorted(call.engine.agents)]
    return wire.json_response(payloads.encode({"agents": found}))


async def runs(call: Call) -> Response:
    """A page of runs, newest first. It can be short, and `next` decides: runs that may not be read are left out, and
    a page of large inputs and results ends early."""
    wire.query(call.request, "status", "agent", "label", "key", "limit", "after")
    await call.gate.permit(call.principal, auth.LIST_RUNS)
    limit = wire.number(call.request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
    agent = wire.one(call.request, "agent")
    if agent is not None and not is_name(agent):
        raise InvalidRequest("agent is the name of an agent.", fields=["agent"])
    status, labels = _statuses(call), _labels(call)
    key = wire.key(wire.one(call.request, "key"), "key")
    before, following = await _before(call), None
    last: Run | None = None
    seen: list[bytes] = []
    size, left, more = 0, limit, True
    while more and following is None:
        most = max(1, MAX_PAGE_BYTES - size)
        page = await call.engine.runs(
            call.principal.tenant,
            status=status,
            agent=agent,
            labels=labels,
            key=key,
            before_seq=before,
            limit=left + 1,
            most_bytes=most,
        )
        more = len(page) <= left and sum(one.weight for one in page) >= most
        for one in page:
            if last is not None and (left == 0 or size >= MAX_PAGE_BYTES):
                # The token is the last run's id and not its number: numbers count the runs of other tenants too.
                following = last.id
                break
            last, before, left = one, one.seq, left - 1
            if await call.gate.may(call.principal, auth.READ, one):
                seen.append(run_document(one))
                size += len(seen[-1])
    body = b'{"runs":[%b],"next":%b}' % (b",".join(seen), payloads.encode(following))
    return wire.json_response(body)


async def run(call: Call) -> Response:
    wire.query(call.request)
    return wire.json_response(run_document(await call.run(auth.READ)))


async def bootstrap(call: Call) -> Response:
    """Everything that a screen shows, with the cursor from which to follow."""
    wire.query(call.request, "limit")
    found = await call.run(auth.READ)
    limit = wire.number(call.request, "limit", DEFAULT_PAGE, 0, MAX_PAGE)
    return wire.json_response(await call.engine.bootstrap(found, limit))


async def events(call: Call) -> Response:
    """Events before another one, oldest first, from timeline and archive without a seam."""
    wire.query(call.request, "before", "limit")
    found = await call.run(auth.READ)
    limit = wire.number(call.request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
    return wire.json_response(await call.engine.earlier(found, wire.before(call.request, found), limit))


async def interrupts(call: Call) -> Response:
    """The open questions to people, oldest first, of one run or of all that may be read."""
    wire.query(call.request, "run")
    await call.gate.permit(call.principal, auth.LIST_INTERRUPTS)
    run_id = wire.one(call.request, "run")
    if run_id is not None:
        await call.gate.run(call.principal, run_id, auth.READ)
    found = await call.engine.interrupts(call.principal.tenant, run_id)
    if call.gate.authorize is not None and run_id is None:
        found = await _readable(call, found)
    return wire.json_response(b'{"interrupts":[%b]}' % b",".join(map(interrupt_document, found)))


async def healthz(call: Call) -> Response:
    """The process answers; nothing else is asked."""
    return wire.json_response(b'{"status":"ok"}')


async def readyz(call: Call) -> Response:
    """Whether new work and new viewers should be sent here."""
    if not call.engine.ready:
        raise NotReady
    return wire.json_response(b'{"status":"ready"}')


async def metrics(call: Call) -> Response:
    return Response(call.gate.metrics.render(), 200, {"cache-control": "no-store"}, MEDIA_TYPE)


def _agent(agent: AgentCard) -> dict[str, Any]:
    return {
        "name": agent.name,
        "title": agent.title,
        "description": agent.description,
        "input_schema": agent.input_schema,
        "resumable": agent.policy.resumable,
    }


def _statuses(call: Call) -> tuple[Status, ...]:
    try:
        return tuple(dict.fromkeys(Status(name) for name in call.request.query_params.getlist("status") if name))
    except ValueError:
        raise InvalidRequest(f"status is one of {', '.join(Status)}.", fields=["status"]) from None


def _labels(call: Call) -> dict[str, str]:
    pairs = [given.partition(":") for given in call.request.query_params.getlist("label")]
    wanted = {name: value for name, colon, value in pairs if colon}
    if len(wanted) != len(pairs):
        raise InvalidRequest("label is name:value, each name once.", fields=["label"])
    return wire.labels(wanted)


async def _before(call: Call) -> int | None:
    token = wire.one(call.request, "after")
    if token is None:
        return None
    try:
        if not is_id(token):
            raise NotFound
        return (await call.engine.run(call.principal.tenant, token)).seq
    except NotFound:
        raise InvalidRequest("after is no page that can be continued; begin without it.", fields=["after"]) from None


async def _readable(call: Call, found: list[Interrupt]) -> list[Interrupt]:
    known: dict[str, bool] = {}
    for interrupt in found:
        if interrupt.run_id not in known:
            try:
                await call.gate.run(call.principal, interrupt.run_id, auth.READ)
                known[interrupt.run_id] = True
            except (NotFound, Forbidden):
                known[interrupt.run_id] = False
    return [interrupt for interrupt in found if known[interrupt.run_id]]
