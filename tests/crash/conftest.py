from collections.abc import Iterator

import pytest

from tests.support.nursery import Nursery

pytest.register_assert_rewrite("tests.crash.scene")


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Servers to be killed, forked from one process for the whole session."""
    made = Nursery()
    try:
        yield made
    finally:
        made.close()
