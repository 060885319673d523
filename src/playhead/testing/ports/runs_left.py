"""The record: attempts that are a process's own, and on which it does not work."""

from __future__ import annotations

from playhead.core.run import Status
from playhead.testing.check import RecordBench, Rules
from playhead.testing.ports.given import DONE, TTL_MS, queued, resumable, running

rule: Rules[RecordBench] = Rules()


@rule()
async def a_beat_tells_what_was_not_named(b: RecordBench) -> None:
    """An attempt that is the process's own and that it does not name is told as left, in its latest token alone."""
    mine, left = await running(b), await running(b)
    ended = await running(b)
    await b.store.finish(ended.id, 1, DONE)
    await running(b, "p9")
    await queued(b)
    for held in ([(mine.id, 1), (left.id, 0)], [(mine.id, 1)]):
        assert (await b.store.beat("p1", TTL_MS, held)).left == {(left.id, 1)}
    assert (await b.store.beat("p1", TTL_MS, ())).left == {(mine.id, 1), (left.id, 1)}
    await b.store.finish(left.id, 1, DONE)
    assert (await b.store.beat("p1", TTL_MS, [(mine.id, 1)])).left == frozenset()


@rule()
async def a_process_may_give_up_its_own(b: RecordBench) -> None:
    """A process reaps an attempt of its own while its lease goes on; no other process can, and its others stay."""
    mine, other = await running(b, policy=resumable()), await running(b)
    assert await b.store.lose(mine.id, 1, None) is None
    assert await b.store.lose(mine.id, 1, None, "p9") is None
    assert await b.store.lose(mine.id, 0, None, "p1") is None
    lost = await b.store.lose(mine.id, 1, None, "p1")
    assert lost is not None
    assert (lost.status, lost.owner, lost.crashes) == (Status.RUNNING, None, 1)
    assert await b.store.lose(mine.id, 1, None, "p1") is None
    assert (await b.store.beat("p1", TTL_MS, [(mine.id, 1), (other.id, 1)])).lost == {(mine.id, 1)}
    await b.store.finish(other.id, 1, DONE)
    assert await b.store.lose(other.id, 1, None, "p1") is None
