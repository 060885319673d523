"""What is encoded is strict JSON in one line, within its bound; what is parsed was strict JSON."""

import enum
import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pydantic
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from playhead.core.payload import (
    MAX_FIELD,
    MAX_PAYLOAD,
    TextJoiner,
    bounded,
    encode,
    parse,
    well_formed,
)
from playhead.errors import BadJson, PayloadNotJson

text = st.text(st.characters(codec=None, exclude_categories=[]), max_size=20)  # lone surrogates too
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | text
    | st.sampled_from(['"', "\\", "\n", "\u2028", "你", "\ud83d"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=15,
)
halves = st.lists(st.sampled_from(["\ud83d", "\ude00", "a", "😀", "", "\ud83d\ude00", "\udc00\ud800"]), max_size=12)


class Colour(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: int
    y: float
    _cache: object = None


class Model(pydantic.BaseModel):
    name: str
    when: datetime
    scores: dict[str, float]


class Broken:
    def model_dump(self, mode: str) -> object:
        raise RuntimeError("no")


def strict(data: bytes) -> object:
    """A strict parser that is not ours: RFC 8259, whole UTF-8, no key twice."""

    def unique(pairs):
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    def refuse(name):
        raise AssertionError(name)

    decoded = data.decode()
    assert len(decoded.splitlines()) == 1
    return json.loads(decoded, object_pairs_hook=unique, parse_constant=refuse)


def nested(levels: int) -> object:
    value: object = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": [1, 2.5, None, True, "é"]}, b'{"a":[1,2.5,null,true,"\xc3\xa9"]}'),
        ((1, (2,)), b"[1,[2]]"),
        ([Colour.RED, Word.RED], b'["red","red"]'),
        ({Word.RED: 1}, b'{"red":1}'),
        (UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        ([Decimal("1.10"), Decimal("NaN")], b'["1.10",null]'),
        (date(2026, 1, 2), b'"2026-01-02"'),
        (datetime(2026, 1, 2, 3, 4, 5, 6000, UTC), b'"2026-01-02T03:04:05.006000Z"'),
        (datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2))), b'"2026-01-02T01:00:00Z"'),
        (Point(1, math.nan, object()), b'{"x":1,"y":null}'),
        (
            [Model(name="n", when=datetime(2026, 1, 2, tzinfo=UTC), scores={"a": math.inf})],
            b'[{"name":"n","when":"2026-01-02T00:00:00Z","scores":{"a":null}}]',
        ),
        ([2**53 - 1, 1 - 2**53], b"[9007199254740991,-9007199254740991]"),
        ([2**53], b'["9007199254740992"]'),
        ([-(2**53)], b'["-9007199254740992"]'),
        ({"a": 2**64, "b": 10**30}, b'{"a":"18446744073709551616","b":"1000000000000000000000000000000"}'),
        ("\0\\u0000", b'"\\u0000\\\\u0000"'),
    ],
)
def test_each_type_has_one_form(value, expected):
    assert encode(value) == expected


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [0, {"b": b"x"}]}, "$.a[1].b"),
        ({"a": {1: 2}}, "$.a"),
        ([datetime(2026, 1, 2)], "$[0]"),  # noqa: DTZ001
        ({"a": {1, 2}}, "$.a"),
        (object(), "$"),
        (Model, "$"),
        ({"a": Broken()}, "$.a"),
        ({"a": datetime.max.replace(tzinfo=timezone(timedelta(hours=-9)))}, "$.a"),
        ({"big": 10**5000}, "$.big"),
        ({"p": Point(1, 2.0), "q": [Point(b"", 1.0)]}, "$.q[0].x"),  # type: ignore[arg-type]
    ],
)
def test_what_has_no_json_form_is_refused_by_its_path(value, path):
    with pytest.raises(PayloadNotJson) as refused:
        encode(value)
    assert refused.value.details == {"path": path}
    assert path in str(refused.value)


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}, lambda inner: (inner,)])
def test_nesting_is_bounded_for_what_has_to_be_repaired_too(wrap):
    value: object = "\ud800"
    for _ in range(64):
        value = wrap(value)
    assert b"\\ufffd" in encode(value) or "\ufffd".encode() in encode(value)
    with pytest.raises(PayloadNotJson):
        encode(wrap(value))


