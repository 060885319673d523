"""Runs the tests of core against mutants of it, each in a copied tree of its own."""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.mutator import Mutant, mutants, mutated

ROOT = Path(__file__).parents[2]
CORE = Path("src/playhead/core")
COPIED = ("src/playhead", "tests/core", "tests/plugins", "tests/__init__.py", "tests/conftest.py", "pyproject.toml")
# To see that a test fails its first failing example is enough.
QUICK = """
from hypothesis import Phase

patient, phases = settings.get_profile("patient"), [Phase.explicit, Phase.generate]
settings.register_profile("quick", patient, phases=phases, database=None)
settings.load_profile("quick")
"""
PLUGINS = [
    f"-p{name}" for name in ("no:cacheprovider", "pytest_timeout", "anyio.pytest_plugin", "_hypothesis_pytestplugin")
]
CPU_SECONDS = 300  # of one mutant: what turns for ever ends here, on a slow machine too
MEMORY = 4 << 30


@dataclass(frozen=True, slots=True)
class Tried:
    module: str
    mutant: Mutant
    killed: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.mutant.line}: {self.mutant.what}"


def all_mutants(root: Path = ROOT) -> list[tuple[str, Mutant]]:
    """Module and mutant, in order."""
    return [(path.name, one) for path in sorted((root / CORE).glob("*.py")) for one in mutants(path.read_text())]


def sample(count: int, seed: int, root: Path = ROOT) -> list[tuple[str, Mutant]]:
    everything = all_mutants(root)
    return random.Random(seed).sample(everything, min(count, len(everything)))


def copy_tree(folder: Path, root: Path = ROOT) -> None:
    """What the tests of core need, and nothing that a mutant could reach beyond it."""
    for name in COPIED:
        source, target = root / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "web"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    with (folder / "tests/core/conftest.py").open("a") as file:
        file.write(QUICK)


def passes(module: str, folder: Path) -> bool:
    """Whether the tests of core pass in this tree. Those that import this module are run first."""
    name = module.removesuffix(".py")
    imports = re.compile(rf"playhead\.core(\.{name}\b| import [^\n]*\b{name}\b)")
    files = sorted((folder / "tests/core").glob("test_*.py"))
    near = [path for path in files if imports.search(path.read_text())]
    return all(_pass(some, folder) for some in (near, [path for path in files if path not in near]) if some)


def _pass(files: list[Path], folder: Path) -> bool:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CI"))}
    env = {**kept, "PYTHONPATH": str(folder / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "--timeout=0", *PLUGINS, *map(str, files)],
        cwd=folder,
        env=env,
        capture_output=True,
        check=False,
        preexec_fn=limit,
    )
    if done.returncode == 5:
        raise AssertionError(f"there was nothing to run: {done.stdout.decode()}")
    return done.returncode == 0


def _write(path: Path, text: str) -> None:
    """Write a module. What was compiled of it goes by seconds and sizes, and could be taken for it."""
    path.write_text(text)
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def run(chosen: list[tuple[str, Mutant]], folder: Path, workers: int = 2, root: Path = ROOT) -> list[Tried]:
    """Try each of these."""
    trees: SimpleQueue[Path] = SimpleQueue()
    for number in range(workers):
        copy_tree(folder / str(number), root)
        trees.put(folder / str(number))

    def attempt(one: tuple[str, Mutant]) -> Tried:
        module, mutant = one
        tree = trees.get()
        path = tree / CORE / module
        right = path.read_text()
        try:
            _write(path, mutated(right, mutant))
            return Tried(module, mutant, killed=not passes(module, tree))
        finally:
            _write(path, right)
            trees.put(tree)

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(attempt, chosen))
