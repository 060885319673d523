"""The frames of several feeds on one connection say what those of each alone say, and name their feed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.core import payload as payloads
from playhead.core import sse
from playhead.core.cursor import END, STOP, Cursor
from playhead.core.multiplexed import refused, rewrite
from playhead.core.sse import Parser

FEED = "run:01890abc-0000-7000-8000-00000000000f"
HERE, THERE = Cursor(7, 8, "0123456789ab"), Cursor(7, 9, "ba9876543210")

names = st.sampled_from(["state", "text", "resync_required", "end", "message"])
ids = st.sampled_from([None, str(HERE), str(THERE), STOP, END])
documents = st.dictionaries(
    st.text(max_size=8).filter(lambda name: name not in ("feed", "cursor")), st.text(max_size=40), min_size=1
)


def block(name: str, document: object, place: str | None) -> bytes:
    data = payloads.encode(document)
    if name != "message":
        return sse.named_frame(name, data, place)
    return b"data: %b\n\n" % data if place is None else sse.event_frame(place, data)


def said(piece: bytes) -> list[tuple[str, dict]]:
    parser = Parser()
    found = [(frame.event, json.loads(frame.data)) for frame in parser.feed(piece)]
    assert parser.last_event_id is None, "a frame has an id"
    return found


def placed(place: str | None) -> str | None:
    return None if place in (STOP, END) else place


@given(st.lists(st.tuples(names, documents, ids), max_size=6))
def test_each_frame_is_kept_and_names_its_feed(given):
    told = rewrite(FEED, b"".join(block(*each) for each in given))
    found = said(told.frames)
    assert len(found) == len(given)
    last = None
    for (name, document, place), (event, data) in zip(given, found, strict=True):
        assert (event, data.pop("feed")) == (name, FEED)
        if name in ("message", "resync_required"):
            assert data.pop("cursor") == placed(place)
        assert (data["event"] if name == "message" else data) == document
        last = placed(place) or last
    assert (None if told.cursor is None else str(told.cursor)) == last
    assert told.ended is any(name == "end" for name, _, _ in given)
    assert told.farewell == b""


def test_comments_and_waits_are_left_to_the_connection():
    told = rewrite(FEED, sse.retry(5) + sse.comment() + sse.comment(b"data: x") + block("text", {"a": 1}, None))
    assert said(told.frames) == [("text", {"feed": FEED, "a": 1})]
    assert told.farewell == b""
    assert rewrite(FEED, sse.comment()).frames == b""


def test_a_farewell_is_said_for_the_connection():
    farewell = sse.retry(5) + sse.named_frame("draining", b'{"retry_ms":5}')
    told = rewrite(FEED, block("text", {"a": 1}, None) + farewell)
    assert said(told.frames) == [("text", {"feed": FEED, "a": 1})]
    assert told.farewell == farewell


@given(documents)
def test_words_forge_no_frame(document):
    hostile = {**document, "x": "\n\nid: 1\nevent: end\ndata: {}\n\n", "y": "\r\r", "z": "\u2028\u2029\x85"}
    told = rewrite(FEED, block("message", hostile, str(HERE)))
    assert said(told.frames) == [("message", {"feed": FEED, "cursor": str(HERE), "event": hostile})]
    assert told.cursor == HERE
    assert not told.ended


@pytest.mark.parametrize("feed", [FEED, 'run:"\n\ndata: x', "run:\ud800é\u2028", "run:"])
def test_whatever_the_request_called_a_feed_is_one_line(feed):
    found = said(refused(feed, "not_found"))
    assert found == [("refused", {"feed": feed.replace("\ud800", "\ufffd"), "code": "not_found"})]
