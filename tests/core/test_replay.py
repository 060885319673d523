"""Whether a reader goes on, against a plain list of all that was ever written."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.core import replay
from playhead.core.cursor import Cursor
from playhead.core.event import Entry, Event
from playhead.core.replay import Reason, continues, refusal
from playhead.core.transition import Marks

EPOCH = 7


def tag(number):
    return f"{number:012x}"


def timeline(length, first=1):
    """All entries of a timeline, from position 1; the tag of position p is p + `first`."""
    return [
        Entry(EPOCH, p, tag(p + first), tag(p - 1 + first), p + 1, Event(f"r:1:{p}", "step", b"{}"))
        for p in range(1, length + 1)
    ]


def place(position, first=1):
    return Cursor(EPOCH, position, tag(position + first))


def verdict(reader, entries, floor=0, limit=1_000, length=None):
    """What a reader is told of a store that retains these entries above the floor."""
    tip = place(len(entries) if length is None else length)
    marks = Marks(EPOCH, 0, 1, False, tip.position, tip.tag, floor=floor)
    kept = [entry for entry in entries if entry.position > floor and entry.position > reader.position]
    return refusal(reader, marks, kept[:limit]), kept[:limit]


@given(st.data())
def test_a_reader_goes_on_iff_nothing_is_missing(data):
    length = data.draw(st.integers(0, 30))
    floor = data.draw(st.integers(0, length))
    limit = data.draw(st.integers(1, 40))
    position = data.draw(st.integers(0, 35))
    entries = timeline(length)
    reason, page = verdict(place(position), entries, floor, limit)
    if position > length:
        assert reason is Reason.AHEAD
    elif position < floor:
        assert reason is Reason.EXPIRED
    else:
        assert reason is None
        assert page == entries[position : position + limit]


@given(st.data())
def test_a_reader_of_another_past_is_foreign(data):
    length = data.draw(st.integers(0, 30))
    floor = data.draw(st.integers(0, length))
    position = data.draw(st.integers(floor, length))
    reason, _ = verdict(place(position, first=500), timeline(length), floor)
    assert reason is Reason.FOREIGN


@given(st.integers(0, 40), st.integers(0, 30), st.integers(0, 30))
def test_the_first_reason_counts(position, length, floor):
    other = Cursor(EPOCH + 1, position, tag(999))
    assert verdict(other, timeline(length), min(floor, length))[0] is Reason.EPOCH
    wrong = Cursor(EPOCH, position, tag(999))
    wanted = Reason.AHEAD if position > length else Reason.EXPIRED if position < min(floor, length) else Reason.FOREIGN
    assert verdict(wrong, timeline(length), min(floor, length))[0] is wanted


@pytest.mark.row("A6", "T-8")
@given(st.data())
def test_pages_join_without_gap_or_repeat(data):
    """A reader that takes page after page, while entries are added and removed, gets each once or is told."""
    length = data.draw(st.integers(0, 10))
    floor, position, seen = 0, 0, []
    for _ in range(data.draw(st.integers(1, 12))):
        length += data.draw(st.integers(0, 8))
        floor = max(floor, min(length, data.draw(st.integers(0, length))))
        reason, page = verdict(place(position), timeline(length), floor, data.draw(st.integers(1, 6)))
        assert (reason is None) == (position >= floor)
        if reason is not None:
            assert reason is Reason.EXPIRED
            break
        seen += [entry.position for entry in page]
        position = page[-1].position if page else position
    assert seen == list(range(1, len(seen) + 1))


@pytest.mark.row("A4", "T-6")
@given(st.integers(2, 30), st.data())
def test_a_deleted_entry_is_noticed_by_all_before_it(length, data):
    gone = data.draw(st.integers(1, length))
    entries = timeline(length)
    left = [entry for entry in entries if entry.position != gone]
    for position in range(length + 1):
        at, taken = place(position), []
        while True:
            reason, page = verdict(at, left, limit=data.draw(st.integers(1, 5)), length=length)
            if reason is not None or not page:
                break
            taken += page
            at = replay.after(page[-1])
        assert (reason is Reason.EXPIRED) == (position < gone)
        assert taken == entries[position : at.position]


@given(st.integers(1, 30))
def test_an_exchanged_entry_is_noticed(position):
    entries = timeline(30)
    entries[position - 1] = replace(entries[position - 1], tag=tag(777))
    assert verdict(place(0), entries)[0] is (None if position == 30 else Reason.FOREIGN)


@pytest.mark.row("T-1", "A2")
def test_t1_the_start_of_an_untrimmed_timeline():
    assert verdict(place(0), timeline(5)) == (None, timeline(5))
    assert verdict(place(0), timeline(0)) == (None, [])


@pytest.mark.row("T-2", "A1")
def test_t2_the_newest_removed_entry():
    assert verdict(place(5), timeline(10), floor=5) == (None, timeline(10)[5:])


@pytest.mark.row("T-3")
def test_t3_before_the_newest_removed_entry():
    for position in range(5):
        assert verdict(place(position), timeline(10), floor=5)[0] is Reason.EXPIRED


@pytest.mark.row("T-4")
def test_t4_the_oldest_kept_entry_or_later():
    for position in range(6, 11):
        assert verdict(place(position), timeline(10), floor=5) == (None, timeline(10)[position:])


@pytest.mark.row("T-5", "A3")
def test_t5_a_timeline_that_was_emptied():
    for position in range(10):
        assert verdict(place(position), timeline(10), floor=10)[0] is Reason.EXPIRED
    assert verdict(place(10), timeline(10), floor=10) == (None, [])
    # Emptied by a hand that moved no mark: the tip still tells.
    assert verdict(place(9), [], length=10)[0] is Reason.EXPIRED


@pytest.mark.row("T-6", "A4")
def test_t6_an_entry_deleted_after_the_cursor():
    left = [entry for entry in timeline(10) if entry.position != 7]
    assert verdict(place(6), left, length=10)[0] is Reason.EXPIRED
    assert verdict(place(4), left, length=10)[0] is Reason.EXPIRED
    assert verdict(place(7), left, length=10) == (None, timeline(10)[7:])


@pytest.mark.row("T-7", "A5")
def test_t7_beyond_the_tip_or_of_another_epoch():
    assert verdict(place(11), timeline(10))[0] is Reason.AHEAD
    for epoch in (EPOCH - 1, EPOCH + 1):
        assert verdict(replace(place(5), epoch=epoch), timeline(10))[0] is Reason.EPOCH


@pytest.mark.row("T-8", "A6")
def test_t8_falling_behind_while_connected():
    reason, page = verdict(place(0), timeline(10), limit=4)
    assert reason is None
    assert verdict(replay.after(page[-1]), timeline(30), floor=20)[0] is Reason.EXPIRED


@pytest.mark.row("BR-07")
@pytest.mark.parametrize("border", [9, 99, 999, 9_999])
def test_places_are_numbers(border):
    entries = timeline(border + 3)
    for position in (border - 1, border, border + 1):
        assert verdict(place(position), entries) == (None, entries[position:])
        assert continues(place(position), entries[position])
        assert verdict(place(border + 4), entries)[0] is Reason.AHEAD
    assert verdict(place(border - 1), entries, floor=border)[0] is Reason.EXPIRED
    assert verdict(place(border), entries, floor=border)[0] is None


@given(st.integers(0, 9), st.integers(0, 9), st.booleans(), st.booleans())
def test_one_entry_continues_one_place(at, position, same_epoch, same_tag):
    entry = Entry(EPOCH, position + 1, tag(50), tag(position + 1), 1, Event("e", "t", b"{}"))
    reader = Cursor(EPOCH if same_epoch else 1, at, tag(position + 1) if same_tag else tag(99))
    assert continues(reader, entry) == (at == position and same_epoch and same_tag)


@given(st.integers(0, 12), st.sets(st.integers(1, 12)))
def test_entries_are_chained_up_to_the_first_that_is_missing(length, missing):
    entries = timeline(length)
    kept = [entry for entry in entries if entry.position not in missing]
    whole = next((n for n in range(1, len(kept)) if kept[n].position != kept[n - 1].position + 1), len(kept))
    assert replay.chained(kept) == whole
    if whole > 1:
        other = replace(kept[whole - 1], prev=tag(99))
        assert replay.chained([*kept[: whole - 1], other]) == whole - 1
