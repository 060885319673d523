"""For tests of playhead, of new backends and of users' own agents. Free of pytest; no other room imports it."""

from playhead.testing.clock import FakeClock
from playhead.testing.run_agent import FinishedRun, Unanswered, run_agent

__all__ = ["FakeClock", "FinishedRun", "Unanswered", "run_agent"]
