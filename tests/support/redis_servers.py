"""The Redis servers of a test process: each is started when it is first wanted, once, and ends with the process."""

from __future__ import annotations

import atexit
import secrets
from collections.abc import Callable
from functools import cache
from typing import Any

from playhead.backends.redis import RedisLive
from playhead.testing.harness.redis import Cluster, Server, Watched, given_url

PATIENCE = 30.0  # seconds: how busy the machine is decides no test

# Flavor → what is started for it. Those beyond the first belong to the wide tier.
KINDS: dict[str, Callable[[], Server | Cluster | Watched]] = {
    "redis": lambda: Server("redis"),
    "valkey": lambda: Server("valkey"),
    "redis7": lambda: Server("debian"),
    "cluster": lambda: Cluster("redis"),
    "valkey_cluster": lambda: Cluster("valkey"),
    "sentinel": lambda: Watched("redis"),
}


@cache
def started(kind: str) -> Server | Cluster | Watched:
    server = KINDS[kind]()
    atexit.register(server.close)
    server.start()
    return server


def url(kind: str) -> str:
    return given_url(kind) or started(kind).url


def prefix() -> str:
    """One that nobody else uses: what lies under it is a store of its own."""
    return f"test-{secrets.token_hex(6)}"


async def live(kind: str, clock: Any, **options: Any) -> RedisLive:
    """A store on the server of this kind, empty."""
    return await RedisLive.at(url(kind), clock=clock, **{"prefix": prefix(), "deadline": PATIENCE, **options})
