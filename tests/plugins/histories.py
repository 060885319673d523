"""How many random histories the machines play, and from which seed: another one for each commit, so samples rotate."""

import os
import subprocess
from pathlib import Path

WHOLE = 1_000  # so many, and every machine plays them all


def count(share: float = 1.0) -> int:
    """Histories of one machine; `share` is what a slower machine gets of fewer than `WHOLE`."""
    asked = int(os.environ.get("PLAYHEAD_HISTORIES", "100"))
    return asked if asked >= WHOLE else max(1, round(asked * share))


def seed() -> int:
    """PLAYHEAD_SEED repeats a run. Without it and without git, as in an unpacked archive, it is 0."""
    given = os.environ.get("PLAYHEAD_SEED")
    if given is not None:
        return int(given)
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
    except OSError:
        return 0
    return int(done.stdout[:12], 16) if done.returncode == 0 else 0


def pytest_report_header() -> str:
    return f"histories: {count()}, PLAYHEAD_SEED={seed()}"
