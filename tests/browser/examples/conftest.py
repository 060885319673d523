"""The pages of `examples/`, built anew and served as their README says, by a server that can be killed."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import ConsoleMessage, Page

from playhead.testing.harness.process import free_port
from tests.browser.server import PATIENCE, Server

ROOT = Path(__file__).parents[3]


class Site(Server):
    """An application that has the gateway at /playhead/, over any number of deaths."""

    def __init__(self, data: Path, app: str, **env: str) -> None:
        super().__init__(data)
        self._app, self._env = app, env

    @property
    def home(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def url(self) -> str:
        return f"{self.home}playhead/"

    def start(self) -> None:
        command = [sys.executable, "-m", "uvicorn", self._app, "--port", str(self.port), "--log-level", "warning"]
        env = {name: value for name, value in os.environ.items() if not name.startswith("PLAYHEAD_")}
        env |= {**self._settings, **self._env, "PLAYHEAD_DATA": str(self.data)}
        self._process = subprocess.Popen(command, env=env, cwd=ROOT)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                self.call("readyz")
                return
            assert self._process.poll() is None, "the server did not start"
            time.sleep(0.05)  # between two looks
        raise AssertionError("the server is not ready")

    def approve(self, run_id: str) -> None:
        [asked] = self.call(f"interrupts?run={run_id}")["interrupts"]
        self.call(f"runs/{run_id}/interrupts/{asked['id']}/decision", {"approved": True})


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the built pages. Needs `npm ci` in `clients/typescript` and `examples`, and the client built."""
    folder = tmp_path_factory.mktemp("examples") / "dist"
    command = ["npm", "--prefix", "examples", "run", "--silent", "build", "--", "--outDir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def site(tmp_path: Path, built: Path) -> Iterator[Callable[..., Site]]:
    """Serve an application of the examples."""
    sites: list[Site] = []

    def serve(app: str, **env: str) -> Site:
        sites.append(Site(tmp_path / "data", app, EXAMPLES_BUILT=str(built), **env))
        sites[-1].start()
        return sites[-1]

    yield serve
    for one in sites:
        one.stop()


@pytest.fixture
def developed() -> Iterator[Callable[[Site], str]]:
    """Start Vite's own server in front of a site; its address."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(site: Site) -> str:
        folder, port = ROOT / "examples", str(free_port())
        command = ["node", "node_modules/vite/bin/vite.js", "--host", "127.0.0.1", "--port", port, "--strictPort"]
        env = {**os.environ, "GATEWAY": site.home}
        processes.append(subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL))
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port))):
                return f"http://127.0.0.1:{port}/"
            time.sleep(0.05)  # between two looks
        raise AssertionError("Vite does not listen")

    yield start
    for process in processes:
        process.terminate()
        process.wait(PATIENCE)


@pytest.fixture
def complaints() -> list[str]:
    """What the browser's console was told as an error on pages that `visit` opened."""
    return []


@pytest.fixture
def visit(open_page: Callable[..., Page], complaints: list[str]) -> Callable[..., Page]:
    """Open a page of a site in a tab, with an ear at the console from its first moment."""

    def hear(said: ConsoleMessage) -> None:
        # What is opened first has no icon, and is no page of the examples.
        if said.type == "error" and not said.location["url"].endswith("favicon.ico"):
            complaints.append(said.text)

    def visit(site: Site, path: str, **options: object) -> Page:
        page = open_page(f"{site.url}healthz", **options)
        page.on("console", hear)
        page.goto(f"{site.home}{path}")
        return page

    return visit
