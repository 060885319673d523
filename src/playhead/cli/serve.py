"""`playhead serve` and `playhead demo`: the embedded server, from its socket to its last write."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import socket
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

from playhead.app import App
from playhead.cli import exit, output
from playhead.cli.folder import find_server
from playhead.cli.listen import address_of, listen
from playhead.cli.server import Server
from playhead.cli.targets import make_app
from playhead.core.run import Status
from playhead.errors import PortInUse
from playhead.gateway.auth import is_loopback
from playhead.settings import InvalidSetting

DEMO_AGENT = "licence_review"
DEMO_DATA = Path("playhead-demo")
SILENCE = 30.0  # seconds without an acknowledgement
SPARE_FILES = 256  # beside one for each stream: stores, agents, plain requests


def serve(
    targets: Sequence[str],
    *,
    host: str | None,
    port: int | None,
    data: Path | None,
    settings_file: Path | None,
    open_page: bool,
    worker: bool = True,
    demo: bool = False,
) -> int:
    """Serve until a signal; the exit code.

    Raises PortInUse before the data folder is touched, then what App.open raises, and InvalidSetting for an address
    that other machines reach while nothing says who they are.
    """
    if demo and data is None and "PLAYHEAD_DATA" not in os.environ:
        data = DEMO_DATA
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    app = make_app(targets, settings_file, host=host, port=port, data=data, worker=None if worker else False)
    settings = app.settings
    if app.local_only and not is_loopback(settings.host):
        raise InvalidSetting(
            f"{settings.host} can be reached from other machines, and this app takes everybody for its owner: "
            "serve an App with authenticate=, or stay on 127.0.0.1.",
            setting="host",
        )
    try:
        taken = listen(settings.host, settings.port, send_buffer=settings.viewer_bytes, silence=SILENCE)
    except PortInUse as error:
        if (other := find_server(settings.data)) is not None:
            error.message = f"{other.url} serves {settings.data} already (process {other.pid})."
        raise
    raise_file_limit(settings.max_streams + SPARE_FILES)
    address = address_of(taken)

    async def ready() -> None:
        spare_collector()
        app.announce(address)
        if not demo:
            names = ", ".join(agent.name for agent in app.agents)
            output.say(f"{address}/  serves {names} from {settings.place}")
            show(f"{address}/", open_page)
            return
        page = f"{address}/#/runs/{await demo_run(app)}"
        output.say(page)
        show(page, open_page)

    with taken:
        return _run(app, Server(app, ready), taken)


async def demo_run(app: App) -> str:
    """The id of a demo run that goes on, started if there is none."""
    going = (Status.QUEUED, Status.RUNNING, Status.WAITING)
    found = await app.engine.runs("local", status=going, agent=DEMO_AGENT, limit=1)
    return found[0].id if found else (await app.start(DEMO_AGENT)).id


def show(page: str, wanted: bool) -> None:
    """Open a browser where a person sits before one."""
    seen = sys.platform == "darwin" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    if wanted and seen and sys.stdout.isatty():
        Thread(target=webbrowser.open, args=(page,), daemon=True).start()


def raise_file_limit(wanted: int) -> None:
    """Let this process hold a file for each stream, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):
            pass  # it serves fewer streams then; `doctor` says so


def spare_collector() -> None:
    """Collect garbage seldom, and never look at what was loaded to start with.

    Streams are many small objects that live long: the usual thresholds walk through all of them again and again, and
    that was a third of what it costs to connect one.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _run(app: App, server: Server, taken: socket.socket) -> int:
    async def all_of_it() -> None:
        try:
            await server.serve(sockets=[taken])
        finally:
            await app.close()

    return exit.run(asyncio.Runner(loop_factory=server.config.get_loop_factory()), all_of_it())
