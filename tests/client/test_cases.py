"""The wire cases, in full, however their streams are cut."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from playhead.client.frames import read
from playhead.client.reducer import MAX_EVENTS, Reducer
from playhead.core.sse import Parser

CASES = sorted((Path(__file__).parents[2] / "spec" / "cases").glob("*.json"))


def chunks(body: bytes, cuts: list[int]) -> Iterator[bytes]:
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        yield body[start:end]


def play(case: dict[str, Any], cut: Any = lambda body: []) -> Reducer:
    reducer = Reducer(case["run"], max_events=case.get("options", {}).get("max_events", MAX_EVENTS))
    for step in case["steps"]:
        match step:
            case {"bootstrap": told}:
                reducer.bootstrap(told)
            case {"stream": stream}:
                reducer.opened()
                parser = Parser(last_event_id=reducer.cursor)
                body = stream.encode()
                for chunk in chunks(body, cut(body)):
                    for frame in map(read, parser.feed(chunk)):
                        if frame is not None:
                            reducer.frame(frame)
            case {"status": 204}:
                reducer.nothing_follows()
            case {"older": page}:
                reducer.older(page)
    return reducer


def shown(reducer: Reducer) -> dict[str, Any]:
    """The view as JSON."""
    view = reducer.view
    of_text = ("part", "attempt", "end", "text", "final", "truncated")
    return {
        "run": view.run,
        "snapshot": view.snapshot,
        "events": [event["id"] for event in view.events],
        "timeline": {name: getattr(view.timeline, name) for name in ("complete", "has_older", "oldest")},
        "text": [{name: getattr(part, name) for name in of_text} for part in view.text],
        "interrupts": list(view.interrupts),
        "cursor": view.cursor,
        "degraded": view.degraded,
        "over": reducer.over,
        "reopen": reducer.reopen,
    }


def differences(said: Any, found: Any, place: str = "view") -> list[str]:
    """Where what is found does not hold what is said."""
    if isinstance(said, dict) and isinstance(found, dict):
        missing = [f"{place}.{name} is missing" for name in said.keys() - found.keys()]
        both = [(said[name], found[name], f"{place}.{name}") for name in said.keys() & found.keys()]
    elif isinstance(said, list) and isinstance(found, list) and len(said) == len(found):
        missing = []
        both = [(*pair, f"{place}[{n}]") for n, pair in enumerate(zip(said, found, strict=True))]
    else:
        return [] if said == found and type(said) is type(found) else [f"{place} is {found!r}, not {said!r}"]
    return missing + [line for one in both for line in differences(*one)]


each_case = pytest.mark.parametrize("case", [pytest.param(json.loads(p.read_text()), id=p.stem) for p in CASES])


@each_case
def test_it_ends_in_the_view_that_the_case_says(case: dict[str, Any]) -> None:
    assert differences(case["view"], shown(play(case))) == []


@each_case
def test_it_ends_in_the_same_view_wherever_its_streams_are_cut(case: dict[str, Any]) -> None:
    whole = shown(play(case))
    assert shown(play(case, lambda body: list(range(1, len(body))))) == whole
    chance = random.Random(case["name"])
    for _ in range(20):
        assert shown(play(case, lambda body: sorted(chance.sample(range(len(body)), min(len(body), 7))))) == whole
