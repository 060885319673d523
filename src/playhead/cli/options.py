"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[Path | None, typer.Option("--data", metavar="DIR", help="The data folder. [env: PLAYHEAD_DATA]")]
Url = Annotated[
    str | None, typer.Option("--url", help="The server, instead of the one that --data names. [env: PLAYHEAD_URL]")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run.", show_default=False)]
Host = Annotated[str | None, typer.Option("--host", help="Where to listen. [default: 127.0.0.1]")]
Port = Annotated[int | None, typer.Option("--port", min=0, max=65_535, help="0: any free one. [default: 8700]")]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")]
Config = Annotated[Path | None, typer.Option("--settings", metavar="FILE", help="A TOML file of settings.")]
Labels = Annotated[list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="May be repeated.")]
Interrupt = Annotated[
    str | None, typer.Argument(metavar="[INTERRUPT]", help="Which question; needed if there are several.")
]
Note = Annotated[str | None, typer.Option("--note", help="A word to go with the decision.")]
