"""Starting, listing, showing, stopping and answering runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from playhead.cli import output
from playhead.cli.calls import call
from playhead.cli.folder import Place, Record, read_record
from playhead.client import Client
from playhead.errors import InvalidRequest, NotFound

TENANT = "local"  # whose runs a folder without a server shows


def start(
    place: Place, agent: str, given: str | None, *, key: str | None, dedupe: str | None, labels: Sequence[str]
) -> Mapping[str, Any]:
    """Start a run; the run as the server has it. Raises NoServer, UnknownAgent, InvalidInput, KeyConflict."""
    input, named = read_input(given), read_labels(labels)
    return call(place, lambda client: client.start(agent, input, labels=named, key=key, idempotency_key=dedupe))


def listed(
    place: Place, *, status: Sequence[str], agent: str | None, labels: Sequence[str], limit: int
) -> Mapping[str, Any]:
    """Runs, newest first, as `GET /runs` answers them: from the server, or from the record where none runs."""
    if place.find() is not None:
        named = read_labels(labels)
        return call(place, lambda client: client.list(status=status, agent=agent, labels=named, limit=limit))
    from playhead.core.run import Status
    from playhead.runtime.documents import run_document

    try:
        wanted = [Status(one) for one in status]
    except ValueError:
        raise InvalidRequest(f"status is one of {', '.join(Status)}.") from None

    async def look(record: Record) -> list[bytes]:
        found = await record.list_runs(
            TENANT, status=wanted, agent=agent, labels=read_labels(labels), limit=min(limit, 200)
        )
        return [run_document(run) for run in found]

    return {"runs": [json.loads(one) for one in read_record(place, look)], "next": None}


def shown(place: Place, run_id: str) -> Mapping[str, Any]:
    """The run with its open questions. Raises NotFound."""

    async def ask(client: Client) -> Mapping[str, Any]:
        return {**await client.get(run_id), "interrupts": await client.interrupts(run_id)}

    if place.find() is not None:
        return call(place, ask)
    from playhead.core.ids import is_id
    from playhead.runtime.documents import interrupt_document, run_document

    async def look(record: Record) -> dict[str, Any]:
        found = await record.get(TENANT, run_id) if is_id(run_id) else None
        if found is None:
            raise NotFound("There is no such run.")
        questions = [] if found.status.final else await record.interrupts(TENANT, run_id)
        return {**json.loads(run_document(found)), "interrupts": [json.loads(interrupt_document(q)) for q in questions]}

    return read_record(place, look)


def cancel(place: Place, run_id: str, reason: str | None) -> Mapping[str, Any]:
    """Ask a run to stop. Raises NoServer, NotFound."""
    return call(place, lambda client: client.cancel(run_id, reason))


def decide(
    place: Place, run_id: str, interrupt_id: str | None, *, approved: bool, note: str | None
) -> Mapping[str, Any]:
    """Answer a question of a run, the open one if none is named. Raises NoServer, NotFound, AlreadyDecided."""

    async def answer(client: Client) -> Mapping[str, Any]:
        asked = interrupt_id or _only(await client.interrupts(run_id))
        return await client.decide(run_id, asked, approved, note=note)

    return call(place, answer)


def _only(found: Sequence[Mapping[str, Any]]) -> str:
    if not found:
        raise NotFound("The run asks nothing now.")
    if len(found) > 1:
        names = ", ".join(f"{one['id']} ({one['kind']})" for one in found)
        raise InvalidRequest(f"The run asks {len(found)} questions; name one of: {names}")
    return str(found[0]["id"])


def read_input(given: str | None) -> Any:
    """JSON as an option gives it: itself, `@` and a file, or `-` for standard input. None: every default."""
    if given is None:
        return {}
    try:
        if given == "-":
            text = sys.stdin.read()
        elif given.startswith("@"):
            text = Path(given[1:]).read_text()
        else:
            text = given
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The input cannot be read: {error}") from None
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"The input is not JSON: {error}") from None


def read_labels(given: Sequence[str]) -> dict[str, str]:
    """Labels as `name=value`, each name once."""
    pairs = [one.partition("=") for one in given]
    labels = {name: value for name, equals, value in pairs if equals and name}
    if len(labels) != len(pairs):
        raise InvalidRequest("A label is given as name=value, each name once.")
    return labels


def print_runs(runs: Sequence[Mapping[str, Any]]) -> None:
    """A line for each run."""
    for run in runs:
        labels = " ".join(f"{name}={value}" for name, value in run["labels"].items())
        output.say(f"{run['id']}  {run['status']:<11}  {run['created_at'][:19]}Z  {run['agent']}  {labels}".rstrip())


def print_run(run: Mapping[str, Any]) -> None:
    """A run for a person to read."""
    for name in ("id", "agent", "status", "key", "attempt", "created_at", "started_at", "ended_at", "heartbeat_at"):
        if run.get(name) is not None:
            output.say(f"{name:<13} {run[name]}")
    for name, value in run["labels"].items():
        output.say(f"{'label':<13} {name}={value}")
    if run.get("cancel_requested"):
        wish = run["cancel_requested"]
        output.say(f"{'cancel':<13} asked by {wish['by']} at {wish['at']} {wish['reason'] or ''}".rstrip())
    if run.get("error"):
        output.say(f"{'error':<13} {run['error']['message']} ({run['error']['code']})")
    for name in ("input", "result", "partial"):
        if run.get(name) is not None:
            output.say(f"{name}:")
            for line in json.dumps(run[name], indent=2, ensure_ascii=False).split("\n"):
                output.say(f"  {line}")
    for one in run["interrupts"]:
        output.say(f"asks          {one['id']} ({one['kind']}): {json.dumps(one['payload'], ensure_ascii=False)}")
        output.say(f"              playhead approve {run['id']} {one['id']}")
