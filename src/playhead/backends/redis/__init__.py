"""Redis and Valkey: projections, text and hints, shared by any number of processes."""

from playhead.backends.redis.live import RedisLive

__all__ = ["RedisLive"]
