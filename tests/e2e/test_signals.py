"""A host's server is told to stop while streams are open. It waits for them, so they must end by themselves."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from playhead.signals import on_stop
from playhead.testing.harness.process import free_port
from tests.support.wire import PATIENCE, Client

pytestmark = pytest.mark.anyio


@pytest.mark.row("BR-71")
@pytest.mark.parametrize("name", ["alone", "attached", "mounted"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_plain_server_stops_with_streams_open(tmp_path: Path, name: str, number: signal.Signals) -> None:
    port = free_port()
    settings = {"PLAYHEAD_DATA": str(tmp_path), "PLAYHEAD_DRAIN_WINDOW": "0.2", "PLAYHEAD_DRAIN_GRACE": "0.2"}
    command = ["-m", "uvicorn", f"tests.support.hosted:{name}", "--port", str(port), "--log-level", "warning"]
    server = await asyncio.create_subprocess_exec(sys.executable, *command, env={**os.environ, **settings})
    client = Client("127.0.0.1", port)
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    if (await client.get("/readyz")).status == 200:
                        break
                except OSError:
                    await asyncio.sleep(0.05)
        async with client.stream(await client.start("endless")) as stream:
            await stream.type("begun")
            server.send_signal(number)
            while await stream.more():
                pass
            assert stream.frames[-1].event == "draining"
        async with asyncio.timeout(PATIENCE):
            await server.wait()
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()


async def test_the_servers_own_handler_is_called_and_put_back() -> None:
    told: list[int] = []
    begun = asyncio.Event()

    async def begin() -> None:
        begun.set()

    before = signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    try:
        own = signal.getsignal(signal.SIGTERM)
        undo = on_stop(begin)
        os.kill(os.getpid(), signal.SIGTERM)
        await begun.wait()
        undo()
        assert (told, signal.getsignal(signal.SIGTERM)) == ([signal.SIGTERM], own)
    finally:
        signal.signal(signal.SIGTERM, before)
