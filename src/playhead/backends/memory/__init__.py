"""Both stores in memory: for tests, and for the meaning of the ports in plain Python. Nothing survives the process."""

from playhead.backends.memory.live import MemoryLive
from playhead.backends.memory.record import MemoryRecord

__all__ = ["MemoryLive", "MemoryRecord"]
