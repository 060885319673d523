"""The OpenAPI document: made by hand from the schemas in `spec/`, so that it says what the protocol says."""

from __future__ import annotations

import json
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from starlette.responses import Response

from playhead.core import payload as payloads
from playhead.core.composite import MAX_FEEDS
from playhead.gateway import wire
from playhead.gateway.auth import ACTIONS
from playhead.gateway.gate import Call, Handler
from playhead.version import __version__

URN = "urn:playhead:spec:"
SCHEMAS = ("agent", "bootstrap", "event", "interrupt", "problem", "run", "snapshot", "text")

_RUN_ID = {"name": "run_id", "in": "path", "required": True, "schema": {"type": "string"}}
_INTERRUPT_ID = {"name": "interrupt_id", "in": "path", "required": True, "schema": {"type": "string"}}


def spec() -> Traversable:
    """The folder of schemas: inside the installed package, or beside `src` in a clone."""
    shipped = files("playhead") / "spec"
    return shipped if shipped.is_dir() else Path(__file__).parents[3] / "spec"


def describe() -> dict[str, Any]:
    """The whole document. Reads the schemas, so it is made once, at the start."""
    folder = spec()
    schemas = {name: _component(json.loads((folder / f"{name}.schema.json").read_text("utf-8"))) for name in SCHEMAS}
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "playhead",
            "version": __version__,
            "summary": "Durable, resumable live runs for AI agents.",
            "description": "PROTOCOL.md is the normative text. Every error is a problem by RFC 9457.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "paths": _paths(),
        "components": {
            "schemas": schemas,
            "responses": {
                "problem": {"description": "An error.", "content": _json("problem", "application/problem+json")}
            },
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "What the server's authenticator asks; the default one asks no token, and answers "
                    f"its own machine only. Actions that an authorizer decides: {', '.join(ACTIONS)}.",
                }
            },
        },
        "security": [{}, {"bearer": []}],
    }


def serve(document: dict[str, Any]) -> Handler:
    data = payloads.encode(document)

    async def openapi(call: Call) -> Response:
        return wire.json_response(data)

    return openapi