def test_nesting_is_bounded():
    assert strict(encode(nested(64))) == nested(64)
    with pytest.raises(PayloadNotJson, match="64 levels"):
        encode(nested(65))
    with pytest.raises(PayloadNotJson, match="64 levels"):
        encode(nested(10_000))
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(PayloadNotJson, match="64 levels"):
        encode(loop)
    flat = [[["[" * 100, '"', "\\"]]] * 100
    assert strict(encode(flat)) == flat


@pytest.mark.row("BR-62")
def test_numbers_that_json_lacks_become_null_wherever_they_stand():
    value = {"a": math.nan, "b": [math.inf, {"c": -math.inf}], "d": (math.nan,), "e": "NaN"}
    assert strict(encode(value)) == {"a": None, "b": [None, {"c": None}], "d": [None], "e": "NaN"}


@settings(deadline=None)
@given(values)
def test_whatever_is_encoded_is_strict_json_in_one_line(value):
    try:
        data = encode(value)
    except PayloadNotJson:
        return
    assert encode(strict(data)) == data
    assert parse(data) == strict(data)


@pytest.mark.row("BR-61")
def test_lone_halves_become_valid_text():
    value = {"\ud800": ["a\ud83d", "\ude00b", "\ud83d\ude00"]}
    assert strict(encode(value)) == {"\ufffd": ["a\ufffd", "\ufffdb", "😀"]}
    assert parse(b'["\\ud83d\\ude00", "\\ud83d", 9007199254740993]') == ["😀", "\ufffd", 9007199254740993]


@pytest.mark.row("BR-61")
def test_a_pair_in_two_pieces_is_one_character():
    joiner = TextJoiner()
    assert [joiner.feed(piece) for piece in ["a\ud83d", "", "\ude00b", "\ud83d", "c"]] == [
        "a",
        "",
        "😀b",
        "",
        "\ufffdc",
    ]
    assert joiner.feed("\ud83d") == ""
    assert [joiner.flush(), joiner.flush()] == ["\ufffd", ""]


@pytest.mark.row("BR-61")
@settings(deadline=None)
@given(halves)
def test_joined_pieces_are_the_well_formed_whole(pieces):
    joiner = TextJoiner()
    out = [joiner.feed(piece) for piece in pieces]
    assert "".join(out) + joiner.flush() == well_formed("".join(pieces))
    for piece in out:
        piece.encode()


@settings(deadline=None)
@given(text)
def test_well_formed_changes_only_what_is_not(given_text):
    repaired = well_formed(given_text)
    repaired.encode()
    assert well_formed(repaired) == repaired
    if not any("\ud800" <= char <= "\udfff" for char in given_text):
        assert repaired == given_text


