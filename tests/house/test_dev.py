"""dev.py decides rightly what a bare machine needs, and finds links that lead nowhere."""

import subprocess
import sys
from pathlib import Path

import pytest

import dev

ROOT = Path(__file__).parents[2]


def test_a_bare_machine_as_root_installs_everything():
    steps = dev.plan(dev.NEEDED_BY_ALL, lambda name: False, may_install=True)
    assert steps == dev.Plan(found=(), install=dev.NEEDED_BY_ALL, ask=())


def test_a_bare_machine_as_a_user_asks_in_one_line():
    steps = dev.plan(dev.NEEDED_BY_ALL, lambda name: False, may_install=False)
    assert steps == dev.Plan(found=(), install=(), ask=dev.NEEDED_BY_ALL)
    assert steps.advice == "sudo apt-get install -y chromium curl nginx nodejs npm pgbouncer redis-server redis-tools"


@pytest.mark.parametrize("may_install", [True, False])
def test_a_full_machine_needs_nothing(may_install):
    steps = dev.plan(dev.NEEDED_BY_ALL, lambda name: True, may_install=may_install)
    assert steps == dev.Plan(found=dev.NEEDED_BY_ALL, install=(), ask=())


def test_only_what_is_missing_is_installed():
    steps = dev.plan(("chromium", "curl"), lambda name: name == "curl", may_install=True)
    assert steps == dev.Plan(found=("curl",), install=("chromium",), ask=())


def test_every_needed_package_can_be_looked_for():
    assert set(dev.NEEDED_BY_ALL) <= dev.PACKAGES.keys()


def test_a_user_without_a_package_is_told_and_stopped(monkeypatch):
    monkeypatch.setattr(dev, "is_present", lambda name: False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match="sudo apt-get install -y chromium"):
        dev.provide(("chromium",))


@pytest.mark.parametrize(
    ("told", "present"), [("v18.20.4", False), ("v20.18.9", False), ("v20.19.0", True), ("v26.1.0", True), ("", False)]
)
def test_a_node_that_is_too_old_is_none(monkeypatch, tmp_path, told, present):
    node = tmp_path / "node"
    node.write_text(f"#!/bin/sh\necho {told}\n")
    node.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert dev.is_present("nodejs") is present


def test_without_a_node_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not dev.is_present("nodejs")


def test_a_page_that_was_not_built_anew_is_found(tmp_path):
    for name, files in {"fresh": {"a": "1", "b/c": "2", "new": ""}, "kept": {"a": "1", "b/c": "3", "old": ""}}.items():
        for path, text in files.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text)
    assert dev.differing(tmp_path / "fresh", tmp_path / "kept") == ["b/c", "new", "old"]
    assert dev.differing(tmp_path / "fresh", tmp_path / "fresh") == []


def test_children_start_without_the_callers_python(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    env = dev.clean_env()
    assert "PYTHONPATH" not in env
    assert env["PATH"].startswith(str(dev.BIN))


@pytest.mark.parametrize(("tier", "kills"), [(dev.ALL, "60"), (dev.DEEP, "200")])
def test_a_tier_says_how_much_is_tried_and_its_caller_may_differ(monkeypatch, tmp_path, tier, kills):
    monkeypatch.delenv("PLAYHEAD_KILLS", raising=False)
    monkeypatch.setenv("PLAYHEAD_HISTORIES", "7")
    out = tmp_path / "out"
    code = f"import os; open({str(out)!r}, 'w').write(os.environ['PLAYHEAD_KILLS'] + os.environ['PLAYHEAD_HISTORIES'])"
    assert dev.run(sys.executable, "-c", code, sizes=tier) == 0
    assert out.read_text() == f"{kills}7"


@pytest.mark.parametrize("verb", ["demo", "test", "lint", "bench", "docs"])
def test_every_verb_has_a_help_line(verb):
    done = subprocess.run([sys.executable, ROOT / "dev.py", "--help"], capture_output=True, text=True, check=True)
    assert any(line.split()[:1] == [verb] and len(line.split()) > 3 for line in done.stdout.splitlines())


def test_links_between_pages_lead_somewhere():
    assert dev.broken_links(ROOT) == []


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "b.md").write_text("# One `two`, three\n\n## Four\n")
    (tmp_path / "a.md").write_text(
        "[ok](docs/b.md) [ok](docs/b.md#one-two-three) [ok](https://example.com/x) [ok](#top)\n"
        "# Top\n[bad](docs/c.md) [bad](docs/b.md#five)\n```\n[code](nowhere)\n```\n"
    )
    assert dev.broken_links(tmp_path) == ["a.md: docs/c.md", "a.md: docs/b.md#five"]
