"""Payloads: strict JSON (`encode`, `parse`), text that is always valid, and bounds that say what they cut."""

from __future__ import annotations

import re
from typing import Any

import orjson

from playhead.core.characters import TextJoiner, well_formed
from playhead.core.encoding import DOCUMENT_DEPTH, MAX_DEPTH, MAX_INT, encode, parse, plain

__all__ = [
    "DOCUMENT_DEPTH",
    "MAX_DEPTH",
    "MAX_FIELD",
    "MAX_IDENTITY",
    "MAX_INT",
    "MAX_PAYLOAD",
    "TextJoiner",
    "bounded",
    "encode",
    "parse",
    "plain",
    "well_formed",
]

# All in bytes of encoded JSON.
MAX_PAYLOAD = 256 << 10
MAX_FIELD = 32 << 10  # the preview of one field
MAX_IDENTITY = 2048  # a field when even the previews are too many

_RESERVED = ("truncated", "original_bytes", "truncated_fields", "dropped_fields")
_TYPES: dict[type, str] = {str: "string", list: "array", dict: "object"}
_WHOLE_ESCAPES = re.compile(rb"(?:[^\\]++|\\u[0-9a-f]{4}|\\[^u])*+")


def bounded(value: object, *, limit: int = MAX_PAYLOAD, field: int = MAX_FIELD) -> bytes:
    """Encode a value in at most `limit` bytes, cutting what is too large and saying so.

    An object keeps its fields, except that each one over `field` bytes becomes a preview: the beginning of its text,
    or of its JSON text when it was not text, ending between two characters. The object then gains `truncated: true`,
    `original_bytes` (of the whole) and `truncated_fields`: by name, its `original_bytes` and the `type` it had. If
    that is still too large, fields are kept shortest first, so that identity survives, each cut at 2,048 bytes, and
    `dropped_fields` counts the others. Anything but an object is cut as the one field `value`. These four names are
    reserved: when something is cut, they replace the payload's own.

    Redact before this: a secret that was cut is no longer recognized.

    Raises:
        PayloadNotJson: as `encode`.
        ValueError: a bound is below 1 KiB, which cannot hold what has to be said.
    """
    if min(limit, field) < 1024:
        raise ValueError("a bound is below 1 KiB")
    data = encode(value)
    if len(data) <= limit:
        return data
    loaded = orjson.loads(data)
    fields = loaded if isinstance(loaded, dict) else {"value": loaded}
    for name in _RESERVED:
        fields.pop(name, None)
    sizes = {name: len(encode(item)) for name, item in fields.items()}
    cut = _cut(fields, sizes, list(fields), len(data), field)
    if len(cut) <= limit:
        return cut
    bound = min(MAX_IDENTITY, limit // 4)
    room = limit - 256  # the rest is for what is said about the whole
    names = []
    for name in sorted(fields, key=sizes.__getitem__):
        # A name is written twice when its field is cut, the second time with some 60 bytes about it.
        need = 2 * len(encode(name)) + min(sizes[name], bound) + 64
        if need <= room:
            room -= need
            names.append(name)
    return _cut(fields, sizes, names, len(data), bound)


def _cut(fields: dict[str, Any], sizes: dict[str, int], names: list[str], total: int, bound: int) -> bytes:
    kept = {name: _preview(fields[name], bound) if sizes[name] > bound else fields[name] for name in names}
    said: dict[str, Any] = {"truncated": True, "original_bytes": total}
    said["truncated_fields"] = {
        name: {"original_bytes": sizes[name], "type": _TYPES[type(fields[name])]}
        for name in names
        if sizes[name] > bound
    }
    if len(names) < len(fields):
        said["dropped_fields"] = len(fields) - len(names)
    return encode(kept | said)


def _preview(item: Any, bound: int) -> str:
    """The longest beginning of the text whose encoded form fits the bound and ends between two characters."""
    text = item if isinstance(item, str) else encode(item).decode()
    body = encode(text[:bound])[1:-1][: bound - 2]
    whole = _WHOLE_ESCAPES.match(body)
    assert whole is not None  # it matches the empty string
    beginning: str = orjson.loads(b'"' + whole[0].decode(errors="ignore").encode() + b'"')
    return beginning
