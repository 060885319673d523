"""The mutator makes the wrongs that it says, and the runner tells a test that notices from one that does not."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.mutation import runner
from tests.mutation.mutator import Mutant, mutants, mutated
from tests.mutation.runner import CORE, ROOT, all_mutants, sample

SOURCE = '''"""Words."""
from typing import TYPE_CHECKING
LIMIT = 3
if TYPE_CHECKING:
    DEBUG = 1
@decorated(slots=True)
class Thing:
    size: int = 7
def f(a: Literal[1], b=True) -> int:
    """More words."""
    assert a == 1
    if a < LIMIT and not b:
        a += 2
        raise ValueError("no")
    return a if b else None
'''


def changed(source: str) -> set[tuple[int, str, str]]:
    """Each mutant as its line, its name and the lines that differ."""
    right = ast.unparse(ast.parse(source)).splitlines()
    found = set()
    for one in mutants(source):
        wrong = mutated(source, one).splitlines()
        assert len(wrong) == len(right)
        [differs] = [line.strip() for line, before in zip(wrong, right, strict=True) if line != before]
        found.add((one.line, one.what, differs))
    return found


def test_each_wrong_is_made_once_and_alone() -> None:
    assert changed(SOURCE) == {
        (3, "3 becomes 4", "LIMIT = 4"),
        (3, "3 becomes 2", "LIMIT = 2"),
        (8, "7 becomes 8", "size: int = 8"),
        (8, "7 becomes 6", "size: int = 6"),
        (9, "True becomes False", "def f(a: Literal[1], b=False) -> int:"),
        (12, "and becomes or", "if a < LIMIT or not b:"),
        (12, "lt becomes lte", "if a <= LIMIT and (not b):"),
        (12, "not is left out", "if a < LIMIT and b:"),
        (13, "augassign is left out", "pass"),
        (13, "2 becomes 3", "a += 3"),
        (13, "2 becomes 1", "a += 1"),
        (14, "raise is left out", "pass"),
        (15, "None is returned", "return None"),
        (15, "the condition is turned", "return a if not b else None"),
    }


def test_the_source_is_whole_again_after_each() -> None:
    texts = {mutated(SOURCE, one) for one in mutants(SOURCE)}
    assert len(texts) == len(mutants(SOURCE)) == 14


def test_core_has_many_mutants_and_a_sample_of_them_goes_by_its_seed() -> None:
    everything = all_mutants()
    assert len(everything) > 1_000
    assert {module for module, _ in everything} >= {"cursor.py", "lifecycle.py", "transition.py"}
    assert sample(20, 1) == sample(20, 1) != sample(20, 2)
    for module, one in sample(20, 3):
        ast.parse(mutated((ROOT / CORE / module).read_text(), one))


def test_a_mutant_is_killed_by_a_test_that_notices_it_and_by_no_other(tmp_path: Path) -> None:
    """In trees whose one test looks at one of two functions."""
    tree = tmp_path / "right"
    for name, text in {
        CORE / "__init__.py": "",
        CORE / "sums.py": "def seen(a): return a + 1\ndef unseen(a): return a + 1\n",
        Path("src/playhead/__init__.py"): "",
        Path("tests/core/test_sums.py"): "from playhead.core import sums\ndef test(): assert sums.seen(1) == 2\n",
        Path("tests/core/conftest.py"): "from hypothesis import settings\nsettings.register_profile('patient')\n",
        Path("tests/__init__.py"): "",
        Path("tests/conftest.py"): "",
        Path("tests/plugins/__init__.py"): "",
        Path("pyproject.toml"): "[tool.pytest.ini_options]\naddopts = ['--import-mode=importlib']\n",
    }.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    right = (tree / CORE / "sums.py").read_text()
    chosen: list[tuple[str, Mutant]] = [
        ("sums.py", one) for one in mutants(right) if one.what in ("1 becomes 2", "None is returned")
    ]
    tried = runner.run(chosen, tmp_path / "trees", root=tree)
    assert {(str(one), one.killed) for one in tried} == {
        ("sums.py:1: 1 becomes 2", True),
        ("sums.py:1: None is returned", True),
        ("sums.py:2: 1 becomes 2", False),
        ("sums.py:2: None is returned", False),
    }
    for number in ("0", "1"):
        assert (tmp_path / "trees" / number / CORE / "sums.py").read_text() == right
