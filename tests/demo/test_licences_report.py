"""The result of a review, its Markdown, and the input form."""

from __future__ import annotations

import json
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from playhead.demo.licences import (
    Decision,
    Distribution,
    LicenceReviewInput,
    examine,
    groups,
    line,
    load_policy,
    markdown,
    report,
    sections,
    summary,
)
from playhead.demo.licences.report import escape

TODAY = date(2026, 6, 1)
POLICY = load_policy()
DISTS = [
    Distribution("ant", "2", "MPL-2.0"),
    Distribution("cat", "1", "GPL-3.0-or-later"),
    Distribution("dog", "", None, "B|SD*"),
    Distribution("gnu", "1", "MIT"),
]
FINDINGS = [examine(dist, POLICY, today=TODAY) for dist in DISTS]


def decided(*, approved: bool = True) -> dict[str, Decision]:
    return {group.id: Decision(approved=approved, digest=group.digest, decided_by="Kim") for group in groups(FINDINGS)}


def test_the_result_counts_and_is_plain_json():
    result = report(FINDINGS, decided(), policy=POLICY)
    assert json.loads(json.dumps(result)) == result
    assert result["counts"] == {
        "distributions": 4,
        "allowed": 1,
        "review": 2,
        "denied": 1,
        "with_spdx": 3,
        "with_license_expression": 3,
        "noassertion": 1,
    }
    assert result["reasons"] == {"unrecognised_text": 1}
    assert result["outcome"] == "approved"
    assert [row["status"] for row in result["exceptions"]] == ["approved"] * 3
    assert summary(result) == (
        "4 distributions: 1 allowed, 2 to review, 1 denied. 3 with an SPDX licence; 3 groups of exceptions: approved."
    )


def test_outcomes():
    assert report([FINDINGS[3]])["outcome"] == "clear"
    assert report([])["outcome"] == "clear"
    assert report(FINDINGS)["outcome"] == "undecided"
    first, *rest = decided()
    some = decided()
    del some[first]
    assert report(FINDINGS, some)["outcome"] == "undecided"
    some[first] = Decision(approved=False, digest=decided()[first].digest)
    assert report(FINDINGS, some)["outcome"] == "rejected"
    assert len(rest) == 2


def test_a_decision_about_other_distributions_does_not_count():
    stale = {key: Decision(approved=True, digest="0" * 64, decided_by="Kim") for key in decided()}
    result = report(FINDINGS, stale)
    assert result["outcome"] == "undecided"
    assert {(row["status"], row["decided_by"]) for row in result["exceptions"]} == {("stale", "")}


def test_the_pieces_are_whole_lines_and_add_up():
    result = report(FINDINGS, decided(), policy=POLICY)
    pieces = list(sections(result))
    assert len(pieces) >= 4 + len(FINDINGS)
    assert all(piece.endswith("\n") for piece in pieces)
    assert "".join(pieces) == markdown(result)
    assert (
        "| dog |  | NOASSERTION, unrecognised text, B\\|SD\\* | none | review (unknown:unrecognised\\_text) |"
        in pieces[-2]
    )
    assert "**approved** by Kim: cat 1\n" in markdown(result)


def test_a_line_about_a_finding():
    assert line(FINDINGS[0]) == "- ant 2: MPL-2.0 (from expression), review\n"
    assert line(FINDINGS[2]) == "- dog: NOASSERTION, unrecognised text, B\\|SD\\*, review\n"


@given(st.text(max_size=60), st.text(max_size=60))
def test_text_from_metadata_adds_no_markup(version, text):
    finding = examine(Distribution("x", version, None, text), POLICY, today=TODAY)
    table = markdown(report([finding])).split("| --- | --- | --- | --- | --- |\n")[1]
    assert table.count("\n") == 1
    assert table.replace("\\\\", "").replace("\\|", "").count("|") == 6
    assert line(finding).count("\n") == 1


@pytest.mark.parametrize("text", ["a|b", "<img src=x>", "[a](b)", "`code`", "# head", "a\nb\r\u2028c", "&lt;", "\\"])
def test_escape(text):
    shown = escape(text)
    assert "\n" not in shown
    assert "\u2028" not in shown
    assert shown.replace("\\", "") == " ".join(text.split()).replace("\\", "")


def test_every_input_has_a_default_and_a_place_in_the_form():
    empty = LicenceReviewInput.model_validate({})
    assert (empty.python, empty.policy, empty.limit, empty.require_approval) == (None, None, None, True)
    schema = LicenceReviewInput.model_json_schema()
    assert "required" not in schema
    assert schema["additionalProperties"] is False
    for prop in schema["properties"].values():
        assert prop["title"]
        assert prop["description"].endswith(".")
        assert "default" in prop


def test_a_form_left_alone_means_the_default():
    assert LicenceReviewInput.model_validate({"python": "", "policy": " ", "limit": ""}) == LicenceReviewInput()


@pytest.mark.parametrize(
    "wrong",
    [{"pace": -1}, {"pace": float("inf")}, {"limit": 0}, {"deadline_minutes": 0}, {"other": 1}, {"python": "x" * 2000}],
)
def test_wrong_inputs_are_refused(wrong):
    with pytest.raises(ValidationError):
        LicenceReviewInput.model_validate(wrong)
