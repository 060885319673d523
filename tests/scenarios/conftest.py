from collections.abc import AsyncIterator

import pytest

from tests.plugins.histories import seed
from tests.scenarios.fleet import Fleet
from tests.scenarios.scene import Scene


@pytest.fixture(scope="package")
async def fleet(anyio_backend: str) -> AsyncIterator[Fleet]:
    """Two gateways and two workers on real stores, for all scenarios of this process."""
    async with Fleet() as made:
        yield made


@pytest.fixture
async def scene(fleet: Fleet) -> AsyncIterator[Scene]:
    """The fleet whole, and everything ended afterwards that a scenario began."""
    await fleet.whole()
    made = Scene(fleet, seed())
    try:
        yield made
    finally:
        await fleet.heal()
        await made.close()
