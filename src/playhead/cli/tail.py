"""`playhead tail`: watch a run, and exit the way it ended."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from playhead.cli import output
from playhead.cli.calls import call
from playhead.cli.folder import Place, read_record
from playhead.cli.screen import Lines, Screen, open_screen
from playhead.client import Client, Frame
from playhead.errors import NoServer, NotFound, PlayheadError


def tail(place: Place, run_id: str, *, cursor: str | None, as_json: bool, text: bool) -> int:
    """Show the run until it ends; the exit code that tells its outcome.

    Without a server, a run that has ended is shown from the record. Raises NoServer for any other, and NotFound.
    """
    if place.find() is None:
        return _ended(place, run_id, as_json=as_json)
    screen: Screen = Lines() if as_json else open_screen()
    with contextlib.closing(screen):
        told = Told(screen, run_id, as_json=as_json, text=text)
        outcome = call(place, lambda client: _watch(client, told, run_id, cursor))
    if not told.ended and not as_json:
        # The cursor was behind the final event already, so the stream had nothing to say.
        output.say(f"run {run_id} {outcome}")
    return output.OUTCOMES.get(outcome, output.USAGE)


async def _watch(client: Client, told: Told, run_id: str, cursor: str | None) -> str:
    outcome = ""
    async with client.follow(run_id, bootstrap=False, cursor=cursor) as views:
        async for view in views:
            # What a bootstrap shows after the end is behind the cursor that was given.
            if view.connection != "ended" or any(frame.name == "end" for frame in views.news):
                for frame in views.news:
                    told.take(frame)
            told.trouble(views.trouble)
            outcome = told.outcome or view.status or ""
            if told.ended:
                break
    told.finish()
    return outcome


class Told:
    """What was told of a run so far, put on the screen, or written as it came."""

    def __init__(self, screen: Screen, run_id: str, *, as_json: bool, text: bool) -> None:
        self.outcome: str | None = None
        self.ended = False
        self._screen, self._run_id, self._as_json, self._text = screen, run_id, as_json, text
        self._parts = Parts(screen)
        self._waiting = False
        self._said: str | None = None

    def take(self, frame: Frame) -> None:
        data = frame.data
        self._said = None
        if frame.name == "end":
            self.ended, self.outcome = True, str(data["status"])
        if frame.name == "text" and not self._text:
            return
        if self._as_json:
            output.dump({"frame": frame.name, "id": frame.cursor, "data": data})
        elif frame.name == "text":
            self._parts.take(data)
        elif frame.name == "state":
            self._waiting = data["snapshot"]["status"] == "waiting"
            self._screen.state(data["snapshot"], data["degraded"])
        elif frame.name == "event":
            self._event(data)
        elif frame.name == "resync_required":
            self._screen.note(f"events may be missing here ({data['reason']})")

    def trouble(self, now: PlayheadError | None) -> None:
        """Once, until something has come again: whoever waits for a server need not be told at each try."""
        if now is not None and now.message != self._said:
            self._said = now.message
            self._screen.note(now.message)

    def finish(self) -> None:
        self._parts.finish()

    def _event(self, event: Mapping[str, Any]) -> None:
        self._screen.event(event)
        if event["type"] == "attempt_started":
            self._parts.void(event.get("attempt"))
        if event["type"] == "approval_required" and self._waiting:
            payload = event.get("payload")
            asked = payload.get("interrupt_id") if isinstance(payload, dict) else None
            command = f"playhead approve {self._run_id} {asked or ''}".strip()
            self._screen.text("answer it with", f"{command} (or reject)")


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
