"""The import contracts see what they are meant to see, and fail on a house that breaks them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ["testing", "cli", "demo", "app", "settings", "gateway", "client", "agents", "runtime", "backends"]
ROOMS += ["interfaces", "core"]


@pytest.fixture
def house(tmp_path):
    """A house of empty rooms under the real contracts."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    package = tmp_path / "playhead"
    for room in ROOMS:
        (package / room).mkdir(parents=True)
        (package / room / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "errors.py").touch()
    (package / "version.py").touch()
    (package / "stores.py").touch()
    (package / "signals.py").touch()
    for name in ("db", "folder"):
        (package / "cli" / f"{name}.py").touch()  # these may name a backend
    return package


def lint(house: Path) -> tuple[int, str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=house.parent, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_empty_rooms_keep_every_contract(house):
    code, output = lint(house)
    assert code == 0, output
    assert "4 kept, 0 broken" in output


BREAKING = {
    "core": "import playhead.runtime\nfrom asyncio import sleep\nimport time, sqlite3\n",
    "runtime": "import playhead.backends\n",
    "gateway": "import playhead.testing\n",
    "client": "import playhead.runtime\n",
    "cli": "import playhead.backends\n",
    "demo": "from playhead import backends\n",
}


def test_every_breaking_import_is_told(house):
    for room, lines in BREAKING.items():
        (house / room / "__init__.py").write_text(lines)
    code, output = lint(house)
    assert code == 1, output
    assert "0 kept, 4 broken" in output
    for chain in (
        "core -> playhead.runtime",
        "core -> asyncio",
        "core -> time",
        "core -> sqlite3",
        "runtime -> playhead.backends",
        "gateway -> playhead.testing",
        "client -> playhead.runtime",
        "cli -> playhead.backends",
        "demo -> playhead.backends",
    ):
        assert f"playhead.{chain}" in output, chain


def test_the_composition_root_may_name_a_backend(house):
    (house / "stores.py").write_text("import playhead.backends\n")
    (house / "core" / "__init__.py").write_text("import playhead.errors\n")
    code, output = lint(house)
    assert code == 0, output


def test_an_unknown_room_is_noticed(house):
    (house / "utils.py").touch()
    code, output = lint(house)
    assert code == 1, output
    assert "utils" in output
