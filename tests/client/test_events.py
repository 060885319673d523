from typing import Any

import pytest

from playhead.client.events import Events


def event(name: int | str) -> dict[str, Any]:
    return {"id": f"e{name}", "type": "counted"}


def told(first: int, last: int) -> list[dict[str, Any]]:
    return [event(number) for number in range(first, last + 1)]


def timeline(complete: bool = True, has_older: bool = False) -> dict[str, Any]:
    return {"complete": complete, "has_older": has_older, "oldest": "whatever"}


def numbers(events: Events) -> list[str]:
    return [one["id"][1:] for one in events.shown]


@pytest.fixture
def events() -> Events:
    return Events(100)


def test_a_stream_is_shown_in_its_order_and_once(events: Events) -> None:
    assert [events.add(event(n)) for n in (1, 2, 1, 2, 3)] == [True, True, False, False, True]
    assert numbers(events) == ["1", "2", "3"]


def test_one_that_is_repeated_by_itself_does_not_turn_the_stream_back(events: Events) -> None:
    for number in (1, 2, 1, 3):
        events.add(event(number))
    assert numbers(events) == ["1", "2", "3"]


def test_a_stream_that_begins_before_what_is_shown_puts_its_events_there(events: Events) -> None:
    events.merge(told(4, 5), timeline(has_older=True), fresh=True)
    events.rewind()
    for number in range(1, 8):
        events.add(event(number))
    assert numbers(events) == list("1234567")


def test_what_both_have_keeps_the_rest_in_its_place(events: Events) -> None:
    for name in (1, 2, "x", 4):
        events.add(event(name))
    new = events.merge([event(n) for n in (2, "y", 4, 5)], timeline(), fresh=True)
    assert numbers(events) == ["1", "2", "x", "y", "4", "5"]
    assert [one["id"] for one in new] == ["ey", "e5"]
    events.add(event(6))
    assert numbers(events)[-1] == "6"


def test_a_fresh_bootstrap_far_away_lets_go_of_what_was_shown(events: Events) -> None:
    for number in (1, 2):
        events.add(event(number))
    events.merge(told(8, 9), timeline(has_older=True), fresh=True)
    assert numbers(events) == ["8", "9"]
    assert (events.timeline.has_older, events.timeline.oldest) == (True, "e8")
    # They come back with the pages.
    events.prepend(told(1, 7), timeline())
    assert numbers(events) == list("123456789")
    assert not events.timeline.has_older


def test_a_late_bootstrap_far_away_adds_nothing(events: Events) -> None:
    events.merge(told(5, 6), timeline(has_older=True), fresh=True)
    assert events.merge(told(1, 2), timeline(complete=False), fresh=False) == []
    assert events.merge(told(8, 9), timeline(has_older=True), fresh=False) == []
    assert numbers(events) == ["5", "6"]
    assert (events.timeline.complete, events.timeline.has_older) == (True, True)


def test_completeness_is_the_newest_word_on_it(events: Events) -> None:
    assert not events.timeline.complete
    events.merge(told(1, 3), timeline(complete=False), fresh=True)
    assert not events.timeline.complete
    events.merge(told(1, 3), timeline(complete=True), fresh=False)
    assert events.timeline.complete


def test_the_bound_lets_go_of_the_oldest_and_pages_move_it() -> None:
    events = Events(3)
    for number in range(1, 6):
        events.add(event(number))
    assert numbers(events) == ["3", "4", "5"]
    assert events.timeline.has_older
    assert not events.add(event(1))
    events.prepend(told(1, 2), timeline())
    assert numbers(events) == ["1", "2", "3", "4", "5"]
    assert not events.timeline.has_older
    events.add(event(6))
    assert numbers(events) == ["2", "3", "4", "5", "6"]


def test_a_bootstrap_may_name_an_event_twice(events: Events) -> None:
    events.merge([*told(1, 2), *told(1, 2)], timeline(), fresh=True)
    assert numbers(events) == ["1", "2"]
