from collections import Counter
from urllib.parse import parse_qsl, urlsplit

import pytest

from playhead.client.connection import (
    LONGEST,
    MAX_FAULTS,
    MAX_JOINED_QUERY,
    MAX_QUERY,
    MAX_RUNS,
    RETRY,
    Pace,
    address,
    is_stream,
    joined_address,
    retry_after,
    verdict,
)
from playhead.core.cursor import Cursor
from playhead.core.ids import uuid7

CHANCES = [n / 100 for n in range(101)]


@pytest.mark.row("BR-70@client")
@pytest.mark.parametrize("told", [0.5, 3.0, 8.0, 60.0, 3600.0])
@pytest.mark.parametrize("failures", [0, 1, 5, 10_000])
def test_nobody_returns_before_the_time_that_was_told_nor_all_at_once(told: float, failures: int) -> None:
    waits = [Pace(told, failures).wait(chance) for chance in CHANCES]
    assert min(waits) >= told
    assert max(waits) - min(waits) >= told  # the spread is that of the time at least
    assert max(waits) <= told + max(told, LONGEST)


def test_waits_grow_with_each_failure_up_to_their_bound_and_start_again() -> None:
    pace, most = Pace(1.0), []
    for _ in range(8):
        most.append(pace.wait(1.0))
        pace = pace.failed()
    assert most == [2, 3, 5, 9, 17, 31, 31, 31]
    assert pace.heard().wait(1.0) == 2
    assert pace.heard(4.0).wait(0.0) == 4
    assert Pace().wait(1.0) == RETRY
    assert Pace().wait(0.0) == 0
    assert Pace(0.0).wait(1.0) > 0


def test_a_server_cannot_send_a_client_away_for_ever() -> None:
    assert Pace().heard(1e9).wait(0.0) == 3600


@pytest.mark.parametrize(
    ("status", "failures", "meaning"),
    [
        (200, 0, "good"),
        (204, 0, "over"),
        (429, 99, "later"),
        (503, 99, "later"),
        (408, 99, "later"),
        (500, MAX_FAULTS - 1, "later"),
        (502, MAX_FAULTS, "later"),
        (504, MAX_FAULTS, "later"),
        (500, MAX_FAULTS, "refused"),
        *((status, 0, "refused") for status in (400, 401, 403, 404, 410, 301)),
    ],
)
def test_what_an_answer_means(status: int, failures: int, meaning: str) -> None:
    assert verdict(status, failures) == meaning


def test_a_stream_is_told_from_another_page() -> None:
    assert is_stream({"content-type": "text/event-stream; charset=utf-8"})
    assert is_stream({"content-type": "Text/Event-Stream"})
    assert not is_stream({"content-type": "text/html"})
    assert not is_stream({})


@pytest.mark.parametrize(
    ("given", "told"), [("7", 7.0), (" 7 ", 7.0), ("", None), ("-1", None), ("soon", None), ("9" * 30, 3600.0)]
)
def test_retry_after_is_read_with_care(given: str, told: float | None) -> None:
    assert retry_after({"retry-after": given}) == told
    assert retry_after({}) is None


def test_an_address_says_where_it_goes_on_and_what_is_held() -> None:
    place = "~1/x=?&"
    url = urlsplit(address("a/b", place, {(1, "answer"): 12, (2, "notes"): 0}))
    assert url.path == "/runs/a%2Fb/stream"
    assert parse_qsl(url.query) == [
        ("resync", "inline"),
        ("cursor", place),
        ("text", "1.answer:12"),
        ("text", "2.notes:0"),
    ]
    assert address("r", None, {}) == "/runs/r/stream?resync=inline"


def test_no_address_is_longer_than_a_server_takes() -> None:
    many = {(1 << 50, f"part{n:060}"): 1 << 50 for n in range(200)}
    url = urlsplit(address("r", "1-1.aa", many))
    assert MAX_QUERY - 120 < len(url.query) <= MAX_QUERY
    ids = [uuid7(1_800_000_000_000, n.to_bytes(10)) for n in range(MAX_RUNS)]
    cursor = str(Cursor((1 << 53) - 1, (1 << 53) - 1, "0" * 12))
    joined = urlsplit(joined_address(dict.fromkeys(ids, cursor), dict.fromkeys(ids, many)))
    assert len(joined.query) <= MAX_JOINED_QUERY
    counts = Counter(name for name, _ in parse_qsl(joined.query))
    assert counts["run"] == MAX_RUNS
    assert counts["text"] > 0


def test_a_joined_address_names_each_run_with_its_place() -> None:
    url = urlsplit(joined_address({"a": "1-1.aa", "b": None}, {"a": {(1, "answer"): 3}, "b": {}}))
    assert url.path == "/stream"
    assert parse_qsl(url.query) == [("run", "a@1-1.aa"), ("run", "b"), ("text", "run:a.1.answer:3")]
