"""The result of a licence review: as JSON values, and as Markdown that can be streamed piece by piece."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from playhead.demo.licences.normalize import NOASSERTION, Source
from playhead.demo.licences.policy import Outcome, Policy
from playhead.demo.licences.review import ApprovalGroup, Finding, groups

_MARKUP = re.compile(r"([\\`*_\[\]<>|#~&!])")


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's answer about one approval group. `digest` is the group's digest at the time of the answer."""

    approved: bool
    digest: str
    decided_by: str = ""
    comment: str = ""


def report(
    findings: Sequence[Finding], decisions: Mapping[str, Decision] | None = None, *, policy: Policy | None = None
) -> dict[str, Any]:
    """Return the result of a review as JSON values. `decisions` maps the id of an approval group to its decision.

    - `outcome`: `clear` (nothing to approve), `approved`, `rejected` (at least one group) or `undecided`
    - `policy`: `{name, digest}` or null
    - `counts`: `distributions`, `allowed`, `review`, `denied`, `with_spdx`, `with_license_expression`, `noassertion`
    - `licences`: `[{spdx, count}]`, NOASSERTION among them, the most frequent first
    - `reasons`: `{reason: count}` of the distributions with NOASSERTION
    - `exceptions`: the approval groups (`ApprovalGroup.as_dict`) with `status`, `decided_by` and `comment`; a status is
      `approved`, `rejected`, `undecided`, or `stale` if the decision was about another set of distributions
    - `distributions`: each `Finding.as_dict`, sorted by name
    """
    exceptions = [_exception(group, (decisions or {}).get(group.id)) for group in groups(findings)]
    verdicts = Counter(f.verdict.outcome for f in findings)
    licences = Counter(f.licence.spdx for f in findings)
    return {
        "kind": "licence_review",
        "version": 1,
        "outcome": _outcome({row["status"] for row in exceptions}),
        "policy": None if policy is None else {"name": policy.name, "digest": policy.digest},
        "counts": {
            "distributions": len(findings),
            **{outcome.value: verdicts[outcome] for outcome in Outcome},
            "with_spdx": len(findings) - licences[NOASSERTION],
            "with_license_expression": sum(f.distribution.license_expression is not None for f in findings),
            "noassertion": licences[NOASSERTION],
        },
        "licences": [
            {"spdx": spdx, "count": count} for spdx, count in sorted(licences.items(), key=lambda kv: (-kv[1], kv[0]))
        ],
        "reasons": dict(sorted(Counter(f.licence.reason.value for f in findings if not f.licence.known).items())),
        "exceptions": exceptions,
        "distributions": [f.as_dict() for f in sorted(findings, key=lambda f: f.distribution.key)],
    }


def summary(result: Mapping[str, Any]) -> str:
    """Return two plain sentences about a result of `report`."""
    counts, waiting = result["counts"], len(result["exceptions"])
    need = f"{_count(waiting, 'group')} of exceptions: {result['outcome']}" if waiting else "nothing needs approval"
    judged = f"{counts['allowed']} allowed, {counts['review']} to review, {counts['denied']} denied"
    total = _count(counts["distributions"], "distribution")
    return f"{total}: {judged}. {counts['with_spdx']} with an SPDX licence; {need}."


def markdown(result: Mapping[str, Any]) -> str:
    """Return the whole Markdown text of a result of `report`."""
    return "".join(sections(result))


def sections(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the Markdown text of a result of `report` in pieces that end at line ends; `markdown` is their sum."""
    yield f"# Licence review\n\n{escape(summary(result))}\n"
    if result["policy"] is not None:
        yield f"\nPolicy: {escape(result['policy']['name'])}\n"
    if result["licences"]:
        yield "\n## Licences\n\n| licence | distributions |\n| --- | ---: |\n"
        yield "".join(f"| {escape(row['spdx'])} | {row['count']} |\n" for row in result["licences"])
    if result["exceptions"]:
        yield "\n## Exceptions\n"
    for row in result["exceptions"]:
        by = f" by {escape(row['decided_by'])}" if row["decided_by"] else ""
        comment = f" ({escape(row['comment'])})" if row["comment"] else ""
        members = ", ".join(escape(f"{m['name']} {m['version']}".strip()) for m in row["members"])
        yield f"\n### {escape(row['title'])}\n\n**{row['status']}**{by}{comment}: {members}\n"
    if result["distributions"]:
        yield "\n## Distributions\n\n| name | version | licence | from | verdict |\n| --- | --- | --- | --- | --- |\n"
    for row in result["distributions"]:
        cells = (row["name"], row["version"], _told(row), row["source"], f"{row['verdict']} ({row['rule']})")
        yield f"| {' | '.join(map(escape, cells))} |\n"


def line(finding: Finding) -> str:
    """Return one line of Markdown about a finding, for a text that grows while distributions are read."""
    row = finding.as_dict()
    name = escape(f"{row['name']} {row['version']}".strip())
    source = "" if finding.licence.source is Source.NONE else f" (from {row['source']})"
    return f"- {name}: {escape(_told(row))}{source}, {row['verdict']}\n"


def escape(text: str) -> str:
    """Return a text from outside as Markdown that shows it as it is, on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def _told(row: Mapping[str, str]) -> str:
    if row["spdx"] != NOASSERTION:
        return row["spdx"]
    return ", ".join(filter(None, (NOASSERTION, row["reason"].replace("_", " "), row["detail"])))


def _exception(group: ApprovalGroup, decision: Decision | None) -> dict[str, Any]:
    status = "undecided"
    if decision is not None:
        status = "approved" if decision.approved else "rejected"
        if decision.digest != group.digest:
            status = "stale"
    counted = decision if decision is not None and status != "stale" else Decision(approved=False, digest="")
    return {
        **group.as_dict(),
        "status": status,
        "decided_by": counted.decided_by,
        "comment": counted.comment,
    }


def _outcome(statuses: set[str]) -> str:
    if not statuses:
        return "clear"
    if "rejected" in statuses:
        return "rejected"
    return "approved" if statuses == {"approved"} else "undecided"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
