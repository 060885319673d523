"""The server is killed at one named moment: in the middle of a write, right after a promise, just before an end."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.crash.scene import Scene
from tests.support.nursery import Nursery

pytestmark = pytest.mark.anyio


def rows(scene: Scene, name: str, query: str) -> list[tuple[Any, ...]]:
    """What a dead server left in a file."""
    with closing(sqlite3.connect(scene.data / name)) as db:
        return db.execute(query).fetchall()


def the_run(scene: Scene) -> tuple[str, int]:
    """Status and attempts of the only run, from the file."""
    [found] = rows(scene, "record.db", "SELECT status, token FROM run")
    return (str(found[0]), int(found[1]))


def check_whole(scene: Scene) -> int:
    """Every projection that is there is whole: its entries reach its tip, its text its length; how many there are."""
    projections = rows(scene, "live.db", "SELECT slot, floor, position, tag, version, n FROM projection")
    for slot, floor, position, tag, version, _ in projections:
        entries = rows(
            scene, "live.db", f"SELECT position, tag, prev, version FROM entry WHERE slot = {slot} ORDER BY position"
        )
        assert [entry[0] for entry in entries] == list(range(floor + 1, position + 1))
        for before, after in pairwise(entries):
            assert after[2] == before[1]
        if entries:
            assert entries[-1][1] == tag
            assert entries[-1][3] <= version
    kept = "SELECT part.length, sum(length(data)) FROM part JOIN piece ON part.id = piece.part GROUP BY part.id"
    assert [length for length, found in rows(scene, "live.db", kept) if length != found] == []
    return len(projections)


async def killed(scene: Scene, at: str, agents: Sequence[str], **given: Any) -> list[asyncio.Task[Any]]:
    """Ask a server that will die at this moment for these runs; its clients go on asking."""
    server = await (await scene.start(at)).ready()
    asked = [asyncio.create_task(scene.ask_for(agent, steps=3, question=False, **given)) for agent in agents]
    assert await server.ended() == -signal.SIGKILL
    return asked


async def restarted(scene: Scene, asked: Sequence[asyncio.Task[Any]]) -> None:
    await scene.start()
    await asyncio.gather(*asked)
    await scene.settle()
    await scene.verify()
    await scene.verify_files()


@pytest.fixture
def scene(nursery: Nursery, tmp_path: Path) -> Scene:
    return Scene(nursery, tmp_path)


@pytest.mark.row("M-torn-write", "S1-3")
@pytest.mark.parametrize("at", ["publish:3", "fact:4", "append:5", "acquire:1", "finish:1"])
async def test_a_write_that_death_interrupts_is_there_whole_or_not_at_all(scene: Scene, at: str) -> None:
    """Everything of the act is written and nothing committed: event, state and place must vanish together."""
    try:
        asked = await killed(scene, f"before_commit@{at}", ["plain", "resumable"])
        assert check_whole(scene) > 0
        acked = [(ack["run"], ack["n"]) for ack in scene.acknowledged()]
        feeds = dict(rows(scene, "live.db", "SELECT substr(feed, 5), n FROM projection"))
        for run, n in acked:  # what an agent was told is visible, is
            assert feeds[run] >= n
        await restarted(scene, asked)
    finally:
        await scene.close()


@pytest.mark.row("M-crash-after-start")
@pytest.mark.parametrize("at", ["before_commit@create", "after_commit@create"])
async def test_an_accepted_run_is_there_with_its_input_and_a_refused_one_is_not(scene: Scene, at: str) -> None:
    try:
        asked = await killed(scene, at, ["plain"])
        left = rows(scene, "record.db", "SELECT id, status FROM run")
        assert [status for _, status in left] == (["queued"] if at.startswith("after") else [])
        await restarted(scene, asked)  # the input is compared there
        [one] = scene.runs
        assert the_run(scene) == ("succeeded", 1)
        if left:
            assert one.id == left[0][0]  # the client's second try found the run of the first
    finally:
        await scene.close()


@pytest.mark.row("M-crash-before-outcome")
@pytest.mark.parametrize(
    ("agent", "ends"), [("plain", ("interrupted", 1)), ("resumable", ("succeeded", 2))], ids=["plain", "resumable"]
)
async def test_a_death_between_the_last_step_and_the_outcome_leaves_one_end(
    scene: Scene, agent: str, ends: tuple[str, int]
) -> None:
    try:
        asked = await killed(scene, "before_commit@finish", [agent])
        assert the_run(scene) == ("running", 1)
        await restarted(scene, asked)
        assert the_run(scene) == ends
    finally:
        await scene.close()


@pytest.mark.row("M-restart")
async def test_a_restart_in_the_middle_is_recorded_and_told_as_an_interruption(scene: Scene) -> None:
    try:
        asked = await killed(scene, "text:10", ["plain"])
        assert the_run(scene) == ("running", 1)
        await restarted(scene, asked)
        assert the_run(scene) == ("interrupted", 1)
        [viewer] = scene.viewers.values()
        assert (viewer.screen.status, viewer.screen.finals) == ("interrupted", ["run_interrupted"])
        assert viewer.screen.run is not None
        assert viewer.screen.run["error"]["code"] == "worker_lost"
        assert viewer.connections > 1  # it came back by itself
    finally:
        await scene.close()
