"""A server that is killed while it works, its clients, and what must be true when it is back."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from playhead.testing.harness.process import free_port
from tests.support.nursery import Nursery, Server
from tests.support.reducer import FINALS
from tests.support.viewer import AWAY, Viewer
from tests.support.wire import Answer, Client

AGAIN = 0.05  # seconds before a call that met no server is made again


@dataclass
class Started:
    """A run that a client asked for. `id` is known once that was acknowledged."""

    key: str
    agent: str
    given: dict[str, Any]
    id: str | None = None
    cancelled: bool = False  # acknowledged


@dataclass
class Scene:
    """One data folder, one port, and servers on them, one after the other."""

    nursery: Nursery
    folder: Path
    arguments: tuple[str, ...] = ()
    runs: list[Started] = field(default_factory=list)
    viewers: dict[str, Viewer] = field(default_factory=dict)
    decisions: dict[str, int] = field(default_factory=dict)  # status of the answer by interrupt
    may_decide: asyncio.Event = field(default_factory=asyncio.Event)
    server: Server | None = None
    _followers: list[asyncio.Task[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port = free_port()
        self.client = Client("127.0.0.1", self.port)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    async def start(self, kill: str | None = None) -> Server:
        """A server on the folder; with a place to die at, it may not live to answer."""
        more = ("--kill", kill) if kill else ()
        acks = ("--acks", str(self.folder / "acks"))
        self.server = self.nursery.start(self.data, *acks, *self.arguments, *more, port=self.port)
        return self.server

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Make the call again until a server answers: each of them can be repeated."""
        while True:
            try:
                answer = await self.client.call(method, path, body, headers=headers)
            except AWAY:
                answer = None
            if answer is not None and answer.status != 503:
                return answer
            await asyncio.sleep(AGAIN)

    async def ask_for(self, agent: str, **given: Any) -> Started:
        """Start a run, however often it takes, and have a viewer and a person follow it."""
        one = Started(f"key-{len(self.runs)}", agent, {"mark": "ü" * 5, **given})
        self.runs.append(one)
        body = {"agent": agent, "input": one.given, "key": one.key}
        answer = await self.call("POST", "/runs", body, **{"idempotency-key": one.key})
        assert answer.status in (200, 201), answer
        one.id = answer.json()["id"]
        viewer = self.viewers[one.key] = Viewer(self.client, str(one.id))
        self._followers.append(asyncio.create_task(viewer.follow()))
        self._followers.append(asyncio.create_task(self._decide(viewer)))
        return one

    async def cancel(self, one: Started) -> None:
        answer = await self.call("POST", f"/runs/{one.id}/cancel", {"reason": "enough"})
        assert answer.status == 202, answer
        one.cancelled = answer.json()["status"] in ("running", "waiting", "cancelled")

    async def work_until_death(self, cancels: bool = False) -> None:
        """Ask for runs, a plain and a resumable one at a time, until the server is gone."""
        assert self.server is not None
        for i in count():
            pair = [self.ask_for("plain", steps=3), self.ask_for("resumable", steps=3)]
            if cancels and i == 0:
                pair.append(self._cancelled())
            started = asyncio.gather(*pair)
            while self.server.code is None and not (started.done() and self._all_over()):
                await asyncio.sleep(0.005)
            if self.server.code is not None:
                self._followers.append(asyncio.ensure_future(started))
                return

    async def _cancelled(self) -> Started:
        one = await self.ask_for("plain", steps=30)
        await self.cancel(one)
        return one

    def _all_over(self) -> bool:
        return all(self.viewers[one.key].screen.over for one in self.runs)

    async def settle(self, wait: float = 30.0) -> None:
        """Return when every viewer has seen its end."""
        try:
            async with asyncio.timeout(wait):
                done = 0
                while done < len(self._followers):  # a run that is asked for again brings new ones
                    await self._followers[done]
                    done += 1
        except TimeoutError:
            states = {one.key: (one.id, self.viewers[one.key].screen) for one in self.runs if one.key in self.viewers}
            raise AssertionError(f"a viewer saw no end: {states} {self.server and self.server.log}") from None

    async def close(self) -> None:
        for task in self._followers:
            task.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)
        if self.server is not None:
            self.server.signal()
            await self.server.ended()

    async def _decide(self, viewer: Viewer) -> None:
        """The person: answers each question on the screen, once it may, until somebody tells that it was heard."""
        while not viewer.screen.over:
            await asyncio.sleep(0.01)
            for name in list(viewer.screen.interrupts):
                if name not in self.decisions and self.may_decide.is_set():
                    path = f"/runs/{viewer.run_id}/interrupts/{name}/decision"
                    answer = await self.call("POST", path, {"approved": True, "note": "go on"})
                    assert answer.status in (200, 409), answer
                    if answer.status == 409:
                        assert answer.json()["code"] in ("run_interrupted", "approval_cancelled"), answer
                    self.decisions[name] = answer.status

    def acknowledged(self) -> list[dict[str, Any]]:
        path = self.folder / "acks"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    async def verify(self) -> None:
        """What viewers show, the record and the archive agree; nothing that was acknowledged is lost or doubled."""
        acks = self.acknowledged()
        for one in self.runs:
            assert one.id is not None
            await self._verify_run(one, [ack for ack in acks if ack["run"] == one.id])
        assert {ack["run"] for ack in acks} <= {one.id for one in self.runs}
        listed = (await self.call("GET", "/runs?limit=200")).json()["runs"]
        assert sorted(run["id"] for run in listed) == sorted(str(one.id) for one in self.runs)

    async def _verify_run(self, one: Started, acks: list[dict[str, Any]]) -> None:
        screen = self.viewers[one.key].screen
        run = await self.client.run(str(one.id))
        shown = await self.client.bootstrap(str(one.id), limit=200)
        events = await self.history(str(one.id))
        ids = [event["id"] for event in events]

        assert screen.faults == []
        assert list(screen.events) == ids == [event["id"] for event in shown["events"]]
        assert len(set(ids)) == len(ids)
        assert shown["timeline"]["complete"]
        assert screen.complete
        assert screen.interrupts == {}

        finals = [FINALS[event["type"]] for event in events if event["type"] in FINALS]
        assert finals == [run["status"]] == [screen.status] == [shown["snapshot"]["status"]]
        assert events[-1]["type"] == f"run_{run['status']}"
        assert run["input"] == {"steps": 4, "question": True, **one.given}
        assert run["key"] == one.key

        assert {f"{one.id}:{ack['attempt']}:{ack['n']}" for ack in acks if "n" in ack} <= set(ids)
        required = [event["payload"] for event in events if event["type"] == "approval_required"]
        decided = [event["payload"] for event in events if event["type"] == "approval_decided"]
        assert len({payload["interrupt_id"] for payload in required}) <= 1  # asked again, it is the same question
        heard = [payload["interrupt_id"] for payload in required if self.decisions.get(payload["interrupt_id"]) == 200]
        assert len(decided) == len(set(heard))

        if one.cancelled:
            assert run["status"] == "cancelled"
        elif one.agent == "resumable":
            assert run["status"] == "succeeded"
        else:
            assert run["status"] in ("succeeded", "interrupted")
            assert run["attempt"] <= 1
        starts = [event["payload"]["attempt"] for event in events if event["type"] == "attempt_started"]
        assert starts == list(range(1, run["attempt"] + 1))
        self._verify_text(run, screen.shown_text())

    def _verify_text(self, run: dict[str, Any], texts: dict[int, str]) -> None:
        assert texts.keys() <= {run["attempt"]}
        text = texts.get(run["attempt"], "")
        if run["status"] == "succeeded":
            assert run["result"] == {"attempt": run["attempt"], "text": text}
        else:
            said = {part["part"]: part["text"] for part in run["partial"] or []}
            assert said.get("answer", "") == text

    async def history(self, run_id: str) -> list[dict[str, Any]]:
        """All events of a run, oldest first, by small pages."""
        events: list[dict[str, Any]] = []
        before = ""
        while True:
            page = (await self.call("GET", f"/runs/{run_id}/events?limit=5{before}")).json()
            events[:0] = page["events"]
            if not page["timeline"]["has_older"]:
                return events
            before = f"&before={page['timeline']['oldest']}"

    async def verify_files(self) -> None:
        """The server is gone: what it left behind is sound."""
        assert self.server is not None
        self.server.signal()
        await self.server.ended()
        for name in ("record.db", "live.db"):
            with closing(sqlite3.connect(self.data / name)) as db:
                assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert "Traceback" not in self.server.log, self.server.log
