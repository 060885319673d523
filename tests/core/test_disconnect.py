"""When a run is cancelled because nobody watches it any more."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.core import disconnect, event
from playhead.core.ids import LIMIT
from playhead.core.run import Policy, Status
from tests.core.life import Record

AFTER = Policy(cancel_after=5.0)
DUES = st.lists(st.none() | st.integers(0, 20), max_size=5)


@given(DUES, st.integers(0, 20))
def test_nobody_watches_anywhere_and_somebody_did(dues, at):
    found = disconnect.deserted(dues, at)
    assert found == (dues != [] and None not in dues and max(dues) <= at)


@given(DUES, st.integers(0, 20), st.integers(0, 20))
def test_time_alone_never_brings_viewers_back(dues, at, later):
    assert not disconnect.deserted(dues, at) or disconnect.deserted(dues, at + later)


@given(st.floats(0, 1e300), st.integers(0, 2**50), st.integers(0, 10**6))
def test_a_run_waits_for_its_time_and_not_a_moment_less(seconds, at, grace):
    due = disconnect.due_at(seconds, at, grace)
    assert due == min(at + grace + math.ceil(seconds * 1000), LIMIT - 1)
    assert due < LIMIT


def test_without_a_time_it_waits_for_the_grace_alone():
    assert disconnect.due_at(None, 7, 3) == 10
    assert disconnect.due_at(math.inf, 7) == LIMIT - 1


def test_a_deserted_run_is_asked_to_stop_once_and_by_the_policy():
    record = Record(AFTER)
    record.start()
    assert disconnect.counts(record.run)
    record.apply(disconnect.desert(record.run, [record.at, record.at - 1], record.asked(), record.at))
    assert (record.run.cancel_by, record.run.cancel_reason) == (disconnect.BY, disconnect.REASON)
    assert record.types[-1] == event.CANCEL_REQUESTED
    assert not disconnect.counts(record.run)
    assert disconnect.desert(record.run, [record.at], record.asked(), record.at) is None


@pytest.mark.parametrize("dues", [[], [None], [0, None], [0, 1_000_001]])
def test_a_run_that_is_watched_or_waited_for_or_was_never_watched_goes_on(dues):
    record = Record(AFTER)
    assert disconnect.desert(record.run, dues, record.asked(), record.at) is None


def test_a_run_that_goes_on_without_viewers_or_has_ended_does_not_count():
    going_on, ended = Record(), Record(AFTER)
    ended.start()
    ended.finish(Status.SUCCEEDED)
    for record in (going_on, ended):
        assert not disconnect.counts(record.run)
        assert disconnect.desert(record.run, [0], record.asked(), record.at) is None