def _paths() -> dict[str, Any]:
    whole = {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}
    run = _answer("The run.", _json("run"))
    return {
        "/agents": {"get": _get("listAgents", "Agents that can be started", _list("agents", "agent"))},
        "/runs": {
            "get": _get(
                "listRuns",
                "Runs, newest first",
                _list("runs", "run", next={"type": ["string", "null"], "description": "For `after`; null at the end."}),
                _query("status", {"type": "array", "items": {"type": "string"}}),
                _query("agent"),
                _query("label", {"type": "array", "items": {"type": "string"}}, "`name:value`; all must hold."),
                _query("key", text="The caller's own name of the run."),
                _query("limit", whole),
                _query("after", text="`next` of the page before."),
            ),
            "post": {
                "operationId": "startRun",
                "summary": "Start a run",
                "parameters": [
                    {
                        "name": "Idempotency-Key",
                        "in": "header",
                        "description": "The same key with the same body is the same run; with another body it is 409.",
                        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
                    }
                ],
                "requestBody": _body(
                    {
                        "type": "object",
                        "required": ["agent", "input"],
                        "additionalProperties": False,
                        "properties": {
                            "agent": {"type": "string"},
                            "input": {"description": "By the agent's input schema."},
                            "labels": {
                                "type": ["object", "null"],
                                "maxProperties": wire.MAX_LABELS,
                                "additionalProperties": {"type": "string", "maxLength": wire.MAX_LABEL},
                            },
                            "key": {"type": ["string", "null"], "minLength": 1, "maxLength": 255},
                        },
                    }
                ),
                "responses": {"200": _answer("The run made before.", _json("run")), "201": run} | _PROBLEMS,
            },
        },
        "/runs/{run_id}": {
            "parameters": [_RUN_ID],
            "get": _get("getRun", "A run as the record holds it", run),
            "delete": {
                "operationId": "deleteRun",
                "summary": "Erase an ended run: record, archive, projection",
                "responses": {"204": {"description": "Erased."}} | _PROBLEMS,
            },
        },
        "/runs/{run_id}/bootstrap": {
            "parameters": [_RUN_ID],
            "get": _get(
                "bootstrapRun",
                "The whole screen, and the cursor from which to follow",
                _answer("The screen.", _json("bootstrap")),
                _query("limit", {"type": "integer", "minimum": 0, "maximum": 200, "default": 50}),
            ),
        },
        "/runs/{run_id}/events": {
            "parameters": [_RUN_ID],
            "get": _get(
                "earlierEvents",
                "Events before another one, oldest first",
                _list("events", "event", timeline={"$ref": "#/components/schemas/bootstrap/properties/timeline"}),
                _query("before", text="The id of an event; without it, the newest."),
                _query("limit", whole),
            ),
        },
        "/runs/{run_id}/stream": {
            "parameters": [_RUN_ID],
            "get": _get(
                "streamRun",
                "Follow a run by server-sent events",
                _answer("Frames as in PROTOCOL.md.", {"text/event-stream": {"schema": {"type": "string"}}}),
                _query("cursor", text="Where to go on; the header Last-Event-ID beats it."),
                _query("resync", {"type": "string", "enum": ["inline"]}, "Go on with a bootstrap in the stream."),
                {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}},
                more={"204": {"description": "Nothing will follow: do not come back."}},
            ),
        },
        "/stream": {
            "get": _get(
                "streamRuns",
                "Follow several runs on one connection",
                _answer("Frames as in PROTOCOL.md.", {"text/event-stream": {"schema": {"type": "string"}}}),
                _query(
                    "run",
                    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_FEEDS},
                    "`<run id>` or `<run id>@<cursor>`.",
                )
                | {"required": True},
                _query("cursor", text="The id of an earlier connection; the header Last-Event-ID beats it."),
                _query(
                    "text",
                    {"type": "array", "items": {"type": "string"}},
                    "What the client holds: `run:<run id>.<attempt>.<part>:<end>`.",
                ),
                {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}},
                more={"204": {"description": "Nothing will follow: do not come back."}},
            ),
        },
        "/runs/{run_id}/cancel": {
            "parameters": [_RUN_ID],
            "post": {
                "operationId": "cancelRun",
                "summary": "Ask a run to stop",
                "requestBody": _body(
                    {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {"reason": {"type": ["string", "null"], "maxLength": wire.MAX_REASON}},
                    },
                    required=False,
                ),
                "responses": {"202": _answer("The wish is recorded.", _json("run"))} | _PROBLEMS,
            },
        },
        "/runs/{run_id}/interrupts/{interrupt_id}/decision": {
            "parameters": [_RUN_ID, _INTERRUPT_ID],
            "post": {
                "operationId": "decideInterrupt",
                "summary": "Answer a question; the first answer counts",
                "requestBody": _body(
                    {
                        "type": "object",
                        "required": ["approved"],
                        "additionalProperties": False,
                        "properties": {
                            "approved": {"type": "boolean"},
                            "note": {"type": ["string", "null"], "maxLength": wire.MAX_NOTE},
                            "value": {"description": "Whatever the question asks for beyond yes or no."},
                        },
                    }
                ),
                "responses": {"200": _answer("The interrupt as decided.", _json("interrupt"))} | _PROBLEMS,
            },
        },
        "/interrupts": {
            "get": _get(
                "listInterrupts",
                "Open questions to people, oldest first",
                _list("interrupts", "interrupt"),
                _query("run", text="Of this run alone."),
            )
        },
        "/healthz": {"get": _open("health", "The process answers", "application/json")},
        "/readyz": {"get": _open("readiness", "New work may be sent here", "application/json")},
        "/metrics": {"get": _open("metrics", "Counts and times, unless switched off", "text/plain")},
        "/openapi.json": {"get": _open("openapi", "This document", "application/json")},
        "/": {"get": _open("page", "The page, unless switched off", "text/html")},
    }


_PROBLEMS = {"default": {"$ref": "#/components/responses/problem"}}


def _get(operation: str, summary: str, answer: Any, *parameters: Any, more: dict[str, Any] | None = None) -> Any:
    found = {"operationId": operation, "summary": summary, "responses": {"200": answer} | (more or {}) | _PROBLEMS}
    return found | {"parameters": list(parameters)} if parameters else found


def _open(operation: str, summary: str, media: str) -> Any:
    kind = "object" if media == "application/json" else "string"
    return _get(operation, summary, _answer(f"{summary}.", {media: {"schema": {"type": kind}}})) | {"security": []}


def _query(name: str, schema: Any = None, text: str | None = None) -> dict[str, Any]:
    found = {"name": name, "in": "query", "schema": schema or {"type": "string"}}
    return found | {"description": text} if text else found


def _answer(text: str, content: Any) -> dict[str, Any]:
    return {"description": text, "content": content}


def _json(name: str, media: str = "application/json") -> dict[str, Any]:
    return {media: {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _list(field: str, name: str, **more: Any) -> dict[str, Any]:
    items = {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}
    schema = {"type": "object", "required": [field, *more], "properties": {field: items, **more}}
    return _answer("A page of them.", {"application/json": {"schema": schema}})


def _body(schema: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    return {"required": required, "content": {"application/json": {"schema": schema}}}


def _component(value: Any) -> Any:
    """A schema as a component: references by name become references inside the document."""
    if isinstance(value, dict):
        kept = {name: _component(item) for name, item in value.items() if name not in ("$schema", "$id")}
        if isinstance(reference := kept.get("$ref"), str) and reference.startswith(URN):
            kept["$ref"] = "#/components/schemas/" + reference.removeprefix(URN)
        return kept
    return [_component(item) for item in value] if isinstance(value, list) else value
