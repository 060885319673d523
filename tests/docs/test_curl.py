"""The commands of docs/try-it-with-curl.md, run as they stand there against a true server."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "try-it-with-curl.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
MARK = "----- block "
PORT = "8700"


def blocks() -> list[str]:
    return BLOCK.findall(PAGE.read_text())


def script(port: int) -> str:
    """The blocks in one shell that stops at the first command that fails, each with a mark in front of its output."""
    told = [f"echo; echo '{MARK}{number}'\n{block}" for number, block in enumerate(blocks())]
    return "set -eu\n" + "".join(told).replace(PORT, str(port))


def documents(text: str) -> list[Any]:
    """The JSON texts that stand in an output one behind the other."""
    found, at, decoder = [], 0, json.JSONDecoder()
    while (at := text.find("{", at)) >= 0:
        value, at = decoder.raw_decode(text, at)
        found.append(value)
    return found


def event_ids(stream: str) -> list[str]:
    return [json.loads(line[6:])["id"] for line in stream.splitlines() if line.startswith('data: {"version"')]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each block printed."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    folder = tmp_path_factory.mktemp("curl")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PLAYHEAD_", "http_proxy"))}
    env |= {"PLAYHEAD_PORT": str(port), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"}
    shell = subprocess.Popen(
        ["bash", "-c", script(port)],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = shell.communicate(timeout=150)
    finally:
        # Whatever is left of the shell and of the server that it started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()
    assert shell.returncode == 0, f"{out[-2000:]}\n{err[-2000:]}"
    return re.split(rf"^{MARK}\d+\n", out, flags=re.MULTILINE)[1:]


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.row("H-curl")
def test_every_block_does_what_the_page_says(outputs: list[str]) -> None:
    assert len(outputs) == len(blocks())
    ready, listed, started, seen, more, screen, killed, again, approved, rest, ended, nothing, stopped, over = outputs

    assert documents(ready) == [{"status": "ready"}]
    agents, runs = documents(listed)
    assert [agent["name"] for agent in agents["agents"]] == ["licence_review"]
    assert [run["agent"] for run in runs["runs"]] == ["licence_review"]
    run_id = started.strip()

    first, second = event_ids(seen), event_ids(more)
    assert len(first) >= 3
    assert not set(first) & set(second)
    shown = documents(screen)[0]
    assert shown["run"]["id"] == run_id
    assert [event["id"] for event in shown["events"]][: len(first + second)] == first + second

    assert "gone" in killed
    asked = documents(again)[0]["interrupts"]
    assert [one["run_id"] for one in asked] == [run_id]
    assert '"voids_attempts_before":2' in again

    decided, refused = documents(approved)
    assert decided["decision"] == {"approved": True, "note": "read and understood", "value": None}
    assert (refused["status"], refused["code"]) == (409, "already_decided")
    assert refused["details"]["decision"] == decided["decision"]
    assert all(one["decision"]["approved"] for one in documents(rest) if "decision" in one)

    run = documents(ended)[0]
    assert (run["status"], run["result"]["outcome"], run["attempt"]) == ("succeeded", "approved", 2)
    assert f'id: end\nevent: end\ndata: {{"run_id":"{run_id}","status":"succeeded"}}' in ended
    assert nothing.split() == ["204", "204"]

    cancelled = documents(stopped)[-1]
    assert cancelled["status"] == "cancelled"
    assert cancelled["cancel_requested"]["reason"] == "too slow"
    assert over.strip() == "exit code 0"


def test_the_page_lists_nothing_that_the_test_leaves_out() -> None:
    text = PAGE.read_text()
    assert text.count("```") == 2 * len(blocks())
    assert all("curl" in block or "server" in block for block in blocks())
