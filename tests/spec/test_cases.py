"""The wire cases are well formed, and what a server says in them is what a server may say."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from playhead.core import sse
from tests.gateway.test_spec import SCHEMAS, check

FOLDER = Path(__file__).parents[2] / "spec" / "cases"
CASES = [(path.stem, json.loads(path.read_text())) for path in sorted(FOLDER.glob("*.json"))]
each_case = pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES])
EACH_FRAME = {"message", *sse.CONTROL_NAMES} - {"refused"}  # which is of streams of several runs


def streams(case: dict[str, Any]) -> list[str]:
    return [step["stream"] for step in case["steps"] if "stream" in step]


def frames(stream: str) -> list[dict[str, Any]]:
    """Parsed, with the id that each block sets by itself."""
    told = []
    for block in stream.split("\n\n"):
        for frame in sse.Parser().feed(block.encode() + b"\n\n"):
            one: dict[str, Any] = {"event": frame.event, "data": json.loads(frame.data)}
            told.append(one if frame.id is None else {**one, "id": frame.id})
    return told


def events_in(document: Any) -> Iterator[dict[str, Any]]:
    """Every event, however deep it lies."""
    if isinstance(document, dict):
        if {"occurred_at", "type", "payload"} <= document.keys():
            yield document
        document = list(document.values())
    if isinstance(document, list):
        for one in document:
            yield from events_in(one)


@each_case
def test_every_case_is_of_the_form(case: dict[str, Any], request: pytest.FixtureRequest) -> None:
    check("case", case)
    assert request.node.callspec.id == case["name"]
    for event in events_in(case["steps"]):
        check(f"events/{event['type']}" if f"events/{event['type']}" in SCHEMAS else "event", event)
    assert case["says"].endswith(".")


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES if "lenient" not in case])
def test_every_frame_is_one_that_a_server_may_send(case: dict[str, Any]) -> None:
    for stream in streams(case):
        whole = stream if stream.endswith("\n\n") else stream[: stream.rindex("\n\n") + 2]
        told = frames(whole)
        assert len(told) == len(sse.Parser().feed(whole.encode()))
        for frame in told:
            check("frames", frame)
            for event in events_in(frame["data"]):
                check(f"events/{event['type']}" if f"events/{event['type']}" in SCHEMAS else "event", event)


def test_every_frame_reason_and_step_is_in_some_case() -> None:
    seen: Counter[str] = Counter()
    for _, case in CASES:
        seen.update(name for step in case["steps"] for name in step)
        if "lenient" not in case:
            for frame in (one for stream in streams(case) for one in frames(stream[: stream.rindex("\n\n") + 2])):
                seen[frame["event"]] += 1
                if frame["event"] == "resync_required":
                    seen[f"{frame['data']['reason']} {'inline' if 'bootstrap' in frame['data'] else ''}"] += 1
    assert set(seen) >= EACH_FRAME | {"bootstrap", "stream", "status", "older"}
    assert {f"{reason} inline" for reason in ("malformed", "epoch", "ahead", "expired", "foreign")} <= set(seen)
    assert len(CASES) >= 40
