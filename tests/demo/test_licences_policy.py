"""Policies, verdicts and the groups that a person approves."""

from __future__ import annotations

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.demo.licences import (
    NOASSERTION,
    Distribution,
    Licence,
    Outcome,
    PolicyInvalid,
    PolicyUnreadable,
    Reason,
    Source,
    examine,
    groups,
    judge,
    load_policy,
    parse_policy,
    spdx,
)

TODAY = date(2026, 6, 1)
POLICY = parse_policy(
    """
    allow = ["mit", "ISC", "Apache-2.0", "LicenseRef-Ours"]
    review = ["MPL-2.0", "GPL-2.0-only WITH Classpath-exception-2.0"]
    deny = ["GPL-2.0-only", "GPL-3.0-or-later"]
    [[exceptions]]
    package = "Some_Tool"
    licence = "GPL-3.0-or-later"
    reason = "Runs apart."
    expires = 2026-06-01
    [[exceptions]]
    package = "unclear"
    licence = "NOASSERTION"
    reason = "Read by hand."
    expires = 2026-12-31
    """
)
ORDER = [Outcome.ALLOWED, Outcome.REVIEW, Outcome.DENIED]


def of(expression: str) -> Licence:
    return Licence(str(spdx.parse(expression)), Source.EXPRESSION, Reason.DECLARED_EXPRESSION)


def unknown(reason: Reason = Reason.NOTHING_DECLARED, detail: str = "") -> Licence:
    return Licence(NOASSERTION, Source.NONE, reason, detail)


@pytest.mark.parametrize(
    ("expression", "outcome", "rule"),
    [
        ("MIT", "allowed", "allow:MIT"),
        ("LicenseRef-Ours", "allowed", "allow:LicenseRef-Ours"),
        ("LicenseRef-Theirs", "review", "unlisted:LicenseRef-Theirs"),
        ("GPL-3.0-or-later OR MIT", "allowed", "allow:MIT"),
        ("GPL-3.0-or-later AND MIT", "denied", "deny:GPL-3.0-or-later"),
        ("MIT AND ISC", "allowed", "allow:MIT"),
        ("MIT AND (GPL-2.0-only OR MPL-2.0)", "review", "review:MPL-2.0"),
        ("MPL-2.0 AND Zlib", "review", "review:MPL-2.0"),
        ("Zlib OR GPL-2.0-only", "review", "unlisted:Zlib"),
        ("GPL-2.0-only WITH Classpath-exception-2.0", "review", "review:GPL-2.0-only WITH Classpath-exception-2.0"),
        ("GPL-2.0-only WITH Bison-exception-2.2", "denied", "deny:GPL-2.0-only"),
        ("Apache-2.0 WITH LLVM-exception", "allowed", "allow:Apache-2.0"),
        ("MPL-2.0+", "review", "review:MPL-2.0"),
    ],
)
def test_verdicts(expression, outcome, rule):
    verdict = judge(of(expression), POLICY)
    assert (verdict.outcome, verdict.rule) == (outcome, rule)


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason not in list(Reason)[:4]])
def test_what_could_not_be_told_goes_to_review(reason):
    verdict = judge(unknown(reason), POLICY)
    assert (verdict.outcome, verdict.rule) == (Outcome.REVIEW, f"unknown:{reason.value}")


def test_an_exception_holds_for_one_licence_up_to_its_day():
    gpl = of("GPL-3.0-or-later")
    inside = judge(gpl, POLICY, package="some.tool", today=TODAY)
    assert (inside.outcome, inside.rule, inside.note) == (Outcome.ALLOWED, "exception:some-tool", "Runs apart.")
    after = judge(gpl, POLICY, package="some.tool", today=date(2026, 6, 2))
    assert (after.outcome, after.rule) == (Outcome.DENIED, "deny:GPL-3.0-or-later")
    assert "2026-06-01" in after.note
    assert judge(of("GPL-2.0-only"), POLICY, package="some-tool", today=TODAY).outcome is Outcome.DENIED
    assert judge(gpl, POLICY, package="other", today=TODAY).outcome is Outcome.DENIED
    assert judge(gpl, POLICY, package="some-tool").outcome is Outcome.DENIED
    assert judge(unknown(), POLICY, package="unclear", today=TODAY).outcome is Outcome.ALLOWED


