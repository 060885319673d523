"""What is done about a projection that does not agree with the record, and leases and policies beside it."""

from dataclasses import replace

import pytest

from playhead.core import lease, repair
from playhead.core.lease import Lease
from playhead.core.repair import Repair
from playhead.core.run import Policy, Status
from playhead.core.transition import Marks
from tests.core.life import Record

RUN = replace(Record().run, epoch=50, rev=5)
OVER = replace(RUN, status=Status.FAILED)


def marks(epoch=50, rev=5, final=False):
    return Marks(epoch, rev, 0, final, 3, "0" * 12)


@pytest.mark.parametrize(
    ("standing", "oldest", "going", "over"),
    [
        (None, None, Repair.REBUILD, Repair.NONE),
        (marks(), None, Repair.NONE, Repair.NONE),
        (marks(), 6, Repair.NONE, Repair.NONE),
        (marks(epoch=49), None, Repair.REBUILD, Repair.DROP),
        (marks(epoch=51), None, Repair.REBUILD, Repair.DROP),
        (marks(rev=6), None, Repair.REBUILD, Repair.DROP),
        (marks(rev=4), None, Repair.PROJECT, Repair.PROJECT),
        (marks(rev=2), 1, Repair.PROJECT, Repair.PROJECT),
        (marks(rev=2), 3, Repair.PROJECT, Repair.PROJECT),
        (marks(rev=2), 4, Repair.REBUILD, Repair.DROP),
        (marks(epoch=49, rev=4), 1, Repair.REBUILD, Repair.DROP),
        (marks(final=True), None, Repair.REBUILD, Repair.NONE),  # the end that it shows was lost, and others counted on
        (marks(rev=4, final=True), 1, Repair.REBUILD, Repair.DROP),
    ],
)
def test_what_is_needed(standing, oldest, going, over):
    assert repair.needed(RUN, standing, oldest) is going
    assert repair.needed(OVER, standing, oldest) is over


def test_another_end_than_the_one_that_is_shown_counts():
    assert repair.needed(OVER, marks(final=True), shown=Status.FAILED) is Repair.NONE
    assert repair.needed(OVER, marks(final=True), shown=Status.SUCCEEDED) is Repair.DROP
    assert repair.needed(OVER, marks(rev=4), shown=Status.RUNNING) is Repair.PROJECT


@pytest.mark.parametrize(
    ("last", "minted_at", "seen", "at", "may"),
    [
        (5, 1_000, 5, 1_000, True),  # what was minted is open
        (5, 1_000, 4, 1_000, False),
        (5, 1_000, 4, 2_999, False),
        (5, 1_000, 4, 3_000, True),
        (5, 1_000, 4, 999, True),  # the clock went back
        (5, 1_000, 0, 1_001, False),
    ],
)
def test_an_epoch_that_is_young_and_not_opened_is_waited_for(last, minted_at, seen, at, may):
    assert repair.may_mint(last, minted_at, seen, at) is may


@pytest.mark.parametrize(("last", "at", "epoch"), [(0, 7, 7), (7, 7, 8), (9, 7, 10), (6, 7, 7)])
def test_the_next_epoch(last, at, epoch):
    assert repair.next_epoch(last, at) == epoch


def test_epochs_end_before_a_double_would_round_them():
    assert repair.next_epoch(2**53 - 2, 0) == 2**53 - 1
    with pytest.raises(ValueError, match="whole number"):
        repair.next_epoch(2**53 - 1, 0)


def test_a_lease_is_held_until_its_time():
    assert not lease.held(None, 0)
    assert lease.held(Lease("p", 10, 0), 9)
    assert not lease.held(Lease("p", 10, 0), 10)


@pytest.mark.parametrize(
    ("fields", "free"),
    [
        ({}, True),
        ({"not_before": 1_001}, False),
        ({"not_before": 1_000}, True),
        ({"not_before": 31_000}, False),
        ({"not_before": 31_001}, True),  # longer than any backoff: the clock went back
        ({"status": Status.RUNNING}, False),
        ({"status": Status.RUNNING, "policy": Policy(resumable=True)}, True),
        ({"status": Status.WAITING, "policy": Policy(resumable=True)}, True),
        ({"status": Status.RUNNING, "policy": Policy(resumable=True), "owner": "p"}, False),
        ({"status": Status.FAILED, "policy": Policy(resumable=True)}, False),
    ],
)
def test_which_run_may_be_started(fields, free):
    assert lease.may_start(replace(RUN, **fields), 1_000) is free
