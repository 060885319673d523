"""One scenario on the fleet: runs with their viewers and deciders, and the judgement over all of them at its end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.scenarios import oracles
from tests.scenarios.agents import EVERY
from tests.scenarios.fleet import PATIENCE, SECRET, Fleet, until
from tests.scenarios.people import AGAIN, Viewer, call, drop
from tests.support.wire import Answer, Client


@dataclass
class Started:
    """A run that somebody asked for. `id` is known once that was acknowledged."""

    key: str
    agent: str
    given: dict[str, Any]
    id: str = ""
    viewers: list[Viewer] = field(default_factory=list)
    asked_to_stop: bool = False


class Scene:
    """A scenario sets what it does to the live store, as in `oracles.Judged`."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet, self.seed, self.chance = fleet, seed, random.Random(seed)
        self.runs: list[Started] = []
        self.decided: dict[str, int] = {}  # status of the answer by interrupt
        self.may_decide = asyncio.Event()
        self.may_decide.set()
        self.went_back = self.may_lack = self.was_away = False
        self.steps: list[str] = []  # what was done, for whoever reads of a fault
        self._tasks: list[asyncio.Task[Any]] = []

    def did(self, what: str) -> None:
        self.steps.append(what)

    async def call(self, method: str, path: str, body: Any = None, first: int = 0, **headers: str) -> Answer:
        """Through the gateway of this number, or the next one that answers."""
        gateways = [one.client for one in self.fleet.gateways]
        return await call(gateways[first:] + gateways[:first], method, path, body, **headers)

    async def start(self, agent: str, *, viewers: int = 2, first: int = 0, **given: Any) -> Started:
        """Start a run, however often it takes, and have viewers at both gateways, and a person, follow it."""
        number = next(self.fleet.numbers)
        one = Started(f"key-{self.seed}-{number}", agent, {"mark": f"canary-{self.seed}-{number}", **given})
        self.runs.append(one)
        body = {"agent": agent, "input": one.given, "key": one.key}
        answer = await self.call("POST", "/runs", body, first, **{"idempotency-key": one.key})
        assert answer.status in (200, 201), answer
        one.id = answer.json()["id"]
        for turn in range(viewers):
            self.watch(one, turn)
        self._tasks.append(asyncio.create_task(self._decide(one)))
        return one

    def watch(self, one: Started, turn: int = 0, through: Sequence[Client] = ()) -> Viewer:
        """Follow a run through these, or any gateway, the one of this number first."""
        viewer = Viewer(through or [gateway.client for gateway in self.fleet.gateways], one.id, turn)
        one.viewers.append(viewer)
        self._tasks.append(asyncio.create_task(viewer.follow()))
        return viewer

    async def cancel(self, one: Started, first: int = 0) -> dict[str, Any]:
        answer = await self.call("POST", f"/runs/{one.id}/cancel", {"reason": "enough"}, first)
        assert answer.status == 202, answer
        one.asked_to_stop = True
        return dict(answer.json())

    async def reached(self, one: Started, gate: str, attempt: int = 1) -> dict[str, Any]:
        """The note that an attempt left at this gate."""

        def look() -> Any:
            wanted = ({"reached": gate, "attempt": attempt}, one.id)
            return next((n for n in self.fleet.notes(one.id) if n | wanted[0] == n), None)

        return dict(await until(look, what=f"{one.key} attempt {attempt} at {gate}"))

    def open(self, one: Started, *gates: str) -> None:
        for gate in gates:
            self.fleet.open_gate(one.id, gate)

    async def seen(self, one: Started, name: str, count: int = 1, wait: float = PATIENCE) -> None:
        """Return when every viewer of the run was shown so many events of this type."""

        def shown(viewer: Viewer) -> bool:
            return sum(event["type"] == name for event in viewer.screen.events.values()) >= count

        def lacking() -> str:
            less = [viewer for viewer in one.viewers if not shown(viewer)]
            told = [(viewer.screen, viewer.protocol[-5:], viewer.refused) for viewer in less[:3]]
            return f"{count} {name} of {one.key}: {len(less)} of {len(one.viewers)} viewers lack them: {told}"

        def look() -> bool:
            self._went_well()
            return all(map(shown, one.viewers))

        await until(look, wait, what=lacking)

    def _went_well(self) -> None:
        """Raises what made a viewer or a decider give up: it would be waited for in vain."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def run(self, one: Started) -> dict[str, Any]:
        answer = await self.call("GET", f"/runs/{one.id}")
        assert answer.status == 200, answer
        return dict(answer.json())

    async def bootstraps(self, one: Started) -> list[dict[str, Any]]:
        """What each gateway shows, none of them degraded."""
        return [await self._bootstrap(gateway.client, one) for gateway in self.fleet.gateways]

    async def _bootstrap(self, client: Any, one: Started) -> dict[str, Any]:
        async def look() -> Any:
            answer = await call([client], "GET", f"/runs/{one.id}/bootstrap?limit=200")
            assert answer.status == 200, answer
            shown = answer.json()
            return shown if shown["degraded"] is None else None

        return dict(await until(look, what=f"a bootstrap of {one.key}"))

    async def archived(self, one: Started) -> None:
        """Return when the archive has all that the timeline has now."""
        [shown, *_] = await self.bootstraps(one)
        ids = [event["id"] for event in shown["events"]]
        statement = "SELECT count(*) FROM playhead.archive WHERE event_id = ANY(%s)"

        async def look() -> bool:
            [(count,)] = await self.fleet.select(statement, ids)
            return bool(count == len(ids))

        await until(look, what=f"the archive of {one.key}")

    async def settle(self, wait: float = PATIENCE) -> None:
        """Return when every viewer has seen its end."""
        try:
            async with asyncio.timeout(wait):
                while waiting := [task for task in self._tasks if not task.done()]:
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
                    self._went_well()
        except TimeoutError:
            self._fail([f"no end within {wait:g} s for {one.key}" for one in self.runs if not _over(one)])

    async def judge(self) -> None:
        """Every oracle, over every run."""
        found: list[str] = []
        for one in self.runs:
            found += oracles.faults(await self._judged(one))
        listed = {run["id"] for run in (await self.call("GET", "/runs?limit=200")).json()["runs"]}
        found += [f"I11: {one.key} was acknowledged and is not listed" for one in self.runs if one.id not in listed]
        notes = self.fleet.notes()
        logs = {member.name: member.log for member in self.fleet.members}
        found += oracles.silent(logs, [SECRET])
        for one in self.runs:
            heard = [note for note in notes if note["run"] == one.id and "decided" in note]
            if any(not note["decided"] for note in heard):
                found.append(f"I6: the agent of {one.key} heard another decision: {heard}")
        if found:
            self._fail(found)

    async def _judged(self, one: Started) -> oracles.Judged:
        history: list[dict[str, Any]] = []
        before = ""
        while True:
            page = (await self.call("GET", f"/runs/{one.id}/events?limit=50{before}")).json()
            history[:0] = page["events"]
            if not page["timeline"]["has_older"] or not page["events"]:
                break
            before = f"&before={page['timeline']['oldest']}"
        return oracles.Judged(
            run=await self.run(one),
            given=one.given,
            history=history,
            shown=await self.bootstraps(one),
            viewers=one.viewers,
            notes=self.fleet.notes(one.id),
            went_back=self.went_back,
            may_lack=self.may_lack,
            was_away=self.was_away,
        )

    async def calm(self) -> None:
        """I8, I9: every process and both stores hold no more than before the first scenario."""
        try:
            async with asyncio.timeout(PATIENCE):
                while found := await self.fleet.excess():
                    await asyncio.sleep(0.25)
        except TimeoutError:
            self._fail(found)

    def _fail(self, found: Sequence[str]) -> None:
        views = [
            f"{one.key} ({one.id}) viewer {i}: {viewer.protocol[-8:]} {viewer.screen.status} {viewer.screen.snapshot}"
            for one in self.runs
            for i, viewer in enumerate(one.viewers)
            if any(one.id in line or one.key in line for line in found) or len(self.runs) < 3
        ]
        logs = [f"-- {member.name}\n{_telling(member.log)}" for member in self.fleet.members]
        told = [f"PLAYHEAD_SEED={self.seed}", f"steps: {self.steps}", *found, *views, *logs]
        raise AssertionError("\n".join(told))

    async def close(self) -> None:
        await drop(*self._tasks)
        for one in self.runs:
            self.open(one, EVERY)
            if one.id and not _over(one):  # a scenario that failed leaves the fleet free for the next one
                await self.cancel(one)

    async def _decide(self, one: Started) -> None:
        """The person: answers each question that a screen shows, once it may, until told that it was heard."""
        while not _over(one):
            await asyncio.sleep(AGAIN / 5)
            for name in [name for viewer in one.viewers for name in viewer.screen.interrupts]:
                if name in self.decided or not self.may_decide.is_set():
                    continue
                path = f"/runs/{one.id}/interrupts/{name}/decision"
                answer = await self.call("POST", path, {"approved": True, "note": "go on"}, self.chance.randrange(2))
                assert answer.status in (200, 409), answer
                self.decided[name] = answer.status


OUTAGE = ("does not answer", "can be archived", "no answer to a beat", "could be taken")


def _telling(log: str) -> str:
    """The end of a log, without what every outage says again and again."""
    lines = [line for line in log.splitlines() if not any(one in line for one in OUTAGE)]
    return "\n".join(lines[-20:])


def _over(one: Started) -> bool:
    return all(viewer.screen.over for viewer in one.viewers)
