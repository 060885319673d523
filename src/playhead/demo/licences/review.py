"""Put reading, normalizing and judging together, and group what a person has to approve."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from playhead.demo.licences.normalize import Licence, normalize
from playhead.demo.licences.policy import Outcome, Policy, Verdict, judge
from playhead.demo.licences.read import Distribution


@dataclass(frozen=True, slots=True)
class Finding:
    """One distribution with its licence and the policy's verdict."""

    distribution: Distribution
    licence: Licence
    verdict: Verdict

    def as_dict(self) -> dict[str, str]:
        """Return name, version, spdx, source, reason, detail, verdict, rule and note, each a text."""
        return {
            "name": self.distribution.name,
            "version": self.distribution.version,
            "spdx": self.licence.spdx,
            "source": self.licence.source.value,
            "reason": self.licence.reason.value,
            "detail": self.licence.detail,
            "verdict": self.verdict.outcome.value,
            "rule": self.verdict.rule,
            "note": self.verdict.note,
        }


@dataclass(frozen=True, slots=True)
class ApprovalGroup:
    """Distributions that need one and the same approval.

    `subject` is the SPDX expression they share, or for NOASSERTION the reason with what it is about. `id` depends on
    the verdict and the subject alone, so it is the same in every run. `digest` is the SHA-256 of the members' names,
    versions and licences: an approval holds for exactly these, and not for a group that has changed since.
    """

    id: str
    outcome: Outcome
    subject: str
    members: tuple[Finding, ...]
    digest: str

    @property
    def title(self) -> str:
        """A line that asks for the approval."""
        count = len(self.members)
        verb = "denies" if self.outcome is Outcome.DENIED else "wants a look at"
        return f"The policy {verb} {self.subject}: {count} distribution{'' if count == 1 else 's'}"

    def as_dict(self) -> dict[str, object]:
        """Return id, verdict, subject, title, digest and members (see `Finding.as_dict`) as JSON values."""
        return {
            "id": self.id,
            "verdict": self.outcome.value,
            "subject": self.subject,
            "title": self.title,
            "digest": self.digest,
            "members": [member.as_dict() for member in self.members],
        }


def examine(distribution: Distribution, policy: Policy, *, today: date) -> Finding:
    """Return the finding for one distribution. Never raises."""
    licence = normalize(distribution)
    return Finding(distribution, licence, judge(licence, policy, package=distribution.name, today=today))


def groups(findings: Iterable[Finding]) -> list[ApprovalGroup]:
    """Return the groups to be approved: every finding that is not allowed is in exactly one.

    Denied ones come first, then larger ones, then by subject; the order of `findings` does not matter.
    """
    parts: dict[tuple[Outcome, str], list[Finding]] = {}
    for finding in findings:
        if finding.verdict.outcome is not Outcome.ALLOWED:
            parts.setdefault((finding.verdict.outcome, _subject(finding.licence)), []).append(finding)
    made = [_group(outcome, subject, members) for (outcome, subject), members in parts.items()]
    return sorted(made, key=lambda g: (g.outcome is not Outcome.DENIED, -len(g.members), g.subject))


def _subject(licence: Licence) -> str:
    if licence.known:
        return licence.spdx
    reason = licence.reason.value.replace("_", " ")
    # One approval for every ambiguous classifier would let a GPL through with the BSDs.
    return f"{reason}: {licence.detail}" if licence.detail else reason


def _group(outcome: Outcome, subject: str, members: list[Finding]) -> ApprovalGroup:
    ordered = tuple(sorted(members, key=lambda m: (m.distribution.key, m.distribution.version)))
    slug = re.sub(r"[^a-z0-9.+]+", "-", subject.lower()).strip("-")[:40]
    # The slug is for people and may be cut; the hash keeps two subjects apart.
    mark = hashlib.sha256(f"{outcome}\n{subject}".encode()).hexdigest()[:8]
    return ApprovalGroup(f"{outcome}-{slug}-{mark}", outcome, subject, ordered, _digest(ordered))


def _digest(members: Iterable[Finding]) -> str:
    rows = sorted([m.distribution.key, m.distribution.version, m.licence.spdx] for m in members)
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()
