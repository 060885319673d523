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
    except TimeoutError as error:
        raise StoreUnavailable(f"{what} did not answer in time.") from error
    except OutOfMemoryError as error:
        raise StoreFull(f"{what} has no memory left.") from error
    except (RedisError, RedisClusterException, OSError) as error:
        if "BADARG" in str(error):
            raise ValueError(f"a script refused an argument: {error}") from error
        raise StoreUnavailable(f"{what} cannot be used now: {error}"[:400]) from error
