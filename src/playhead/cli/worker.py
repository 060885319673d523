"""`playhead worker`: agents without a server in front, beside servers that share their stores."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Sequence
from pathlib import Path

from playhead.app import App
from playhead.cli import exit, output
from playhead.cli.exit import Exit
from playhead.cli.serve import spare_collector
from playhead.cli.targets import make_app
from playhead.settings import InvalidSetting


def work(targets: Sequence[str], *, concurrency: int | None, settings_file: Path | None) -> int:
    """Run attempts until a signal; the exit code. Raises InvalidSetting where the stores are embedded, and what
    App.open raises."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    app = make_app(targets, settings_file, concurrency=concurrency, worker=True)
    if app.settings.record is None:
        raise InvalidSetting(
            "The embedded stores are one server's, which runs its agents itself: use `playhead serve`, "
            "or set PLAYHEAD_RECORD and PLAYHEAD_LIVE.",
            setting="record",
        )
    return exit.run(asyncio.Runner(), _work(app))


async def _work(app: App) -> None:
    over = asyncio.Event()

    def leave(*, at_once: bool) -> None:
        over.set()

    way_out = Exit(app, leave)
    loop = way_out.loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, way_out.next_step)
    try:
        await app.open(patient=True)
        spare_collector()
        names = ", ".join(agent.name for agent in app.agents)
        output.say(f"runs {names}, {app.settings.concurrency} at once")
        await over.wait()
    finally:
        if way_out.asked < 3:
            await app.close()
