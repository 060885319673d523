"""Each oracle is silent about a true run, and speaks when one thing of it is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.scenarios import oracles
from tests.scenarios.oracles import Judged
from tests.scenarios.people import Shown, Viewer
from tests.support.reducer import Text

RUN = "01a2298d-d074-7599-bfda-1a60e741c070"
SNAPSHOT = {
    "status": "succeeded",
    "progress": 100,
    "current_step": None,
    "done": 2,
    "total": 2,
    "detail": "step 2",
    "attempt": 1,
    "version": 4,
}


def event(name: str, kind: str, **payload: Any) -> dict[str, Any]:
    return {"id": name, "type": kind, "payload": payload}


def true() -> Judged:
    history = [
        event(f"run:{RUN}:1", "run_queued"),
        event(f"run:{RUN}:2", "attempt_started", attempt=1, voids_attempts_before=1),
        event(f"{RUN}:1:1", "step_taken"),
        event(f"run:{RUN}:3", "approval_decided", interrupt_id="q"),
        event(f"run:{RUN}:4", "run_succeeded"),
    ]
    run = {"id": RUN, "status": "succeeded", "attempt": 1, "result": {"attempt": 1, "text": "Said."}}

    def shown() -> dict[str, Any]:
        return {
            "run": run,
            "snapshot": dict(SNAPSHOT),
            "events": list(history),
            "interrupts": [],
            "degraded": None,
            "timeline": {"complete": True},
        }

    viewer = Viewer([], RUN)
    viewer.screen.run, viewer.screen.snapshot = run, dict(SNAPSHOT)
    viewer.screen.events = {one["id"]: one for one in history}
    viewer.screen.text = {(1, "answer"): Text(5, "Said.", True)}
    viewer.protocol = [
        Shown("open"),
        *(Shown("event", f"9-{i}.aa", one["id"]) for i, one in enumerate(history[:3], 1)),
        Shown("open", "9-3.aa"),
        *(Shown("event", f"9-{i}.aa", one["id"]) for i, one in enumerate(history[3:], 4)),
        Shown("bootstrap", "9-5.aa"),
    ]
    viewer.marks = {"canary-1"}
    notes = [{"run": RUN, "attempt": 1, "n": 1}]
    return Judged(run, {"mark": "canary-1"}, history, [shown(), shown()], [viewer], notes)


def test_a_true_run_is_found_true() -> None:
    assert oracles.faults(true()) == []


def missed(one: Judged) -> None:
    del one.viewers[0].protocol[2]


def other_epoch(one: Judged) -> None:
    one.viewers[0].protocol[2] = Shown("event", "10-2.aa", "x")


def twice(one: Judged) -> None:
    one.viewers[0].protocol.insert(3, one.viewers[0].protocol[2])


def behind_the_bootstrap(one: Judged) -> None:
    one.viewers[0].protocol.append(Shown("event", "9-7.aa", "x"))


def screen_fault(one: Judged) -> None:
    one.viewers[0].screen.faults.append("something")


def old_state(one: Judged) -> None:
    one.viewers[0].screen.snapshot["progress"] = 50


def other_status(one: Judged) -> None:
    one.viewers[0].screen.run = None
    one.viewers[0].screen.snapshot["status"] = "running"


def unseen(one: Judged) -> None:
    del one.viewers[0].screen.events[f"{RUN}:1:1"]


def open_question(one: Judged) -> None:
    one.viewers[0].screen.interrupts = {"q": None}


def void_text(one: Judged) -> None:
    one.viewers[0].screen.text[(0, "answer")] = Text(1, "x")


def other_text(one: Judged) -> None:
    one.viewers[0].screen.text[(1, "answer")] = Text(4, "Sad.")


def gateways_differ(one: Judged) -> None:
    one.shown[1]["snapshot"]["done"] = 1


def two_ends(one: Judged) -> None:
    one.history.insert(4, event(f"run:{RUN}:9", "run_interrupted"))


def another_end(one: Judged) -> None:
    one.viewers[0].screen.events[f"run:{RUN}:4"] = event(f"run:{RUN}:4", "run_failed")


def stale_write(one: Judged) -> None:
    one.history.insert(2, event(f"run:{RUN}:7", "attempt_started", attempt=2))
    one.run["attempt"] = 2


def unknown_attempt(one: Judged) -> None:
    one.run["attempt"] = 3


def event_twice(one: Judged) -> None:
    one.history.insert(2, one.history[2])


def decided_twice(one: Judged) -> None:
    one.history.insert(4, event(f"run:{RUN}:8", "approval_decided", interrupt_id="q"))


def foreign_word(one: Judged) -> None:
    one.viewers[0].marks.add("canary-2")


def lost(one: Judged) -> None:
    one.notes.append({"run": RUN, "attempt": 1, "n": 2})


def hole(one: Judged) -> None:
    one.shown[0]["timeline"]["complete"] = False


@pytest.mark.parametrize(
    ("number", "change"),
    [
        ("I1, I2", missed), ("I1, I2", other_epoch), ("I1, I2", twice), ("I1, I2", behind_the_bootstrap),
        ("I1", screen_fault), ("I3", old_state), ("I3", other_status), ("I3", unseen), ("I3", open_question),
        ("I3", void_text), ("I3", other_text), ("I3", gateways_differ), ("I4", two_ends), ("I4", another_end),
        ("I5", stale_write), ("I5", unknown_attempt), ("I6", event_twice), ("I6", decided_twice),
        ("I7", foreign_word), ("I11", lost), ("I11", hole),
    ],
)  # fmt: skip
def test_one_thing_that_is_not_true_is_found(number: str, change: Callable[[Judged], None]) -> None:
    one = true()
    change(one)
    assert any(line.startswith(number) for line in oracles.faults(one)), oracles.faults(one)


def test_a_store_that_lost_something_may_leave_a_hole_that_says_so() -> None:
    one = true()
    one.went_back = one.may_lack = True
    one.notes.append({"run": RUN, "attempt": 1, "n": 0})  # before one that is there
    assert [line[:3] for line in oracles.faults(one)] == ["I11"]
    hole(one)
    assert oracles.faults(one) == []
    lost(one)  # behind the last one that is there
    assert oracles.faults(one) == []


@pytest.mark.parametrize(
    ("status", "code", "excused"),
    [
        ("succeeded", None, False),
        ("failed", "agent_error", False),
        ("failed", "attempts_exhausted", True),
        ("interrupted", "worker_lost", True),
    ],
)
def test_the_last_words_of_a_lost_attempt_alone_may_be_missed_by_nobody(
    status: str, code: str | None, excused: bool
) -> None:
    one = true()
    one.went_back = one.may_lack = True
    one.run["status"], one.run["error"] = status, {"code": code}
    lost(one)
    assert (oracles.kept(one) == []) is excused


def test_an_end_without_a_place_of_its_own_has_no_cursor_and_not_the_one_before_it() -> None:
    assert oracles.jumps([Shown("event", "9-1.aa", "a"), Shown("event", None, "b"), Shown("end")]) == []
    assert len(oracles.jumps([Shown("event", "9-1.aa", "a"), Shown("event", "9-1.aa", "b"), Shown("end")])) == 1


def test_what_a_lost_attempt_kept_while_the_live_store_was_away_may_go_with_it() -> None:
    one = true()
    one.notes.append({"run": RUN, "attempt": 0, "n": 9})
    assert [line[:3] for line in oracles.faults(one)] == ["I11"]
    one.was_away = True
    assert oracles.faults(one) == []
    lost(one)
    assert [line[:3] for line in oracles.faults(one)] == ["I11"]


def test_jumps_are_allowed_behind_a_resync_alone() -> None:
    protocol = [Shown("event", "9-1.aa", "a"), Shown("resync", said="epoch"), Shown("event", "10-4.aa", "b")]
    assert oracles.jumps(protocol) == []
    assert len(oracles.jumps([protocol[0], protocol[2]])) == 1


def test_logs_tell_no_payload_no_password_and_of_nothing_unforeseen() -> None:
    assert oracles.silent({"one": "WARNING no answer to a beat\n"}, ["hush"]) == []
    bad = "opening postgresql://me:hush@host\nrun canary-7 went\nTraceback (most recent call last):\n  File x\n"
    assert [line[:3] for line in oracles.silent({"one": bad}, ["hush"])] == ["I12"] * 3
