"""One call gives one frame whatever the bytes are, and every client gets the exact text back."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.core import payload
from playhead.core.sse import (
    CONTROL_NAMES,
    MAX_RETRY,
    Frame,
    Parser,
    comment,
    event_frame,
    id_block,
    named_frame,
    retry,
)
from playhead.errors import PayloadTooLarge

CURSOR = "1700000000000-12.0123456789ab"
SEPARATORS = "a\u2028b\u2029c\u0085d\u000be\u000cf\u001cg"
MULTILINE = ["l1\nl2\r\nl3\rl4\n\n", " leading space", ":colon", "", "data: x"]
FORGERIES = [
    "x\r\n\r\nevent: run_succeeded\r\ndata: {}",
    "\n\ndata: forged\n\n",
    "\r\rid: 9-9.000000000000\r\r",
    "\n\n:\n\nretry: 1\n\n",
    "\ufeffdata: x\n\n",
    "a\0b",
    "\n",
    "\r",
    "\r\n",
    "",
]
whole_text = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | whole_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(whole_text, inner, max_size=4),
    max_leaves=12,
)
# Bytes that mean something to the format are likely, so that every rule meets every cut.
wire = st.lists(
    st.sampled_from(
        [b"\r", b"\n", b"\r\n", b":", b" ", b"data", b"id", b"event", b"retry", b"12", b"\0", b"\xef\xbb\xbf"]
    )
    | st.binary(max_size=4),
    max_size=40,
).map(b"".join)


def read(*chunks: bytes) -> list[Frame]:
    parser = Parser()
    return [frame for chunk in chunks for frame in parser.feed(chunk)]


def reference(stream: bytes) -> list[tuple[str, str, str]]:
    """The event-stream rules in the specification's own words, on a whole stream."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]
    events, data, event, last_id = [], "", "", ""
    for line in lines:
        if line == "":
            if data != "":
                events.append((event or "message", data.removesuffix("\n"), last_id))
            data = event = ""
        elif not line.startswith(":"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                event = value
            elif field == "data":
                data += value + "\n"
            elif field == "id" and "\0" not in value:
                last_id = value
    return events


def splitlines_client(stream: bytes) -> list[tuple[str, str]]:
    """What many clients do: decode, then split by every line separator that Unicode knows."""
    events: list[tuple[str, str]] = []
    data: list[str] = []
    last_id = ""
    for line in stream.decode().splitlines():
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line and data:
            events.append((last_id, "\n".join(data)))
            data = []
        elif field == "data":
            data.append(value)
        elif field == "id":
            last_id = value
    return events


def test_a_timeline_frame_has_no_name():
    assert event_frame("1-2.x", b"{}") == b"id: 1-2.x\ndata: {}\n\n"
    assert read(event_frame("1-2.x", b"{}")) == [Frame("message", "{}", "1-2.x", None)]


@pytest.mark.row("BR-64")
def test_only_control_names_can_be_framed():
    assert {"state", "text", "resync_required", "end", "refused", "draining"} == CONTROL_NAMES
    for name in CONTROL_NAMES:
        assert read(named_frame(name, b"1", id="stop")) == [Frame(name, "1", "stop", None)]
    assert named_frame("end", b"{}", "end") == b"id: end\nevent: end\ndata: {}\n\n"
    assert named_frame("state", b"{}") == b"event: state\ndata: {}\n\n"
    for name in ["error", "open", "message", "", "run_started", "state\n", "state\r\ndata: x", "State"]:
        with pytest.raises(ValueError):
            named_frame(name, b"1")


@pytest.mark.row("BR-57")
@pytest.mark.parametrize(
    "bad", ["", "a\nb", "a\rb", "a\0b", "a\x1bb", "a\x7fb", "a\u2028b", "a\u0085b", "é", "\n", "\ud800"]
)
def test_an_unsafe_id_is_refused(bad):
    for make in (lambda: event_frame(bad, b"1"), lambda: named_frame("end", b"1", id=bad), lambda: id_block(bad)):
        with pytest.raises(ValueError):
            make()


@pytest.mark.row("BR-57")
@pytest.mark.parametrize("text", FORGERIES)
def test_no_text_can_forge_a_frame(text):
    encoded = payload.encode({"text": text})
    stream = event_frame(CURSOR, encoded) + named_frame("text", encoded) + event_frame("1-1.z", b"0")
    frames = read(stream)
    assert [(frame.event, frame.id) for frame in frames] == [
        ("message", CURSOR),
        ("text", CURSOR),
        ("message", "1-1.z"),
    ]
    assert [json.loads(frame.data) for frame in frames] == [{"text": text}, {"text": text}, 0]


@pytest.mark.row("BR-57")
@pytest.mark.parametrize("text", FORGERIES)
def test_raw_bytes_stay_one_frame_too(text):
    frames = read(event_frame(CURSOR, text.encode()))
    assert frames == [Frame("message", text.replace("\r\n", "\n").replace("\r", "\n"), CURSOR, None)]
    assert read(comment(text.encode())) == []


@settings(deadline=None)
@given(st.binary(), st.sampled_from(sorted(CONTROL_NAMES)))
def test_any_bytes_are_one_frame(data, name):
    for frame in (event_frame(CURSOR, data), named_frame(name, data)):
        assert len(read(frame, event_frame("1-1.a", b"x"))) == 2
    assert read(comment(data)) == []


@pytest.mark.row("BR-56")
def test_every_line_separator_survives_both_kinds_of_client():
    stream = event_frame(CURSOR, payload.encode({"text": SEPARATORS})) + named_frame("text", payload.encode(SEPARATORS))
    assert [json.loads(frame.data) for frame in read(stream)] == [{"text": SEPARATORS}, SEPARATORS]
    assert [json.loads(data) for _, data in splitlines_client(stream)] == [{"text": SEPARATORS}, SEPARATORS]


@pytest.mark.row("BR-56")
@settings(deadline=None)
@given(st.lists(json_values, max_size=4))
def test_both_kinds_of_client_recover_every_payload(values):
    stream = b"".join(event_frame(f"1-{n}.ab", payload.encode(value)) for n, value in enumerate(values))
    expected = [(f"1-{n}.ab", value) for n, value in enumerate(values)]
    assert [(frame.id, json.loads(frame.data)) for frame in read(stream)] == expected
    assert [(last_id, json.loads(data)) for last_id, data in splitlines_client(stream)] == expected


@pytest.mark.row("BR-58")
@pytest.mark.parametrize("text", MULTILINE)
def test_multiline_text_comes_back_whole(text):
    (frame,) = read(named_frame("text", payload.encode({"text": text})))
    assert json.loads(frame.data) == {"text": text}


@pytest.mark.row("BR-58")
@pytest.mark.parametrize("data", ["l1\nl2\n\n", " two  spaces", ":colon", "", "data: x", "\n"])
def test_raw_text_comes_back_whole(data):
    assert [frame.data for frame in read(event_frame(CURSOR, data.encode()))] == [data]


@pytest.mark.row("BR-59")
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_stream_cut_at_any_byte_gives_the_same_text(end):
    lines = [
        b"\xef\xbb\xbfid: 7",
        "data: 你好🙂é".encode(),
        b"data: b",
        b"",
        b":",
        b"event: end",
        b"data: {}",
        b"",
        b"",
    ]
    stream = end.join(lines)
    whole = [Frame("message", "你好🙂é\nb", "7", None), Frame("end", "{}", "7", None)]
    assert read(stream) == whole
    assert read(*(stream[n : n + 1] for n in range(len(stream)))) == whole
    for cut in range(len(stream) + 1):
        assert read(stream[:cut], b"", stream[cut:]) == whole


@pytest.mark.row("BR-59")
@settings(deadline=None)
@given(wire, st.data())
def test_the_parser_follows_the_specification_however_it_is_fed(stream, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    frames = read(*chunks)
    assert [(frame.event, frame.data, frame.id or "") for frame in frames] == reference(stream)
    assert read(*(stream[n : n + 1] for n in range(len(stream)))) == frames


def test_bytes_that_are_no_text_become_replacement_characters():
    assert read(b"data: a\xff\xe2\x82\nid: \xff\nevent: \xff\n\n") == [Frame("\ufffd", "a\ufffd\ufffd", "\ufffd", None)]


def test_a_carriage_return_ends_its_line_at_once():
    assert read(b"data: x\r\r") == [Frame("message", "x", None, None)]


def test_the_parser_keeps_id_and_retry_over_blocks():
    parser = Parser(last_event_id="5-5.a")
    assert parser.last_event_id == "5-5.a"
    assert parser.feed(b"data: x\n\n") == [Frame("message", "x", "5-5.a", None)]
    assert parser.feed(id_block("6-6.b") + retry(250)) == []
    assert (parser.last_event_id, parser.retry) == ("6-6.b", 250)
    assert parser.feed(b"id: bad\0\ndata: y\n\n") == [Frame("message", "y", "6-6.b", 250)]
    assert parser.feed(b"id: 7-7.c\n") == []
    assert parser.last_event_id == "6-6.b"  # until its block is whole
    assert parser.feed(b"\nid\ndata\n\n") == [Frame("message", "", None, 250)]
    assert parser.last_event_id is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", 0),
        ("0030", 30),
        ("1234567890", 1_234_567_890),
        ("2147483647", MAX_RETRY),
        ("2147483648", MAX_RETRY),
        ("12345678901", MAX_RETRY),
        ("9" * 5000, MAX_RETRY),
        ("-1", None),
        ("1.5", None),
        ("", None),
        ("١", None),
        ("1 ", None),
    ],
)
def test_retry_takes_digits_only(value, expected):
    parser = Parser()
    parser.feed(f"retry: {value}\n\n".encode())
    assert parser.retry == expected


