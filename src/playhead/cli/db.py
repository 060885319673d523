"""`playhead db`: the schema of a PostgreSQL record. Nothing else makes or changes it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from playhead.cli import output
from playhead.cli.options import Config
from playhead.errors import InvalidRequest

if TYPE_CHECKING:
    from playhead.backends.postgres.database import Database
    from playhead.backends.postgres.migrate import Step

    Steps = tuple[Step, ...]

T = TypeVar("T")

_PATIENCE = 3_600.0  # seconds for a step: an index of a large table takes its time

app = typer.Typer(
    name="db",
    help="Look after the schema of a PostgreSQL record.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Record = Annotated[str | None, typer.Option("--record", metavar="ADDRESS", help="The database. [env: PLAYHEAD_RECORD]")]


@app.command()
def upgrade(
    record: Record = None,
    settings: Config = None,
    pre: Annotated[
        bool, typer.Option("--pre", help="Only what servers of the version before go on working with.")
    ] = False,
) -> None:
    """Apply the steps that are missing. May run beside servers, and several times at once."""

    async def apply(database: Database, steps: Steps) -> list[Step]:
        from playhead.backends.postgres import migrate

        return await migrate.apply(database, steps, pre_only=pre)

    done = _with_database(record, settings, apply, patience=_PATIENCE)
    for step in done:
        output.say(f"applied {step.name}")
    if not done:
        output.say("nothing to do")


@app.command()
def check(record: Record = None, settings: Config = None) -> None:
    """Say which steps are missing; exit code 1 if any is."""
    missing = _missing(record, settings)
    for step in missing:
        output.say(f"missing {step.name}")
    if missing:
        raise typer.Exit(1)
    output.say("up to date")


@app.command()
@output.quiet_pipe
def sql(record: Record = None, settings: Config = None) -> None:
    """Print what `upgrade` would run."""
    missing = _missing(record, settings)
    if missing:
        from playhead.backends.postgres import migrate

        for line in migrate.script(missing).splitlines():
            output.say(line)


def _missing(record: str | None, settings: Path | None) -> Steps:
    async def look(database: Database, steps: Steps) -> Steps:
        from playhead.backends.postgres import migrate

        return await migrate.missing(database, steps)

    return _with_database(record, settings, look)


def _with_database(
    record: str | None,
    settings: Path | None,
    act: Callable[[Database, Steps], Awaitable[T]],
    *,
    patience: float = 10.0,
) -> T:
    """Do this with the database that is meant and the steps of its schema."""
    address = _address(record, settings)
    try:
        from playhead.backends.postgres.database import Database
        from playhead.backends.postgres.record import SCHEMA
    except ImportError:
        raise InvalidRequest("PostgreSQL needs its driver: pip install 'playhead[postgres]'") from None

    import asyncio

    async def run() -> T:
        database = Database(address, max_size=1, deadline=patience)
        try:
            return await act(database, SCHEMA)
        finally:
            await database.close()

    try:
        return asyncio.run(run())
    except ValueError as error:
        raise InvalidRequest(str(error)) from None


def _address(record: str | None, settings: Path | None) -> str:
    found = record or os.environ.get("PLAYHEAD_RECORD")
    if not found and settings is not None:
        from playhead.settings import Settings

        found = Settings.load(settings).record
    if not found:
        raise InvalidRequest("Which database? Name it with --record, PLAYHEAD_RECORD, or `record` in --settings FILE.")
    return found