ids = st.sampled_from(["MIT", "ISC", "Zlib", "MPL-2.0", "GPL-3.0-or-later", "LicenseRef-X", "0BSD+"])


def joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda part: f"({' '.join(part)})")


trees = st.recursive(ids, joined, max_leaves=6)


def rank(expression: str) -> int:
    return ORDER.index(judge(of(expression), POLICY).outcome)


@given(trees, trees)
def test_or_takes_the_best_branch_and_and_the_worst(left, right):
    assert rank(f"({left}) OR ({right})") == min(rank(left), rank(right)) == rank(f"({right}) OR ({left})")
    assert rank(f"({left}) AND ({right})") == max(rank(left), rank(right)) == rank(f"({right}) AND ({left})")
    assert rank(f"({left}) AND ({left})") == rank(left)


@given(trees)
def test_the_rule_names_a_licence_of_the_expression(tree):
    name = judge(of(tree), POLICY).rule.partition(":")[2]
    assert name in {str(leaf).removesuffix("+") for leaf in spdx.leaves(spdx.parse(tree))} | {
        str(leaf) for leaf in spdx.leaves(spdx.parse(tree))
    }


def test_the_shipped_policy_loads_and_is_sorted():
    policy = load_policy()
    assert policy.name
    assert len(policy.digest) == 64
    assert judge(of("MIT"), policy).outcome is Outcome.ALLOWED
    assert judge(of("MPL-2.0"), policy).outcome is Outcome.REVIEW
    assert judge(of("AGPL-3.0-only"), policy).outcome is Outcome.DENIED
    for outcome in Outcome:
        listed = [name for name, meaning in policy.rules.items() if meaning is outcome]
        assert listed == sorted(listed)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("allow = [", ""),
        ("a = " + "[" * 20000, ""),
        ("allow = 'MIT'", "allow"),
        ("allow = [1]", "allow[0]"),
        ("allow = ['MIT', 'BSD']", "allow[1]"),
        ("allow = ['MIT OR ISC']", "allow[0]"),
        ("allow = ['MIT']\ndeny = ['mit']", "deny[0]"),
        ("alow = ['MIT']", "alow"),
        ("name = ''", "name"),
        ("exceptions = [1]", "exceptions[0]"),
        ("[exceptions]", "exceptions"),
        ("[[exceptions]]\npackage = 'x'\nlicence = 'MIT'\nreason = 'r'", "exceptions[0].expires"),
        (
            "[[exceptions]]\npackage = 'x'\nlicence = 'MIT'\nreason = 'r'\nexpires = '2026-01-01'",
            "exceptions[0].expires",
        ),
        ("[[exceptions]]\nexpires = 2026-01-01T00:00:00Z", "exceptions[0].expires"),
        ("[[exceptions]]\npackage = 'x'\nlicence = 'BSD'\nexpires = 2026-01-01", "exceptions[0].licence"),
        ("[[exceptions]]\nlicence = 'MIT'\nexpires = 2026-01-01", "exceptions[0].package"),
        ("[[exceptions]]\nwhy = 'x'", "exceptions[0].why"),
    ],
)
def test_a_wrong_policy_is_a_typed_error_that_names_the_place(text, where):
    with pytest.raises(PolicyInvalid) as caught:
        parse_policy(text)
    assert caught.value.details["where"] == where


