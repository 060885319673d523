"""Viewers who go to another gateway when theirs is gone, and keep a protocol of all they were shown."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.reducer import Screen
from tests.support.wire import Answer, Client, Stream

AWAY = (OSError, EOFError, TimeoutError)  # what a call meets when nobody is there
SILENCE = 8.0  # seconds; many keep-alives
AGAIN = 0.1  # seconds before somebody else is asked
BUSY = (429, 502, 503, 504)  # the even ones are a proxy's, whose gateway is gone or busy
MARK = re.compile(rb"canary-[0-9a-z-]+")


@dataclass(frozen=True, slots=True)
class Shown:
    """One entry of a viewer's protocol: `open`, `event`, `resync`, `bootstrap` or `end`."""

    what: str
    cursor: str | None = None
    said: str = ""


@dataclass
class Viewer:
    """Follows a run to its end through any of the gateways, the one of this number first."""

    gateways: Sequence[Client]
    run_id: str
    turn: int = 0
    screen: Screen = field(default_factory=Screen)
    protocol: list[Shown] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)  # of runs, in all that was shown
    refused: int = 0  # calls that no gateway took

    @property
    def gateway(self) -> Client:
        return self.gateways[self.turn % len(self.gateways)]

    async def follow(self) -> Screen:
        while not self.screen.over:
            if self.screen.needs_bootstrap:
                await self._bootstrap()
            await self._one_connection()
        await self._bootstrap()
        return self.screen

    async def _one_connection(self) -> None:
        try:
            stream = await self.gateway.open(self.run_id, self.screen.cursor)
        except AWAY:
            await self._next()
            return
        try:
            if stream.status == 204:
                self.screen.over = True
                return
            if stream.status in BUSY:
                await self._next()
                return
            assert stream.status == 200, stream.status
            self._note("open", self.screen.cursor)
            self.screen.opened()
            await self._read(stream)
        except AWAY:
            self.turn += 1
        finally:
            self.marks |= {mark.decode() for mark in MARK.findall(bytes(stream.raw))}
            await stream.close()

    async def _read(self, stream: Stream) -> None:
        seen = 0
        while True:
            more = await stream.more(SILENCE)
            new, seen = stream.frames[seen:], len(stream.frames)
            for frame in new:
                if frame.event == "message":
                    self._note("event", frame.id, frame.data["id"])
                elif frame.event == "resync_required":
                    self._note("resync", said=frame.data["reason"])
                elif frame.event == "end":
                    self._note("end", said=frame.data["status"])
                elif frame.event == "draining":
                    self.turn += 1
                self.screen.frame(frame)
            if not more or self.screen.needs_bootstrap:
                await asyncio.sleep(AGAIN / 5)
                return

    async def _bootstrap(self) -> None:
        """Until somebody answers with all of it."""
        while True:
            try:
                answer = await self.gateway.get(f"/runs/{self.run_id}/bootstrap?limit=200")
            except AWAY:
                await self._next()
                continue
            if answer.status in BUSY:
                await self._next()
                continue
            assert answer.status == 200, answer
            shown = answer.json()
            if shown["degraded"] is not None:
                await self._next()
                continue
            self.marks |= {mark.decode() for mark in MARK.findall(answer.body)}
            self._note("bootstrap", shown["cursor"])
            self.screen.bootstrap(shown)
            return

    async def _next(self) -> None:
        self.refused += 1
        self.turn += 1
        await asyncio.sleep(AGAIN)

    def _note(self, what: str, cursor: str | None = None, said: str = "") -> None:
        self.protocol.append(Shown(what, cursor, said))


async def drop(*tasks: asyncio.Task[Any]) -> None:
    """Cancel these until they have ended: one that has just got its answer may not notice the first time."""
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=AGAIN)
    await asyncio.gather(*tasks, return_exceptions=True)


async def call(gateways: Sequence[Client], method: str, path: str, body: Any = None, **headers: str) -> Answer:
    """Make a call until some gateway answers: each of them can be repeated."""
    turn = 0
    while True:
        try:
            answer = await gateways[turn % len(gateways)].call(method, path, body, headers=headers)
        except AWAY:
            answer = None
        if answer is not None and answer.status not in BUSY:
            return answer
        turn += 1
        await asyncio.sleep(AGAIN)
