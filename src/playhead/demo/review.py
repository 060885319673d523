"""The agent `licence_review`: what is installed, under which licences, and may it stay.

It can be started again at any time. Each attempt reads and judges anew; questions are named by what they are about
and bound to their content, so a decision given to an earlier attempt is found again and asked for only if the
distributions that it was about have changed.
"""

from __future__ import annotations

import asyncio
import platform
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from playhead.agents import RunContext, agent
from playhead.demo.licences import (
    ApprovalGroup,
    Decision,
    Distribution,
    Finding,
    LicenceReviewInput,
    Outcome,
    Policy,
    examine,
    groups,
    installed,
    line,
    load_policy,
    report,
    sections,
    summary,
)

# Progress is what a person waits for: reading is short, judging is most of it, the rest is up to the reviewer.
_READ, _JUDGED, _DECIDED = 4, 80, 95
_PIECE_PAUSE = 0.02  # seconds at most between two pieces of the report


@agent(name="licence_review", title="Licence review", resumable=True)
async def licence_review(run: RunContext, options: LicenceReviewInput) -> dict[str, Any]:
    """Reads the licences of installed Python distributions, applies a policy, asks a person to approve the
    exceptions and writes a report."""
    today = date.today()  # noqa: DTZ011 - a policy's exceptions end with the day of whoever runs the review
    await run.update(
        title="Licence review",
        subtitle="Which licences the installed distributions have",
        scope=_scope(options.python),
        as_of=today.isoformat(),
        current_step="collect_distributions",
        progress=0,
        next_action="Read what is installed",
    )
    distributions = (await asyncio.to_thread(installed, options.python))[: options.limit]
    await run.event(
        "distributions_collected",
        {"count": len(distributions)},
        current_step="load_policy",
        progress=_READ / 2,
        done=0,
        total=len(distributions),
        next_action="Load the policy",
    )
    policy = await asyncio.to_thread(load_policy, options.policy)
    await run.event(
        "policy_loaded",
        {
            "name": policy.name,
            "digest": policy.digest,
            "rules": len(policy.rules),
            "exceptions": len(policy.exceptions),
        },
        subtitle=f"{_count(len(distributions), 'distribution')} under the policy {policy.name}",
        progress=_READ,
    )
    findings = await _judge(run, distributions, policy, today=today, pace=options.pace)
    decisions = await _decide(run, findings, options)
    return await _write(run, findings, decisions, policy, pace=options.pace)


async def _judge(
    run: RunContext, distributions: Sequence[Distribution], policy: Policy, *, today: date, pace: float
) -> list[Finding]:
    total = len(distributions)
    await run.event(
        "licences_started", {"count": total}, current_step="apply_policy", next_action="Judge each distribution"
    )
    findings: list[Finding] = []
    for number, distribution in enumerate(distributions, 1):
        await run.update(detail=f"{distribution.name} {distribution.version}".strip())
        finding = await asyncio.to_thread(examine, distribution, policy, today=today)
        findings.append(finding)
        await run.text(line(finding), "findings")
        await run.update(done=number, progress=round(_READ + (_JUDGED - _READ) * number / total, 1))
        await asyncio.sleep(pace)
    await run.close_text("findings")
    verdicts = Counter(finding.verdict.outcome for finding in findings)
    await run.event(
        "licences_applied",
        {"count": total, **{outcome.value: verdicts[outcome] for outcome in Outcome}},
        progress=_JUDGED,
        detail=None,
    )
    return findings


async def _decide(run: RunContext, findings: Sequence[Finding], options: LicenceReviewInput) -> dict[str, Decision]:
    """The decisions by group, without those that nobody took in time."""
    exceptions = groups(findings)
    denied = sum(group.outcome is Outcome.DENIED for group in exceptions)
    await run.event(
        "exceptions_found", {"groups": len(exceptions), "denied": denied, "review": len(exceptions) - denied}
    )
    decisions: dict[str, Decision] = {}
    if not options.require_approval:
        return decisions
    for number, group in enumerate(exceptions):
        left = len(exceptions) - number
        await run.update(
            current_step="wait_for_reviewer",
            progress=round(_JUDGED + (_DECIDED - _JUDGED) * number / len(exceptions), 1),
            detail=group.title,
            next_action=f"Wait for a reviewer: {_count(left, 'group')}",
        )
        decision = await _ask(run, group, options.deadline_minutes * 60)
        if decision is not None:
            decisions[group.id] = decision
    return decisions


async def _ask(run: RunContext, group: ApprovalGroup, deadline: float) -> Decision | None:
    answer = await run.ask(group.as_dict(), key=group.id, deadline=deadline, on_deadline="return")
    # Each attempt notes which answer it went by.
    await run.audit(
        "licence_exception",
        {
            "group": group.id,
            "digest": group.digest,
            "approved": answer.approved,
            "expired": answer.expired,
            "by": answer.by,
            "note": answer.note,
        },
    )
    if answer.expired:
        return None
    return Decision(answer.approved, group.digest, answer.by or "", answer.note or "")


async def _write(
    run: RunContext, findings: Sequence[Finding], decisions: dict[str, Decision], policy: Policy, *, pace: float
) -> dict[str, Any]:
    result = report(findings, decisions, policy=policy)
    await run.update(current_step="write_report", progress=_DECIDED, detail=None, next_action="Write the report")
    pieces: list[str] = []
    for piece in sections(result):
        pieces.append(piece)
        await run.text(piece)
        await asyncio.sleep(min(pace, _PIECE_PAUSE))
    await run.close_text()
    text = "".join(pieces)
    await run.event(
        "report_written",
        {"outcome": result["outcome"], "characters": len(text)},
        progress=100,
        detail=summary(result),
        next_action=None,
    )
    return {**result, "markdown": text}


def _scope(python: str | None) -> str:
    """Which environment, without a path."""
    if python is None:
        return f"This environment, Python {platform.python_version()}"
    return f"The environment of {Path(python).name[:100]}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
