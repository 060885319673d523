"""The text channel: what may be appended, and what a writer is told otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.core.ids import LIMIT, run_feed
from playhead.core.text import TextAlready, TextFrom, TextPart, TextWrite, judge_text
from playhead.core.transition import Behind, Final, Guard, Marks, NeedsRebuild, Stale, WrongEpoch

FEED = run_feed("r")
MARKS = Marks(5, 1, 1, False, 3, "0" * 12)


def write(offset, data=b"xy", *, final=False, epoch=5, token=1, rev=1):
    return TextWrite(FEED, Guard(epoch, token, rev), "answer", offset, data, final)


def part(length, *, final=False):
    return TextPart("answer", 1, length, final, truncated=False)


@pytest.mark.parametrize(
    ("held", "sent", "reply"),
    [
        (None, write(0), None),
        (None, write(0, b"", final=True), None),
        (None, write(1), TextFrom(0)),
        (part(4), write(4), None),
        (part(4), write(4, final=True), None),
        (part(4), write(3), TextFrom(4)),
        (part(4), write(5), TextFrom(4)),
        (part(4), write(2), TextAlready(4)),
        (part(4), write(1), TextAlready(4)),
        (part(4), write(2, final=True), TextFrom(4)),  # all is there but that it ends
        (part(4), write(4, b"", final=True), None),
        (part(4), write(4, b""), TextAlready(4)),
        (part(4, final=True), write(2, final=True), TextAlready(4)),
        (part(4, final=True), write(4, b"", final=True), TextAlready(4)),
        (part(4, final=True), write(2), TextAlready(4)),
        (part(4, final=True), write(4), TextFrom(4)),  # nothing follows an end
    ],
)
def test_the_verdict_on_a_piece(held, sent, reply):
    assert judge_text(MARKS, held, sent) == reply


@pytest.mark.parametrize(
    ("marks", "sent", "reply"),
    [
        (None, write(0), NeedsRebuild(0)),
        (MARKS, write(0, epoch=6), NeedsRebuild(5)),
        (MARKS, write(0, epoch=4), WrongEpoch(5)),
        (MARKS, write(0, token=0), Stale(1)),
        (MARKS, write(0, token=2), Behind(1)),
        (MARKS, write(0, rev=2), Behind(1)),
        (Marks(5, 1, 1, True, 3, "0" * 12), write(0), Final()),
    ],
)
def test_the_fence_comes_first(marks, sent, reply):
    for held in (None, part(0), part(2), part(2, final=True)):
        assert judge_text(marks, held, sent) == reply


@given(st.binary(max_size=20), st.lists(st.integers(0, 20), max_size=30), st.booleans())
def test_whatever_is_sent_again_the_text_comes_whole(text, cuts, ends):
    """A writer that sends any slice that it believes is next, or has sent before, and obeys."""
    held, data = None, b""
    for cut in [*cuts, len(text)]:
        end = min(cut, len(text))
        start = min(len(data), end)
        for offset in (start, 0, len(data)):
            if offset > end:
                continue
            sent = write(offset, text[offset:end], final=ends and end == len(text))
            if judge_text(MARKS, held, sent) is None:
                data += sent.data
                held = TextPart("answer", 1, len(data), sent.final, truncated=False)
            assert text.startswith(data)
    assert data == text
    assert held is None or held.final == (ends and held.length == len(text))


@pytest.mark.parametrize("offset", [-1, LIMIT, LIMIT - 1, 1.0, True, None])
def test_an_offset_that_is_none_makes_no_write(offset):
    with pytest.raises(ValueError, match="not a whole number"):
        write(offset)
