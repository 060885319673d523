"""What must be true of every run once all faults are over: the record, every gateway and every viewer say the same.

Each oracle gives the faults that it finds, a line each, with its number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.scenarios.people import Shown, Viewer
from tests.support.reducer import FINALS

LOST = ("attempts_exhausted",)  # why a run failed that was ended for its attempt
PLAIN = ("status", "attempt")
SEEN = (*PLAIN, "progress", "current_step", "done", "total", "detail")  # these an attempt tells the record with its end


@dataclass
class Judged:
    """A run that is over, as everybody has it.

    `went_back`: for a while the live store told of an earlier moment. `may_lack`: it lost what was nowhere else yet.
    `was_away`: somebody could not reach it for a while, so that text may end early; the result replaces that.
    """

    run: dict[str, Any]  # of the record
    given: dict[str, Any]  # what was asked for
    history: list[dict[str, Any]]  # all events, oldest first
    shown: list[dict[str, Any]]  # the bootstraps of all gateways
    viewers: Sequence[Viewer]
    notes: list[dict[str, Any]] = field(default_factory=list)  # of its agent
    went_back: bool = False
    may_lack: bool = False
    was_away: bool = False

    @property
    def complete(self) -> bool:
        return all(one["timeline"]["complete"] for one in self.shown)


def faults(judged: Judged) -> list[str]:
    found: list[str] = []
    for viewer in judged.viewers:
        found += jumps(viewer.protocol)
        found += alike(judged, viewer)
        found += own(judged, viewer)
        if not judged.went_back:
            found += [f"I1: {one}" for one in viewer.screen.faults]
    found += gateways_agree(judged)
    found += one_end(judged)
    found += fenced(judged)
    found += once(judged)
    found += kept(judged)
    return found


def place(cursor: str) -> tuple[int, int]:
    """A client may not look into a cursor; a judge of the server may."""
    epoch, _, rest = cursor.partition("-")
    return int(epoch), int(rest.partition(".")[0])


def jumps(protocol: Sequence[Shown]) -> list[str]:
    """I1, I2: within an epoch each event follows the one before, unless a resync or a bootstrap lies between.

    The end of a run whose timeline is gone has no cursor.
    """
    found: list[str] = []
    at: tuple[int, int] | None = None
    for one in protocol:
        if one.what == "resync":
            at = None
        elif one.what == "bootstrap":
            at = None if one.cursor is None else place(one.cursor)
        elif one.what == "event" and one.cursor is not None:
            here = place(one.cursor)
            if at is not None and here != (at[0], at[1] + 1):
                found.append(f"I1, I2: {one.said} is at {here}, and what was shown before at {at}")
            at = here
    return found


def alike(judged: Judged, viewer: Viewer) -> list[str]:
    """I3: what a viewer has on the screen is what a gateway shows, and what the record says."""
    screen, shown, run = viewer.screen, judged.shown[0], judged.run
    found = []
    if screen.status != run["status"]:
        found.append(f"I3: a viewer shows {screen.status}, the record says {run['status']}")
    for name in SEEN if _ended_by_itself(run) or not judged.may_lack else PLAIN:
        if screen.snapshot.get(name) != shown["snapshot"][name]:
            found.append(f"I3: {name} is {screen.snapshot.get(name)!r} for a viewer, {shown['snapshot'][name]!r} else")
    if list(screen.events) != [event["id"] for event in judged.history] and not judged.may_lack:
        told = [event["id"] for event in judged.history]
        found.append(f"I3: a viewer has the events {list(screen.events)}, the timeline {told}")
    if judged.history and list(screen.events)[-1:] != [judged.history[-1]["id"]]:
        found.append("I3: a viewer has another last event")
    # What an attempt could not send goes to the archive with its end, a moment later. The screen says that it lacks it.
    lost = {event["id"] for event in judged.history} - screen.events.keys()
    if lost and (screen.complete or not judged.may_lack):
        found.append(f"I3: a viewer never saw {sorted(lost)}")
    if screen.interrupts:
        found.append(f"I3: a viewer has open questions: {screen.interrupts}")
    texts = screen.shown_text()
    if texts.keys() - {run["attempt"]}:
        found.append(f"I3: text of {sorted(texts)} is shown, and attempt {run['attempt']} is the last one")
    if run["status"] == "succeeded" and run["attempt"] in texts:
        text, whole = texts[run["attempt"]], run["result"]["text"]
        if not whole.startswith(text) or (text != whole and not judged.was_away):
            found.append(f"I3: the text is {text!r}, the result {whole!r}")
    return found


def own(judged: Judged, viewer: Viewer) -> list[str]:
    """I7: nothing of another run came to this viewer."""
    strange = viewer.marks - {judged.given["mark"]}
    return [f"I7: a viewer of {judged.run['id']} was shown {sorted(strange)}"] if strange else []


def gateways_agree(judged: Judged) -> list[str]:
    """I3: every gateway shows the same."""
    views = [
        (
            one["run"]["status"],
            one["run"]["result"],
            {name: one["snapshot"][name] for name in SEEN},
            [event["id"] for event in one["events"]],
            one["interrupts"],
            one["degraded"],
        )
        for one in judged.shown
    ]
    return [f"I3: gateways differ: {views[0]} and {other}" for other in views[1:] if other != views[0]]


def one_end(judged: Judged) -> list[str]:
    """I4: one final event, the record's, in the timeline and for every viewer."""
    found = []
    wanted = [f"run_{judged.run['status']}"]
    ends = [event["type"] for event in judged.history if event["type"] in FINALS]
    if ends != wanted or judged.history[-1]["type"] != wanted[0]:
        found.append(f"I4: the timeline ends with {ends}, the record with {judged.run['status']}")
    for viewer in judged.viewers:
        if viewer.screen.finals != wanted:
            found.append(f"I4: a viewer saw the ends {viewer.screen.finals}, the record has {judged.run['status']}")
    return found


