"""Names, ids and times: what may be one, and how it is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.core import ids
from playhead.core.ids import LIMIT, Feed, parse_feed, run_feed, uuid7

WALL = st.integers(0, 2**48 - 1)
CHANCE = st.binary(min_size=10, max_size=10)


@given(WALL, CHANCE)
def test_an_id_is_a_uuid_of_version_7_and_says_when_it_was_made(wall, chance):
    made = uuid7(wall, chance)
    assert ids.is_id(made)
    assert int(made.replace("-", "")[:12], 16) == wall
    value = int(made.replace("-", ""), 16)
    assert (value >> 76) & 0xF == 7
    assert (value >> 62) & 0x3 == 2
    kept = (value >> 64 & 0xFFF) << 62 | value & (2**62 - 1)
    assert kept == (int.from_bytes(chance, "big") >> 64 & 0xFFF) << 62 | int.from_bytes(chance, "big") & (2**62 - 1)


@given(WALL, WALL, CHANCE, CHANCE)
def test_ids_sort_by_their_time(one, other, chance, more):
    if one < other:
        assert uuid7(one, chance) < uuid7(other, more)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0190163D-8694-739b-aea5-966c26f8ad90",
        "0190163d-8694-439b-aea5-966c26f8ad90",
        "0190163d-8694-739b-cea5-966c26f8ad90",
        "0190163d-8694-739b-aea5-966c26f8ad90\n",
        "0190163d8694739baea5966c26f8ad90",
        "x0190163d-8694-739b-aea5-966c26f8ad90",
    ],
)
def test_what_is_no_id(text):
    assert ids.is_id("0190163d-8694-739b-aea5-966c26f8ad90")
    assert not ids.is_id(text)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (ids.is_name, ["a", "a_1", "a" * 64], ["", "A", "1a", "_a", "a-b", "a" * 65, "a\n", "ä", "a²"]),
        (ids.is_tenant, ["a", "0", "A.b_c@d-e", "a" * 128], ["", "*", ".a", "a b", "a" * 129, "a\n", "ä"]),
        (ids.is_label, ["a", "A.b-c_1", "a" * 64], ["", "1", ".a", "a b", "a" * 65, "a\n", "ä"]),
        (ids.is_key, ["!", "~", "a" * 255], ["", " ", "a b", "\x7f", "a" * 256, "a\n", "ä"]),
    ],
)
def test_each_grammar_ends_where_it_says(check, good, bad):
    assert all(map(check, good))
    assert not any(map(check, bad))


def test_no_tenant_is_called_every_tenant():
    assert not ids.is_tenant(ids.EVERY_TENANT)


@pytest.mark.parametrize("number", [0, 1, LIMIT - 1])
def test_whole_numbers_are_exact_everywhere(number):
    ids.check_whole(number)


@pytest.mark.parametrize("number", [-1, LIMIT, 1.0, True, "1", None])
def test_what_is_no_whole_number_is_refused_wherever_it_stands(number):
    for numbers in ((number,), (0, number), (number, 0)):
        with pytest.raises(ValueError, match="not a whole number"):
            ids.check_whole(*numbers)


@pytest.mark.parametrize("kind", ["run", "thread", "topic"])
def test_a_feed_s_key_is_read_back(kind):
    feed = Feed(kind, "acme/a:b")
    assert feed.key == f"{kind}:acme/a:b"
    assert parse_feed(feed.key) == feed
    assert ids.fact_id(feed, 7) == f"{kind}:acme/a:b:7"
    assert ids.fact_rev(feed, ids.fact_id(feed, 7)) == 7
    for other in (ids.fact_id(Feed(kind, "acme/a"), 7), f"{feed.key}:x", f"{feed.key}:²", feed.key, f"{feed.id}:1:7"):
        assert ids.fact_rev(feed, other) is None
    assert run_feed("x") == Feed("run", "x")


@pytest.mark.parametrize(
    ("wall_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_767_225_600_007, "2026-01-01T00:00:00.007Z"),
        (1_767_225_599_999, "2025-12-31T23:59:59.999Z"),
    ],
)
def test_an_instant_is_written_to_the_millisecond_in_utc(wall_ms, text):
    assert ids.iso(wall_ms) == ids.iso_or_none(wall_ms) == text
    assert ids.iso_or_none(None) is None
