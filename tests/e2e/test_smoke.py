from pathlib import Path

import pytest

from tests.support.agents import counting
from tests.support.stage import STORES, stage

pytestmark = pytest.mark.anyio


@pytest.mark.store
@pytest.mark.parametrize("backend", STORES)
async def test_a_run_is_followed_to_its_end(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, counting) as s:
        run_id = await s.client.start("count", {"n": 3, "stops": [2]})
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("at-2")
            await stream.type("counted")
            s.gates.open("at-2")
            await stream.end()
        assert stream.types == ["run_queued", "run_started", "attempt_started", *["counted"] * 3, "run_succeeded"]
        assert [frame.event for frame in stream.frames][-1] == "end"
        run = await s.client.ended(run_id)
        assert run["status"] == "succeeded"
        assert run["result"] == {"counted": 3}
