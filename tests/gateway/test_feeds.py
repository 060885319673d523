"""What a request for a multiplexed stream is taken to say."""

from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from playhead.core.composite import MAX_FEEDS, OVER, Held, encode
from playhead.core.cursor import Cursor
from playhead.core.ids import run_feed, uuid7
from playhead.errors import InvalidRequest
from playhead.gateway.feeds import MAX_QUERY, AskedFeeds
from tests.gateway.stub import scope_of

A, B, C = (uuid7(number, bytes(10)) for number in range(3))
ONE, TWO, THREE = (Cursor(9, number, "0123456789ab") for number in (1, 2, 3))


def composite(**places):
    names = {"a": A, "b": B, "c": C}
    return encode({run_feed(names[name]): OVER if at is None else Held(at) for name, at in places.items()})


def read(path, *last, accept="text/event-stream"):
    headers = [("accept", accept), *(("last-event-id", one) for one in last)]
    return AskedFeeds.read(HTTPConnection(scope_of("GET", path, headers)))


def cursors(asked):
    return {run_id: one.cursor for run_id, one in asked.runs.items()}


def unreadable(asked):
    """The runs whose place the request does not give, though it means to."""
    return {run_id for run_id, cursor in cursors(asked).items() if cursor not in (None, *map(str, (ONE, TWO, THREE)))}


def test_each_run_with_its_place_in_the_order_asked():
    asked = read(f"/stream?run={B}@{ONE}&run={A}")
    assert list(cursors(asked).items()) == [(B, str(ONE)), (A, None)]
    assert all(one.inline for one in asked.runs.values())
    assert (asked.over, asked.finished, asked.ours) == (frozenset(), False, False)
    assert read(f"/stream?run={A}", accept="text/event-stream; client=playhead").ours


def test_the_header_beats_the_runs_own_cursor_which_beats_the_address():
    address = composite(a=ONE, b=ONE, c=ONE)
    asked = read(f"/stream?run={A}@{TWO}&run={B}@{TWO}&run={C}&cursor={address}", composite(a=THREE))
    assert cursors(asked) == {A: str(THREE), B: str(TWO), C: str(ONE)}
    asked = read(f"/stream?run={A}@{TWO}&run={B}&cursor={address}", "")
    assert cursors(asked) == {A: str(TWO), B: str(ONE)}
    asked = read(f"/stream?run={A}", composite(a=ONE), composite(a=TWO))
    assert cursors(asked) == {A: str(TWO)}


@pytest.mark.parametrize("bad", ["nonsense", "1.", str(ONE), "stop-", composite(a=ONE)[:-1]])
def test_a_composite_that_cannot_be_read_is_told_to_the_feeds_without_a_place_of_their_own(bad):
    asked = read(f"/stream?run={A}@{ONE}&run={B}&cursor={composite(b=TWO)}", bad)
    assert (cursors(asked)[A], unreadable(asked)) == (str(ONE), {B})
    asked = read(f"/stream?run={A}@{ONE}&run={B}&cursor={bad}")
    assert (cursors(asked)[A], unreadable(asked)) == (str(ONE), {B})
    asked = read(f"/stream?run={A}&run={B}&cursor={bad}", composite(a=TWO))
    assert (cursors(asked)[A], unreadable(asked)) == (str(TWO), {B})


def test_what_the_composite_knows_and_nobody_asks_for_is_passed_over():
    assert cursors(read(f"/stream?run={A}", composite(a=ONE, b=TWO, c=None))) == {A: str(ONE)}


def test_feeds_that_are_over_are_known_as_such():
    asked = read(f"/stream?run={A}&run={B}", composite(a=None, b=TWO))
    assert (asked.over, asked.finished, cursors(asked)) == ({A}, False, {A: None, B: str(TWO)})
    assert read(f"/stream?run={A}", "end").finished
    assert read(f"/stream?run={A}", "stop").finished
    assert read(f"/stream?run={A}&cursor=end").finished
    assert not read(f"/stream?run={A}&cursor=end", composite(a=ONE)).finished


def test_one_run_asked_for_twice_is_one_feed():
    assert cursors(read(f"/stream?run={A}@{ONE}&run={B}&run={A}@{TWO}&run={A}")) == {A: str(TWO), B: None}


def test_text_is_named_by_its_feed():
    named = f"text=run:{A}.2.answer:7&text=run:{A}.2.notes:1&text=run:{B}.1.answer:3&text=2.answer:9&text=run:{C}.1.x:1"
    asked = read(f"/stream?run={A}&run={B}&{named}&text=run:{A}.x")
    assert asked.runs[A].text == {(2, "answer"): 7, (2, "notes"): 1}
    assert asked.runs[B].text == {(1, "answer"): 3}


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("", ["run"]),
        ("cursor=x", ["run"]),
        ("&".join(f"run={uuid7(n, bytes(10))}" for n in range(MAX_FEEDS + 1)), ["run"]),
        (f"run={A}&thread={B}", ["thread"]),
        (f"run={A}&topic=t&resync=inline", ["resync", "topic"]),
    ],
)
@pytest.mark.row("R43")
def test_what_is_no_such_request_is_refused_by_name(query, fields):
    with pytest.raises(InvalidRequest) as refused:
        read(f"/stream?{query}")
    assert refused.value.details["fields"] == fields


def test_32_feeds_with_places_and_text_fit_the_bound_of_a_query():
    runs = [uuid7(2**48 - 1 - number, bytes(10)) for number in range(MAX_FEEDS)]
    at = Cursor(2**53 - 1, 2**53 - 1, "0123456789ab")
    held = encode({run_feed(run): Held(at) for run in runs})
    text = [f"text=run:{run}.1.answer:12345678" for run in runs]
    query = "&".join([*(f"run={run}@{at}" for run in runs), f"cursor={held}", *text])
    assert len(query) <= MAX_QUERY
    assert len(read(f"/stream?{query}").runs) == MAX_FEEDS
    with pytest.raises(InvalidRequest):
        read(f"/stream?run={A}&cursor={'x' * MAX_QUERY}")


@given(st.text(max_size=60), st.text(max_size=60), st.binary(max_size=60))
def test_no_place_is_an_error(own, address, last):
    headers = [("last-event-id", last.decode("latin-1"))]
    asked = urlencode([("run", f"{A}@{own}"), ("cursor", address)]).encode()
    scope = scope_of("GET", "/stream", headers, query_string=asked)
    assert list(AskedFeeds.read(HTTPConnection(scope)).runs) == [A]
