"""What a licence policy is, how it is read from TOML, and how a licence is judged by it."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from playhead.demo.licences import spdx
from playhead.demo.licences.errors import ExpressionInvalid, PolicyInvalid, PolicyUnreadable
from playhead.demo.licences.normalize import NOASSERTION, Licence
from playhead.demo.licences.read import normalized_name

MAX_SIZE = 1 << 20  # bytes of a policy file


class Outcome(StrEnum):
    ALLOWED = "allowed"
    REVIEW = "review"
    DENIED = "denied"


_SEVERITY = {Outcome.ALLOWED: 0, Outcome.REVIEW: 1, Outcome.DENIED: 2}
_LISTS = {"allow": Outcome.ALLOWED, "review": Outcome.REVIEW, "deny": Outcome.DENIED}


@dataclass(frozen=True, slots=True)
class PolicyException:
    """Lets `package` through while its licence is exactly `licence`, up to and including the day `expires`."""

    package: str  # normalized name
    licence: str  # canonical SPDX expression, or NOASSERTION
    reason: str
    expires: date


@dataclass(frozen=True, slots=True)
class Policy:
    """`rules` maps an SPDX identifier, or "X WITH exception", to its outcome. `digest` is the SHA-256 of the file."""

    name: str
    rules: Mapping[str, Outcome]
    exceptions: tuple[PolicyException, ...] = ()
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`rule` names what decided.

    `allow:MIT`, `review:MPL-2.0`, `deny:SSPL-1.0`: an entry of a list. `unlisted:Foo-1.0`: a licence in no list.
    `unknown:ambiguous_classifier`: no licence could be told. `exception:certifi`: an exception of the policy.
    `note` is a sentence for people, or empty.
    """

    outcome: Outcome
    rule: str
    note: str = ""


def load_policy(path: str | None = None) -> Policy:
    """Read the policy at `path`, or the one that comes with playhead.

    Raises:
        PolicyUnreadable: there is no such file, or it is not UTF-8 text of at most 1 MiB.
        PolicyInvalid: it is not TOML, or not a policy; `details["where"]` names the place.
    """
    try:
        if path is None:
            data = files("playhead.demo.licences").joinpath("policy.toml").read_bytes()
        else:
            with Path(path).open("rb") as file:
                data = file.read(MAX_SIZE + 1)
        text = data.decode("utf-8")
    except (OSError, ValueError):  # ValueError: a NUL in the path, or bytes that are not UTF-8
        raise PolicyUnreadable from None
    if len(data) > MAX_SIZE:
        raise PolicyUnreadable("The policy file is larger than 1 MiB.")
    return parse_policy(text)


def parse_policy(text: str) -> Policy:
    """Read a policy from TOML text.

    Raises:
        PolicyInvalid: as for `load_policy`.
    """
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        raise PolicyInvalid("The policy file is not TOML.", where="") from None
    _only(table, {"name", "exceptions", *_LISTS}, "")
    rules: dict[str, Outcome] = {}
    for key, outcome in _LISTS.items():
        for i, entry in enumerate(_list(table, key)):
            if (rule := _rule(entry, f"{key}[{i}]")) in rules:
                raise _invalid(f"{key}[{i}]", f"{rule} is listed twice")
            rules[rule] = outcome
    exceptions = tuple(_exception(row, f"exceptions[{i}]") for i, row in enumerate(_list(table, "exceptions")))
    return Policy(
        name=_text(table.get("name", "Policy"), "name"),
        rules=MappingProxyType(rules),
        exceptions=exceptions,
        digest=hashlib.sha256(text.encode()).hexdigest(),
    )


def judge(licence: Licence, policy: Policy, *, package: str | None = None, today: date | None = None) -> Verdict:
    """Return what `policy` says about `licence`.

    The best branch of an OR counts and the worst part of an AND; of equals, the first. The policy's exceptions for
    `package` count only when both `package` and `today` are given.
    """
    verdict = _judge(spdx.parse(licence.spdx), policy) if licence.known else None
    verdict = verdict or Verdict(Outcome.REVIEW, f"unknown:{licence.reason}")
    if package is None or today is None or verdict.outcome is Outcome.ALLOWED:
        return verdict
    key = normalized_name(package)
    for exception in policy.exceptions:
        if exception.package == key and exception.licence == licence.spdx:
            if today <= exception.expires:
                return Verdict(Outcome.ALLOWED, f"exception:{key}", exception.reason)
            note = f"The policy's exception for {key} ended on {exception.expires.isoformat()}."
            return Verdict(verdict.outcome, verdict.rule, note)
    return verdict


def _judge(node: spdx.Node, policy: Policy) -> Verdict:
    if isinstance(node, spdx.Leaf):
        return _leaf(node, policy)
    pick = min if node.operator == "OR" else max  # both return the first of equals
    return pick((_judge(term, policy) for term in node.terms), key=lambda verdict: _SEVERITY[verdict.outcome])


def _leaf(leaf: spdx.Leaf, policy: Policy) -> Verdict:
    # An exception only adds permissions and "X+" only adds later versions to choose from: X alone is never too mild.
    for name in (str(leaf), leaf.id, leaf.id.removesuffix("+")):
        if (outcome := policy.rules.get(name)) is not None:
            word = next(word for word, meaning in _LISTS.items() if meaning is outcome)
            return Verdict(outcome, f"{word}:{name}")
    return Verdict(Outcome.REVIEW, f"unlisted:{leaf}")


def _exception(row: object, where: str) -> PolicyException:
    if not isinstance(row, dict):
        raise _invalid(where, "not a table")
    _only(row, {"package", "licence", "reason", "expires"}, f"{where}.")
    expires = row.get("expires")
    if not isinstance(expires, date) or isinstance(expires, datetime):
        raise _invalid(f"{where}.expires", "not a date such as 2030-12-31")
    licence = _text(row.get("licence"), f"{where}.licence")
    return PolicyException(
        package=normalized_name(_text(row.get("package"), f"{where}.package")),
        licence=licence if licence == NOASSERTION else str(_parse(licence, f"{where}.licence")),
        reason=_text(row.get("reason"), f"{where}.reason"),
        expires=expires,
    )


def _rule(entry: object, where: str) -> str:
    node = _parse(_text(entry, where), where)
    if not isinstance(node, spdx.Leaf):
        raise _invalid(where, "a rule is about one licence; AND and OR belong to the packages")
    return str(node)


def _parse(text: str, where: str) -> spdx.Node:
    try:
        return spdx.parse(text)
    except ExpressionInvalid:
        raise _invalid(where, f"not an SPDX licence: {text[:80]}") from None


def _list(table: Mapping[str, Any], key: str) -> list[object]:
    value = table.get(key, [])
    if not isinstance(value, list):
        raise _invalid(key, "not a list")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _invalid(where, "not a text")
    return value.strip()


def _only(table: Mapping[str, Any], known: set[str], prefix: str) -> None:
    if unknown := sorted(set(table) - known):
        raise _invalid(f"{prefix}{unknown[0][:80]}", "no such key")


def _invalid(where: str, problem: str) -> PolicyInvalid:
    return PolicyInvalid(f"The policy is wrong at {where}: {problem}.", where=where, problem=problem)