def test_a_policy_file_that_cannot_be_read_is_a_typed_error(tmp_path):
    (tmp_path / "latin").write_bytes(b"name = '\xe9'")
    (tmp_path / "large").write_bytes(b"#" * (1 << 20) + b"\n")
    for path in ("absent", "", ".", "latin", "large", "nul\0"):
        with pytest.raises(PolicyUnreadable) as caught:
            load_policy(str(tmp_path / path))
        assert str(tmp_path) not in str(caught.value) + repr(caught.value.details)
    (tmp_path / "own.toml").write_text("name = 'Own'\nallow = ['MIT']\n")
    assert load_policy(str(tmp_path / "own.toml")).name == "Own"


DISTS = [
    Distribution("Bee", "1", "MPL-2.0"),
    Distribution("ant", "2", "MPL-2.0"),
    Distribution("cat", "1", "GPL-3.0-or-later"),
    Distribution("dog", "1", None, None, ("License :: OSI Approved :: BSD License",)),
    Distribution("eel", "1", None, None, ("License :: OSI Approved :: GNU General Public License (GPL)",)),
    Distribution("fox", "1", None),
    Distribution("gnu", "1", "MIT"),
]


def test_groups_hold_each_exception_once_and_say_what_it_is():
    made = groups(examine(dist, POLICY, today=TODAY) for dist in DISTS)
    assert [(g.outcome.value, g.subject, [m.distribution.name for m in g.members]) for g in made] == [
        ("denied", "GPL-3.0-or-later", ["cat"]),
        ("review", "MPL-2.0", ["ant", "Bee"]),
        ("review", "ambiguous classifier: BSD License", ["dog"]),
        ("review", "ambiguous classifier: GNU General Public License (GPL)", ["eel"]),
        ("review", "nothing declared", ["fox"]),
    ]
    assert made[1].title == "The policy wants a look at MPL-2.0: 2 distributions"
    assert made[0].title == "The policy denies GPL-3.0-or-later: 1 distribution"


def test_ids_and_digests_are_the_same_in_every_run():
    group = groups([examine(DISTS[0], POLICY, today=TODAY), examine(DISTS[1], POLICY, today=TODAY)])[0]
    assert group.id == "review-mpl-2.0-7e2a2a93"
    assert group.digest == hashlib.sha256(b'[["ant","2","MPL-2.0"],["bee","1","MPL-2.0"]]').hexdigest()


chosen = st.lists(st.sampled_from(DISTS), unique_by=lambda dist: dist.name)


@given(chosen.flatmap(lambda dists: st.tuples(st.just(dists), st.permutations(dists))))
def test_groups_do_not_depend_on_the_order(pair):
    listed, turned = (groups(examine(dist, POLICY, today=TODAY) for dist in dists) for dists in pair)
    assert listed == turned
    assert len({group.id for group in listed}) == len(listed)
    held = [m.distribution.name for group in listed for m in group.members]
    assert sorted(held) == sorted(dist.name for dist in pair[0] if dist.name != "gnu")


@pytest.mark.parametrize("change", [{"version": "3"}, {"name": "other"}])
def test_another_version_or_name_makes_another_digest_and_the_same_id(change):
    before = groups([examine(DISTS[0], POLICY, today=TODAY)])[0]
    after = groups([examine(replace(DISTS[0], **change), POLICY, today=TODAY)])[0]
    assert after.id == before.id
    assert after.digest != before.digest


def test_reviews_that_begin_together_read_the_same_policy():
    """The first of them makes what the others use."""
    width, together = 4, Barrier(4)

    def read():
        together.wait()
        return load_policy(None)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns as often as they can
    try:
        with ThreadPoolExecutor(width) as threads:
            for _ in range(5):
                for made in (spdx.parse, spdx._licensing):
                    made.cache_clear()
                spdx._licensing()
                first, *others = [waiting.result() for waiting in [threads.submit(read) for _ in range(width)]]
                assert all(policy == first for policy in others)
    finally:
        sys.setswitchinterval(before)
