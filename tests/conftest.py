import pytest

pytest_plugins = ["tests.plugins.histories", "tests.plugins.rows"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
