"""No character of a secret passes, in whole values and over every border between pieces of text."""

import json
import math
import re
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from playhead.core import payload
from playhead.core.redaction import MARK, Redactor, TextRedactor
from playhead.core.scanner import KINDS, MAX_HELD
from playhead.errors import PayloadNotJson

BODY = "Ab1" * 20
PEM = f"-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-128-CBC,00\n\n{BODY}\n{BODY}==\n-----END RSA PRIVATE KEY-----"
# Each text with its secret, and what must come out.
SECRETS = [
    ("key sk-TEST123 end", "sk-TEST123"[3:], "key sk-[redacted] end"),
    (f"sk-proj-{BODY}_x-y", BODY, "sk-[redacted]"),
    ("Authorization: Bearer TEST456", "TEST456", "Authorization: Bearer [redacted]"),
    ("bearer abc.def~7+/=; x", "abc.def~7+/=", "bearer [redacted]; x"),
    ("Authorization: Basic dXNlcjpwdw== x", "dXNlcjpwdw", "Authorization: Basic [redacted] x"),
    ("AKIAIOSFODNN7EXAMPLE!", "IOSFODNN7EXAMPLE", "AKIA[redacted]!"),
    ("(ghp_" + "a1" * 18 + ")", "a1" * 18, "(ghp_[redacted])"),
    ("github_pat_" + "a1" * 18, "a1" * 18, "github_pat_[redacted]"),
    ("glpat-" + "a1" * 10, "a1" * 10, "glpat-[redacted]"),
    ("sk_live_" + "a1" * 10, "a1" * 10, "sk_live_[redacted]"),
    ("xoxb-12345678-abc", "12345678", "xoxb-[redacted]"),
    (f"x eyJhbGciOi.eyJzdWIiOiIx.{BODY} y", "hbGciOi", "x eyJ[redacted] y"),
    (f"eyJ{'a' * 400}.{BODY}", "a" * 400, "eyJ[redacted]"),
    (f"x\n{PEM}\ny", BODY, "x\n-----BEGIN RSA PRIVATE KEY-----[redacted]-----END RSA PRIVATE KEY-----\ny"),
    (f"-----BEGIN PRIVATE KEY-----{BODY}", BODY, "-----BEGIN PRIVATE KEY-----[redacted]"),
    (f"-----BEGIN {'A' * 24}PRIVATE KEY-----{BODY}", BODY, f"-----BEGIN {'A' * 24}PRIVATE KEY-----[redacted]"),
    ('authorization\\"    :=    \\"digest    abc', "abc", 'authorization\\"    :=    \\"digest    [redacted]'),
    ("accessecret=abc", "abc", "accessecret=[redacted]"),
    ("password=hunter2&x=1", "hunter2", "password=[redacted]&x=1"),
    ("OPENAI_API_KEY = 'my key', x", "my key", "OPENAI_API_KEY = '[redacted]', x"),
    ('{"api_key": "a\\"b c", "n": 1}', 'a\\"b c', '{"api_key": "[redacted]", "n": 1}'),
    ('{\\"client_secret\\": \\"abc\\"}', "abc", '{\\"client_secret\\": \\"[redacted]\\"}'),
    ("x-api-key: abcdef\nhost: h", "abcdef", "x-api-key: [redacted]\nhost: h"),
    ("token: bearer abc123 x", "abc123", "token: bearer [redacted] x"),
    ("aws_secret_access_key=wJalr/bPx+K", "wJalr/bPx+K", "aws_secret_access_key=[redacted]"),
    ("pwd := hunter2!", "hunter2!", "pwd := [redacted]"),
    ("İ password=hunter2", "hunter2", "İ password=[redacted]"),
]
INNOCENT = [
    "The quick brown fox: jumps = over; sk-learn and task-list, risk-based",
    "max_tokens: 4096 and total tokens=12, tokenizer: bpe",
    "The bearer of bad news, bearer instruments, Bearer authentication is described below.",
    "Asia, aiza, ghost_writer, the keyboard: fine, key: value, monkey=1",
    "if token == other: pass",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "sk-SK locale; password: abc; eyJust a word",
    "你好🙂 — naïve\u2028text",
]
FRAGMENTS = [
    *["sk-", "sk", "-", "TEST1234", "abcdefgh", "Bearer ", "bearer", " ", "  ", "\n", "password", "token", "api_key"],
    *["secret", "=", ":", '"', "'", "\\", '\\"', "AKIA", "ABCDEFGH12345678", "ghp_", "eyJ", ".", "a" * 60, "hf_", "A"],
    *["-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "Authorization: ", "Basic ", "1", "_", "é", "İ"],
    *["github_pat_", "glpat-", "sk_live_", "AIza", "xoxb-", "private", "access", ",", "!"],
]
texts = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)
WHOLE = re.compile(
    "|".join(f"(?P<k{n}>{kind.lead}){kind.head}(?:{kind.tail})*+" for n, kind in enumerate(KINDS)), re.ASCII
)


def reference(text: str) -> str:
    """The patterns as one plain substitution, without anchors, hints or state."""
    return WHOLE.sub(lambda found: found[found.lastgroup or 0] + MARK, text)


def stream(pieces: list[str], redactor: Redactor | None = None) -> str:
    stateful = TextRedactor(redactor)
    return "".join([*map(stateful.feed, pieces), stateful.flush()])


@dataclass
class Call:
    name: str
    password: str


