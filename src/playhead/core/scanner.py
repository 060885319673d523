"""The default secret patterns, and one scanner that applies them to whole text and to text in pieces alike.

A pattern has three parts: a *lead* that says what follows and is kept (`Bearer `, `sk-`, `password=`), a *head* that
decides, by a bounded number of characters, whether a secret stands behind it, and a *tail* that is swallowed however
long it is. So text is held back only behind a lead, and only until the head is decided.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MARK = "[redacted]"


class Kind(NamedTuple):
    anchors: str  # how a lead begins, as plain lower-case alternatives
    lead: str
    head: str
    tail: str  # one step of it
    run: str = "(?!)"  # the characters that keep the head undecided
    reach: int = 0  # so many of them decide it
    pair: str = ""  # the character that the tail takes only together with the next one


_START = "(?<![A-Za-z0-9])"
_WORD = r"[\w-]"
_TOKEN = r"[\w.~+/=%-]"
_BARE = r"[^\s\"'\\,;&<>(){}\[\]]"
_NAMES = r"passwd|password|passphrase|pwd|secret|token|api|access|private"
_NAME = r"(?i:passw(?:or)?d|passphrase|pwd|secret|token|(?:api|access|private|secret)[_ -]?key(?:[_-]?id)?)"
_SAYS = r"(?:\\?[\"'])?\s{0,4}(?::=|=>|[=:])\s{0,4}"
_SCHEME = "(?i:bearer|basic|digest|token|apikey)"

KINDS = (
    Kind("sk-", _START + "sk-", r"(?=[\w-]{7})[a-z_-]{0,24}[A-Z0-9]", _TOKEN, _WORD, 28),
    Kind("sk_|rk_", _START + "[rs]k_(?:live|test)_", _WORD + "{8}", _TOKEN, _WORD, 8),
    Kind("akia|asia", _START + "A[KS]IA", "[A-Z0-9]{16}", _TOKEN, "[A-Z0-9]", 16),
    Kind("gh|github_", _START + "(?:gh[opsur]_|github_pat_)", _WORD + "{16}", _TOKEN, _WORD, 16),
    Kind("hf_|glpat-", _START + "(?:hf_|glpat-)", _WORD + "{16}", _TOKEN, _WORD, 16),
    Kind("xox", _START + "xox[abeoprs]-", _WORD + "{8}", _TOKEN, _WORD, 8),
    Kind("aiza", _START + "AIza", _WORD + "{30}", _TOKEN, _WORD, 30),
    Kind("eyj", _START + "eyJ", r"(?=[\w-]{5,200}\.|[\w-]{200})", _TOKEN, _WORD, 201),
    Kind(
        "bearer",
        _START + r"(?i:bearer)\s{1,4}",
        # Prose says "bearer" too: what follows is a token when it has a digit, or is longer than words are.
        rf"(?={_TOKEN}{{6}})(?={_TOKEN}{{0,19}}\d|{_TOKEN}{{20}})",
        _TOKEN,
        _TOKEN,
        20,
    ),
    Kind("authorization", rf"(?i:authorization){_SAYS}(?:\\?[\"'])?{_SCHEME}\s{{1,4}}", _TOKEN, _TOKEN),
    Kind("-----begin", "-----BEGIN [A-Z ]{0,24}PRIVATE KEY-----", "", "(?:[^-]|-[^-])", pair="-"),
    Kind(_NAMES, _NAME + _SAYS + '"', r'(?=[^"\r\n])', r'(?:[^"\\\r\n]|\\.)', pair="\\"),
    Kind(_NAMES, _NAME + _SAYS + r"\\\"", r'(?=[^"\\\r\n])', r'[^"\\\r\n]'),
    Kind(_NAMES, _NAME + _SAYS + "'", r"(?=[^'\r\n])", r"[^'\r\n]"),
    # A scheme is no secret; what stands behind it is.
    Kind(_NAMES, _NAME + _SAYS, rf"(?!=|{_SCHEME}\s)(?:(?<==)|(?={_BARE}{{4}})){_BARE}", _BARE, _BARE, 8),
)
MAX_HELD = max(kind.reach for kind in KINDS)  # characters
_MAX_LEAD = 64  # characters; no lead is longer
_SHORTEST = len("pwd=x")

# ASCII only: else a dotless i or a Kelvin sign would match as the letter that it looks like.
_ANCHOR = re.compile("|".join(dict.fromkeys("|".join(kind.anchors for kind in KINDS).split("|"))))
_DECIDED = re.compile("|".join(f"(?P<k{n}>{kind.lead}){kind.head}" for n, kind in enumerate(KINDS)), re.ASCII)
_UNDECIDED = re.compile(
    "|".join(rf"(?P<k{n}>{kind.lead}){kind.run}{{0,{kind.reach - 1}}}\Z" for n, kind in enumerate(KINDS) if kind.reach),
    re.ASCII,
)
_TAILS = {f"k{n}": (re.compile(f"(?:{kind.tail})*+", re.ASCII), kind.pair) for n, kind in enumerate(KINDS)}
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


class Scanner:
    """Replaces secrets in a text that comes in pieces.

    Guarantees:
        Wherever the text is cut, the outputs of `feed` and `flush` together are what one piece would have given, and
        no character is handed out that may yet turn out to belong to a secret. Text is held only behind a lead, at
        most `MAX_HELD` characters; text without a lead passes at once.
    """

    __slots__ = ("_held", "_seen", "_tail")

    def __init__(self) -> None:
        self._seen = "\n"  # handed out before; a lead begins behind its first character
        self._held = ""
        self._tail: tuple[re.Pattern[str], str] | None = None  # of the secret that is being swallowed

    def feed(self, piece: str) -> str:
        return self._scan(piece, last=False)

    def flush(self) -> str:
        """Return what is still held, as nothing follows; the next piece begins a new text."""
        rest = self._scan("", last=True)
        self._seen = "\n"
        return rest

    def _scan(self, piece: str, *, last: bool) -> str:
        text = self._seen + self._held + piece
        at, begin, hold = len(self._seen), 1, len(text)
        low = _lowered(text)
        if self._tail is None and not _hinted(low):
            self._seen, self._held = text[-_MAX_LEAD - 1 :], ""
            return text[at:]
        out: list[str] = []
        look = begin
        while True:
            if self._tail is not None:
                run, pair = self._tail
                at = begin = look = _end(run.match(text, at))
                if not last and (at == len(text) or (at == len(text) - 1 and text[at] == pair)):
                    hold = at
                    break
                self._tail = None
            anchor = _ANCHOR.search(low, look)
            if anchor is None:
                break
            look = anchor.start() + 1
            if not last and (undecided := _UNDECIDED.match(text, anchor.start())):
                hold = undecided.end(undecided.lastgroup or 0)
                break
            if decided := _DECIDED.match(text, anchor.start()):
                lead = decided.lastgroup or ""
                out += (text[at : decided.end(lead)], MARK)
                at = decided.end(lead)
                self._tail = _TAILS[lead]
        out.append(text[at:hold])
        self._seen, self._held = text[max(begin - 1, hold - _MAX_LEAD - 1) : hold], text[hold:]
        return "".join(out)


def scan(text: str) -> str:
    """The whole text with its secrets replaced."""
    if len(text) < _SHORTEST or not _hinted(text.lower()):
        return text
    scanner = Scanner()
    return scanner.feed(text) + scanner.flush()


def _lowered(text: str) -> str:
    low = text.lower()
    return low if len(low) == len(text) else text.translate(_LOWER)  # some capitals become two characters


def _hinted(low: str) -> bool:
    """Whether a lead is possible. Spelled out, because this is all that most text costs."""
    return (
        "bearer" in low
        or "eyj" in low
        or "akia" in low
        or "asia" in low
        or "aiza" in low
        or ("-" in low and ("sk-" in low or "xox" in low or "glpat-" in low or "-----begin" in low))
        or ("_" in low and ("k_" in low or "gh" in low or "github_" in low or "hf_" in low))
        or (
            (":" in low or "=" in low)
            and (
                "passw" in low
                or "passphrase" in low
                or "pwd" in low
                or "secret" in low
                or "token" in low
                or "key" in low
                or "authorization" in low
            )
        )
    )


def _end(found: re.Match[str] | None) -> int:
    assert found is not None  # a tail matches the empty string
    return found.end()
