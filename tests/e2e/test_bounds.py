"""What happens at each bound: something declared, that is told, and the run goes on or ends with its reason."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

import playhead
from tests.support.stage import BACKENDS, Gates, Outage, stage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", BACKENDS)]

MIB = 1 << 20


def lavish(gates: Gates) -> Sequence[playhead.Agent]:
    @playhead.agent
    async def writer(run: playhead.RunContext, size: int = 0) -> str:
        return "x" * size

    @playhead.agent
    async def talker(run: playhead.RunContext, pieces: int = 0, parts: int = 0) -> list[str]:
        refused = []
        for _ in range(pieces):
            await run.text("é" * 50_000)
        for i in range(parts):
            try:
                await run.text("x", part=f"part_{i}")
            except playhead.PlayheadError as error:
                refused.append(error.code)
        await run.update(detail="d" * 5_000, title="🙂" * 5_000)
        await run.flush()
        await gates.wait("said")
        return refused

    @playhead.agent
    async def counter(run: playhead.RunContext, n: int, last_word: bool) -> int:
        await run.event("counting_begun")
        await gates.wait("down")
        for i in range(1, n + 1):
            await run.event("counted", {"i": i}, done=i, total=n)
        await gates.wait("counted")
        if last_word:
            await run.event("counting_ended")
        return n

    return [writer, talker, counter]


async def test_a_result_beyond_its_bound_fails_the_run_and_says_so(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, lavish, settings={"max_result": 1_000}) as s:
        fits = await s.client.ended(await s.client.start("writer", {"size": 998}))
        assert (fits["status"], len(fits["result"])) == ("succeeded", 998)
        large = await s.client.ended(await s.client.start("writer", {"size": 999}))
        assert (large["status"], large["result"], large["error"]["code"]) == ("failed", None, "payload_too_large")


async def test_text_beyond_the_bound_of_a_part_is_left_out_and_says_so(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, lavish) as s:
        run_id = await s.client.start("talker", {"pieces": 15})
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("said")
            [part] = (await s.client.bootstrap(run_id))["text"]
            assert set(part["text"]) == {"é"}  # cut between characters
            assert MIB - 4 <= part["end"] <= MIB
            assert len(part["text"].encode()) == part["end"]
            s.gates.open("said")
            await stream.end()
        assert stream.text() == part["text"]
        assert stream.named("text")[-1]["truncated"] is True
        assert stream.types[-1] == "run_succeeded"


async def test_too_many_parts_are_refused_to_the_agent(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, lavish) as s:
        run_id = await s.client.start("talker", {"parts": 67})
        await s.gates.reached("said")
        shown = await s.client.bootstrap(run_id)
        assert [part["part"] for part in shown["text"]] == [f"part_{i}" for i in range(64)]
        s.gates.open("said")
        assert (await s.client.ended(run_id))["result"] == ["invalid_part"] * 3


async def test_words_of_a_snapshot_are_cut(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, lavish) as s:
        run_id = await s.client.start("talker")
        await s.gates.reached("said")
        snapshot = (await s.client.bootstrap(run_id))["snapshot"]
        assert (snapshot["detail"], snapshot["title"]) == ("d" * 2_000, "🙂" * 2_000)
        s.gates.open("said")
        assert (await s.client.ended(run_id))["status"] == "succeeded"


@pytest.mark.parametrize("back", ["before", "at", "after"])
@pytest.mark.parametrize("n", [60, 101, 150])
async def test_an_agent_waits_for_no_store_and_what_cannot_be_kept_is_an_honest_hole(
    backend: str, tmp_path: Path, n: int, back: str
) -> None:
    """While the live store is away up to a hundred publishes are kept here; beyond that the timeline says that it
    is not whole. That holds if the store is back before the last word of the run, at its end, or after it."""
    settings = {"pending_publishes": 100, "sweep": 0.2}
    async with stage(backend, tmp_path, lavish, settings=settings) as s:
        outage = Outage(s, reads=False)
        run_id = await s.client.start("counter", {"n": n, "last_word": back == "before"})
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("down")
            await stream.type("counting_begun")
            await s.archived(run_id)
            outage.on = True
            s.gates.open("down")
            await s.gates.reached("counted")  # all of them, and nobody was waited for
            shown = await s.client.bootstrap(run_id)
            assert shown["run"]["status"] == "running"
            if back != "after":
                await asyncio.sleep(2.1)  # no two epochs are minted within two seconds
                outage.on = False
            if back == "before":
                async with asyncio.timeout(20):  # the publisher looks again by itself
                    while (await s.client.bootstrap(run_id))["snapshot"]["done"] != n:
                        await asyncio.sleep(0.05)
            s.gates.open("counted")
            run = await s.client.ended(run_id)
            outage.on = False
            await stream.end()
        assert (run["status"], run["result"]) == ("succeeded", n)
        async with asyncio.timeout(20):
            while (shown := await s.client.bootstrap(run_id, limit=200))["degraded"] is not None:
                await asyncio.sleep(0.05)
        counted = [event["payload"]["i"] for event in shown["events"] if event["type"] == "counted"]
        assert shown["snapshot"]["done"] == n
        assert shown["events"][-1]["type"] == "run_succeeded"
        assert len({event["id"] for event in shown["events"]}) == len(shown["events"])
        assert counted == sorted(counted)
        assert counted[-1] == n
        assert shown["timeline"]["complete"] is (n <= 100)
        assert (counted == list(range(1, n + 1))) is (n <= 100)
        if n <= 100:
            assert stream.named("resync_required") == []
            assert [event["id"] for event in stream.events] == [event["id"] for event in shown["events"]]