@pytest.mark.row("BR-82")
@pytest.mark.parametrize(("text", "secret", "expected"), SECRETS, ids=[text[:20] for text, _, _ in SECRETS])
def test_each_kind_of_secret_is_replaced_wherever_it_is_cut(text, secret, expected):
    assert Redactor().text(text) == expected == reference(text)
    assert secret not in expected
    assert stream(list(text)) == expected
    for cut in range(len(text) + 1):
        assert stream([text[:cut], text[cut:]]) == expected


@pytest.mark.row("BR-82")
@pytest.mark.parametrize(("text", "secret", "expected"), SECRETS, ids=[text[:20] for text, _, _ in SECRETS])
def test_nothing_of_a_secret_is_handed_out_early(text, secret, expected):
    stateful = TextRedactor()
    out = ""
    for char in text:
        out += stateful.feed(char)
        assert expected.startswith(out)


@pytest.mark.parametrize("text", INNOCENT)
def test_other_text_stays(text):
    assert Redactor().text(text) == text == stream(list(text))


def test_text_without_a_lead_passes_at_once():
    stateful = TextRedactor()
    for piece in ["T", "he", " token", " was", " A", " s", " b", "\n- ", "e", "key", " =", "-----"]:
        assert stateful.feed(piece) == piece
    stateful = TextRedactor()
    assert [stateful.feed(piece) for piece in ["use sk-", "lea", "rn "]] == ["use sk-", "", "learn "]


@pytest.mark.row("BR-82")
@settings(max_examples=500, deadline=None)
@given(texts, st.data())
@example("Bearer hf_abcdefghijklmnopqrst", None)
@example("sk-" + "a" * 60 + "1", None)
def test_every_split_gives_what_the_whole_gives(text, data):
    whole = reference(text)
    assert Redactor().text(text) == whole
    assert stream(list(text)) == whole
    if data is not None:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
        assert stream([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]) == whole


@settings(max_examples=300, deadline=None)
@given(texts)
def test_little_is_held_and_what_was_handed_out_stands(text):
    stateful = TextRedactor()
    whole = reference(text)
    out = ""
    for index, char in enumerate(text, 1):
        out += stateful.feed(char)
        assert whole.startswith(out)
        assert out == reference(text[:index])[: len(out)]
        if MARK not in whole:
            assert index - len(out) <= MAX_HELD <= 256
    assert out + stateful.flush() == whole


def test_a_redactor_begins_anew_after_flush():
    stateful = TextRedactor()
    assert stateful.feed("password=") + stateful.flush() == "password="
    assert stateful.feed("hunter2") + stateful.flush() == "hunter2"


@pytest.mark.row("BR-82")
def test_values_lose_their_secrets_and_nothing_else():
    value = {
        "tool": "fetch",
        "args": {"api_key": "sk-TEST123", "headers": [("authorization", "Bearer TEST456")], "n": 5},
        "X-Api-Key": "abc",
        "access_token": {"any": "thing"},
        "clientSecret": ["a"],
        "password": 1234,
        "fencing_token": 7,
        "max_tokens": 100,
        "token": None,
        "has_secret": True,
        "note": ["run with password=hunter2", math.inf, Call("n", "hunter2")],
        "sk-TEST123": 1,
    }
    clean = Redactor().value(value)
    assert clean == {
        "tool": "fetch",
        "args": {"api_key": MARK, "headers": [["authorization", "Bearer " + MARK]], "n": 5},
        "X-Api-Key": MARK,
        "access_token": MARK,
        "clientSecret": MARK,
        "password": MARK,
        "fencing_token": 7,
        "max_tokens": 100,
        "token": None,
        "has_secret": True,
        "note": ["run with password=" + MARK, math.inf, {"name": "n", "password": MARK}],
        "sk-" + MARK: 1,
    }
    encoded = payload.encode(clean)
    for secret in (b"TEST123", b"TEST456", b"hunter2"):
        assert secret not in encoded


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=8
    )
)
def test_values_without_secrets_are_equal(value):
    clean = Redactor().value(value)
    assert Redactor().value(clean) == clean or MARK in json.dumps(clean)
    if reference(json.dumps(value)) == json.dumps(value) and MARK not in json.dumps(clean):
        assert clean == value


def test_what_json_lacks_is_refused_here_too():
    deep: list[object] = []
    deep.append(deep)
    for value in (deep, {"a": b"x"}, {"a": object()}):
        with pytest.raises(PayloadNotJson):
            Redactor().value(value)


def test_patterns_keys_and_hook_add_to_the_defaults():
    def hook(text: str) -> str:
        if "boom" in text:
            raise RuntimeError
        return text.replace("Ada", "A.")

    mine = Redactor(patterns=(re.compile(r"INT-\d+"),), keys=("iban",), hook=hook)
    assert mine.value(
        {"my_iban": "DE1", "t": "INT-42 of Ada", "u": "boom INT-1", "v": "sk-TEST123", "token": "kept"}
    ) == {
        "my_iban": MARK,
        "t": f"{MARK} of A.",
        "u": MARK,
        "v": "sk-" + MARK,
        "token": "kept",
    }
    text = "see INT-42 and INT-777, Ada password=x INT-9"
    assert stream(list(text), mine) == mine.text(text) == f"see {MARK} and {MARK}, A. password={MARK} {MARK}"
    endless = TextRedactor(mine)
    assert endless.feed("x" * 200) == ""
    assert endless.feed("x" * 100) == "x" * 300


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}, lambda inner: (inner,)])
def test_whatever_may_be_encoded_may_be_redacted_and_nothing_deeper(wrap):
    value: object = "password=hunter22"
    for _ in range(64):
        value = wrap(value)
    assert MARK.encode() in payload.encode(Redactor().value(value))
    with pytest.raises(PayloadNotJson):
        Redactor().value(wrap(value))
