"""Turn what a distribution says about its licence into one SPDX expression, or into the reason why that cannot be done.

The order is PEP 639's: `License-Expression` rules out the rest; then classifiers that mean one licence; then a License
text that is an SPDX expression or an exact alias. Nothing is guessed: a vague name, two classifiers or two fields that
contradict each other yield NOASSERTION.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from playhead.demo.licences import spdx
from playhead.demo.licences.errors import ExpressionInvalid
from playhead.demo.licences.read import Distribution

NOASSERTION = "NOASSERTION"
SHORT = 100  # characters; a longer License text is a licence's wording, not its name

# Left bare inside a longer text expression these are as vague as alone (aliases.toml, last part).
_BARE_GNU = re.compile(r"\b(?:[AL]?GPL|GFDL)-\d\.\d(?![-+.\w])", re.IGNORECASE)


class Source(StrEnum):
    EXPRESSION = "expression"
    CLASSIFIER = "classifier"
    TEXT = "text"
    NONE = "none"


class Reason(StrEnum):
    """Why a licence is what it is. The first four come with an SPDX expression, the others with NOASSERTION."""

    DECLARED_EXPRESSION = "declared_expression"
    MAPPED_CLASSIFIER = "mapped_classifier"
    EXACT_TEXT = "exact_text"
    KNOWN_ALIAS = "known_alias"

    INVALID_EXPRESSION = "invalid_expression"
    UNKNOWN_IDENTIFIER = "unknown_identifier"
    AMBIGUOUS_CLASSIFIER = "ambiguous_classifier"
    UNKNOWN_CLASSIFIER = "unknown_classifier"
    MULTIPLE_CLASSIFIERS = "multiple_classifiers"
    CONFLICTING_METADATA = "conflicting_metadata"
    AMBIGUOUS_TEXT = "ambiguous_text"
    UNRECOGNISED_TEXT = "unrecognised_text"
    LONG_TEXT = "long_text"
    NOTHING_DECLARED = "nothing_declared"
    # The same words as read.Problem.
    MISSING_METADATA = "missing_metadata"
    UNREADABLE_METADATA = "unreadable_metadata"
    UNDECODABLE_METADATA = "undecodable_metadata"
    INVALID_NAME = "invalid_name"


@dataclass(frozen=True, slots=True)
class Licence:
    """`spdx` is a canonical SPDX expression or NOASSERTION. `detail` is short and says what `reason` is about."""

    spdx: str
    source: Source
    reason: Reason
    detail: str = ""

    @property
    def known(self) -> bool:
        return self.spdx != NOASSERTION


@dataclass(frozen=True, slots=True)
class _Claim:
    """One legacy declaration: one licence (`spdx`), or a family of them (`patterns`), or neither."""

    label: str
    reason: Reason
    spdx: str | None = None
    patterns: tuple[str, ...] = ()


def normalize(dist: Distribution) -> Licence:
    """Return the licence that `dist` declares. Never raises; each NOASSERTION has its own reason."""
    if dist.problem is not None:
        return Licence(NOASSERTION, Source.NONE, Reason(dist.problem.value))
    if dist.license_expression:
        return _declared(dist.license_expression)
    text, classifiers = _text(dist.license_text or ""), _classifiers(dist.classifiers)
    if not classifiers:
        return _licence(text, Source.TEXT)
    first = classifiers[0]
    if text.spdx is not None and text.spdx != first.spdx and _agree(text.spdx, classifiers):
        return _licence(text, Source.TEXT)
    if len(classifiers) > 1:
        return _noassertion(Reason.MULTIPLE_CLASSIFIERS, " / ".join(claim.label for claim in classifiers))
    if _contradict(text, first):
        return _noassertion(Reason.CONFLICTING_METADATA, f"classifier {first.label}, text {text.label}")
    return _licence(first, Source.CLASSIFIER)


def _declared(expression: str) -> Licence:
    try:
        tree = spdx.parse(expression)
    except ExpressionInvalid as error:
        unknown = ", ".join(map(str, error.details["unknown"])) if isinstance(error.details["unknown"], list) else ""
        if unknown:
            return _noassertion(Reason.UNKNOWN_IDENTIFIER, unknown)
        return _noassertion(Reason.INVALID_EXPRESSION, expression)
    return Licence(str(tree), Source.EXPRESSION, Reason.DECLARED_EXPRESSION)


def _text(text: str) -> _Claim:
    short = " ".join(text.split())
    if not short or short.lower() in {"unknown", "none"}:  # setuptools wrote UNKNOWN for an absent field
        return _Claim("", Reason.NOTHING_DECLARED)
    if len(short) > SHORT or "\n" in text.strip():
        return _Claim("", Reason.LONG_TEXT)
    exact, vague = _table("aliases")["exact"], _table("aliases")["vague"]
    if found := exact.get(short.lower()):
        return _Claim(short, Reason.KNOWN_ALIAS, spdx=found)
    if family := vague.get(short.lower()):
        return _Claim(short, Reason.AMBIGUOUS_TEXT, patterns=_family(family))
    if _BARE_GNU.search(short):
        return _Claim(short, Reason.AMBIGUOUS_TEXT)
    try:
        return _Claim(short, Reason.EXACT_TEXT, spdx=str(spdx.parse(short)))
    except ExpressionInvalid:
        return _Claim(short, Reason.UNRECOGNISED_TEXT)


def _classifiers(lines: tuple[str, ...]) -> list[_Claim]:
    names = sorted({line.removeprefix("License :: ") for line in lines})
    # PEP 639: a classifier above another one says nothing that the lower one does not say.
    lowest = [name for name in names if not any(other.startswith(f"{name} :: ") for other in names)]
    claims = [_classifier(name) for name in lowest]
    # PEP 639: "OSI Approved" and "DFSG approved" name no licence; beside one that does they are ignored.
    return [claim for claim in claims if claim.patterns != _family("any")] or claims[:1]


def _classifier(name: str) -> _Claim:
    table, label = _table("classifiers"), name.rpartition(" :: ")[2]
    if found := table["unambiguous"].get(name):
        return _Claim(label, Reason.MAPPED_CLASSIFIER, spdx=found)
    if family := table["ambiguous"].get(name):
        return _Claim(label, Reason.AMBIGUOUS_CLASSIFIER, patterns=_family(family))
    return _Claim(label, Reason.UNKNOWN_CLASSIFIER)


def _agree(expression: str, claims: list[_Claim]) -> bool:
    """Tell whether each licence of a text stands in a classifier, and each classifier for a licence of the text."""
    named = {leaf.id for leaf in spdx.leaves(spdx.parse(expression))}
    return all(any(_covers(claim, id_) for claim in claims) for id_ in named) and all(
        any(_covers(claim, id_) for id_ in named) for claim in claims
    )


def _contradict(text: _Claim, claim: _Claim) -> bool:
    if claim.reason is Reason.UNKNOWN_CLASSIFIER:
        return False
    if text.spdx is not None:
        return not _agree(text.spdx, [claim])
    if not text.patterns:
        return False  # the text says nothing that can be understood
    if claim.spdx is not None:
        return not _covers(text, claim.spdx)
    samples = (*spdx.identifiers(), "LicenseRef-x")
    return not any(_covers(text, id_) and _covers(claim, id_) for id_ in samples)


def _covers(claim: _Claim, id_: str) -> bool:
    return claim.spdx == id_ or any(fnmatchcase(id_, pattern) for pattern in claim.patterns)


def _licence(claim: _Claim, source: Source) -> Licence:
    if claim.spdx is None:
        return _noassertion(claim.reason, claim.label)
    return Licence(claim.spdx, source, claim.reason, claim.label)


def _noassertion(reason: Reason, detail: str = "") -> Licence:
    return Licence(NOASSERTION, Source.NONE, reason, detail if len(detail) <= 160 else detail[:159] + "…")


def _family(name: str) -> tuple[str, ...]:
    return tuple(_table("classifiers")["families"][name])


@cache
def _table(name: str) -> dict[str, dict[str, Any]]:
    source = files("playhead.demo.licences").joinpath(f"{name}.toml").read_text("utf-8")
    return tomllib.loads(source)
