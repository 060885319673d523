"""A server's problem as the error that it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from playhead import errors
from playhead.errors import PlayheadError


def problem_of(status: int, body: bytes) -> PlayheadError:
    """The error with the problem's code, message and details. Of a code that this version does not know, one that
    carries it, and is retryable if the problem says so."""
    told = parsed(body)
    if not isinstance(told, dict) or not isinstance(told.get("code"), str):
        return PlayheadError(f"The server answered {status}.")
    details = told.get("details")
    given: Mapping[str, Any] = details if isinstance(details, dict) else {}
    kind = class_of(told["code"], retryable=told.get("retryable") is True)
    error = kind(str(told.get("detail") or told.get("title") or ""))
    error.details = dict(given)
    return error


def class_of(code: str, *, retryable: bool = False) -> type[PlayheadError]:
    for one in vars(errors).values():
        if isinstance(one, type) and issubclass(one, PlayheadError) and one.code == code:
            return one
    return type("Refused", (PlayheadError,), {"code": code, "retryable": retryable, "__doc__": PlayheadError.__doc__})


def parsed(body: bytes) -> Any:
    """The JSON in it, or None."""
    try:
        return orjson.loads(body)
    except ValueError:
        return None
