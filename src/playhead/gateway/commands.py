"""What changes something: start, cancel, decide, delete. Each can be sent again and counts once."""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import Response

from playhead.core import payload as payloads
from playhead.core.ids import is_id, is_name
from playhead.errors import Forbidden, InvalidRequest, NotFound, NotReady
from playhead.gateway import auth, wire
from playhead.gateway.gate import Call
from playhead.runtime.documents import interrupt_document, run_document


async def start(call: Call) -> Response:
    """201 with a new run, or 200 with the one that the same Idempotency-Key made from the same body."""
    wire.query(call.request)
    await call.gate.permit(call.principal, auth.CREATE)
    if not call.engine.ready:
        raise NotReady
    dedupe = _idempotency_key(call)
    body = wire.fields(await _body(call), ("agent", "input"), ("labels", "key"))
    agent = body["agent"]
    if not isinstance(agent, str) or not is_name(agent):
        raise InvalidRequest("agent is the name of an agent.", fields=["agent"])
    run, created = await call.engine.create(
        agent,
        body["input"],
        tenant=call.principal.tenant,
        subject=call.principal.subject,
        labels={} if body.get("labels") is None else wire.labels(body["labels"]),
        key=wire.key(body.get("key"), "key"),
        dedupe=dedupe,
    )
    if not created and not await call.gate.may(call.principal, auth.READ, run):
        raise Forbidden  # a grant taken back since is not got around by asking again
    place = f"{quote(call.request.scope.get('root_path', ''))}/runs/{run.id}"
    return wire.json_response(run_document(run), 201 if created else 200, {"location": place})


async def cancel(call: Call) -> Response:
    """202 with the run: the wish is recorded. Asked again, or too late, it is the same answer."""
    wire.query(call.request)
    run = await call.run(auth.CANCEL)
    data = await _body(call)
    body = wire.fields(data, (), ("reason",)) if data else {}
    reason = wire.text(body.get("reason"), "reason", wire.MAX_REASON)
    run = await call.engine.cancel(run.tenant, run.id, by=call.principal.subject, reason=reason)
    return wire.json_response(run_document(run), 202)


async def decide(call: Call) -> Response:
    """200 with the interrupt as decided, also when the same decision comes again; 409 for another one."""
    wire.query(call.request)
    run = await call.run(auth.DECIDE)
    interrupt_id = call.request.path_params["interrupt_id"]
    if not is_id(interrupt_id):
        raise NotFound
    body = wire.fields(await _body(call), ("approved",), ("note", "value"))
    if not isinstance(body["approved"], bool):
        raise InvalidRequest("approved is true or false.", fields=["approved"])
    decision = {
        "approved": body["approved"],
        "note": wire.text(body.get("note"), "note", wire.MAX_NOTE),
        "value": body.get("value"),
    }
    if len(payloads.encode(decision)) > payloads.MAX_PAYLOAD:
        raise InvalidRequest(f"A decision has at most {payloads.MAX_PAYLOAD} bytes.", fields=["value"])
    found = await call.engine.decide(run.tenant, run.id, interrupt_id, decision, by=call.principal.subject)
    return wire.json_response(interrupt_document(found))


async def delete(call: Call) -> Response:
    """204: record, archive and projection of an ended run are gone. 409 while it goes on."""
    wire.query(call.request)
    run = await call.run(auth.DELETE)
    await call.engine.delete(run.tenant, run.id)
    return Response(None, 204, {"cache-control": "no-store"})


async def _body(call: Call) -> bytes:
    options = call.gate.options
    return await wire.read_body(call.request, options.max_body, options.body_timeout)


def _idempotency_key(call: Call) -> str | None:
    values = call.request.headers.getlist("idempotency-key")
    if len(values) > 1:
        raise InvalidRequest("Idempotency-Key is given more than once.", fields=["Idempotency-Key"])
    return wire.key(values[0] if values else None, "Idempotency-Key")
