"""Reading the metadata of installed distributions: this interpreter, another one, and broken entries."""

from __future__ import annotations

import json
import os
import sys
import venv
from datetime import date
from importlib import metadata
from pathlib import Path

import pytest

from playhead.demo.licences import Problem, PythonUnusable, examine, installed, load_policy, normalize
from playhead.demo.licences.normalize import NOASSERTION
from playhead.demo.licences.read import normalized_name

GOOD = "Metadata-Version: 2.4\nName: good\nVersion: 1.0\nLicense-Expression: MIT\n"


def put(folder: Path, entry: str, content: bytes | str | None, file: str = "METADATA") -> None:
    (folder / entry).mkdir()
    if content is not None:
        (folder / entry / file).write_bytes(content if isinstance(content, bytes) else content.encode())


def test_this_interpreter_each_name_once_sorted_and_without_paths():
    found = installed()
    keys = [dist.key for dist in found]
    assert keys == sorted(set(keys))
    assert "pytest" in keys
    assert {normalized_name(d.metadata["Name"]) for d in metadata.distributions() if d.metadata["Name"]} <= set(keys)
    told = repr(found)
    for place in {sys.prefix, str(Path.home()), *filter(None, sys.path)}:
        assert place == "/" or place not in told


def test_each_distribution_here_has_a_licence_or_a_named_reason():
    found = [(dist, normalize(dist)) for dist in installed()]
    declared = [dist for dist, _ in found if dist.license_expression]
    known = [dist for dist, licence in found if licence.known]
    assert len(known) >= len(declared) > 0
    assert all(licence.known or licence.reason.value for _, licence in found)


@pytest.mark.parametrize(
    ("entry", "content", "name", "version", "problem"),
    [
        ("no_meta-1.2.dist-info", None, "no_meta", "1.2", Problem.MISSING_METADATA),
        ("empty-1.2.dist-info", "\n \n", "empty", "1.2", Problem.MISSING_METADATA),
        ("nameless-3.dist-info", "Metadata-Version: 2.4\nVersion: 3\n", "nameless", "3", Problem.INVALID_NAME),
        ("evil-3.dist-info", "Name: ../../etc/passwd\nVersion: 3\n", "evil", "3", Problem.INVALID_NAME),
        (
            "latin-1.dist-info",
            "Name: latin\nVersion: 1\nAuthor: Jos\xe9\n".encode("latin-1"),
            "latin",
            "1",
            Problem.UNDECODABLE_METADATA,
        ),
        ("utf16-1.dist-info", "Name: utf16\nVersion: 1\n".encode("utf-16"), "utf16", "1", Problem.UNDECODABLE_METADATA),
        ("$!-1.dist-info", None, "unnamed", "1", Problem.MISSING_METADATA),
        ("versionless.dist-info", "Name: versionless\nLicense: MIT\n", "versionless", "", None),
        ("old-1.egg-info", "Name: old\nVersion: 1\n", "old", "1", None),
    ],
)
def test_a_broken_entry_is_a_named_problem(tmp_path, entry, content, name, version, problem):
    put(tmp_path, "good-1.0.dist-info", GOOD)
    put(tmp_path, entry, content, "PKG-INFO" if entry.endswith(".egg-info") else "METADATA")
    found = {dist.name: dist for dist in installed(path=[str(tmp_path)])}
    assert set(found) == {"good", name}
    assert found[name].version == version
    assert found[name].problem == problem
    finding = examine(found[name], load_policy(), today=date(2026, 1, 1))
    if problem:
        assert (finding.licence.spdx, finding.licence.reason.value) == (NOASSERTION, problem.value)
    assert str(tmp_path) not in repr(finding)


def test_metadata_that_cannot_be_opened_is_a_named_problem(tmp_path):
    (tmp_path / "loop-1.dist-info").symlink_to(tmp_path / "loop-1.dist-info")
    put(tmp_path, "dir-1.dist-info", None)
    (tmp_path / "dir-1.dist-info" / "METADATA").mkdir()
    assert {dist.problem for dist in installed(path=[str(tmp_path)])} <= {
        Problem.MISSING_METADATA,
        Problem.UNREADABLE_METADATA,
    }


def test_a_sound_entry_counts_before_a_broken_one_and_the_first_before_the_second(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    put(first, "Some.Thing-1.dist-info", None)
    put(second, "some_thing-2.dist-info", "Name: some_thing\nVersion: 2\n")
    put(first, "good-1.dist-info", GOOD)
    put(second, "good-9.dist-info", GOOD.replace("1.0", "9.0"))
    put(first, "~ood-8.dist-info", GOOD.replace("1.0", "8.0"))
    found = installed(path=[str(first), str(second)])
    assert [(dist.name, dist.version) for dist in found] == [("good", "1.0"), ("some_thing", "2")]


def test_fields_are_cut_and_cleaned(tmp_path):
    wild = (
        "Name: wild\nVersion: 1\x1b[31m\nLicense: " + "x" * 5000 + "\nClassifier: License :: Freeware\nClassifier: A\n"
    )
    put(tmp_path, "wild-1.dist-info", wild)
    (dist,) = installed(path=[str(tmp_path)])
    assert dist.version == "1[31m"
    assert dist.license_text == "x" * 200
    assert dist.classifiers == ("License :: Freeware",)


def test_another_interpreter(tmp_path):
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    assert installed(str(python)) == []
    put(site, "good-1.0.dist-info", GOOD)
    put(site, "latin-1.dist-info", "Name: latin\nVersion: 1\nAuthor: Jos\xe9\n".encode("latin-1"))
    assert installed(str(python)) == installed(path=[str(site)])
    assert [dist.name for dist in installed(str(python))] == ["good", "latin"]


def script(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("tool", "echo '[]'", "name"),
        ("python", "exit 3", "failed"),
        ("python3", "echo hello", "answer"),
        ("python3.11", "echo '{}'", "answer"),
        ("python3.13t", "echo '[1]'", "answer"),
        ("pypy3", "kill -9 $$", "failed"),
    ],
)
def test_a_program_that_is_no_python_is_a_typed_error(tmp_path, name, text, reason):
    with pytest.raises(PythonUnusable) as caught:
        installed(script(tmp_path, name, text))
    assert caught.value.details["reason"] == reason
    assert str(tmp_path) not in str(caught.value) + json.dumps(caught.value.details)


@pytest.mark.parametrize("path", ["", "python", "/nonexistent/python", ".", "python\0", "rm", "/"])
def test_a_path_that_is_no_program_is_a_typed_error(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PythonUnusable) as caught:
        installed(path)
    assert caught.value.code == "python_unusable"


def test_a_program_that_cannot_start_is_a_typed_error(tmp_path):
    broken = tmp_path / "python"
    broken.write_bytes(b"\x7fELF nothing of the kind")
    broken.chmod(0o755)
    with pytest.raises(PythonUnusable) as caught:
        installed(str(broken))
    assert caught.value.details["reason"] in {"start", "failed"}
    plain = tmp_path / "python3"
    plain.write_text("")
    plain.chmod(0o644)
    if not os.access(plain, os.X_OK):
        with pytest.raises(PythonUnusable):
            installed(str(plain))


def test_a_program_that_does_not_answer_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("playhead.demo.licences.read.ANSWER_WITHIN", 0.2)
    with pytest.raises(PythonUnusable) as caught:
        installed(script(tmp_path, "python", "exec sleep 30"))
    assert caught.value.details["reason"] == "timeout"
