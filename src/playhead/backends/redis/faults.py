"""What the driver raises, as the errors of this project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import OutOfMemoryError, RedisClusterException, RedisError

from playhead.errors import PlayheadError, StoreFull, StoreUnavailable


@contextmanager
def typed(what: str) -> Iterator[None]:
    """Raise as ours whatever goes wrong with the store in this block. `what` names the store, without its password."""
    try:
        yield
    except PlayheadError:
        raise
    except (RedisError, RedisClusterException, OSError) as error:
        raise as_ours(what, error) from error


def as_ours(what: str, error: Exception) -> Exception:
    """What is to be raised in the place of this error of the driver's."""
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"{what} did not answer in time.")
    if isinstance(error, OutOfMemoryError):
        return StoreFull(f"{what} has no memory left.")
    if "BADARG" in str(error):
        return ValueError(f"a script refused an argument: {error}")
    return StoreUnavailable(f"{what} cannot be used now: {error}"[:400])
