"""Joining a run: the whole screen in one answer, and what follows it, with nothing between them and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import playhead
from playhead.core.run import Run
from playhead.gateway import Principal
from tests.support.agents import counting
from tests.support.stage import STORES, Gates, Stage, stage
from tests.support.wire import Stream

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", STORES)]


def talking(gates: Gates) -> Sequence[playhead.Agent]:
    @playhead.agent
    async def talker(run: playhead.RunContext, n: int = 40) -> str:
        said = ""
        for i in range(1, n + 1):
            await gates.wait(f"at-{i}")
            await run.event("counted", {"i": i}, progress=100 * i / n, done=i, total=n)
            await run.text(f"{i} ")
            said += f"{i} "
        await gates.wait("end")
        return said

    return [talker]


@pytest.mark.row("R28")
async def test_the_screen_is_whole_and_access_comes_first(backend: str, tmp_path: Path) -> None:
    may, asked = True, []

    def authorize(principal: Principal, action: str, run: Run | None) -> bool:
        asked.append(action)
        return may

    async with stage(backend, tmp_path, talking, authorize=authorize) as s:
        run_id = await s.client.start("talker")
        s.gates.open(*(f"at-{i}" for i in range(1, 21)))
        await s.gates.reached("at-21")
        live, reads = s.engine.ports.live, []
        read, stand = live.read, live.stand

        def counted(act: Any) -> Any:
            def call(*args: Any, **options: Any) -> Any:
                reads.append(args)
                return act(*args, **options)

            return call

        live.read = counted(read)
        asked.clear()
        shown = await s.client.bootstrap(run_id, limit=5)
        assert (asked, bool(reads)) == (["run.read"], True)
        assert (shown["run"]["id"], shown["run"]["status"], shown["snapshot"]["done"]) == (run_id, "running", 20)
        assert [event["payload"]["i"] for event in shown["events"]] == [16, 17, 18, 19, 20]
        assert shown["timeline"] == {"complete": True, "has_older": True, "oldest": shown["events"][0]["id"]}
        async with s.client.stream(run_id, shown["cursor"]) as stream:
            s.gates.open("at-21")
            await stream.type("counted")
        assert stream.events[0]["payload"]["i"] == 21

        may = False
        reads.clear()
        live.stand = counted(stand)
        for path in ("/bootstrap", "/events", "/stream"):
            answer = await s.client.get(f"/runs/{run_id}{path}")
            assert (answer.status, answer.json()["code"]) == (404, "not_found")
        # The loops of the server may look at where things stand; nobody read what is on a timeline.
        assert [args for args in reads if not isinstance(args[0], list)] == []
        live.read, live.stand = read, stand


@pytest.mark.store
@pytest.mark.row("R29", "M-reload", "M-join-race")
async def test_a_reload_at_any_moment_shows_all_of_it_once(backend: str, tmp_path: Path) -> None:
    """Snapshot, history up to the cursor, then what follows it: while the run goes on between these reads."""

    async def join(s: Stage, run_id: str, opens: str) -> tuple[dict[str, Any], Stream]:
        """Load the page, with the agent going on at the same time."""
        asyncio.get_running_loop().call_soon(s.gates.open, opens)
        shown = await s.client.bootstrap(run_id, limit=200)
        return shown, await s.client.open(run_id, shown["cursor"])

    async with stage(backend, tmp_path, talking) as s:
        run_id = await s.client.start("talker")
        joined = []
        for i in range(1, 41):
            await s.gates.reached(f"at-{i}")
            joined.append(await join(s, run_id, f"at-{i}"))
        await s.gates.reached("end")
        joined.append(await join(s, run_id, "end"))
        for _, stream in joined:
            await stream.end()
            await stream.close()
        whole = await s.client.bootstrap(run_id, limit=200)
        ids = [event["id"] for event in whole["events"]]
        text = "".join(f"{i} " for i in range(1, 41))
        assert len(ids) == 44
        for shown, stream in joined:
            assert stream.named("resync_required") == []
            seen = [event["id"] for event in shown["events"] + stream.events]
            assert seen == ids
            assert shown["timeline"]["complete"] is True
            done = [e["payload"]["i"] for e in shown["events"] if e["type"] == "counted"]
            assert (shown["snapshot"]["done"] or 0) >= (done[-1] if done else 0)
            if stream.status == 204:  # the run had ended when it was joined, and the record has the result
                assert shown["run"]["result"] == text
            else:
                assert stream.text() == text
                assert stream.snapshot["status"] == "succeeded"
            if shown["text"]:
                assert text.startswith(shown["text"][0]["text"])


@pytest.mark.store
@pytest.mark.row("M-event-before-state", "R21", "R25")
async def test_whoever_hears_of_an_event_reads_the_state_that_it_led_to(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 25})
        looked = 0
        async with s.client.stream(run_id) as stream:
            while not stream.named("end"):
                await stream.more()
                for event in stream.events[looked:]:
                    shown = await s.client.bootstrap(run_id, limit=200)
                    assert event in shown["events"]
                    assert shown["snapshot"]["version"] >= event["version"]
                    if event["type"] == "counted":
                        assert shown["snapshot"]["done"] >= event["payload"]["i"]
                    if event["type"] == "run_succeeded":
                        assert shown["run"]["status"] == shown["snapshot"]["status"] == "succeeded"
                        assert shown["run"]["result"] == {"counted": 25}
                    looked += 1
        assert looked == 29
