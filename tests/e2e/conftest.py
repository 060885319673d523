import pytest

from tests.support.stage import FURTHER


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Further stores are for the tests that say so: a whole second and third time would show little more."""
    items[:] = [item for item in items if item.get_closest_marker("store") or _backend(item) not in FURTHER]


def _backend(item: pytest.Item) -> object:
    called = getattr(item, "callspec", None)
    return called.params.get("backend") if called else None
