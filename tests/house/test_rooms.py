"""The house keeps its size, its public names and its quiet imports."""

import ast
import subprocess
import sys
from pathlib import Path

import playhead

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "playhead"
SURFACE = Path(__file__).parent / "public_surface.txt"

CEILING = 400
BACKEND_CEILING = 600
# Module under src/playhead → its own ceiling, with the reason beside it.
EXCEPTIONS: dict[str, int] = {}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_no_module_outgrows_its_ceiling():
    too_long = {}
    for module in modules():
        name = module.relative_to(PACKAGE).as_posix()
        ceiling = EXCEPTIONS.get(name, BACKEND_CEILING if name.startswith("backends/") else CEILING)
        length = len(module.read_text().splitlines())
        if length > ceiling:
            too_long[name] = length
    assert too_long == {}


def test_no_script_or_sheet_of_the_browser_side_outgrows_its_ceiling():
    sources = [path for room in ("web", "clients/typescript") for path in (ROOT / room / "src").rglob("*.*")]
    assert [path.name for path in sources if len(path.read_text().splitlines()) > CEILING] == []


def test_every_exception_names_a_module():
    assert [name for name in EXCEPTIONS if not (PACKAGE / name).exists()] == []


def test_dev_script_stays_small():
    assert len((ROOT / "dev.py").read_text().splitlines()) <= CEILING


def test_public_surface_is_the_recorded_one():
    assert sorted(playhead.__all__) == SURFACE.read_text().split()


def test_every_public_name_resolves():
    for name in playhead.__all__:
        assert getattr(playhead, name) is not None


def test_every_module_imports_without_a_warning():
    names = []
    for module in modules():
        parts = module.relative_to(PACKAGE.parent).with_suffix("").parts
        if parts[-1] != "__main__":
            names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    script = f"import importlib\nfor name in {names!r}:\n    importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_shipped_checks_use_no_backend_but_memory():
    named: set[str] = set()
    for module in (PACKAGE / "testing").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "playhead.backends":
                named.update(f"playhead.backends.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                named.add(node.module or "")
            elif isinstance(node, ast.Import):
                named.update(alias.name for alias in node.names)
    backends = {".".join(name.split(".")[:3]) for name in named if name.startswith("playhead.backends")}
    assert backends <= {"playhead.backends.memory"}
