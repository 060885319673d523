import pytest

pytest_plugins = ["tests.plugins.histories", "tests.plugins.deep", "tests.plugins.rows", "tests.support.postgres"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run browser tests last: their driver keeps an event loop running in its process for as long as it lives."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)
