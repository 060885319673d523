"""The record: creating runs, finding them, and keeping tenants apart."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from playhead.core import event
from playhead.core.ids import EVERY_TENANT, run_feed
from playhead.core.run import Failure, Outcome, Policy, Status
from playhead.errors import AttemptLost, KeyConflict, NotFound
from playhead.testing.check import RecordBench, Rules, refused
from playhead.testing.ports.given import (
    DONE,
    HOSTILE,
    STRANGE,
    TENANT,
    YES,
    Act,
    asked,
    facts,
    get,
    new_id,
    new_run,
    question,
    queued,
    running,
    types,
)

rule: Rules[RecordBench] = Rules()


@rule()
async def a_new_run_is_queued_with_its_first_epoch(b: RecordBench) -> None:
    """A created run is queued, holds what was asked for, has an epoch, and one `run_queued` tells of it."""
    new = new_run(b.clock, policy=Policy(True, 5, 2.5), labels={"team": "red"}, key="order-7", digest="d9")
    run, is_new = await b.store.create(new)
    assert is_new
    assert await get(b, run) == run
    assert (run.id, run.tenant, run.agent, run.input) == (new.id, TENANT, new.agent, new.input)
    assert (run.policy, dict(run.labels), run.key, run.digest) == (new.policy, {"team": "red"}, "order-7", "d9")
    assert (run.status, run.token, run.rev, run.owner) == (Status.QUEUED, 0, 1, None)
    assert (run.created_at, run.updated_at, run.started_at) == (b.clock.wall_ms(), b.clock.wall_ms(), None)
    assert run.epoch > 0
    assert (await b.store.outbox(10)) == [run_feed(run.id)]
    (fact,) = await facts(b, run)
    assert (fact.event.type, fact.status, fact.token, fact.started_at) == (event.RUN_QUEUED, Status.QUEUED, 0, None)


@rule()
async def the_same_key_gives_the_same_run(b: RecordBench) -> None:
    """A key used again with the same digest gives the run that it made, as that run is by then, and writes nothing."""
    run, _ = await b.store.create(new_run(b.clock, scope="ann", dedupe="k1"))
    await b.store.beat("p1", 10_000, ())
    await b.store.claim(run.tenant, run.id, "p1")
    now = await b.store.finish(run.id, 1, DONE)
    again, is_new = await b.store.create(new_run(b.clock, scope="ann", dedupe="k1"))
    assert (again, is_new) == (now, False)
    assert (await types(b, run)).count(event.RUN_QUEUED) == 1
    assert len(await b.store.list_runs(TENANT)) == 1


@rule()
async def another_body_under_the_same_key_is_a_conflict(b: RecordBench) -> None:
    """A key used again with another digest raises KeyConflict and writes nothing."""
    run = await queued(b, scope="ann", dedupe="k1", digest="d1")
    with refused(KeyConflict):
        await b.store.create(new_run(b.clock, scope="ann", dedupe="k1", digest="d2"))
    assert await b.store.list_runs(EVERY_TENANT) == [run]


@rule()
async def a_key_counts_within_its_tenant_and_scope(b: RecordBench) -> None:
    """The same key of another tenant or another scope is another key."""
    made = [
        await b.store.create(new_run(b.clock, tenant=tenant, scope=scope, dedupe="k1", digest=tenant + scope))
        for tenant in ("acme", "other")
        for scope in ("ann", "bob")
    ]
    assert all(is_new for _, is_new in made)
    assert len({run.id for run, _ in made}) == 4


@rule()
async def fifty_at_once_make_one_run(b: RecordBench) -> None:
    """Fifty concurrent calls with one key make one run and one `run_queued`, and one of them says that it is new."""
    made = await asyncio.gather(*(b.store.create(new_run(b.clock, dedupe="k1")) for _ in range(50)))
    assert len({run.id for run, _ in made}) == 1
    assert [is_new for _, is_new in made].count(True) == 1
    assert await types(b, made[0][0]) == [event.RUN_QUEUED]
    assert len(await b.store.list_runs(TENANT)) == 1


@rule()
async def fifty_bodies_under_one_key_make_one_run(b: RecordBench) -> None:
    """Of concurrent calls with one key and different bodies, one makes the run and all others conflict."""
    made = await asyncio.gather(
        *(b.store.create(new_run(b.clock, dedupe="k1", digest=f"d{i}")) for i in range(50)), return_exceptions=True
    )
    assert [type(one) for one in made].count(KeyConflict) == 49
    assert len(await b.store.list_runs(TENANT)) == 1


@rule()
async def without_a_key_every_request_makes_a_run(b: RecordBench) -> None:
    """Requests without a key are never taken for one another."""
    runs = [await queued(b) for _ in range(3)]
    assert len({run.id for run in runs}) == 3
    assert runs[0].seq < runs[1].seq < runs[2].seq


@rule()
async def creating_can_be_repeated(b: RecordBench) -> None:
    """The very same request sent twice, because its answer was lost, makes one run even without a key."""
    new = new_run(b.clock)
    first, _ = await b.store.create(new)
    second, is_new = await b.store.create(new)
    assert (second, is_new) == (first, False)
    assert await types(b, first) == [event.RUN_QUEUED]


@rule()
async def a_key_can_be_looked_up(b: RecordBench) -> None:
    """`find_dedupe` gives the run of exactly this tenant, scope and key."""
    run = await queued(b, scope="ann", dedupe="k1")
    await queued(b, scope="ann")
    assert await b.store.find_dedupe(TENANT, "ann", "k1") == run
    for tenant, scope, key in (("other", "ann", "k1"), (TENANT, "bob", "k1"), (TENANT, "ann", "k2"), (TENANT, "", "")):
        assert await b.store.find_dedupe(tenant, scope, key) is None


@rule()
async def the_order_of_creation_is_not_the_clocks(b: RecordBench) -> None:
    """Runs are numbered as they are created, also within one millisecond and when the clock steps back."""
    runs = [await queued(b) for _ in range(3)]
    b.clock.step_wall(-86_400)
    runs += [await queued(b) for _ in range(3)]
    assert [run.id for run in await b.store.list_runs(TENANT)] == [run.id for run in reversed(runs)]


@rule()
async def a_list_is_filtered_and_paged(b: RecordBench) -> None:
    """A list is newest first, every filter must hold, and `before_seq` continues it."""
    red = await queued(b, labels={"team": "red", "env": "prod"}, key="x")
    blue = await queued(b, labels={"team": "blue", "env": "prod"}, agent="other_agent")
    bare = await queued(b, key="x")
    await b.store.request_cancel(TENANT, bare.id, "ann", None)
    bare = await get(b, bare)

    async def ids(**filters: Any) -> list[str]:
        return [run.id for run in await b.store.list_runs(TENANT, **filters)]

    assert await b.store.list_runs(TENANT) == [bare, blue, red]
    assert await ids(status=[Status.QUEUED]) == [blue.id, red.id]
    assert await ids(status=[Status.QUEUED, Status.CANCELLED]) == [bare.id, blue.id, red.id]
    assert await ids(status=[Status.FAILED]) == []
    assert await ids(agent="other_agent") == [blue.id]
    assert await ids(labels={"env": "prod"}) == [blue.id, red.id]
    assert await ids(labels={"env": "prod", "team": "red"}) == [red.id]
    assert await ids(labels={"env": "pro"}) == []
    assert await ids(key="x") == [bare.id, red.id]
    assert await ids(key="x", status=[Status.QUEUED]) == [red.id]
    assert await ids(limit=2) == [bare.id, blue.id]
    assert await ids(before_seq=blue.seq, limit=2) == [red.id]
    assert await ids(before_seq=red.seq) == []


@rule()
async def a_list_ends_where_it_is_as_large_as_was_asked(b: RecordBench) -> None:
    """`most_bytes` ends a list with the run that comes to it, in the order of all filters; `before_seq` continues."""
    sizes = (10, 400, 10, 300, 10)
    runs = [await queued(b, input=b'"%b"' % (b"x" * (size - 2)), labels={"n": "1"}) for size in sizes]
    await b.store.request_cancel(TENANT, runs[4].id, "ann", None)
    both = [Status.QUEUED, Status.CANCELLED]

    async def places(**filters: Any) -> list[int]:
        return [runs.index(next(own for own in runs if own.id == run.id)) for run in await b.store.list_runs(**filters)]

    for filters in ({}, {"status": both}, {"status": both, "labels": {"n": "1"}}):
        asked: dict[str, Any] = {"tenant": TENANT, **filters}
        assert await places(**asked, most_bytes=10_000) == [4, 3, 2, 1, 0]
        assert await places(**asked, most_bytes=1) == [4]
        assert await places(**asked, most_bytes=10) == [4]
        assert await places(**asked, most_bytes=11) == [4, 3]
        assert await places(**asked, most_bytes=311) == [4, 3, 2]
        assert await places(**asked, most_bytes=311, limit=2) == [4, 3]
        assert await places(**asked, most_bytes=311, before_seq=runs[3].seq) == [2, 1]
    assert await places(tenant=TENANT, status=[Status.QUEUED], most_bytes=311) == [3, 2, 1]


@rule()
async def tenants_do_not_see_each_other(b: RecordBench) -> None:
    """Another tenant's run looks exactly like none, in every call on behalf of a person; the server sees all."""
    run = await running(b)
    one = await asked(b, run)
    await b.store.note(TENANT, run.id, None, "viewed", "ann", b"{}")
    before = await get(b, run)
    other = "other"
    assert await b.store.get(other, run.id) is None
    assert await b.store.list_runs(other) == []
    assert await b.store.interrupts(other) == []
    assert await b.store.interrupts(other, run.id) == []
    assert await b.store.audit(other, run.id) == []
    assert await b.store.delete(other, run.id) is False
    with refused(NotFound):
        await b.store.request_cancel(other, run.id, "eve", None)
    with refused(NotFound):
        await b.store.decide(other, run.id, one.id, YES, "eve")
    with refused(NotFound):
        await b.store.claim(other, run.id, "p1")
    assert await get(b, run) == before
    assert await b.store.get(EVERY_TENANT, run.id) == before
    assert await b.store.list_runs(EVERY_TENANT) == [before]
    assert await b.store.interrupts(EVERY_TENANT) == [one]
    assert [entry.actor for entry in await b.store.audit(EVERY_TENANT, run.id) if entry.kind == "viewed"] == ["ann"]


