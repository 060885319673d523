"""An app as a module has it."""

import playhead
from tests.cli.agents import greet

app = playhead.App([greet])
