"""Durable, resumable live runs for AI agents.

Names are imported when they are first used, so that `import playhead` loads no server and no store.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from playhead.version import __version__

# Public name → the module that defines it.
_EXPORTS: dict[str, str] = {
    "Agent": "playhead.agents",
    "App": "playhead.app",
    "Client": "playhead.client",
    "Decision": "playhead.agents",
    "PlayheadError": "playhead.errors",
    "RunContext": "playhead.agents",
    "RunView": "playhead.client",
    "Settings": "playhead.settings",
    "SyncRun": "playhead.agents",
    "agent": "playhead.agents",
    "attach": "playhead.app",
    "attempt": "playhead.app",
    "external_agent": "playhead.agents",
    "on": "playhead.agents",
}

__all__ = [
    "Agent",
    "App",
    "Client",
    "Decision",
    "PlayheadError",
    "RunContext",
    "RunView",
    "Settings",
    "SyncRun",
    "__version__",
    "agent",
    "attach",
    "attempt",
    "external_agent",
    "on",
]

if TYPE_CHECKING:
    from playhead.agents import Agent, Decision, RunContext, SyncRun, agent, external_agent, on
    from playhead.app import App, attach, attempt
    from playhead.client import Client, RunView
    from playhead.errors import PlayheadError
    from playhead.settings import Settings

# Type checkers read the names as imports in a branch of this test, and so still report a misspelt one.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        try:
            module = _EXPORTS[name]
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
        value = globals()[name] = getattr(import_module(module), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
