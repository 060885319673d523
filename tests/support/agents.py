"""Scripted agents that many tests share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import playhead
from tests.support.stage import Gates


def counting(gates: Gates) -> Sequence[playhead.Agent]:
    """`count` emits `n` events and stops at the gate `at-<i>` before each i in `stops`; then at `end` if asked to."""

    @playhead.agent
    async def count(
        run: playhead.RunContext, n: int = 3, stops: tuple[int, ...] = (), hold: bool = False, size: int = 0
    ) -> dict[str, int]:
        gates.calls += 1
        for i in range(1, n + 1):
            if i in stops:
                await gates.wait(f"at-{i}")
            await run.event("counted", {"i": i, "pad": "x" * size}, progress=100 * i / n, done=i, total=n)
        if hold:
            await gates.wait("end")
        return {"counted": n}

    return [count]


AgentsOf = Callable[[Gates], Sequence[playhead.Agent]]
