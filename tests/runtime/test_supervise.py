"""What loops say of a store that does not answer."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from playhead.errors import StoreFull, StoreUnavailable
from playhead.runtime.supervise import Outage
from tests.runtime.whole import Faulty, engine, eventually


def test_an_outage_is_told_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(logging.getLogger("playhead"), "nothing goes on")
    outage.ended()
    for _ in range(3):
        outage.began(StoreUnavailable("gone"))
    outage.began(StoreFull("full"))
    outage.ended()
    outage.ended()
    outage.began(StoreUnavailable("gone again"))
    assert [record.message for record in caplog.records] == [
        "nothing goes on: gone",
        "nothing goes on: full",
        "nothing goes on: that is over",
        "nothing goes on: gone again",
    ]


@pytest.mark.anyio
async def test_loops_tell_of_an_outage_once(caplog: pytest.LogCaptureFixture) -> None:
    async with engine([], reconcile=0.01, beat=0.01) as e:
        faults = {
            "no answer to a beat": Faulty(e.ports.record, "beat", always=StoreUnavailable()),
            "a store does not answer": Faulty(e.ports.record, "expired", always=StoreUnavailable()),
            "nothing can be archived now": Faulty(e.ports.live, "unarchived", always=StoreUnavailable()),
        }
        for fault in faults.values():
            await eventually(partial(_was_met_often, fault))
            fault.always = None
        await eventually(lambda: all(f"{one}: that is over" in caplog.text for one in faults))
    for words in faults:
        assert sum(record.message.startswith(words) for record in caplog.records) == 2, words


def _was_met_often(fault: Faulty) -> bool:
    return fault.calls > 3
