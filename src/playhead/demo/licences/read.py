"""Read which distributions an interpreter has, and what their metadata says about licences."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

from playhead.demo.licences import probe
from playhead.demo.licences.errors import PythonUnusable

ANSWER_WITHIN = 120.0  # seconds: a cold disk with thousands of distributions is slow

# Core metadata specification, Name.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
# The input of a run names this program, so it runs nothing that is not called like a Python.
_INTERPRETER = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)?)?t?(?:\.exe)?", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Problem(StrEnum):
    """Why an entry's metadata is not to be trusted."""

    MISSING_METADATA = "missing_metadata"
    UNREADABLE_METADATA = "unreadable_metadata"
    UNDECODABLE_METADATA = "undecodable_metadata"
    INVALID_NAME = "invalid_name"


@dataclass(frozen=True, slots=True)
class Distribution:
    """What the metadata of one installed distribution says.

    `name` is as spelt in the metadata (or taken from the metadata folder's name if the metadata has none), `version`
    may be empty, `license_text` is the start (200 characters) of the License field, `classifiers` are the ones that
    begin with "License ::".
    """

    name: str
    version: str
    license_expression: str | None = None
    license_text: str | None = None
    classifiers: tuple[str, ...] = ()
    problem: Problem | None = None

    @property
    def key(self) -> str:
        return normalized_name(self.name)


def normalized_name(name: str) -> str:
    """Return the form in which names are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(python: str | None = None, *, path: Sequence[str] | None = None) -> list[Distribution]:
    """Return the distributions of this interpreter, or of the interpreter at `python`, sorted by normalized name.

    Each name comes once: the first that Python finds, one with sound metadata before one without. `path` are folders
    to search in place of this interpreter's own. Another interpreter runs isolated (-I), without the user's own
    site-packages, and must be Python 3.8 or later.

    Raises:
        PythonUnusable: `python` is not an interpreter that answers; `details["reason"]` says why.
    """
    rows = probe.records(None if path is None else list(path)) if python is None else _ask(python)
    best: dict[str, Distribution] = {}
    for row in rows:
        dist = _distribution(row)
        seen = best.get(dist.key)
        if seen is None or (seen.problem is not None and dist.problem is None):
            best[dist.key] = dist
    return [best[key] for key in sorted(best)]


def _ask(python: str) -> list[dict[str, object]]:
    if "\0" in python or not _INTERPRETER.fullmatch(Path(python).name):
        raise PythonUnusable("The file is not named like a Python interpreter.", reason="name")
    if not (os.path.isfile(python) and os.access(python, os.X_OK)):
        raise PythonUnusable("There is no such program.", reason="absent")
    source = files("playhead.demo.licences").joinpath("probe.py").read_text("utf-8")
    try:
        done = subprocess.run(
            [os.path.abspath(python), "-I", "-c", source],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_WITHIN,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PythonUnusable("The interpreter did not answer in time.", reason="timeout") from None
    except OSError:
        raise PythonUnusable("The program could not be started.", reason="start") from None
    # Its error output names local files, so it is not passed on.
    if done.returncode != 0:
        raise PythonUnusable("The interpreter could not list its distributions.", reason="failed")
    try:
        rows = json.loads(done.stdout)
        if isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
            return rows
    except ValueError:
        pass
    raise PythonUnusable("The program answered something else than a Python would.", reason="answer")


def _distribution(row: dict[str, object]) -> Distribution:
    problem = next((known for known in Problem if known == row.get("problem")), None)
    name, version = _line(row.get("name")) or "", _line(row.get("version")) or ""
    if not _NAME.fullmatch(name):
        problem = problem or Problem.INVALID_NAME
        name, version = _from_folder(str(row.get("folder") or ""), version)
    classifiers = row.get("classifiers")
    listed = classifiers if isinstance(classifiers, list) else []
    return Distribution(
        name=name,
        version=version,
        license_expression=_line(row.get("license_expression")),
        license_text=_clean(row.get("license_text")),
        classifiers=tuple(line for value in listed if (line := _line(value)) and line.startswith("License ::")),
        problem=problem,
    )


def _from_folder(folder: str, version: str) -> tuple[str, str]:
    stem = re.sub(r"\.(?:dist|egg)-info$", "", folder)
    name, _, rest = stem.partition("-")
    name = re.sub(r"[^A-Za-z0-9._-]", "", name).strip("._-")[:100]
    return name or "unnamed", version or re.sub(r"[^A-Za-z0-9.+!_-]", "", rest)[:100]


def _clean(value: object) -> str | None:
    """Drop what no JSON text or terminal should be handed, and treat an empty field as an absent one."""
    text = _CONTROL.sub("", value).strip() if isinstance(value, str) else ""
    return text or None


def _line(value: object) -> str | None:
    text = _clean(value)
    return None if text is None else " ".join(text.split())[:1000]
