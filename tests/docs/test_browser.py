"""What docs/how-to/browser.md shows stands in the examples, which the browser's tests run."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "browser.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
KINDS = {"python": (".py",), "js": (".html", ".mjs"), "ts": (".ts", ".tsx"), "tsx": (".tsx",), "vue": (".vue",)}


ROOMS = ("examples", *(f"examples/{name}" for name in ("plain-html", "react", "vue", "fastapi", "node")))


def sources(kinds: tuple[str, ...]) -> Iterator[str]:
    for room in (*ROOMS, "tests/browser/examples"):
        for path in (ROOT / room).iterdir():
            if path.suffix in kinds:
                yield path.read_text()


SHOWN = [(kind, block) for kind, block in BLOCK.findall(PAGE) if kind != "sh"]


@pytest.mark.parametrize(("kind", "block"), SHOWN, ids=lambda value: value.split("\n")[0].strip()[:40])
def test_every_block_stands_in_an_example(kind: str, block: str) -> None:
    assert any(block in source for source in sources(KINDS[kind])), textwrap.dedent(block)


def test_the_commands_name_what_is_there() -> None:
    [block] = [block for kind, block in BLOCK.findall(PAGE) if kind == "sh"]
    parts = [shlex.split(one) for line in block.splitlines() for one in line.split("&&")]
    scripts = [(words[2], words[4]) for words in parts if words[:2] == ["npm", "--prefix"]]
    assert scripts == [("clients/typescript", "build"), ("examples", "build")]
    for room, script in scripts:
        assert script in json.loads((ROOT / room / "package.json").read_text())["scripts"]
    assert parts[-1][1:4] == ["-m", "uvicorn", "examples.serve:app"]  # as the browser's tests start it


def test_no_block_is_passed_over() -> None:
    assert PAGE.count("```") == 2 * len(BLOCK.findall(PAGE))
