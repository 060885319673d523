"""A viewer as a browser is one: it follows a run through whatever happens, by the rules of PROTOCOL.md."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.reducer import Screen
from tests.support.wire import Client, Stream

# A server that goes away refuses with 30 s, which no setting scales to the waits of a test.
LONGEST = 0.5

AWAY = (OSError, EOFError, TimeoutError)  # what a call meets when the server is gone, or goes


class Viewer:
    def __init__(self, client: Client, run_id: str) -> None:
        self.client, self.run_id = client, run_id
        self.screen = Screen()
        self.connections = 0
        self.resyncs: list[str] = []
        self.draining: list[int] = []  # the retry times of farewells
        self._retry = 0.1

    async def follow(self) -> Screen:
        """Follow the run to its end, and load the bootstrap once more then."""
        while not self.screen.over:
            try:
                stream = await self.client.open(self.run_id, self.screen.cursor)
            except AWAY:
                await asyncio.sleep(self._retry)
                continue
            try:
                if stream.status == 204:  # the last bootstrap showed the end
                    self.screen.over = True
                    continue
                assert stream.status == 200, stream.status
                self.connections += 1
                self.screen.opened()
                await self._read(stream)
            except AWAY:
                pass
            finally:
                await stream.close()
            if self.screen.needs_bootstrap:
                self.screen.bootstrap(await self.bootstrap())
            elif not self.screen.over:
                await asyncio.sleep(self._retry)
        self.screen.bootstrap(await self.bootstrap())
        return self.screen

    async def _read(self, stream: Stream) -> None:
        seen = 0
        while True:
            more = await stream.more()
            new, seen = stream.frames[seen:], len(stream.frames)
            if stream.retry is not None:
                self._retry = min(stream.retry / 1000, LONGEST)
            for frame in new:
                self.screen.frame(frame)
                if frame.event == "resync_required":
                    self.resyncs.append(frame.data["reason"])
                elif frame.event == "draining":
                    self.draining.append(frame.data["retry_ms"])
            if not more:
                return

    async def bootstrap(self) -> dict[str, Any]:
        """Until the server answers with all of it."""
        while True:
            try:
                shown = await self.client.bootstrap(self.run_id, limit=200)
            except AWAY:
                shown = {"degraded": "away"}
            if shown["degraded"] is None:
                return shown
            await asyncio.sleep(self._retry)
