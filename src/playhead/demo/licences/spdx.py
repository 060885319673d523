"""SPDX licence expressions: parse, canonicalise and write them (SPDX specification, annex on licence expressions).

The identifiers come from `license_expression`. Its aliases do not: some of them would turn a vague name into a
precise claim ("GPL" into GPL-1.0-or-later, "LicenseRef-MIT-Discord" into MIT).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

from license_expression import (  # type: ignore[import-untyped]
    LicenseSymbol,
    LicenseWithExceptionSymbol,
    Licensing,
    get_spdx_licensing,
)

from playhead.demo.licences.errors import ExpressionInvalid

MAX_LENGTH = 1000  # characters; longer ones are refused, which also bounds the depth of parentheses

# Identifiers that SPDX replaced by another one with the same meaning; the library knows the new ones by these aliases.
_REPLACED = re.compile(r"(?:[AL]?GPL|GFDL)-\d\.\d\+?|BSD-2-Clause-(?:Free|Net)BSD|StandardML-NJ")
_REF = re.compile(r"LicenseRef-([A-Za-z0-9.-]*[A-Za-z0-9][A-Za-z0-9.-]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One licence, with the exception that follows WITH."""

    id: str
    exception: str | None = None

    def __str__(self) -> str:
        return self.id if self.exception is None else f"{self.id} WITH {self.exception}"


@dataclass(frozen=True, slots=True)
class Compound:
    """Two or more terms that all apply (AND) or of which one may be chosen (OR)."""

    operator: Literal["AND", "OR"]
    terms: tuple[Node, ...]

    def __str__(self) -> str:
        # AND binds tighter, so only an OR inside an AND needs parentheses.
        return f" {self.operator} ".join(
            f"({term})" if isinstance(term, Compound) and self.operator == "AND" else str(term) for term in self.terms
        )


Node = Leaf | Compound


@lru_cache(maxsize=1024)
def parse(text: str) -> Node:
    """Return the tree of a valid expression, with identifiers in canonical spelling and replaced ones renewed.

    `str()` of the tree is the canonical expression. Terms keep their order; nested terms of the same operator are
    joined into one. `LicenseRef-…` is valid and kept as written; `DocumentRef-…` is not valid here (PEP 639).

    Raises:
        ExpressionInvalid: `details["unknown"]` lists identifiers that SPDX does not have; it is empty when the form
            itself is wrong.
    """
    if len(text) > MAX_LENGTH or not text.isascii() or not text.strip():
        raise ExpressionInvalid(unknown=[])
    try:
        tree = _licensing().parse(text, validate=False, strict=True)
    except Exception:  # besides its own errors the parser lets AttributeError and IndexError out, as for "()"
        raise ExpressionInvalid(unknown=[]) from None
    unknown: list[str] = []
    node = _node(tree, unknown)
    if unknown:
        raise ExpressionInvalid("The expression has identifiers that SPDX does not have.", unknown=unknown)
    return node


def leaves(node: Node) -> Iterator[Leaf]:
    """Yield the licences of an expression from left to right."""
    if isinstance(node, Leaf):
        yield node
    else:
        for term in node.terms:
            yield from leaves(term)


@cache
def identifiers() -> frozenset[str]:
    """Return the identifiers of all licences (not of exceptions) on the SPDX list."""
    return frozenset(
        key
        for key, symbol in get_spdx_licensing().known_symbols.items()
        if not symbol.is_exception and not key.startswith("LicenseRef-")
    )


@cache
def _licensing() -> Licensing:
    known = get_spdx_licensing().known_symbols.items()
    made = Licensing([LicenseSymbol(key, is_exception=s.is_exception) for key, s in known if "LicenseRef-" not in key])
    # Made at the first use, it is there for other threads before it is whole: reviews that begin together share this.
    made.get_advanced_tokenizer()
    return made


@cache
def _replacements() -> dict[str, str]:
    known = get_spdx_licensing().known_symbols.items()
    return {alias.lower(): key for key, symbol in known for alias in symbol.aliases if _REPLACED.fullmatch(alias)}


@cache
def _spelling() -> dict[str, str]:
    return {key.lower(): key for key in identifiers()}


def _node(tree: Any, unknown: list[str]) -> Node:
    if isinstance(tree, LicenseWithExceptionSymbol):
        return Leaf(_identifier(tree.license_symbol.key, unknown), tree.exception_symbol.key)
    if isinstance(tree, LicenseSymbol):
        return Leaf(_identifier(tree.key, unknown))
    operator: Literal["AND", "OR"] = "AND" if tree.operator.strip() == "AND" else "OR"
    terms: list[Node] = []
    for arg in tree.args:
        term = _node(arg, unknown)
        if isinstance(term, Compound) and term.operator == operator:
            terms.extend(term.terms)
        else:
            terms.append(term)
    return Compound(operator, tuple(terms))


def _identifier(key: str, unknown: list[str]) -> str:
    """Return the canonical spelling of an identifier, or note that there is none."""
    lower = key.lower()
    found = _spelling().get(lower) or _replacements().get(lower)
    if found:
        return found
    if ref := _REF.fullmatch(key):
        return f"LicenseRef-{ref[1]}"
    # "X+" means X or a later version; the GNU licences say so in their identifiers instead.
    base = _spelling().get(lower.removesuffix("+"))
    if base and lower.endswith("+") and not base.endswith(("-only", "-or-later")):
        return f"{base}+"
    unknown.append(key[:80])
    return key
