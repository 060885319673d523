"""What to serve: `module:attribute` names of agents, lists of agents, or an app."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from playhead.agents import Agent
from playhead.app import App
from playhead.errors import InvalidRequest
from playhead.settings import InvalidSetting, Settings


def make_app(targets: Sequence[str], file: Path | None, **given: Any) -> App:
    """The app that the names mean (none: the demo agents), with what is given in its settings.

    Raises InvalidRequest that says which name means nothing, and InvalidSetting.
    """
    found = [load(one) for one in targets]
    if len(found) == 1 and isinstance(found[0], App):
        app = found[0]
        if file is not None:
            raise InvalidSetting("An app has its settings already; a settings file is for agents.")
        app.settings = replace(app.settings, **{name: value for name, value in given.items() if value is not None})
        return app
    agents: list[Agent] = []
    for name, one in zip(targets, found, strict=True):
        several: Sequence[object] = one if isinstance(one, list | tuple) else [one]
        mine = [each for each in several if isinstance(each, Agent)]
        if not mine or len(mine) != len(several):
            raise InvalidRequest(f"{name} is not an agent, nor a list of agents, nor (alone) an app.")
        agents += mine
    if not targets:
        from playhead import demo

        agents = demo.agents()
    return App(agents, settings=Settings.load(file, **given))


def load(target: str) -> object:
    """What a `module:attribute` name means; modules are looked for in the working directory too."""
    module, colon, attribute = target.partition(":")
    if not (colon and module and attribute):
        raise InvalidRequest(f"{target} is not of the form module:attribute.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise InvalidRequest(f"{module} cannot be imported: {error}") from error
        raise InvalidRequest(f"There is no module {module} here or on Python's path.") from None
    except Exception as error:
        raise InvalidRequest(f"{module} cannot be imported: {type(error).__name__}: {error}") from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise InvalidRequest(f"{module} has no {attribute}.")
        found = getattr(found, name)
    return found
