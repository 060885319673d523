"""The scripts of docs/how-to/python-client.md, run as they stand there against a true server."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "python-client.md"
SCRIPT = re.compile(r"as `(\w+\.py)`:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
MARK = "----- block "
PORT = "8700"


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_every_script_does_what_the_page_says(tmp_path: Path) -> None:
    text = PAGE.read_text()
    scripts, blocks = SCRIPT.findall(text), BLOCK.findall(text)
    assert text.count("```") == 2 * (len(scripts) + len(blocks))
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = str(one.getsockname()[1])
    for name, content in scripts:
        (tmp_path / name).write_text(content.replace(PORT, port))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PLAYHEAD_", "http_proxy"))}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    lines = "".join(f"echo; echo '{MARK}'\n{block}" for block in blocks).replace(PORT, port)
    shell = subprocess.Popen(
        ["bash", "-c", f"set -eu\n{lines}"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = shell.communicate(timeout=150)
    finally:
        try:
            os.killpg(shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    assert shell.returncode == 0, f"{out[-2000:]}\n{err[-2000:]}"
    _, review, several, errors = out.split(MARK)[1:]
    told = review.split("\n")
    assert [line for line in told if line.startswith("run_")] == ["run_queued", "run_started", "run_succeeded"]
    assert any(line.startswith("asked: ") for line in told)
    assert "succeeded approved" in told
    assert [line.split()[1] for line in several.split("\n") if " " in line] == ["cancelled"] * 3
    codes = [line.split()[:2] for line in errors.split("\n") if " " in line]
    assert codes == [
        ["not_found", "False"],
        ["unknown_agent", "False"],
        ["invalid_request", "False"],
        ["1", "succeeded"],
    ]
