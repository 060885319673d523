"""The composite cursor: it is read back whole, it fits, and whatever is damaged is none."""

import base64
import string
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.core.composite import MAX_COMPOSITE, MAX_FEEDS, OVER, Held, decode, encode
from playhead.core.cursor import Cursor
from playhead.core.ids import LIMIT, Feed, run_feed, uuid7

numbers = st.integers(0, LIMIT - 1)
tags = st.binary(min_size=6, max_size=6).map(bytes.hex)
cursors = st.builds(Cursor, numbers, numbers, tags)
feeds = st.builds(uuid7, st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10)).map(run_feed)
places = st.just(OVER) | st.builds(Held, cursors)
several = st.dictionaries(feeds, places, max_size=MAX_FEEDS)

ONE = run_feed(uuid7(1, bytes(10)))
TWO = run_feed(uuid7(2, bytes(10)))
HERE = Held(Cursor(7, 8, "0123456789ab"))


def packed(*entries: bytes) -> str:
    """These entries as an id with a right checksum."""
    data = b"".join(entries)
    return "1." + base64.urlsafe_b64encode(data + zlib.crc32(data).to_bytes(4, "big")).decode().rstrip("=")


def entries(text: str) -> list[bytes]:
    data = base64.urlsafe_b64decode(text[2:] + "==")[:-4]
    return [data[start : start + 37] for start in range(0, len(data), 37)]


@given(several)
def test_what_is_written_is_read_back(held):
    text = encode(held)
    assert decode(text) == held
    assert len(text) <= MAX_COMPOSITE
    assert set(text) <= {*string.ascii_letters, *string.digits, *"-_."}
    assert encode(dict(reversed(held.items()))) == text  # one id for one place


def test_it_holds_32_feeds_and_no_more():
    many = {run_feed(uuid7(number, bytes(10))): HERE for number in range(33)}
    with pytest.raises(ValueError):
        encode(many)
    del many[ONE]
    assert len(encode(many)) <= MAX_COMPOSITE
    assert decode(encode(many)) == many
    assert decode(packed(*sorted(entries(encode(many)) + entries(encode({ONE: HERE}))))) is None


@given(several.filter(bool), st.data())
def test_one_changed_character_is_noticed(held, data):
    text = encode(held)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from(sorted({*string.printable, "é", "\0"} - {text[at]})))
    assert decode(text[:at] + other + text[at + 1 :]) is None


@given(several, st.data())
def test_what_lacks_something_or_has_more_is_noticed(held, data):
    text = encode(held)
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    more = data.draw(st.text(string.printable, min_size=1, max_size=60))
    assert decode(text[:start] + text[end:]) is None
    assert decode(text[:start] + more + text[start:]) in (None, held if not more else None)


@given(st.text(max_size=100) | st.text("1.-_=AQab09", max_size=100).map("1.".__add__))
def test_any_text_is_none_or_is_written_so(text):
    found = decode(text)
    assert found is None or encode(found) == text


@pytest.mark.parametrize(
    "text", ["", "1", "1.", "1.AAAA", "2." + encode({})[2:], "end", "1-2.0123456789ab", "1." * 2_000]
)
def test_other_ids_are_none(text):
    assert decode(text) is None


def test_entries_that_no_server_writes_are_none():
    one, two = entries(encode({ONE: HERE, TWO: OVER}))
    assert decode(packed(one, two)) == {ONE: HERE, TWO: OVER}
    limit = LIMIT.to_bytes(7, "big")
    for bad in (
        [two, one],  # out of order
        [one, one],
        [b"\x81" + one[1:17] + bytes(20), one][::-1],  # one feed twice, at a place and over
        [b"\x00" + one[1:]],
        [b"\x04" + one[1:]],
        [b"\x81" + one[1:]],  # over, and at a place
        [one[:1] + bytes(16) + one[17:]],  # not the id of a run
        [one[:17] + limit + one[24:]],
        [one[:24] + limit + one[31:]],
        [one[:-1]],
        [one + b"\0"],
    ):
        assert decode(packed(*bad)) is None


def test_kinds_of_feeds_that_come_later_are_passed_over():
    one = entries(encode({ONE: HERE}))[0]
    assert decode(packed(one, b"\x02" + bytes(36), b"\x03" + bytes(36), b"\x83" + bytes(36))) == {ONE: HERE}


def test_only_a_run_with_a_place_or_an_end_is_written():
    for held in (
        {Feed("thread", ONE.id): HERE},
        {run_feed("nonsense"): HERE},
        {ONE: Held(None)},
        {ONE: Held(HERE.cursor, ended=True)},
    ):
        with pytest.raises(ValueError):
            encode(held)
