"""The licence review as a run: what it tells, what it asks, and that it can be started again."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import playhead
from playhead.core.snapshot import STATE_FIELDS
from playhead.demo import agents
from playhead.demo.licences import examine, groups, installed, load_policy
from playhead.demo.review import licence_review
from playhead.settings import Settings
from playhead.testing import run_agent

pytestmark = pytest.mark.anyio

STORY = (
    "run_queued",
    "run_started",
    "attempt_started",
    "distributions_collected",
    "policy_loaded",
    "licences_started",
    "licences_applied",
    "exceptions_found",
)
STRICT = 'name = "Nothing"\nallow = ["MIT"]\ndeny = ["BSD-3-Clause"]\n'
QUICK: dict[str, Any] = {"lease": 2.0, "beat": 0.5, "reconcile": 0.1, "drain_window": 0.1, "drain_grace": 0.5}


@pytest.fixture
def policy(tmp_path: Path) -> str:
    """A policy under which there is something to ask about, whatever is installed here."""
    path = tmp_path / "policy.toml"
    path.write_text(STRICT)
    return str(path)


def asked_for(policy: str) -> list[str]:
    rules, today = load_policy(policy), date(2026, 1, 1)  # the policy has no exceptions that could end
    return [group.id for group in groups(examine(one, rules, today=today) for one in installed())]


async def test_it_tells_its_story_and_writes_its_report(policy):
    ran = await run_agent(licence_review, {"pace": 0, "policy": policy}, decisions=lambda asked: True)
    count, questions = len(installed()), asked_for(policy)
    assert len(questions) > 1
    assert ran.error is None
    assert ran.types == [
        *STORY,
        *["approval_required", "approval_decided"] * len(questions),
        "report_written",
        "run_succeeded",
    ]
    assert [asked["key"] for asked in ran.interrupts] == questions
    assert ran.result["outcome"] == "approved"
    assert ran.result["counts"]["distributions"] == count
    assert ran.result["markdown"] == ran.text["answer"]
    assert ran.text["answer"].startswith("# Licence review\n")
    assert len(ran.text["findings"].splitlines()) == count
    assert {row["decided_by"] for row in ran.result["exceptions"]} == {"test"}


async def test_every_field_of_the_snapshot_says_something_at_some_time(policy):
    ran = await run_agent(licence_review, {"pace": 0.01, "policy": policy}, decisions=lambda asked: True)
    seen = {name for snapshot in ran.snapshots for name, value in snapshot.items() if value is not None}
    assert {*STATE_FIELDS, "status", "attempt", "version", "rev", "started_at", "heartbeat_at", "updated_at"} <= seen
    progress = [snapshot["progress"] for snapshot in ran.snapshots if snapshot["progress"] is not None]
    assert progress == sorted(progress)
    assert progress[-1] == 100
    waits = {snapshot["next_action"] for snapshot in ran.snapshots if snapshot["status"] == "waiting"}
    left = len(asked_for(policy))
    assert f"Wait for a reviewer: {left} groups" in waits
    assert "Wait for a reviewer: 1 group" in waits


async def test_no_distribution_is_an_event_and_no_path_is_shown(policy):
    ran = await run_agent(licence_review, {"pace": 0, "policy": policy, "python": sys.executable}, decisions={})
    assert len(ran.events) < 30 + 2 * len(ran.interrupts)
    told = json.dumps([ran.events, ran.snapshots, ran.interrupts, ran.text, ran.result])
    for path in (policy, sys.executable, sys.prefix, str(Path.home()) + "/"):
        assert path not in told
    assert ran.snapshots[-1]["scope"] == f"The environment of {Path(sys.executable).name}"


async def test_a_rejection_and_a_missing_answer_are_told_apart(policy):
    questions = asked_for(policy)
    answers = dict.fromkeys(questions[1:], True) | {questions[0]: playhead.Decision(approved=False, note="Not this.")}
    ran = await run_agent(licence_review, {"pace": 0, "policy": policy}, decisions=answers)
    first = ran.result["exceptions"][0]
    assert (ran.result["outcome"], first["status"], first["comment"]) == ("rejected", "rejected", "Not this.")
    del answers[questions[0]]
    ran = await run_agent(licence_review, {"pace": 0, "policy": policy}, decisions=answers)
    assert (ran.result["outcome"], ran.result["exceptions"][0]["status"]) == ("undecided", "undecided")
    assert ran.types.count("approval_expired") == 1


async def test_without_approval_nothing_is_asked(policy):
    ran = await run_agent(licence_review, {"pace": 0, "policy": policy, "require_approval": False, "limit": 3})
    assert ran.types == [*STORY, "report_written", "run_succeeded"]
    assert ran.result["counts"]["distributions"] == 3
    assert ran.interrupts == []


@pytest.mark.parametrize(
    ("given", "code"), [({"policy": "absent.toml"}, "policy_unreadable"), ({"python": "/bin/sh"}, "python_unusable")]
)
async def test_unusable_input_ends_the_run_with_its_reason(given, code):
    ran = await run_agent(licence_review, {"pace": 0, **given})
    assert ran.status == "failed"
    assert ran.error is not None
    assert ran.error["code"] == code


async def test_a_later_attempt_goes_by_the_decisions_already_given(policy, tmp_path):
    settings = Settings.load(data=tmp_path / "data", environ={}, **QUICK)
    questions = asked_for(policy)
    async with playhead.App([licence_review], settings=settings) as app:
        run = await app.start(licence_review, {"pace": 0, "policy": policy})
        first = await question(app, run.id, questions[0])
        await app.engine.decide("local", run.id, first, {"approved": True, "note": "Once."}, by="Kim")
        await question(app, run.id, questions[1])
    async with playhead.App([licence_review], settings=settings) as app:
        for key in questions[1:]:
            asked = await question(app, run.id, key)
            await app.engine.decide("local", run.id, asked, {"approved": True}, by="Lee")
        ended = await app.wait(run.id)
        every = await app.engine.ports.record.interrupts("local", run.id, open_only=False)
        audit = await app.engine.ports.record.audit("local", run.id)
    assert ended.token > 1
    assert [one.key for one in every] == questions  # each was asked once, over both attempts
    result = json.loads(ended.result or b"null")
    assert result["outcome"] == "approved"
    assert [row["decided_by"] for row in result["exceptions"]] == ["Kim", *["Lee"] * (len(questions) - 1)]
    assert result["exceptions"][0]["comment"] == "Once."
    noted = [entry for entry in audit if entry.kind == "licence_exception"]
    assert len(noted) == len(questions) + 1  # the first by both attempts


async def question(app: playhead.App, run_id: str, key: str) -> str:
    """The id of the open question with this key, once there is an attempt that waits for it."""
    async with asyncio.timeout(30):
        while True:
            for one in await app.engine.interrupts("local", run_id):
                if one.key == key and one.token == (await app.get(run_id)).token and app.engine.attempts.all():
                    return one.id
            await asyncio.sleep(0.02)


def test_the_demo_names_its_agents_and_imports_them_late():
    assert [one.name for one in agents()] == ["licence_review"]
    assert licence_review.policy.resumable
    script = (
        "import sys, playhead.demo; sys.exit(any(name.startswith('playhead.demo.licences') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
