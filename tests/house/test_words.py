"""No committed file tells of the machine or the place where it was written."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Put together here, so that this file passes its own test.
PATHS = ["/" + name + "/" for name in ("work", "root")] + ["/opt/" + "pypi"]
HOSTS = [".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("deb", "debian"))]
WORDS = ["work" + "place", "shared" + "/", "co-authored" + "-by"]
BANNED = re.compile(
    "|".join([*map(re.escape, PATHS + HOSTS), *(rf"(?<![\w/]){re.escape(word)}" for word in WORDS)]), re.IGNORECASE
)


def tracked() -> list[Path]:
    try:
        done = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git clone")
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_files_speak_of_the_project_alone():
    found = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if hit := BANNED.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {hit.group()}")
    assert found == []


@pytest.mark.parametrize("line", ["see " + PATHS[0] + "x", "https://" + HOSTS[0], "the " + WORDS[0], WORDS[2] + "a.md"])
def test_banned_words_are_seen(line):
    assert BANNED.search(line)


@pytest.mark.parametrize("line", ["a network path", "rootless", "src/playhead/core", "a shared store"])
def test_other_words_are_not(line):
    assert not BANNED.search(line)
