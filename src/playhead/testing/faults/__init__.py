"""A proxy on loopback that does to connections what networks and dying servers do.

async with Proxy(redis_port, seed=7) as between:
    between.down.set(delay=0.3, jitter=0.1)
    between.down.set(cut=Cut(at=rb"\r\n", matches=3))
    between.lose_answers(rb"COMMIT", times=1)
    between.resume()
"""

from playhead.testing.faults.mode import Cut, Decision, Mode, Way
from playhead.testing.faults.proxy import Proxy

__all__ = ["Cut", "Decision", "Mode", "Proxy", "Way"]
