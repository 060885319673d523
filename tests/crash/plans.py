"""Which moments a run of the tests kills at: chosen by the seed, so that they rotate with the commits."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

from tests.plugins.histories import seed
from tests.support.killable import POINTS

# How many passages of each place the work of one pair of runs is sure to make.
PASSAGES = {
    "before_commit": 9,
    "after_commit": 9,
    "projected": 40,
    "text": 30,
    "waiting": 2,
    "archive": 2,
    "drain": 12,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """Kill at the n-th passage of a place; at `random`, `seconds` after the work began; `drain` begins then."""

    name: str
    point: str
    nth: int
    seconds: float
    archive: str
    cancels: bool  # whether a third run is cancelled meanwhile
    chance: int


def plans() -> list[Plan]:
    count = int(os.environ.get("PLAYHEAD_KILLS", "14"))
    each = count // 7 if count < 60 else count // 10
    found = []
    for i in range(count):
        point = POINTS[i % 7] if i < 7 * each else "random"
        chance = random.Random(f"{seed()} {i}")
        archive = chance.choice(["async", "async", "sync"])
        most = PASSAGES.get(point, 1) * (5 if (point, archive) == ("archive", "sync") else 1)
        found.append(
            Plan(
                name=f"{point}-{i // 7 + 1 if point != 'random' else i - 7 * each + 1}",
                point=point,
                nth=chance.randint(1, most),
                seconds=chance.uniform(0.0, 0.6),
                archive=archive,
                cancels=chance.random() < 0.3,
                chance=chance.getrandbits(32),
            )
        )
    return found
