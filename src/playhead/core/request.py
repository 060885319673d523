"""What somebody may ask for with a new run: its labels, its key, and the digest that tells two bodies apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from playhead.core import payload as payloads
from playhead.core.ids import is_key, is_label
from playhead.errors import InvalidRequest

MAX_LABELS = 16
MAX_LABEL = 256  # characters of a label's value


def digest(body: Mapping[str, Any]) -> str:
    """Of a body as it was sent, whatever the order of its keys."""
    text = json.dumps(body, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels as they are stored. Raises InvalidRequest."""
    if len(labels) > MAX_LABELS:
        raise InvalidRequest(f"A run has at most {MAX_LABELS} labels.")
    for name, value in labels.items():
        if not isinstance(name, str) or not is_label(name):
            raise InvalidRequest("A label's name is letters, digits, dot, dash and underscore, at most 64.")
        if not isinstance(value, str) or len(value) > MAX_LABEL:
            raise InvalidRequest(f"A label's value is text of at most {MAX_LABEL} characters.", label=name)
    return {name: payloads.well_formed(value) for name, value in labels.items()}


def checked_key(key: str | None, what: str = "A key") -> str | None:
    """Raises InvalidRequest for what can be neither an external key nor an idempotency key."""
    if key is not None and not is_key(key):
        raise InvalidRequest(f"{what} is 1 to 255 visible ASCII characters.")
    return key
