"""Licences of installed Python distributions: read, normalized to SPDX, judged by a policy, reported.

Plain synchronous functions without a run, a store or a clock. The order of use:
`installed` → `examine` for each → `groups` → decisions → `report`.
"""

from playhead.demo.licences.errors import (
    ExpressionInvalid,
    LicencesError,
    PolicyInvalid,
    PolicyUnreadable,
    PythonUnusable,
)
from playhead.demo.licences.inputs import LicenceReviewInput
from playhead.demo.licences.normalize import NOASSERTION, Licence, Reason, Source, normalize
from playhead.demo.licences.policy import Outcome, Policy, PolicyException, Verdict, judge, load_policy, parse_policy
from playhead.demo.licences.read import Distribution, Problem, installed
from playhead.demo.licences.report import Decision, line, markdown, report, sections, summary
from playhead.demo.licences.review import ApprovalGroup, Finding, examine, groups

__all__ = [
    "NOASSERTION",
    "ApprovalGroup",
    "Decision",
    "Distribution",
    "ExpressionInvalid",
    "Finding",
    "Licence",
    "LicenceReviewInput",
    "LicencesError",
    "Outcome",
    "Policy",
    "PolicyException",
    "PolicyInvalid",
    "PolicyUnreadable",
    "Problem",
    "PythonUnusable",
    "Reason",
    "Source",
    "Verdict",
    "examine",
    "groups",
    "installed",
    "judge",
    "line",
    "load_policy",
    "markdown",
    "normalize",
    "parse_policy",
    "report",
    "sections",
    "summary",
]
