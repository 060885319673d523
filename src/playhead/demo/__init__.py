"""Agents that show what playhead does, on input that is really there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playhead.agents import Agent


def agents() -> list[Agent]:
    """The demo agents. What they work with is imported here and not before."""
    from playhead.demo.review import licence_review

    return [licence_review]
