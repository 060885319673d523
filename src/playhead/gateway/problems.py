"""Errors as RFC 9457 problems: the one table from code to status, and what a client may be told of each."""

from __future__ import annotations

import logging
import random
import traceback
import uuid
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from playhead.core import payload as payloads
from playhead.errors import NotFound, PlayheadError, Unauthenticated

log = logging.getLogger("playhead.gateway")

VERSION = 1  # of the wire contract; a page that is older than its server loads itself anew
# Of every answer: nothing between here and the client may keep it or take it for a page.
ANSWER = {"cache-control": "no-store", "playhead-wire": str(VERSION), "x-content-type-options": "nosniff"}

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:playhead:problem:"
INTERNAL = "internal_error"
MAX_DETAILS = 64 << 10  # bytes

STATUS: Mapping[str, int] = {
    "bad_json": 400,
    "invalid_request": 400,
    "invalid_event_type": 400,
    "invalid_part": 400,
    "invalid_state": 400,
    "payload_not_json": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "already_decided": 409,
    "approval_cancelled": 409,
    "approval_expired": 409,
    "attempt_lost": 409,
    "key_conflict": 409,
    "run_cancelled": 409,
    "run_final": 409,
    "run_interrupted": 409,
    "run_not_free": 409,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "invalid_input": 422,
    "unknown_agent": 422,
    "too_many_streams": 429,
    INTERNAL: 500,
    "not_in_server_process": 500,
    "store_corrupt": 500,
    "store_too_new": 500,
    "store_too_old": 500,
    "not_ready": 503,
    "store_unavailable": 503,
    "store_full": 507,
}

# Seconds. A client is told a time between this and twice this, so that those refused together do not return together.
RETRY_AFTER: Mapping[str, int] = {"run_not_free": 2, "request_timeout": 2, "store_full": 30, "too_many_streams": 20}
DEFAULT_RETRY_AFTER = 5

# What validation libraries add to their messages: the refused value itself, which no error repeats.
_VALUES = frozenset({"input", "ctx", "url"})


class MethodNotAllowed(PlayheadError):
    """This address does not take this method."""

    code = "method_not_allowed"


class UnsupportedMediaType(PlayheadError):
    """The body is not application/json in UTF-8."""

    code = "unsupported_media_type"


class RequestTimeout(PlayheadError):
    """The body did not arrive in time."""

    code = "request_timeout"
    retryable = True


class InternalError(PlayheadError):
    """The server made a mistake. It was logged under this reference."""

    code = INTERNAL


def problem(error: Exception, headers: Mapping[str, str] | None = None) -> Response:
    """The answer for an error. Guarantees that nothing of a request's body or token is in it, nor internals of ours."""
    known = error if isinstance(error, PlayheadError) and error.code in STATUS else logged(error)
    status = STATUS[known.code]
    title = _title(known)
    # Every absent thing looks alike, and a failing store's own words stay with us.
    plain = isinstance(known, NotFound) or (status >= 500 and known.code != INTERNAL)
    body: dict[str, Any] = {
        "type": TYPE + known.code,
        "title": title,
        "status": status,
        "code": known.code,
        "detail": title if plain else payloads.well_formed(known.message)[:1_000],
        "retryable": known.retryable,
    }
    if known.details and not plain:
        body["details"] = payloads.parse(payloads.bounded(_shown(known.details), limit=MAX_DETAILS))
    answer = {**ANSWER, **(headers or {})}
    if known.retryable:
        answer["retry-after"] = str(retry_after(known.code))
    if isinstance(known, Unauthenticated):
        answer.setdefault("www-authenticate", "Bearer")
    return Response(payloads.encode(body), status, answer, MEDIA_TYPE)


def retry_after(code: str) -> int:
    """How many seconds a refused client should wait, different for each."""
    least = RETRY_AFTER.get(code, DEFAULT_RETRY_AFTER)
    return least + random.randint(0, least)


def _title(error: PlayheadError) -> str:
    return " ".join((type(error).__doc__ or "").split())


def logged(error: Exception) -> InternalError:
    """Log where it happened and what kind it is, and not its words: they may repeat a payload."""
    reference = uuid.uuid4().hex
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    where = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))
    log.error("internal error %s: %s at %s", reference, type(error).__qualname__, where)
    return InternalError(reference=reference)


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name)[:200]: _shown(item) for name, item in value.items() if name not in _VALUES}
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    try:
        return payloads.plain(value)
    except PlayheadError:
        return None
