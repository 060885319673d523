"""Every promise in docs/guarantees.md names a test, and every test that it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guarantees.md"
REFERENCE = re.compile(r"`((?:tests|src)/[\w/]+\.py)::(\w+)`")
# What stands under these headings promises nothing, and gives a reason instead of a test.
NOT_PROMISED = "Not promised"


def functions(path: Path) -> set[str]:
    """The names of all functions of a file."""
    found = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def missing(text: str, root: Path) -> list[str]:
    """References that lead nowhere."""
    known: dict[str, set[str]] = {}
    lost = []
    for file, name in REFERENCE.findall(text):
        if file not in known:
            known[file] = functions(root / file) if (root / file).is_file() else set()
        if name not in known[file]:
            lost.append(f"{file}::{name}")
    return lost


def untested(text: str) -> list[str]:
    """Rows of tables, outside of what is not promised, that name no test."""
    heading, found = "", []
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        row = line.startswith("|") and not line.startswith(("|---", "| promise", "| bound"))
        if row and heading != NOT_PROMISED and not REFERENCE.search(line):
            found.append(line)
    return found


def test_every_test_that_is_named_exists() -> None:
    text = PAGE.read_text()
    assert len(REFERENCE.findall(text)) > 80
    assert missing(text, ROOT) == []


def test_every_promise_names_a_test() -> None:
    text = PAGE.read_text()
    assert untested(text) == []
    assert f"## {NOT_PROMISED}" in text


def test_a_name_that_is_not_there_is_found(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("async def test_one(): ...\ndef test_two(): ...\ntest_three = 3\n")
    text = " ".join(f"`tests/test_{name}`" for name in ("a.py::test_one", "a.py::test_two", "a.py::test_three"))
    assert missing(text + " `tests/test_b.py::test_one`", tmp_path) == [
        "tests/test_a.py::test_three",
        "tests/test_b.py::test_one",
    ]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("| a promise | |", True),
        ("| a promise | `tests/a.py::test_b` |", False),
        ("| promise | test |", False),
        ("|---|---|", False),
        ("words", False),
    ],
)
def test_a_promise_without_a_test_is_found(line: str, found: bool) -> None:
    assert bool(untested(f"## Text\n{line}\n")) is found
    assert untested(f"## {NOT_PROMISED}\n{line}\n") == []
