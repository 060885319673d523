"""Strict JSON, in and out.

What JSON cannot say has one documented form: NaN and the infinities are null; halves of a surrogate pair are joined,
or become U+FFFD when alone; whole numbers beyond 2^53 - 1 either way are strings, because a browser would round them;
decimals are strings; times are UTC, ISO 8601 with Z; U+0000 is kept, escaped. Bytes, sets, datetimes without a zone
and keys that are not text are refused by their path. Every line separator is escaped, so that encoded JSON is one
line to every client, also to one that splits text by Unicode's rules.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, NoReturn
from uuid import UUID

import orjson

from playhead.core.characters import well_formed
from playhead.errors import BadJson, PayloadNotJson

MAX_DEPTH = 64
# Of a document of our own: it holds payloads of the full depth some levels down, as a resync holds a screen.
DOCUMENT_DEPTH = MAX_DEPTH + 8
MAX_INT = 2**53 - 1

_OPTIONS = orjson.OPT_STRICT_INTEGER | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_TO_SQUARE = bytes.maketrans(b"{}", b"[]")
# Possessive, and a string that never ends matches to the end: hostile bytes cost linear time.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def encode(value: object) -> bytes:
    """Encode a value as compact strict JSON in one line.

    Takes JSON's own types, tuples, enums, UUIDs, decimals, dates, zoned datetimes, dataclasses (fields that begin
    with an underscore stay out) and whatever has Pydantic's `model_dump(mode="json")`.

    Raises:
        PayloadNotJson: with the path of the first value that has no JSON form, or that is nested deeper than 64.
    """
    try:
        data = orjson.dumps(value, _converted, _OPTIONS)
    except TypeError:
        # The slow path repairs text, and knows where it is when it has to refuse.
        data = orjson.dumps(plain(value), option=_OPTIONS)
    if not data.isascii():
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
        data = data.replace(b"\xc2\x85", b"\\u0085")
    if len(data) > 2 * MAX_DEPTH and _too_deep(data, MAX_DEPTH):
        plain(value)  # refuses with the path
        raise PayloadNotJson(f"The value is nested deeper than {MAX_DEPTH} levels.")
    return data


def plain(value: object) -> Any:
    """The value as JSON's own types only, its text repaired. Raises PayloadNotJson as `encode` does."""
    return _plain(value, "$", 0)


def parse(data: bytes, *, depth: int = MAX_DEPTH) -> Any:
    """Parse strict JSON. Lone surrogate halves, which JSON can spell, are repaired.

    `depth` is DOCUMENT_DEPTH for a document of our own.

    Raises:
        BadJson: naming the place, for anything that is not JSON by RFC 8259, for bytes that are not UTF-8, a key
            that an object has twice, a number too large to hold, and nesting deeper than `depth`.
    """
    try:
        text = data.decode()
        if _too_deep(data, depth):
            # Before the parser, which recurses. Brackets that do not pair are told by it when there are few.
            raise BadJson(f"The JSON is nested deeper than {depth} levels, or its brackets do not match.")
        value = _DECODER.decode(text)
    except UnicodeDecodeError as error:
        raise BadJson(f"The JSON is not valid UTF-8 at byte {error.start}.", position=error.start) from error
    except json.JSONDecodeError as error:
        raise BadJson(f"The JSON is not valid at character {error.pos}: {error.msg}.", position=error.pos) from error
    except ValueError as error:  # a whole number of thousands of digits
        raise BadJson("The JSON has a number that is too large.") from error
    return _repaired(value) if _HALF.search(text) else value


def _plain(value: object, path: str, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return _plain(value.value, path, depth)
    if isinstance(value, str):
        return well_formed(str.__str__(value))
    if isinstance(value, int):
        return int(value) if -MAX_INT <= value <= MAX_INT else _digits(value, path)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, dict | list | tuple):
        if depth == MAX_DEPTH:
            _refuse(f"is nested deeper than {MAX_DEPTH} levels", path)
        if not isinstance(value, dict):
            return [_plain(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        result: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                _refuse(f"has a key that is not text but {type(key).__name__}", path)
            name = well_formed(str.__str__(key))
            result[name] = _plain(item, f"{path}.{name[:64]}", depth + 1)
        return result
    if isinstance(value, UUID):
        return str(value)
    try:
        simpler = _converted(value)
    except Exception as error:  # a model's own code may raise anything
        reason = str(error) if type(error) is TypeError else f"could not be converted: {type(error).__name__}"
        _refuse(reason, path, error)
    return _plain(simpler, path, depth)


def _converted(value: object) -> object:
    """One step towards JSON for a value that the encoder does not know."""
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise TypeError("is a datetime without a time zone")
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        return {name: getattr(value, name) for name in names if not name.startswith("_")}
    if (dump := getattr(type(value), "model_dump", None)) is not None and not isinstance(value, type):
        return dump(value, mode="json")
    raise TypeError(f"is of a type that JSON does not have: {type(value).__name__}")


def _digits(value: int, path: str) -> str:
    try:
        return str(int(value))
    except ValueError as error:
        _refuse("is a whole number with too many digits", path, error)


def _refuse(reason: str, path: str, cause: BaseException | None = None) -> NoReturn:
    path = path if len(path) <= 512 else "…" + path[-512:]
    raise PayloadNotJson(f"The value at {path} {reason:.200}.", path=path) from cause


def _too_deep(data: bytes, depth: int) -> bool:
    if data.count(b"[") + data.count(b"{") <= depth:
        return False
    brackets = _STRING.sub(b"", data).translate(_TO_SQUARE, _NOT_BRACKETS)
    for _ in range(depth):  # each pass removes the innermost level, at C speed
        rest = brackets.replace(b"[]", b"")
        if len(rest) == len(brackets):
            break
        brackets = rest
    return bool(brackets)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            name = well_formed(name)[:64]
            raise BadJson(f"The JSON has the key {name!r} twice in one object.", key=name)
        seen.add(name)
    raise AssertionError("fewer keys than pairs, and none twice")


def _finite(digits: str) -> float:
    if math.isinf(value := float(digits)):
        raise BadJson(f"The JSON has a number that is too large: {digits:.32}.")
    return value


def _no_constant(name: str) -> NoReturn:
    raise BadJson(f"The JSON has {name}, which is not a JSON value.")


def _repaired(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_repaired(item) for item in value]
    if isinstance(value, dict):
        return {well_formed(name): _repaired(item) for name, item in value.items()}
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant)
