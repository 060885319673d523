"""`playhead tail`: watch a run, and exit the way it ended."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from playhead.cli import output
from playhead.cli.folder import Place, read_record
from playhead.cli.follow import Follower, Frame
from playhead.cli.http import Client
from playhead.cli.screen import Lines, Screen, open_screen
from playhead.errors import NoServer, NotFound

FINAL = {f"run_{outcome}": outcome for outcome in output.OUTCOMES}


def tail(place: Place, run_id: str, *, cursor: str | None, as_json: bool, text: bool) -> int:
    """Show the run until it ends; the exit code that tells its outcome.

    Without a server, a run that has ended is shown from the record. Raises NoServer for any other, and NotFound.
    """
    if place.find() is None:
        return _ended(place, run_id, as_json=as_json)
    screen: Screen = Lines() if as_json else open_screen()
    with contextlib.closing(screen):
        outcome = _watch(Follower(place, run_id, cursor=cursor, notice=screen.note), screen, as_json, text)
    if outcome is None:
        # The cursor was behind the final event already, so the stream had nothing to say.
        outcome = str(Client(place).get(f"/runs/{quote(run_id, safe='')}")["status"])
        if not as_json:
            output.say(f"run {run_id} {outcome}")
    return output.OUTCOMES.get(outcome, output.USAGE)


def _watch(follower: Follower, screen: Screen, as_json: bool, text: bool) -> str | None:
    outcome: str | None = None
    parts = Parts(screen)
    waiting = False
    for frame in follower.frames():
        if frame.name == "text" and not text:
            continue
        data = frame.data if isinstance(frame.data, dict) else {}
        if as_json:
            output.dump({"frame": frame.name, "id": frame.id, "data": frame.data})
        elif frame.name == "text":
            parts.take(data)
        elif frame.name == "state":
            snapshot = data.get("snapshot") or {}
            waiting = snapshot.get("status") == "waiting"
            screen.state(snapshot, data.get("degraded"))
        elif frame.name == "event":
            screen.event(data)
            if data.get("type") == "attempt_started":
                parts.void(data.get("attempt"))
            if data.get("type") == "approval_required" and waiting:
                screen.text("answer it with", _answers(follower, data))
        elif frame.name == "resync_required":
            screen.note(f"events may be missing here ({data.get('reason')})")
        outcome = _outcome(frame, data) or outcome
    parts.finish()
    return outcome


def _outcome(frame: Frame, data: Mapping[str, Any]) -> str | None:
    if frame.name == "event":
        return FINAL.get(str(data.get("type")))
    if frame.name == "end" and data.get("status") in output.OUTCOMES:
        return str(data["status"])
    return None


def _answers(follower: Follower, event: Mapping[str, Any]) -> str:
    payload = event.get("payload")
    asked = payload.get("interrupt_id") if isinstance(payload, dict) else None
    return f"playhead approve {follower.run_id} {asked or ''}".strip() + " (or reject)"


class Parts:
    """Text parts put together from their frames, which follow each other, and handed to the screen line by line."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._texts: dict[tuple[object, object], str] = {}
        self._shown: dict[tuple[object, object], int] = {}  # characters that went out in whole lines

    def take(self, frame: Mapping[str, Any]) -> None:
        """Add a piece. From offset 0 it is the whole part so far; what of it was shown is not shown again."""
        key = (frame.get("attempt"), frame.get("part"))
        piece = str(frame.get("text") or "")
        if frame.get("offset") == 0 or key not in self._texts:
            if not piece.startswith(self._texts.get(key, "")[: self._shown.get(key, 0)]):
                self._shown[key] = 0
            self._texts[key] = piece
        else:
            self._texts[key] += piece
        self._show(key, final=bool(frame.get("final")))

    def void(self, attempt: object) -> None:
        """A new attempt began: what earlier ones left unfinished will not go on."""
        for key in [key for key in self._texts if key[0] != attempt]:
            del self._texts[key]
            self._shown.pop(key, None)

    def finish(self) -> None:
        """Nothing follows: what is left of each part is its last line."""
        for key in list(self._texts):
            self._show(key, final=True)

    def _show(self, key: tuple[object, object], *, final: bool) -> None:
        label = str(key[1])
        rest = self._texts[key][self._shown.get(key, 0) :]
        *whole, rest = rest.split("\n")
        for line in whole:
            self._screen.text(label, line)
            self._shown[key] = self._shown.get(key, 0) + len(line) + 1
        if final and rest:
            self._screen.text(label, rest)
            self._shown[key] = len(self._texts[key])
            rest = ""
        self._screen.typing(label, rest)


def _ended(place: Place, run_id: str, *, as_json: bool) -> int:
    from playhead.core.ids import is_id, run_feed
    from playhead.core.run import Run
    from playhead.runtime.documents import event_document

    async def look(record: Any) -> tuple[Run, list[bytes]]:
        run = await record.get("local", run_id) if is_id(run_id) else None
        if run is None:
            raise NotFound("There is no such run.")
        kept = await record.read(run_feed(run_id), None, 1_000)
        return run, [event_document(event, version) for event, version in kept]

    run, events = read_record(place, look)
    if not run.status.final:
        raise NoServer(
            f"The run is {run.status.value} and no server is running; start it with: playhead serve {place.option}"
        )
    screen = Lines()
    for event in map(json.loads, events):
        output.dump({"frame": "event", "id": None, "data": event}) if as_json else screen.event(event)
    if not as_json:
        output.say(f"run {run_id} {run.status.value}")
    return output.OUTCOMES[run.status.value]
