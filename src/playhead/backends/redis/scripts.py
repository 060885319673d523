"""The scripts: one file for each act of the ports, and what several of them use, joined when they are loaded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).with_name("lua")


@dataclass(frozen=True, slots=True)
class Script:
    """`text` is what the server is given once, `sha` what it is called by from then on."""

    name: str
    text: bytes
    sha: bytes


@cache
def load(name: str) -> Script:
    """The script of this name. Its second line says which shared pieces go before it."""
    flags, uses, body = (_FOLDER / f"{name}.lua").read_text().split("\n", 2)
    shared = [(_FOLDER / "shared" / f"{piece}.lua").read_text() for piece in uses.removeprefix("-- uses: ").split()]
    text = "\n".join([flags, *shared, body]).encode()
    return Script(name, text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())
