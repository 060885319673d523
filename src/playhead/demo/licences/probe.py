"""List the distributions that the running interpreter sees, as plain JSON values.

The source of this file is also run by other interpreters (`read.installed` passes it to `python -c`), so it uses the
standard library alone and nothing newer than Python 3.8.
"""

from __future__ import annotations

import json
import sys
from email.parser import HeaderParser
from importlib import metadata

TEXT_KEPT = 200  # characters of the License field: enough to recognise a name, too few to carry a licence's whole text
FIELD_KEPT = 2000


def records(path: list[str] | None = None) -> list[dict[str, object]]:
    """Return one record for each metadata folder or file, in the order in which Python searches for them.

    Never raises for a broken entry: its record has a `problem`. `folder` is the last part of the entry's path, which
    names the distribution when its own metadata does not.
    """
    found = metadata.distributions() if path is None else metadata.distributions(path=path)
    entries = []
    for dist in found:
        folder = str(getattr(getattr(dist, "_path", None), "name", ""))
        # pip renames what it could not delete to ~name; Python can no longer import it.
        if not folder.startswith("~"):
            entries.append(_record(dist, folder))
    return entries


def _record(dist: metadata.Distribution, folder: str) -> dict[str, object]:
    text, problem = _text(dist)
    headers = HeaderParser().parsestr(text)

    def field(name: str, kept: int = FIELD_KEPT) -> str | None:
        value = headers.get(name)
        return None if value is None else str(value)[:kept]

    return {
        "folder": folder,
        "problem": problem,
        "name": field("Name"),
        "version": field("Version"),
        "license_expression": field("License-Expression"),
        "license_text": field("License", TEXT_KEPT),
        "classifiers": [str(value)[:TEXT_KEPT] for value in headers.get_all("Classifier", [])],
    }


def _text(dist: metadata.Distribution) -> tuple[str, str | None]:
    try:
        # The third form is the single .egg-info file that distutils wrote.
        text = dist.read_text("METADATA") or dist.read_text("PKG-INFO") or dist.read_text("")
    except UnicodeDecodeError:
        return _undecodable(dist), "undecodable_metadata"
    except Exception:  # a finder may raise anything, and one bad entry must not hide the others
        return "", "unreadable_metadata"
    return (text, None) if text and text.strip() else ("", "missing_metadata")


def _undecodable(dist: metadata.Distribution) -> str:
    """Read the name and the version of metadata that is not UTF-8 as well as can be done."""
    for name in ("METADATA", "PKG-INFO", ""):
        try:
            entry = dist._path.joinpath(name) if name else dist._path  # type: ignore[attr-defined]
            return str(entry.read_bytes().decode("utf-8", "replace"))
        except Exception:  # the entry may live in a zip file, or be gone by now
            continue
    return ""


if __name__ == "__main__":
    json.dump(records(), sys.stdout)
