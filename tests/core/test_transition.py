"""Writes to a projection: the verdict, and what an accepted write leads to, over histories of any kind."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.core import event, lifecycle, repair, transition
from playhead.core.cursor import Cursor
from playhead.core.event import FactDraft
from playhead.core.ids import LIMIT, run_feed
from playhead.core.replay import continues
from playhead.core.run import NewRun, Outcome, Policy, Status
from playhead.core.snapshot import Snapshot, State
from playhead.core.text import TextWrite
from playhead.core.transition import (
    Already,
    Behind,
    Final,
    Gap,
    Guard,
    Marks,
    NeedsRebuild,
    Opening,
    Publish,
    Stale,
    StaleVersion,
    WrongEpoch,
)

RUN = "0190163d-8694-739b-aea5-966c26f8ad90"
FEED = run_feed(RUN)
TAG = "0" * 12


def made_fact(rev, name=event.CANCEL_REQUESTED, status=Status.RUNNING, token=1):
    return event.numbered(FactDraft(name, {}, status, token), FEED, rev, started_at=None, at=0)


def made_write(first_n, count=1, token=1, rev=1, epoch=5, version=None, **guard):
    events = tuple(event.published(RUN, token, first_n + i, "step", {}, 0) for i in range(count))
    tags = tuple(f"{token % 65_536:04x}{first_n + i:08x}" for i in range(count))
    state = None if version is None else State(done=version).encode()
    return Publish(FEED, Guard(epoch, token, rev, **guard), first_n, events, tags, state, version or 0, 0)


def marks(**fields):
    return replace(Marks(5, 1, 1, False, 3, TAG, n=2, state_version=2, version=4), **fields)


@pytest.mark.parametrize(
    ("standing", "write", "reply"),
    [
        (None, made_write(3), NeedsRebuild(0)),
        (marks(), made_write(3, epoch=6), NeedsRebuild(5)),
        (marks(), made_write(3, epoch=4), WrongEpoch(5)),
        (marks(), made_write(3, acked_n=3), NeedsRebuild(5)),
        (marks(), made_write(3, acked_state=3), NeedsRebuild(5)),
        (marks(final=True), made_write(3, acked_n=3), NeedsRebuild(5)),
        (marks(final=True), made_write(3), Final()),
        (marks(final=True, token=2), made_write(3), Final()),
        (marks(token=2), made_write(3), Stale(2)),
        (marks(token=2), made_write(3, acked_n=9, rev=9), Stale(2)),
        (marks(), made_write(3, token=2), Behind(1)),
        (marks(), made_write(3, rev=2), Behind(1)),
        (marks(), made_write(1, rev=2), Behind(1)),
        (marks(), made_write(1), Already()),
        (marks(), made_write(1, 2), Already()),
        (marks(), made_write(1, 2, version=2), Already()),
        (marks(), made_write(3, version=2), StaleVersion(2)),
        (marks(), made_write(3, 0, version=2), StaleVersion(2)),
        (marks(), made_write(3, 0, version=1), StaleVersion(2)),
        (marks(), made_write(3), None),
        (marks(), made_write(2, 2), None),
        (marks(), made_write(9), None),
        (marks(), made_write(3, version=3), None),
        (marks(), made_write(1, 2, version=3), None),
        (marks(), made_write(3, 0, version=9), None),
    ],
)
def test_the_verdict_on_a_publish(standing, write, reply):
    assert transition.judge_publish(standing, write) == reply


@pytest.mark.parametrize(
    ("standing", "epoch", "rev", "reply"),
    [
        (None, 5, 1, NeedsRebuild(0)),
        (marks(), 6, 2, NeedsRebuild(5)),
        (marks(), 4, 2, WrongEpoch(5)),
        (marks(), 5, 1, Already()),
        (marks(final=True), 5, 1, Already()),
        (marks(), 5, 3, Gap(1)),
        (marks(final=True), 5, 2, Final()),
        (marks(), 5, 2, None),
    ],
)
def test_the_verdict_on_a_fact(standing, epoch, rev, reply):
    assert transition.judge_fact(standing, epoch, made_fact(rev)) == reply


@given(st.integers(0, 9), st.integers(0, 9), st.none() | st.integers(1, 9))
def test_an_opening_needs_what_was_seen_and_a_newer_epoch(seen, epoch, standing):
    opening = Opening(FEED, seen, epoch, TAG, 0, 0, Status.QUEUED, None, None, 0)
    reply = transition.judge_opening(None if standing is None else marks(epoch=standing), opening)
    now = standing or 0
    assert reply == (None if seen == now < epoch else WrongEpoch(now))


@pytest.mark.parametrize("status", [Status.RUNNING, Status.FAILED])
def test_a_projection_begins_with_nothing_but_what_the_record_says(status):
    opening = Opening(FEED, 5, 6, TAG, 7, 2, status, 11, None, 12)
    assert transition.after_opening(opening) == Marks(
        epoch=6, rev=7, token=2, final=status.final, position=0, tag=TAG,
        floor=0, archived=0, n=0, state_version=0, version=1,
    )  # fmt: skip
    assert transition.opening_snapshot(opening) == Snapshot(status, 2, 1, 7, 11, None, 12, State().encode())
    kept = transition.opening_snapshot(replace(opening, state=State(title="t").encode()))
    assert kept.state == State(title="t").encode()


def test_a_new_attempt_s_numbers_begin_anew_and_an_old_one_s_start_changes_none():
    standing = marks(token=2, n=6, state_version=4, floor=1, archived=1)
    moved, entry = transition.after_fact(standing, made_fact(2, event.ATTEMPT_STARTED, token=3), "f" * 12)
    assert moved == replace(standing, rev=2, token=3, n=0, state_version=0, position=4, tag="f" * 12, version=5)
    assert (entry.position, entry.prev, entry.version, entry.epoch) == (4, TAG, 5, 5)
    for fact in (made_fact(2, event.ATTEMPT_STARTED, token=2), made_fact(2, event.CANCEL_REQUESTED, token=3)):
        same, _ = transition.after_fact(standing, fact, "f" * 12)
        assert (same.token, same.n, same.state_version) == (2, 6, 4)


def test_an_opening_that_names_the_newest_entry_needs_it():
    for seen_tag, reply in ((TAG, None), (None, None), ("f" * 12, WrongEpoch(5))):
        opening = Opening(FEED, 5, 6, TAG, 0, 0, Status.QUEUED, None, None, 0, seen_tag)
        assert transition.judge_opening(marks(epoch=5, tag=TAG), opening) == reply
    missing = Opening(FEED, 0, 6, TAG, 0, 0, Status.QUEUED, None, None, 0, TAG)
    assert transition.judge_opening(None, missing) is None


@pytest.mark.parametrize(
    ("standing", "reply"),
    [
        ({"token": 2, "n": 6}, None),
        ({"token": 2, "n": 0}, None),  # rebuilt since: what came before is in the archive
        ({"token": 2, "n": 8}, Already()),
        ({"token": 2, "n": 5}, NeedsRebuild(5)),  # it went back
        ({"token": 1, "n": 0}, Behind(1)),  # its own start comes first
        ({"token": 3, "n": 0}, Stale(3)),
        ({"token": 2, "n": 6, "final": True}, Final()),
    ],
)
def test_what_a_fact_takes_along_is_written_for_the_attempt_that_ended(standing, reply):
    last = tuple(event.published("r", 2, n, "step_done", {}, 0) for n in (7, 8))
    fact = replace(made_fact(2, token=2), lacking=last)
    write = transition.carried(fact, marks(**standing), [TAG, "f" * 12])
    assert (write.events, write.first_n, write.state, write.at) == (last, 7, None, fact.at)
    assert transition.judge_publish(marks(**standing), write) == reply


def test_last_words_of_an_attempt_that_could_never_say_a_first_begin_at_one():
    fact = replace(made_fact(2, token=2), lacking=(event.published("r", 2, 1, "step_done", {}, 0),))
    for standing in (marks(token=2, n=0), marks(token=1, n=3)):
        assert transition.carried(fact, standing, [TAG]).guard.acked_n == 0


@given(st.sampled_from([9, 99, 999, 2**31, 2**52, LIMIT - 2]), st.sampled_from([-1, 0, 1]))
def test_tokens_are_told_apart_by_one(token, step):
    reply = transition.judge_publish(marks(token=token, n=0), made_write(1, token=token + step))
    assert reply == {-1: Stale(token), 0: None, 1: Behind(1)}[step]


@pytest.mark.row("A8")
@given(st.integers(1, 20), st.integers(1, 20))
def test_a_lost_projection_has_the_records_token_again(token, stale):
    """Missing means refused; opened again, it knows the token that the record knows, and lower ones stay stale."""
    write = made_write(1, token=min(stale, token))
    assert transition.judge_publish(None, write) == NeedsRebuild(0)
    opened = transition.after_opening(Opening(FEED, 0, 5, TAG, 1, token, Status.RUNNING, None, None, 0))
    assert transition.judge_publish(opened, write) == (Stale(token) if stale < token else None)


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 3), st.integers(1, 12), st.integers(0, 3), st.integers(0, 6)),
        st.tuples(st.just("fact"), st.integers(1, 9)),
    ),
    max_size=60,
)


def life():
    """The facts of a run with three attempts, by rev."""
    names = [
        (event.RUN_STARTED, Status.RUNNING, 0),
        (event.ATTEMPT_STARTED, Status.RUNNING, 1),
        (event.APPROVAL_REQUIRED, Status.WAITING, 1),
        (event.ATTEMPT_STARTED, Status.RUNNING, 2),
        (event.APPROVAL_DECIDED, Status.RUNNING, 2),
        (event.ATTEMPT_STARTED, Status.RUNNING, 3),
        (event.CANCEL_REQUESTED, Status.RUNNING, 3),
        (event.RUN_CANCELLED, Status.CANCELLED, 3),
        (event.RUN_STARTED, Status.RUNNING, 3),
    ]
    return {rev: made_fact(rev, *fields) for rev, fields in enumerate(names, 1)}


@pytest.mark.row("A12")
@given(ACTS)
def test_every_history_keeps_the_chain_and_the_fence(acts):
    """Writes of any attempt and facts in any order: one chain, each event once, tokens up, nothing after the end."""
    facts = life()
    opening = Opening(FEED, 0, 5, TAG, 0, 0, Status.QUEUED, None, None, 0)
    now, snapshot = transition.after_opening(opening), transition.opening_snapshot(opening)
    entries = []
    for kind, *how in acts:
        before = now
        if kind == "fact":
            fact = facts[how[0]]
            if transition.judge_fact(now, 5, fact) is None:
                now, entry = transition.after_fact(now, fact, f"ffff{fact.rev:08x}")
                snapshot = transition.fact_snapshot(snapshot, now, fact, 9)
                entries.append(entry)
                assert now.rev == before.rev + 1
        else:
            token, first, count, version = how
            write = made_write(first, count, token, rev=before.rev, version=version or None)
            if transition.judge_publish(now, write) is None:
                now, new = transition.after_publish(now, write)
                snapshot = transition.publish_snapshot(snapshot, now, write)
                entries += new
                assert token == now.token == before.token
                assert now.n >= before.n
                assert now.rev == before.rev
        assert not before.final or now == before
        assert now.token >= before.token
        assert now.version == before.version or now.version > before.version
        assert now.position == before.position or now.version - before.version == now.position - before.position
        assert (snapshot.version, snapshot.rev, snapshot.attempt) == (now.version, now.rev, now.token)
        assert snapshot.status.final == now.final
    place = Cursor(5, 0, TAG)
    for entry in entries:
        assert continues(place, entry)
        place = Cursor(entry.epoch, entry.position, entry.tag)
    assert place == now.cursor
    ids = [entry.event.id for entry in entries]
    assert len(set(ids)) == len(ids)
    assert [one for one in ids if one.startswith("run:")] == [f"run:{RUN}:{rev}" for rev in range(1, now.rev + 1)]


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 12))
def test_a_batch_brings_only_what_is_new(first, count, known):
    write = made_write(first, count)
    standing = marks(n=known)
    if transition.judge_publish(standing, write) is None:
        moved, entries = transition.after_publish(standing, write)
        assert [entry.event for entry in entries] == [
            one for i, one in enumerate(write.events) if write.first_n + i > known
        ]
        assert moved.n == write.last_n
        assert transition.judge_publish(moved, write) == Already()
    else:
        assert write.last_n <= known


def test_only_an_attempt_start_sets_the_token():
    for name in event.FACT_TYPES:
        status = next((status for status, final in event.FINAL_TYPES.items() if final == name), Status.RUNNING)
        moved, _ = transition.after_fact(marks(), made_fact(2, name, status, token=2), TAG)
        assert (moved.token, moved.n) == ((2, 0) if name == event.ATTEMPT_STARTED else (1, 2))


NO_NUMBERS = [LIMIT, 2**63, -1, 1.0, float("nan"), True, "7", b"7", None]


@pytest.mark.row("A9", "A11")
@pytest.mark.parametrize("number", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize(
    ("made", "fields"),
    [
        (Guard(5, 1, 1), ("epoch", "token", "rev", "acked_n", "acked_state")),
        (made_write(3), ("first_n", "state_version", "at")),
        (
            Opening(FEED, 0, 5, TAG, 0, 0, Status.QUEUED, None, None, 0),
            ("seen", "epoch", "rev", "token", "at"),
        ),
        (made_fact(2), ("rev", "token", "at")),
        (TextWrite(FEED, Guard(5, 1, 1), "answer", 0, b"x"), ("offset",)),
    ],
    ids=["guard", "publish", "opening", "fact", "text"],
)
def test_a_number_that_some_store_could_not_hold_exactly_makes_no_write(made, fields, number):
    for name in fields:
        replace(made, **{name: 0})
        replace(made, **{name: LIMIT - 2})
        with pytest.raises(ValueError, match="whole number"):
            replace(made, **{name: number})


@pytest.mark.row("A11")
def test_a_write_fits_itself():
    write = made_write(3, 2)
    for wrong in (
        {"tags": write.tags[:1]},
        {"tags": (*write.tags, TAG)},
        {"state": "{}"},
        {"first_n": LIMIT - 1},
    ):
        with pytest.raises(ValueError):
            replace(write, **wrong)
    tags: tuple[Any, ...] = ("", "0" * 11, "0" * 13, "00000000000G", "0" * 12 + "\n", 7)
    for tag in tags:
        with pytest.raises(ValueError, match="tag"):
            replace(write, tags=(TAG, tag))
        with pytest.raises(ValueError, match="tag"):
            transition.after_fact(marks(), made_fact(2), tag)
        with pytest.raises(ValueError, match="tag"):
            Opening(FEED, 0, 5, tag, 0, 0, Status.QUEUED, None, None, 0)


@pytest.mark.row("A9")
def test_numbers_run_out_with_an_error():
    run = lifecycle.create(NewRun(RUN, "acme", "echo", b"{}", Policy(), {}), 1, 5).run
    last = replace(run, token=LIMIT - 2)
    assert lifecycle.start(last, "p", 6).run.token == LIMIT - 1
    with pytest.raises(ValueError, match="whole number"):
        lifecycle.start(replace(run, token=LIMIT - 1), "p", 6)
    assert repair.next_epoch(LIMIT - 2, 5) == LIMIT - 1
    with pytest.raises(ValueError, match="whole number"):
        repair.next_epoch(LIMIT - 1, 5)
    with pytest.raises(ValueError, match="whole number"):
        repair.next_epoch(1, LIMIT)


@pytest.mark.row("A11")
@pytest.mark.parametrize("token", [1.0, True])
def test_what_only_equals_a_token_ends_no_run(token):
    run = lifecycle.create(NewRun(RUN, "acme", "echo", b"{}", Policy(), {}), 1, 5).run
    started = lifecycle.start(run, "p", 6).run
    assert started.token == token
    with pytest.raises(ValueError, match="whole number"):
        lifecycle.finish(started, token, Outcome(Status.SUCCEEDED), [], 7)


def test_a_state_alone_adds_no_entry_and_keeps_the_tip():
    standing = marks(tag="f" * 12)
    write = made_write(3, count=0, version=3)
    assert transition.judge_publish(standing, write) is None
    moved, entries = transition.after_publish(standing, write)
    assert entries == ()
    assert moved == replace(standing, state_version=3, version=5)
    moved, entries = transition.after_publish(standing, made_write(3, count=2))
    assert moved == replace(standing, position=5, tag=entries[-1].tag, n=4, version=6)
    assert [(entry.prev, entry.position) for entry in entries] == [("f" * 12, 4), (entries[0].tag, 5)]
