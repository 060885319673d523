"""The cursor's grammar: what is one, and that nothing else is."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.core import cursor
from playhead.core.cursor import Cursor, parse
from playhead.core.ids import LIMIT

numbers = st.integers(0, LIMIT - 1)
tags = st.text("0123456789abcdef", min_size=12, max_size=12)
cursors = st.builds(Cursor, numbers, numbers, tags)


@given(cursors)
def test_a_cursor_is_read_back(one):
    text = str(one)
    assert parse(text) == one
    assert len(text) <= 64
    assert text.isascii()


@pytest.mark.row("A7")
@given(st.text(string.printable + "٣½²\x00", max_size=40) | st.from_regex(r"[0-9]{0,20}-[0-9]{0,20}\.[0-9a-f]{0,14}"))
def test_a_text_is_its_cursor_or_none(text):
    found = parse(text)
    assert found is None or str(found) == text


@pytest.mark.row("A7")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "$",
        "+",
        "-",
        "123",
        "0-0",
        "1-1.",
        ".000000000000",
        "1-1.00000000000",
        "1-1.0000000000000",
        "1-1.00000000000g",
        "1-1.00000000000A",
        "01-1.000000000000",
        "1-01.000000000000",
        "-1-1.000000000000",
        "+1-1.000000000000",
        "1-1.000000000000\n",
        " 1-1.000000000000",
        "1-1.000000000000,1-2.000000000000",
        "١-١.000000000000",
        "1-1.٠٠٠٠٠٠٠٠٠٠٠٠",
        f"{LIMIT}-1.000000000000",
        f"1-{LIMIT}.000000000000",
        "9" * 16 + "-1.000000000000",
        "9" * 5_000 + "-1.000000000000",
        cursor.END,
        cursor.STOP,
    ],
)
def test_what_is_no_cursor(text):
    assert parse(text) is None


def test_the_largest_cursor_is_one():
    assert parse(f"{LIMIT - 1}-{LIMIT - 1}.ffffffffffff") == Cursor(LIMIT - 1, LIMIT - 1, "f" * 12)


@given(st.binary(min_size=6, max_size=6))
def test_a_tag_is_one(random):
    assert parse(str(Cursor(1, 1, cursor.tag(random)))) is not None
