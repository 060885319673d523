"""An end is shown, and the record lost what it had committed of it: the record wins, and everybody sees the change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import playhead
from playhead.client import Client
from playhead.core import event as events
from playhead.core.event import FactDraft
from playhead.core.ids import run_feed
from playhead.core.run import Status
from playhead.core.transition import Applied
from tests.support.stage import Gates, Stage, stage, where
from tests.support.viewer import Viewer

pytestmark = pytest.mark.anyio

PATIENCE = 30.0


def working(gates: Gates) -> Sequence[playhead.Agent]:
    async def work(run: playhead.RunContext) -> dict[str, int]:
        await run.event("work_begun", {"attempt": run.attempt}, progress=10)
        await gates.wait(f"more-{run.attempt}")
        await run.event("work_ended", {"attempt": run.attempt}, progress=90)
        await gates.wait(f"end-{run.attempt}")
        return {"attempt": run.attempt}

    @playhead.agent
    async def once(run: playhead.RunContext) -> dict[str, int]:
        return await work(run)

    @playhead.agent(resumable=True)
    async def again(run: playhead.RunContext) -> dict[str, int]:
        return await work(run)

    return [once, again]


async def tell_an_end(s: Stage, run_id: str) -> None:
    """Write the projection ahead of the record."""
    run = await s.engine.ports.record.get("local", run_id)
    lie = FactDraft(events.RUN_FAILED, {"code": "x", "message": "x"}, Status.FAILED, run.token)
    fact = events.numbered(lie, run_feed(run_id), run.rev + 1, started_at=run.started_at, at=0)
    assert isinstance(await s.engine.ports.live.fact(run.epoch, fact, s.engine.projector.tag()), Applied)


async def lose(s: Stage, run_id: str) -> None:
    """Record another end, of the same number as the one that is shown."""
    record, feed = s.engine.ports.record, run_feed(run_id)
    run = await record.get("local", run_id)
    assert (await record.lose(run_id, run.token, None, run.owner)).status is Status.INTERRUPTED
    await s.engine.projector.bring(run_id)
    view = await s.engine.ports.live.read(feed)
    assert view is None or view.snapshot.status is Status.INTERRUPTED


# Who notices it → how the run ends then.
WANTED = {"a viewer": "succeeded", "the attempt": "succeeded", "a fact": "cancelled", "another end": "interrupted"}


@pytest.mark.row("F41", "R9")
@pytest.mark.parametrize("who", WANTED)
@pytest.mark.parametrize("backend", ["memory", "servers"])
async def test_an_end_that_was_never_recorded_gives_way(backend: str, tmp_path: Path, who: str) -> None:
    """Whoever notices it: a viewer who comes, the attempt that goes on, or who commits something else in its place."""
    async with stage(backend, tmp_path, working, settings={"sweep": 60.0}) as s:
        run_id = await s.client.start("once")
        await s.gates.reached("more-1")
        url = f"http://127.0.0.1:{s.client.port}"
        seen: list[Any] = []

        async def watch() -> None:
            async for view in Client(url).follow(run_id):
                seen.append(view)

        watching = asyncio.create_task(watch())
        async with asyncio.timeout(PATIENCE):
            while not seen or seen[-1].connection != "live":
                await asyncio.sleep(0.01)
            await tell_an_end(s, run_id)
            while "run_failed" not in [event["type"] for event in seen[-1].events]:
                await asyncio.sleep(0.01)
            if who == "a viewer":
                shown = await s.client.bootstrap(run_id)
                assert (shown["run"]["status"], shown["snapshot"]["status"]) == ("running", "running")
                assert "run_failed" not in [event["type"] for event in shown["events"]]
            elif who == "a fact":
                assert (await s.client.call("POST", f"/runs/{run_id}/cancel", {"reason": "enough"})).status == 202
            elif who == "another end":
                await lose(s, run_id)
            s.gates.open("more-1", "end-1")
            await watching
        wanted = WANTED[who]
        run = await s.client.run(run_id)
        assert (run["status"], run["attempt"]) == (wanted, 1)
        last = await s.client.bootstrap(run_id)
        types = [event["type"] for event in last["events"]]
        assert types.count(f"run_{wanted}") == 1
        assert "run_failed" not in types
        assert types[-1] == f"run_{wanted}"
        assert last["snapshot"]["status"] == wanted
        assert (seen[-1].status, seen[-1].run["status"]) == (wanted, wanted)
        assert [event["id"] for event in seen[-1].events] == [event["id"] for event in last["events"]]
        assert [event["type"] for event in seen[-1].events] == types


SAVED = ("run", "run_end", "fact", "attempt")
KEYS = {"run": "id", "run_end": "seq", "fact": "feed", "attempt": "run_id"}


@contextmanager
def taken_back(dsn: str, run_id: str) -> Iterator[None]:
    """What the record knows of a run when the block begins is all that it knows when it has ended."""
    with psycopg.connect(dsn, autocommit=True) as sql:
        [(seq,)] = sql.execute("SELECT seq FROM playhead.run WHERE id = %s", (run_id,)).fetchall()
        ids = {"run": run_id, "run_end": seq, "fact": run_feed(run_id).key, "attempt": run_id}
        for table in SAVED:
            kept = f"SELECT * FROM playhead.{table} WHERE {KEYS[table]} = %s"
            sql.execute(f"CREATE TEMP TABLE saved_{table} AS {kept}".encode(), (ids[table],))
        yield
        with sql.transaction():
            for table in SAVED:
                sql.execute(f"DELETE FROM playhead.{table} WHERE {KEYS[table]} = %s".encode(), (ids[table],))
                put = f"INSERT INTO playhead.{table} OVERRIDING SYSTEM VALUE SELECT * FROM saved_{table}"
                sql.execute(put.encode())


@pytest.mark.row("F41")
@pytest.mark.parametrize("agent", ["once", "again"])
async def test_an_end_whose_commit_is_lost_leaves_no_run_that_nobody_works_on(tmp_path: Path, agent: str) -> None:
    """The attempt is over, its process lives, and the record has the run as running: it is taken up or closed."""
    settings = {"lease": 1.5, "beat": 0.2}
    async with stage("servers", tmp_path, working, settings=settings) as s:
        run_id = await s.client.start(agent)
        s.gates.open("more-1")
        await s.gates.reached("end-1")
        await s.archived(run_id)
        async with s.client.stream(run_id) as stream:
            with taken_back(where("servers", tmp_path)["record"], run_id):
                s.gates.open("end-1", "more-2", "end-2")
                await stream.end()
            assert stream.types[-1] == "run_succeeded"
        assert (await s.client.run(run_id))["status"] == "running"
        viewer = Viewer(s.client, run_id)
        viewer.screen.cursor = stream.cursor  # the page of somebody who saw the end
        screen = await asyncio.wait_for(viewer.follow(), PATIENCE)
        run = await s.client.run(run_id)
        if agent == "once":
            assert (run["status"], run["error"]["code"], run["attempt"]) == ("interrupted", "worker_lost", 1)
        else:
            assert (run["status"], run["result"], run["attempt"]) == ("succeeded", {"attempt": 2}, 2)
        shown = await s.client.bootstrap(run_id, limit=200)
        assert viewer.resyncs
        assert (screen.status, screen.finals) == (run["status"], [f"run_{run['status']}"])
        assert [event["id"] for event in shown["events"]] == list(screen.events)
        assert [e["type"] for e in shown["events"] if e["type"].startswith("run_")] == [
            "run_queued",
            "run_started",
            f"run_{run['status']}",
        ]
