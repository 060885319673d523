"""Reading requests strictly, and writing JSON answers. Whatever does not fit the wire contract is named and refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from playhead.core import payload as payloads
from playhead.core.ids import is_key, is_label
from playhead.core.run import Run
from playhead.errors import InvalidRequest, PayloadTooLarge
from playhead.gateway.auth import is_json
from playhead.gateway.problems import ANSWER, RequestTimeout, UnsupportedMediaType

MAX_LABELS = 16
MAX_LABEL = 256  # characters of a value
MAX_NOTE = 2_000  # characters
MAX_REASON = 500  # characters
MAX_QUERY = 4_096  # bytes
LINGER = 2.0  # seconds
LINGER_BYTES = 8 << 20

_EVENT = re.compile(r"[A-Za-z0-9_.:-]{1,200}", re.ASCII)  # what follows the run in an event's id


def json_response(data: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Bytes that are JSON already."""
    return Response(data, status, {**ANSWER, **(headers or {})}, "application/json")


async def read_body(request: Request, limit: int, timeout: float) -> bytes:
    """The whole body. Raises PayloadTooLarge as soon as that is known, RequestTimeout, UnsupportedMediaType."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared[:19]) > limit:
        await _let_send(request)
        raise PayloadTooLarge("The body is larger than its bound.", limit=limit)
    body = bytearray()
    try:
        async with asyncio.timeout(timeout):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    await _let_send(request)
                    raise PayloadTooLarge("The body is larger than its bound.", limit=limit)
    except TimeoutError:
        raise RequestTimeout from None
    if body and (not is_json(request) or request.headers.get("content-encoding", "identity") != "identity"):
        raise UnsupportedMediaType
    return bytes(body)


async def _let_send(request: Request) -> None:
    """Throw away the rest of a body, within bounds: a client that is cut off while it sends never reads why."""
    seen = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER):
            async for chunk in request.stream():
                seen += len(chunk)
                if seen > LINGER_BYTES:
                    return


def fields(data: bytes, required: Collection[str], optional: Collection[str] = ()) -> dict[str, Any]:
    """A body that is one object with these fields and no others. Raises BadJson, InvalidRequest naming the fields."""
    value = payloads.parse(data)
    if not isinstance(value, dict):
        raise InvalidRequest("The body is not a JSON object.")
    _known(value, {*required, *optional}, "The body", "field")
    if missing := sorted(set(required) - value.keys()):
        raise InvalidRequest(f"The body lacks {', '.join(missing)}.", fields=missing)
    return value


def text(value: Any, field: str, limit: int) -> str | None:
    """An optional text. Raises InvalidRequest."""
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > limit:
        raise InvalidRequest(f"{field} is text of at most {limit} characters.", fields=[field])
    return value


def key(value: Any, field: str) -> str | None:
    """An optional key of the caller's own making. Raises InvalidRequest."""
    if value is None:
        return None
    if not isinstance(value, str) or not is_key(value):
        raise InvalidRequest(f"{field} is 1 to 255 visible ASCII characters.", fields=[field])
    return value


def labels(value: Any) -> dict[str, str]:
    """Labels as a body or a query gives them. Raises InvalidRequest."""
    if not isinstance(value, dict) or len(value) > MAX_LABELS:
        raise InvalidRequest(f"labels is an object of at most {MAX_LABELS} texts.", fields=["labels"])
    for name, item in value.items():
        if not is_label(name):
            raise InvalidRequest("A label's name is a letter and up to 63 letters, digits, _ . or -", fields=["labels"])
        # Line breaks and NUL are of no use in a label, and not every store can hold or search them.
        if not isinstance(item, str) or len(item) > MAX_LABEL or not (item.isprintable() or not item):
            raise InvalidRequest(
                f"The label {name} is printable text of at most {MAX_LABEL} characters.", fields=["labels"]
            )
    return value


def query(request: HTTPConnection, *known: str, limit: int = MAX_QUERY) -> None:
    """Raise InvalidRequest for a query that is too long, not UTF-8, or has parameters this call does not take."""
    raw = request.scope.get("query_string", b"")
    if len(raw) > limit:
        raise InvalidRequest(f"The query is longer than {limit} bytes.")
    _known(dict(request.query_params), set(known), "The query", "parameter")


def one(request: Request, name: str) -> str | None:
    """A parameter that comes at most once; an empty one counts as absent. Raises InvalidRequest."""
    values = request.query_params.getlist(name)
    if len(values) > 1:
        raise InvalidRequest(f"{name} is given more than once.", fields=[name])
    return values[0] if values and values[0] else None


def number(request: Request, name: str, default: int, least: int, most: int) -> int:
    """A whole number in its bounds. Raises InvalidRequest."""
    given = one(request, name)
    if given is None:
        return default
    if not (given.isascii() and given.isdecimal() and len(given) <= 16 and least <= int(given) <= most):
        raise InvalidRequest(f"{name} is a whole number from {least} to {most}.", fields=[name])
    return int(given)


def before(request: Request, run: Run) -> str | None:
    """The id of an event of this run. Raises InvalidRequest; whether there is such an event is not asked."""
    given = one(request, "before")
    if given is None:
        return None
    for prefix in (f"{run.id}:", f"run:{run.id}:"):
        rest = given.removeprefix(prefix)
        if rest != given and _EVENT.fullmatch(rest):
            return given
    raise InvalidRequest("before is the id of an event of this run.", fields=["before"])


def _known(given: Mapping[str, Any], known: set[str], what: str, kind: str) -> None:
    if unknown := sorted(payloads.well_formed(name)[:64] for name in given if name not in known)[:10]:
        raise InvalidRequest(f"{what} has an unknown {kind}: {', '.join(unknown)}.", fields=unknown)