@rule()
async def every_character_is_stored_as_it_is(b: RecordBench) -> None:
    """Texts with U+0000, emoji, separators and quotes come back the same, byte for byte."""
    data = b'{"t":"a\\u0000b \xf0\x9f\x98\x80 \xe2\x80\xa8"}'
    run = await running(b, labels={"note": STRANGE}, input=data)
    one = await b.store.ask(run.id, 1, question(STRANGE, payload=data), new_id(b.clock), data)
    assert (one.key, one.payload) == (STRANGE, data)
    decided = await b.store.decide(TENANT, run.id, one.id, data, STRANGE)
    assert (decided.decision, decided.decided_by) == (data, STRANGE)
    assert await b.store.interrupts(TENANT, open_only=False) == [decided]
    await b.store.note(TENANT, run.id, 1, "odd", STRANGE, data)
    (noted,) = [entry for entry in await b.store.audit(TENANT, run.id) if entry.kind == "odd"]
    assert (noted.actor, noted.data) == (STRANGE, data)
    ended = await b.store.finish(
        run.id, 1, Outcome(Status.FAILED, failure=Failure("odd", STRANGE), partial=data, state=data)
    )
    for found in (ended, await get(b, run)):
        assert (dict(found.labels), found.input, found.state) == ({"note": STRANGE}, data, data)
        assert (found.failure, found.partial) == (Failure("odd", STRANGE), data)
    assert await b.store.list_runs(TENANT, labels={"note": STRANGE}) == [ended]
    cancelled = await queued(b)
    await b.store.request_cancel(TENANT, cancelled.id, STRANGE, STRANGE)
    found = await get(b, cancelled)
    assert (found.cancel_by, found.cancel_reason) == (STRANGE, STRANGE)


