"""The locks hold what was asked for, say no address, and agree with the package's own dependencies."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"
NAMES = ("base", "dev")


def asked(name: str) -> list[Requirement]:
    """The requirements of an .in file and of those it includes."""
    found = []
    for line in (REQUIREMENTS / f"{name}.in").read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("-r "):
            found += asked(text.removeprefix("-r ").removesuffix(".in"))
        elif text:
            found.append(Requirement(text))
    return found


def locked(name: str) -> dict[str, str]:
    """The exact version of each distribution in a .txt file."""
    versions: dict[str, str] = {}
    for line in (REQUIREMENTS / f"{name}.txt").read_text().splitlines():
        if line and line[0] not in " #":
            requirement = Requirement(line.removesuffix("\\").strip())
            (pin,) = requirement.specifier
            assert pin.operator == "==", line
            versions[canonicalize_name(requirement.name)] = pin.version
    return versions


@pytest.mark.parametrize("path", sorted(REQUIREMENTS.iterdir()), ids=lambda path: path.name)
def test_no_address(path):
    assert "://" not in path.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_lock_satisfies_what_was_asked(name):
    versions = locked(name)
    unmet = [str(r) for r in asked(name) if not r.specifier.contains(versions.get(canonicalize_name(r.name), "0"))]
    assert unmet == []


@pytest.mark.parametrize("name", NAMES)
def test_every_pin_has_a_hash(name):
    for block in (REQUIREMENTS / f"{name}.txt").read_text().split("\n"):
        if "==" in block and block[0] not in " #":
            assert block.endswith("\\"), block


def test_larger_lock_repeats_the_smaller():
    assert locked("base").items() <= locked("dev").items()


def test_base_asks_for_what_the_package_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {str(Requirement(line)) for line in project["dependencies"]} <= {str(r) for r in asked("base")}