def fenced(judged: Judged) -> list[str]:
    """I5: along the timeline no attempt writes after a later one has begun."""
    found, newest = [], 0
    for event in judged.history:
        parts = event["id"].split(":")
        token = newest if parts[0] == "run" else int(parts[1])  # facts are the record's
        if event["type"] == "attempt_started":
            token = event["payload"]["attempt"]
        if token < newest:
            found.append(f"I5: {event['id']} of attempt {token} comes after attempt {newest} began")
        newest = max(newest, token)
    if newest != judged.run["attempt"]:
        found.append(f"I5: the timeline knows {newest} attempts, the record {judged.run['attempt']}")
    return found


def once(judged: Judged) -> list[str]:
    """I6: no event twice, and one decision to a question."""
    found = [f"I6: {name} is there {n} times" for name, n in _more_than_one(event["id"] for event in judged.history)]
    decided = (event["payload"]["interrupt_id"] for event in judged.history if event["type"] == "approval_decided")
    return found + [f"I6: {name} was decided {n} times" for name, n in _more_than_one(decided)]


def kept(judged: Judged) -> list[str]:
    """I11, I6: what an agent was told is shown is in the history, unless that says itself that it has a hole."""
    # With the live store away an attempt keeps what it says, and if it is lost itself, that ends with it.
    last = judged.run["attempt"] if judged.run["status"] != "interrupted" else None
    told = {
        f"{note['run']}:{note['attempt']}:{note['n']}"
        for note in judged.notes
        if "n" in note and (note["attempt"] == last or not judged.was_away)
    }
    history = {event["id"] for event in judged.history}
    lost = told - history
    found = []
    # An attempt that ended by itself told the record how much it had said. One that was lost could not: what it said
    # last may be missed by nobody.
    known = {one for one in lost if _told_its_end(judged, one) or any(_behind(other, one) for other in history)}
    if lost and (not judged.may_lack or (known and judged.complete)):
        found.append(f"I11: {sorted(lost)} were acknowledged and are not there; complete: {judged.complete}")
    if not judged.complete and not judged.may_lack:
        found.append("I11: the timeline says that it has a hole, and nothing was lost")
    return found


def _told_its_end(judged: Judged, name: str) -> bool:
    """Whether the attempt that published this event ended the run with its own words."""
    _, attempt, _ = name.rsplit(":", 2)
    return _ended_by_itself(judged.run) and int(attempt) == judged.run["attempt"]


def _ended_by_itself(run: dict[str, Any]) -> bool:
    return run["status"] == "succeeded" or (run["status"] == "failed" and run["error"]["code"] not in LOST)


def _behind(one: str, other: str) -> bool:
    """Whether both are of the same attempt, this one later."""
    (series, _, number), (its, _, before) = one.rpartition(":"), other.rpartition(":")
    return series == its and int(number) > int(before)


def silent(logs: dict[str, str], secrets: Sequence[str]) -> list[str]:
    """I12: no log line tells a payload or a password, and nothing failed that nobody had thought of."""
    found = []
    for name, log in logs.items():
        lines = log.splitlines()
        found += [f"I12: {name} logged {one!r}" for one in secrets if one in log]
        found += [f"I12: {name} logged a payload: {line}" for line in lines if MARKED in line]
        if "Traceback" in log:
            start = next(i for i, line in enumerate(lines) if line.startswith("Traceback"))
            found.append(f"I12: {name} failed: " + "\n".join(lines[max(0, start - 2) : start + 40]))
    return found


MARKED = "canary-"


def _more_than_one(names: Any) -> list[tuple[str, int]]:
    return [(name, n) for name, n in Counter(names).items() if n > 1]