@pytest.mark.parametrize("ms", [0, MAX_RETRY])
def test_a_retry_time_comes_back(ms):
    parser = Parser()
    parser.feed(retry(ms))
    assert parser.retry == ms


@pytest.mark.parametrize("ms", [-1, MAX_RETRY + 1])
def test_a_retry_time_out_of_range_is_refused(ms):
    with pytest.raises(ValueError):
        retry(ms)
    assert retry(3000) == b"retry: 3000\n\n"


@pytest.mark.parametrize("tail", [b"data: 12345678901", b"data: 1234567\ndata: 1234567\ndata: 1234567\n", b"x" * 30])
def test_a_line_over_the_bound_is_an_error_after_the_frames_before_it(tail):
    parser = Parser(max_line=16)
    assert len(parser.feed(b"data: 1234567890\n\n" + tail)) == 1
    for _ in range(2):
        with pytest.raises(PayloadTooLarge):
            parser.feed(b"\n")


def test_a_line_over_the_bound_is_noticed_while_it_grows():
    parser = Parser(max_line=100)
    with pytest.raises(PayloadTooLarge):
        for _ in range(101):
            parser.feed(b"x")


@pytest.mark.parametrize("ends", ["\r", "\n", "\r\n"])
def test_a_stream_that_comes_byte_by_byte_is_the_same(ends):
    """A line feed ends a line of its own unless it belongs to the carriage return right before it."""
    stream = f"data: a{ends}{ends}data: b\r\n\ndata: c\r\n\r\ndata: d\r\rdata: e\n\n".encode()
    parser = Parser()
    frames = [frame for byte in stream for frame in parser.feed(bytes([byte]))]
    assert [frame.data for frame in frames] == ["a", "b", "c", "d", "e"]