@rule()
async def ids_that_nobody_made_are_not_found(b: RecordBench) -> None:
    """An id that is no id finds nothing and harms nothing."""
    run = await running(b)
    one = await asked(b, run)
    before = await get(b, run)
    for text in HOSTILE:
        feed = replace(run_feed(run.id), id=text)
        assert await b.store.get(TENANT, text) is None
        assert await b.store.get(EVERY_TENANT, text) is None
        assert await b.store.facts(feed, 0) is None
        assert await b.store.mint_epoch(feed, 0) is None
        assert await b.store.find_dedupe(TENANT, text, text) is None
        assert await b.store.list_runs(TENANT, agent=text, labels={"a": text}, key=text) == []
        assert await b.store.interrupts(TENANT, text) == []
        assert await b.store.audit(TENANT, text) == []
        assert await b.store.lose(text, 1, None) is None
        assert await b.store.delete(TENANT, text) is False
        assert (await b.store.beat("p1", 10_000, [(text, 1)])).lost == {(text, 1)}
        await b.store.settle(feed, run.epoch, 99)
        calls: tuple[Act, ...] = (
            partial(b.store.request_cancel, TENANT, text, "ann", None),
            partial(b.store.decide, TENANT, text, one.id, YES, "ann"),
            partial(b.store.decide, TENANT, run.id, text, YES, "ann"),
            partial(b.store.claim, TENANT, text, "p1"),
        )
        for call in calls:
            with refused(NotFound):
                await call()
        with refused(AttemptLost):
            await b.store.finish(text, 1, DONE)
        with refused(AttemptLost):
            await b.store.ask(text, 1, question(), new_id(b.clock), None)
    assert await get(b, run) == before
