"""The commands and their options. Each hands over to a module that is imported then."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from playhead.cli import db, output
from playhead.cli.options import Config, Data, Host, Interrupt, Json, Labels, NoOpen, Note, Port, Run, Url

app = typer.Typer(
    name="playhead",
    help="Durable, resumable live runs for AI agents.",
    epilog="Exit codes: 0 done or succeeded, 1 run failed (doctor: something is wrong), 2 error, 3 no server, "
    "4 run cancelled, 5 run interrupted.",
    no_args_is_help=True,
    # Help without rich: it takes longer to import than everything else here.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(db.app)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from. Works anywhere.")] = False,
) -> None:
    pass


@app.command()
def demo(host: Host = None, port: Port = None, data: Data = None, no_open: NoOpen = False) -> None:
    """Serve the demo agents and start a licence review; prints the address of its page."""
    from playhead.cli.serve import serve as go

    raise typer.Exit(go((), host=host, port=port, data=data, settings_file=None, open_page=not no_open, demo=True))


@app.command()
def serve(
    agents: Annotated[
        list[str] | None, typer.Argument(metavar="[MODULE:ATTR]...", help="Agents, lists of agents, or one app.")
    ] = None,
    host: Host = None,
    port: Port = None,
    data: Data = None,
    settings: Config = None,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Run nothing here: `playhead worker` does.")] = False,
    no_open: NoOpen = False,
) -> None:
    """Serve agents, and run them, until a signal. Without any, the demo agents."""
    from playhead.cli.serve import serve as go

    raise typer.Exit(
        go(
            agents or (),
            host=host,
            port=port,
            data=data,
            settings_file=settings,
            worker=not no_worker,
            open_page=not no_open,
        )
    )


@app.command()
def worker(
    agents: Annotated[
        list[str] | None, typer.Argument(metavar="[MODULE:ATTR]...", help="Agents, lists of agents, or one app.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option("--concurrency", min=1, help="Runs at once. [default: 16]")] = None,
    settings: Config = None,
) -> None:
    """Run agents until a signal, beside servers that share PostgreSQL and Redis with it."""
    from playhead.cli.worker import work

    raise typer.Exit(work(agents or (), concurrency=concurrency, settings_file=settings))


@app.command()
@output.quiet_pipe
def run(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The name of an agent.", show_default=False)],
    input: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="JSON, @file, or - for standard input.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Your own name for the run.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="The same one starts one run, however often.")] = None,
    label: Labels = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Watch it to its end.")] = False,
    data: Data = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Start a run; prints its id."""
    from playhead.cli import runs
    from playhead.cli.folder import Place

    place = Place.of(data, url)
    made = runs.start(place, agent, input, key=key, dedupe=idempotency_key, labels=label or ())
    if not (json and follow):
        output.dump(made) if json else output.say(made["id"])
    if follow:
        from playhead.cli.tail import tail as watch

        raise typer.Exit(watch(place, made["id"], cursor=None, as_json=json, text=True))


@app.command("runs")
@output.quiet_pipe
def list_runs(
    status: Annotated[list[str] | None, typer.Option("--status", help="May be repeated.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Runs of this agent.")] = None,
    label: Labels = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, help="At most so many.")] = 50,
    data: Data = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """List runs, newest first."""
    from playhead.cli import runs
    from playhead.cli.folder import Place

    found = runs.listed(Place.of(data, url), status=status or (), agent=agent, labels=label or (), limit=limit)
    output.dump(found) if json else runs.print_runs(found["runs"])


@app.command()
@output.quiet_pipe
def show(run: Run, data: Data = None, url: Url = None, json: Json = False) -> None:
    """Show a run: its status, input, result, and what it asks."""
    from playhead.cli import runs
    from playhead.cli.folder import Place

    found = runs.shown(Place.of(data, url), run)
    output.dump(found) if json else runs.print_run(found)


@app.command()
@output.quiet_pipe
def tail(
    run: Run,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Go on behind this place of the timeline.")] = None,
    no_text: Annotated[bool, typer.Option("--no-text", help="Events and progress only.")] = False,
    data: Data = None,
    url: Url = None,
    json: Annotated[bool, typer.Option("--json", help="Print each frame as a line of JSON.")] = False,
) -> None:
    """Watch a run live until it ends, through lost connections and restarts. Exits the way it ended."""
    from playhead.cli.folder import Place
    from playhead.cli.tail import tail as watch

    raise typer.Exit(watch(Place.of(data, url), run, cursor=cursor or None, as_json=json, text=not no_text))


@app.command()
@output.quiet_pipe
def cancel(
    run: Run,
    reason: Annotated[str | None, typer.Option("--reason", help="Why.")] = None,
    data: Data = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Ask a run to stop."""
    from playhead.cli import runs
    from playhead.cli.folder import Place

    found = runs.cancel(Place.of(data, url), run, reason)
    output.dump(found) if json else output.say(f"{found['id']}  {found['status']}; asked to stop")


@app.command()
@output.quiet_pipe
def approve(
    run: Run, interrupt: Interrupt = None, note: Note = None, data: Data = None, url: Url = None, json: Json = False
) -> None:
    """Say yes to what a run asks."""
    _decide(run, interrupt, True, note, data, url, json)


@app.command()
@output.quiet_pipe
def reject(
    run: Run, interrupt: Interrupt = None, note: Note = None, data: Data = None, url: Url = None, json: Json = False
) -> None:
    """Say no to what a run asks."""
    _decide(run, interrupt, False, note, data, url, json)


def _decide(
    run: str, interrupt: str | None, approved: bool, note: str | None, data: Path | None, url: str | None, json: bool
) -> None:
    from playhead.cli import runs
    from playhead.cli.folder import Place

    found = runs.decide(Place.of(data, url), run, interrupt, approved=approved, note=note)
    output.dump(found) if json else output.say(f"{found['id']}  {'approved' if approved else 'rejected'}")


@app.command()
@output.quiet_pipe
def doctor(data: Data = None, settings: Config = None, json: Json = False) -> None:
    """Look at the folder, the stores, the server and this machine, and say what to do."""
    from playhead.cli.doctor import examine

    raise typer.Exit(examine(data, settings, as_json=json))


@app.command()
@output.quiet_pipe
def version(json: Json = False) -> None:
    """Print the versions of playhead and of what it stands on."""
    from playhead.cli.doctor import versions

    found = versions()
    if json:
        output.dump(found)
    else:
        for name, value in found.items():
            output.say(f"{name} {value}")
