"""From metadata to SPDX: real samples, the tables, and properties over anything that metadata may hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.demo.licences import NOASSERTION, Distribution, ExpressionInvalid, Reason, Source, normalize, spdx
from playhead.demo.licences.normalize import _table

# Licence facts of 100 distributions that were really installed, each with the answer a person agreed with.
GOLDEN = [
    json.loads(line) for line in Path(__file__).with_name("golden_metadata.jsonl").read_text("utf-8").splitlines()
]
WITH_SPDX = {Reason.DECLARED_EXPRESSION, Reason.MAPPED_CLASSIFIER, Reason.EXACT_TEXT, Reason.KNOWN_ALIAS}

OSI = "License :: OSI Approved :: "


def said(expression: str | None = None, text: str | None = None, *classifiers: str) -> tuple[str, str, str]:
    licence = normalize(Distribution("x", "1", expression, text, classifiers))
    return licence.spdx, licence.source.value, licence.reason.value


@pytest.mark.parametrize("sample", GOLDEN, ids=lambda s: f"{s['name']}-{s['version']}")
def test_golden(sample):
    dist = Distribution(
        sample["name"],
        sample["version"],
        sample["license_expression"],
        sample["license"],
        tuple(sample["classifiers"]),
    )
    licence = normalize(dist)
    assert {"spdx": licence.spdx, "source": licence.source, "reason": licence.reason} == sample["expected"]


def test_golden_is_a_hundred_different_samples_of_licence_facts_alone():
    assert len(GOLDEN) == 100
    assert len({(row["name"], row["version"]) for row in GOLDEN}) == 100
    assert all(len(row["license"] or "") <= 200 for row in GOLDEN)
    assert not [row for row in GOLDEN if "://" in json.dumps(row) or "@" in json.dumps(row)]
    assert {row["expected"]["source"] for row in GOLDEN} == {source.value for source in Source}


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("mit", "MIT"),
        ("(MIT)", "MIT"),
        ("apache-2.0 or (mit and isc)", "Apache-2.0 OR MIT AND ISC"),
        ("(MIT OR ISC) AND 0BSD", "(MIT OR ISC) AND 0BSD"),
        ("MIT OR (ISC OR 0BSD)", "MIT OR ISC OR 0BSD"),
        ("GPL-2.0", "GPL-2.0-only"),
        ("lgpl-2.1+", "LGPL-2.1-or-later"),
        ("gpl-2.0-only with classpath-exception-2.0", "GPL-2.0-only WITH Classpath-exception-2.0"),
        ("epl-1.0+", "EPL-1.0+"),
        ("licenseref-Own.Thing AND MIT", "LicenseRef-Own.Thing AND MIT"),
        ("LicenseRef-MIT-Discord", "LicenseRef-MIT-Discord"),
    ],
)
def test_an_expression_is_canonicalised(expression, answer):
    assert said(expression) == (answer, "expression", "declared_expression")


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("MIT AND", "invalid_expression"),
        ("()", "invalid_expression"),
        ("MIT/ISC", "invalid_expression"),
        ("MIT License", "invalid_expression"),
        ("MIT WITH ISC", "invalid_expression"),
        ("GPL-2.0-only WITH Nothing-exception", "invalid_expression"),
        ("Classpath-exception-2.0", "invalid_expression"),
        ("(" * 600 + "MIT" + ")" * 600, "invalid_expression"),
        ("\u041cIT", "invalid_expression"),
        ("GPL", "unknown_identifier"),
        ("BSD OR MIT", "unknown_identifier"),
        ("Apache 2.0", "unknown_identifier"),
        ("GPL-2.0-only+", "unknown_identifier"),
        ("DocumentRef-a:LicenseRef-b", "unknown_identifier"),
        ("LicenseRef-", "unknown_identifier"),
        ("NOASSERTION", "unknown_identifier"),
    ],
)
def test_a_wrong_expression_rules_out_the_other_fields_all_the_same(expression, reason):
    assert said(expression, "MIT", f"{OSI}MIT License") == (NOASSERTION, "none", reason)


@pytest.mark.parametrize(
    ("text", "answer", "reason"),
    [
        ("mit", "MIT", "exact_text"),
        ("  Bsd-3-clause \n", "BSD-3-Clause", "exact_text"),
        ("MIT or Apache-2.0", "MIT OR Apache-2.0", "exact_text"),
        ("The MIT  License", "MIT", "known_alias"),
        ("GPLv3+", "GPL-3.0-or-later", "known_alias"),
        ("GPL-3.0+", "GPL-3.0-or-later", "exact_text"),
        ("GPL-3.0-only", "GPL-3.0-only", "exact_text"),
        ("GPL-3.0", NOASSERTION, "ambiguous_text"),
        ("MIT OR GPL-3.0", NOASSERTION, "ambiguous_text"),
        ("BSD", NOASSERTION, "ambiguous_text"),
        ("Apache", NOASSERTION, "ambiguous_text"),
        ("MIT, see LICENSE", NOASSERTION, "unrecognised_text"),
        ("MIT\n\nPermission is hereby granted", NOASSERTION, "long_text"),
        ("x" * 101, NOASSERTION, "long_text"),
        ("UNKNOWN", NOASSERTION, "nothing_declared"),
        ("", NOASSERTION, "nothing_declared"),
    ],
)
def test_a_text_counts_only_as_a_whole(text, answer, reason):
    assert said(None, text) == (answer, "none" if answer == NOASSERTION else "text", reason)


@pytest.mark.parametrize(
    ("text", "classifiers", "answer", "reason"),
    [
        (None, ["MIT License"], "MIT", "mapped_classifier"),
        ("see LICENSE", ["MIT License"], "MIT", "mapped_classifier"),
        (None, ["BSD License"], NOASSERTION, "ambiguous_classifier"),
        ("BSD", ["BSD License"], NOASSERTION, "ambiguous_classifier"),
        ("BSD-3-Clause", ["BSD License"], "BSD-3-Clause", "exact_text"),
        ("MIT", ["BSD License"], NOASSERTION, "conflicting_metadata"),
        ("GPL", ["BSD License"], NOASSERTION, "conflicting_metadata"),
        ("GPL", ["MIT License"], NOASSERTION, "conflicting_metadata"),
        ("MIT OR ISC", ["MIT License"], NOASSERTION, "conflicting_metadata"),
        ("LGPL-2.0", ["GNU Lesser General Public License v2 or later (LGPLv2+)"], NOASSERTION, "ambiguous_classifier"),
        ("GPL-3.0", ["GNU General Public License v3 or later (GPLv3+)"], "GPL-3.0-or-later", "mapped_classifier"),
        (None, ["MIT License", "ISC License (ISCL)"], NOASSERTION, "multiple_classifiers"),
        ("ISC AND MIT", ["MIT License", "ISC License (ISCL)"], "ISC AND MIT", "exact_text"),
        ("MIT", ["MIT License", "ISC License (ISCL)"], NOASSERTION, "multiple_classifiers"),
        ("MIT", ["A Licence of 2031"], NOASSERTION, "unknown_classifier"),
    ],
)
def test_classifiers_and_text_together(text, classifiers, answer, reason):
    spdx_, _, why = said(None, text, *(OSI + name for name in classifiers))
    assert (spdx_, why) == (answer, reason)


def test_classifiers_that_name_no_licence_are_ignored_beside_one_that_does():
    generic = ("License :: OSI Approved", "License :: DFSG approved")
    assert said(None, None, *generic, f"{OSI}MIT License")[0] == "MIT"
    assert said(None, "MIT", *generic)[0] == "MIT"
    assert said(None, None, *generic) == (NOASSERTION, "none", "ambiguous_classifier")
    assert said(None, "Apache 2.0", "License :: Other/Proprietary License")[2] == "conflicting_metadata"


def test_the_tables_hold_canonical_identifiers_and_known_families():
    classifiers, aliases = _table("classifiers"), _table("aliases")
    for found in (*classifiers["unambiguous"].values(), *aliases["exact"].values()):
        assert str(spdx.parse(found)) == found
    families = set(classifiers["families"])
    assert {*classifiers["ambiguous"].values(), *aliases["vague"].values()} <= families
    assert not set(classifiers["unambiguous"]) & set(classifiers["ambiguous"])
    assert not set(aliases["exact"]) & set(aliases["vague"])
    for name in (*aliases["exact"], *aliases["vague"]):
        assert name == " ".join(name.lower().split())
    for patterns in classifiers["families"].values():
        for pattern in patterns:
            assert any(spdx_.startswith(pattern.rstrip("*")) for spdx_ in (*spdx.identifiers(), "LicenseRef-"))


def test_pep_639_list_of_ambiguous_classifiers_is_whole():
    listed = """Academic Free License (AFL)|Apache Software License|Apple Public Source License|Artistic License
        |BSD License|GNU Affero General Public License v3
        |GNU Free Documentation License (FDL)|GNU General Public License (GPL)
        |GNU General Public License v2 (GPLv2)|GNU General Public License v3 (GPLv3)
        |GNU Lesser General Public License v2 (LGPLv2)|GNU Lesser General Public License v2 or later (LGPLv2+)
        |GNU Lesser General Public License v3 (LGPLv3)|GNU Library or Lesser General Public License (LGPL)"""
    for name in listed.split("|"):
        assert said(None, None, OSI + name.strip()) == (NOASSERTION, "none", "ambiguous_classifier")


ids = st.sampled_from(sorted(spdx.identifiers()))
leaves = st.one_of(
    ids, ids.map(str.lower), st.sampled_from(["LicenseRef-a.b", "GPL-2.0-only WITH Classpath-exception-2.0"])
)


def joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(inner, st.sampled_from(["AND", "OR", "or"]), inner).map(lambda part: f"({' '.join(part)})")


expressions = st.recursive(leaves, joined, max_leaves=8)
texts = st.one_of(
    st.text(max_size=120),
    expressions,
    st.sampled_from(sorted({*_table("aliases")["exact"], *_table("aliases")["vague"]})),
    st.lists(st.sampled_from(["MIT", "GPL", "AND", "OR", "WITH", "(", ")", "+", ",", "License", "2.0"])).map(" ".join),
)
lines = st.one_of(
    st.sampled_from(sorted({*_table("classifiers")["unambiguous"], *_table("classifiers")["ambiguous"]})),
    st.text(max_size=40),
).map("License :: {}".format)
distributions = st.builds(
    Distribution,
    name=st.just("x"),
    version=st.just("1"),
    license_expression=st.none() | texts,
    license_text=st.none() | texts,
    classifiers=st.lists(lines, max_size=3).map(tuple),
)


@given(distributions)
def test_any_metadata_gets_a_canonical_expression_or_a_named_reason(dist):
    licence = normalize(dist)
    assert (licence.reason in WITH_SPDX) == licence.known == (licence.source is not Source.NONE)
    assert len(licence.detail) <= 160
    if licence.known:
        assert str(spdx.parse(licence.spdx)) == licence.spdx
    assert licence == normalize(dist)


@given(distributions, st.permutations(range(3)))
def test_the_order_of_classifiers_does_not_matter(dist, order):
    turned = tuple(dist.classifiers[i] for i in order if i < len(dist.classifiers))
    other = Distribution(dist.name, dist.version, dist.license_expression, dist.license_text, turned + turned[:1])
    assert normalize(dist) == normalize(other)


@given(expressions)
def test_a_canonical_expression_stays_as_it_is(expression):
    if len(expression) > spdx.MAX_LENGTH:
        return
    tree = spdx.parse(expression)
    again = spdx.parse(str(tree))
    assert str(again) == str(tree)
    assert [str(leaf) for leaf in spdx.leaves(again)] == [str(leaf) for leaf in spdx.leaves(tree)]


@given(st.text(max_size=200))
def test_any_text_parses_or_is_a_typed_error(text):
    try:
        tree = spdx.parse(text)
    except ExpressionInvalid:
        return
    assert text.isascii()
    assert list(spdx.leaves(tree))
