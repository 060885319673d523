"""What comes with a new run: labels, keys, and the digest that tells two bodies apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.core import request
from playhead.errors import InvalidRequest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_a_digest_is_of_the_body_and_not_of_the_order_of_its_keys(body):
    again = dict(reversed(list(body.items())))
    assert request.digest(body) == request.digest(again)
    assert request.digest(body) != request.digest({**body, "one more": 1})


def test_a_digest_can_be_made_of_whatever_is_sent():
    halves = request.digest({"input": "\ud800"})
    assert len(halves) == 64
    assert halves != request.digest({"input": "\ufffd"})
    assert request.digest({"input": {1, 2}}) == request.digest({"input": {1, 2}})


def test_labels_are_checked_and_repaired():
    assert request.checked_labels({}) == {}
    most = {f"l{n}": "x" * request.MAX_LABEL for n in range(request.MAX_LABELS)}
    assert request.checked_labels(most) == most
    assert request.checked_labels({"a": "\ud83d\ude42"}) == {"a": "🙂"}


@pytest.mark.parametrize(
    "labels",
    [
        {f"l{n}": "" for n in range(request.MAX_LABELS + 1)},
        {"1a": "x"},
        {"a b": "x"},
        {7: "x"},
        {"a": "x" * (request.MAX_LABEL + 1)},
        {"a": 7},
        {"a": None},
        {"good": "x", "bad name": "x"},
    ],
)
def test_labels_that_are_none_are_refused(labels):
    with pytest.raises(InvalidRequest, match="label"):
        request.checked_labels(labels)


def test_a_key_is_visible_ascii_or_absent():
    assert request.checked_key(None) is None
    assert request.checked_key("order-17/2") == "order-17/2"
    for bad in ("", " ", "a b", "ä", "a" * 256):
        with pytest.raises(InvalidRequest, match="An idempotency key is"):
            request.checked_key(bad, "An idempotency key")
