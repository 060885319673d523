"""Named SQL out of a file: a section begins with `-- name: x`, and `{y}` in it stands for an earlier section."""

from __future__ import annotations

import re
from pathlib import Path

_HEAD = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_NESTED = re.compile(r"\{(\w+)\}")


def load(path: Path) -> dict[str, str]:
    """Read the sections of a file. Raises KeyError for a `{name}` that no earlier section has."""
    parts = _HEAD.split(path.read_text("utf-8"))[1:]
    found: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        lines = [line for line in body.splitlines() if line.strip() and not line.startswith("--")]
        found[name] = _NESTED.sub(lambda match: found[match[1]], "\n".join(lines).rstrip(";"))
    return found
