"""Redaction: what looks like a secret is replaced before any store sees it, also when it comes in pieces.

The lead of a secret (`sk-`, `Bearer `, `password=`) is kept, so that a reader sees what was there. Redact first and
bound the size afterwards: a secret that was cut is no longer recognized.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from playhead.core.encoding import MAX_DEPTH, plain
from playhead.core.scanner import MARK, Scanner, scan
from playhead.errors import PayloadNotJson

__all__ = ["MARK", "SECRET_KEYS", "Redactor", "TextRedactor"]

MAX_WORD = 256  # characters

# Compared in lower case without `_`, `-`, `.` and spaces; a key that ends with one of them is secret.
SECRET_KEYS = (
    "accesskey",
    "accesskeyid",
    "apikey",
    "authorization",
    "cookie",
    "credentials",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "pwd",
    "secret",
    "secretkey",
    "secrets",
    "token",
)
_SEPARATORS = dict.fromkeys(map(ord, "_-. "))


@dataclass(frozen=True, slots=True, kw_only=True)
class Redactor:
    """What counts as a secret. The default patterns always apply; `patterns` and `hook` add to them.

    `keys` are the object keys whose value is replaced whole, whatever it is; only null, booleans and a number under a
    key that ends with `token` (a count, or a fence) stay. `hook` takes each text after all patterns and returns what
    may be stored; when it fails, the whole text is replaced.
    """

    patterns: tuple[re.Pattern[str], ...] = ()
    keys: tuple[str, ...] = SECRET_KEYS
    hook: Callable[[str], str] | None = None

    def text(self, text: str) -> str:
        """The text without its secrets."""
        return self.own(scan(text))

    def value(self, value: object) -> Any:
        """The value without its secrets, in keys too, as a new value of JSON's own types.

        Raises:
            PayloadNotJson: as `encode` does, for a value inside that has no JSON form.
        """
        return self._value(value, 0)

    def own(self, text: str) -> str:
        """Apply only what was added to the default patterns."""
        for pattern in self.patterns:
            text = pattern.sub(MARK, text)
        if self.hook is None:
            return text
        try:
            return self.hook(text)
        except Exception:
            # Somebody else's code: what it could not look at may be a secret.
            return MARK

    def _value(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return self.text(value)
        if value is None or kind is bool or kind is int or kind is float:
            return value
        if kind is not dict and kind is not list and kind is not tuple:
            return self._value(plain(value), depth)
        if depth == MAX_DEPTH:
            raise PayloadNotJson(f"The value is nested deeper than {MAX_DEPTH} levels.")
        if kind is not dict:
            return [self._value(item, depth + 1) for item in value]
        return dict(self._entry(key, item, depth + 1) for key, item in value.items())

    def _entry(self, key: Any, item: Any, depth: int) -> tuple[Any, Any]:
        if not isinstance(key, str):
            return key, self._value(item, depth)  # the encoder refuses it by its path
        clean, folded = _known(key) if len(key) <= 64 else (scan(key), _folded(key[-64:]))
        counts = item is None or isinstance(item, bool) or (isinstance(item, int | float) and folded.endswith("token"))
        secret = folded.endswith(self.keys) and not counts
        return self.own(clean), MARK if secret else self._value(item, depth)


class TextRedactor:
    """Redacts text that comes in pieces, over their borders.

    Guarantees:
        For the default patterns, the outputs of `feed` and `flush` together are `Redactor.text` of the whole text
        wherever it is cut, nothing of a secret is handed out, and text without a lead passes at once.
        Patterns and a hook of one's own are shown whole words. So the last word waits, up to 256 characters, and what
        spans white space or is longer may be missed.
    """

    __slots__ = ("_redactor", "_scanner", "_word")

    def __init__(self, redactor: Redactor | None = None) -> None:
        self._redactor = redactor or Redactor()
        self._scanner = Scanner()
        self._word = ""

    def feed(self, piece: str) -> str:
        text = self._scanner.feed(piece)
        if not self._redactor.patterns and self._redactor.hook is None:
            return text
        text = self._word + text
        cut = max(map(text.rfind, " \n\t\r")) + 1
        if len(text) - cut > MAX_WORD:
            cut = len(text)
        self._word = text[cut:]
        return self._redactor.own(text[:cut]) if cut else ""

    def flush(self) -> str:
        """Return what is still held, as nothing follows; the next piece begins a new text."""
        text = self._word + self._scanner.flush()
        self._word = ""
        return self._redactor.own(text) if text else ""


@lru_cache(maxsize=4096)
def _known(key: str) -> tuple[str, str]:
    return scan(key), _folded(key)


def _folded(key: str) -> str:
    return key.lower().translate(_SEPARATORS)