@pytest.mark.row("BR-63")
@pytest.mark.parametrize("char", ['"', "你", "😀", "\u2028", "\0", "\\"])
def test_megabytes_in_one_field_become_a_marked_preview(char):
    whole = char * (5_000_000 // len(char.encode()))
    data = bounded({"id": "7", "output": whole})
    assert len(data) <= MAX_PAYLOAD
    cut = strict(data)
    assert isinstance(cut, dict)
    assert cut["id"] == "7"
    assert cut["truncated"] is True
    assert cut["original_bytes"] == len(encode({"id": "7", "output": whole}))
    assert cut["truncated_fields"] == {"output": {"original_bytes": len(encode(whole)), "type": "string"}}
    assert whole.startswith(cut["output"])
    one = len(encode(char)) - 2
    assert MAX_FIELD - one < len(encode(cut["output"])) <= MAX_FIELD


@pytest.mark.row("BR-63")
def test_other_types_become_the_beginning_of_their_json():
    rows = [{"n": n, "t": "é\n"} for n in range(30_000)]
    cut = strict(bounded({"rows": rows, "map": {"k": rows}, "n": 3}))
    assert isinstance(cut, dict)
    assert cut["n"] == 3
    assert encode(rows).decode().startswith(cut["rows"])
    assert {name: about["type"] for name, about in cut["truncated_fields"].items()} == {
        "rows": "array",
        "map": "object",
    }
    alone = strict(bounded(rows))
    assert isinstance(alone, dict)
    assert alone["truncated_fields"]["value"]["type"] == "array"
    assert strict(bounded("x" * 300_000))["value"] == "x" * (MAX_FIELD - 2)  # type: ignore[index]


@pytest.mark.row("BR-63")
def test_identity_survives_when_even_previews_are_too_many():
    marks = {f"mark{n}": n for n in range(99)}
    value = (
        {f"field{n}": "x" * 31_000 for n in range(400)}
        | marks
        | {
            "id": "run-1",
            "k" * 300_000: 1,
            "step": 4,
            "truncated": "own",
        }
    )
    data = bounded(value)
    cut = strict(data)
    assert isinstance(cut, dict)
    assert len(data) <= MAX_PAYLOAD
    assert (cut["id"], cut["step"], cut["truncated"]) == ("run-1", 4, True)
    assert marks.items() <= cut.items()
    assert cut["field0"] == "x" * 2046
    assert cut["truncated_fields"]["field0"] == {"original_bytes": 31_002, "type": "string"}
    kept = [name for name in cut if name.startswith("field")]
    # Its own `truncated` is not counted; the name that is too long is.
    assert cut["dropped_fields"] == len(value) - 1 - len(marks) - len(kept) - 2
    assert len(kept) > 100


def test_what_fits_is_left_alone():
    assert bounded({"a": "x" * 100_000, "truncated": 1}) == encode({"a": "x" * 100_000, "truncated": 1})
    exact = "x" * (MAX_PAYLOAD - 2)
    assert bounded(exact) == encode(exact)
    with pytest.raises(ValueError):
        bounded(1, limit=1000)


@pytest.mark.row("BR-63")
@settings(deadline=None)
@given(
    st.dictionaries(text, st.tuples(values, st.sampled_from([1, 1, 7, 60])), max_size=30),
    st.sampled_from([1024, 2048, 5000]),
    st.sampled_from([1024, 1500]),
)
@example({"\0" * 20: ("\0" * 20, 90)}, 1024, 1024)
def test_the_bound_holds_and_what_is_cut_stays_strict_json(parts, limit, field):
    value = {name * min(times, 90): [item] * times for name, (item, times) in parts.items()}
    try:
        encoded = encode(value)
    except PayloadNotJson:
        return
    data = bounded(value, limit=limit, field=field)
    assert len(data) <= limit
    cut = strict(data)
    assert isinstance(cut, dict)
    if len(encoded) > limit:
        assert cut["truncated"] is True
        assert cut["original_bytes"] == len(encoded)


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"", "character 0"),
        (b'{"a":1} x', "character 8"),
        (b'{"a":1,"a":2}', "'a' twice"),
        (b'[{"b":{"a":1,"\\u0061":2}}]', "'a' twice"),
        (b"[NaN]", "NaN"),
        (b"-Infinity", "-Infinity"),
        (b"[1e999]", "1e999"),
        (b"9" * 5000, "too large"),
        (b'"\xff"', "byte 1"),
        (b'"\xed\xa0\x80"', "byte 1"),
        (b'\xef\xbb\xbf{"a":1}', "character 0"),
        ('{"a":1}'.encode("utf-16"), "byte 0"),
        (b'"a\nb"', "character 2"),
        (b"[1,]", "character"),
        (b"{'a':1}", "character 1"),
        (b"[01]", "character"),
        (b"[" * 65 + b"]" * 65, "64 levels"),
        (b"[" * 1_000_000, "64 levels"),
        (b'{"a":' * 10_000, "64 levels"),
        (b'"' + b'\\"' * 500_000, "character 0"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_what_is_not_strict_json_is_refused_with_its_place(data, where):
    with pytest.raises(BadJson) as refused:
        parse(data)
    assert where in str(refused.value)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b' {"a":[1,-0.5e3,"\\u0000"]}\r\n', {"a": [1, -500.0, "\0"]}),
        (b"9007199254740993", 2**53 + 1),
        (b"[" * 64 + b"]" * 64, None),
        (b'["[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "\\"]"]', None),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_strict_json_is_taken(data, value):
    assert parse(data) == (json.loads(data) if value is None else value)


def test_a_document_around_a_payload_may_be_deeper():
    document = b'{"payload":' + encode(nested(64)) + b"}"
    assert parse(document, depth=65) == {"payload": nested(64)}
    with pytest.raises(BadJson):
        parse(document)


@settings(deadline=None)
@given(st.binary() | st.text(st.sampled_from('[]{}",:\\u0dDa1eN-. ')).map(str.encode))
def test_the_parser_only_ever_answers_or_refuses(data):
    try:
        value = parse(data)
    except BadJson:
        return
    assert value == json.loads(data)
