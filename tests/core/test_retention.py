"""How much is kept: the promises of the bounds, whatever the numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.core.ids import Feed
from playhead.core.retention import Lifetimes, Retention, lifetime_ms, new_floor
from playhead.core.transition import Marks

small = st.integers(0, 60)


@st.composite
def standings(draw):
    position = draw(small)
    floor = draw(st.integers(0, position))
    return Marks(1, 0, 1, draw(st.booleans()), position, "0" * 12, floor=floor, archived=draw(st.integers(0, position)))


retentions = st.builds(
    Retention, count=st.integers(1, 20), age=st.just(60.0), max_bytes=st.just(1), archive=st.booleans()
)


@given(standings(), retentions, small, small)
def test_the_floor_only_rises_and_stays_under_the_tip(marks, keep, aged, heavy):
    floor = new_floor(marks, keep, aged=aged, heavy=heavy)
    assert marks.floor <= floor <= marks.position


@given(standings(), retentions, small)
def test_the_byte_bound_always_holds(marks, keep, heavy):
    assert new_floor(marks, keep, aged=0, heavy=heavy) >= min(heavy, marks.position)


@given(standings(), retentions, small)
def test_what_is_not_archived_stays_up_to_the_hard_limit(marks, keep, aged):
    floor = new_floor(marks, keep, aged=aged, heavy=0)
    if keep.archive and floor > marks.floor:
        assert floor <= max(marks.archived, marks.position - keep.hard_count)


@given(standings(), retentions, small)
def test_nothing_beyond_count_and_age_goes(marks, keep, aged):
    floor = new_floor(marks, keep, aged=aged, heavy=0)
    assert floor <= max(marks.floor, marks.position - keep.count, aged)


@given(standings(), retentions, small)
def test_count_and_age_hold_once_nothing_speaks_against_it(marks, keep, aged):
    floor = new_floor(marks, keep, aged=aged, heavy=0)
    wanted = min(max(marks.position - keep.count, aged), marks.position)
    if keep.archive:
        assert floor >= min(wanted, marks.archived)
        assert marks.position - floor <= keep.hard_count
    elif marks.final:
        assert floor >= wanted
    else:
        assert floor == marks.floor


@given(standings(), retentions, small, small)
def test_asking_again_changes_nothing(marks, keep, aged, heavy):
    floor = new_floor(marks, keep, aged=aged, heavy=heavy)
    moved = Marks(1, 0, 1, marks.final, marks.position, marks.tag, floor=floor, archived=marks.archived)
    assert new_floor(moved, keep, aged=aged, heavy=heavy) == floor


@pytest.mark.row("A13")
@pytest.mark.parametrize("seconds", [0, -1, 0.0009, float("nan"), float("inf"), "60", None])
def test_a_time_to_live_is_some_time(seconds):
    with pytest.raises(ValueError, match="time to live"):
        lifetime_ms(seconds)
    assert [lifetime_ms(good) for good in (0.001, 1, 3_600.0)] == [1, 1_000, 3_600_000]


def test_a_run_ends_by_its_final_fact_and_all_else_by_being_left_alone():
    times, run = Lifetimes.of(1, 2, 3), Feed("run", "r")
    assert times.ends(run, None, 100) == (None, None)
    assert times.ends(run, 500, 9_000) == (1_500, 2_500)
    for other in (Feed("thread", "t"), Feed("topic", "acme/inbox")):
        assert times.ends(other, None, 100) == (None, 3_100)
        assert times.ends(other, 500, 9_000) == (None, 12_000)
