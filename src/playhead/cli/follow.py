"""Following a run's stream to its end, whatever happens to connections and servers on the way."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from playhead.cli.folder import Place
from playhead.cli.http import BROKEN, Client, Stream, backoff, problem_of, retry_after
from playhead.core.sse import Parser
from playhead.errors import NoServer, PayloadTooLarge, PlayheadError

LIVENESS = 2.5  # keep-alives without a byte, after which a connection is taken for dead
MAX_FAULTS = 8  # answers in a row that tell of a mistake in the server
REMEMBERED = 10_000  # ids of events, so that none is shown twice after a resync
HEADERS = {"Accept": "text/event-stream; client=playhead", "Cache-Control": "no-cache"}


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: `event` for the timeline, else the name of a control message. `id` is the cursor behind an event."""

    name: str
    id: str | None
    data: Any


class Follower:
    """The frames of one run, each event once. Ends with the run; raises what says that there is nothing to follow.

    After a disconnect it goes on from its cursor, at the address that the data folder names then: the server may have
    been restarted on another port. It waits for a server that was there without end, and says so through `notice`.
    """

    def __init__(
        self,
        place: Place,
        run_id: str,
        *,
        cursor: str | None = None,
        notice: Callable[[str], None] = lambda line: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.cursor = cursor
        self.run_id = run_id
        self._place = place
        self._notice, self._sleep = notice, sleep
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._ends: dict[tuple[Any, Any], Any] = {}
        self._tries = 0
        self._told = 0.0  # seconds to stay away
        self._over = False
        self._said: str | None = None

    def frames(self) -> Iterator[Frame]:
        """Raises NoServer if there is none at the beginning, NotFound, Forbidden and the like."""
        self._place.need()
        while True:
            try:
                yield from self._connection()
            except BROKEN as error:
                self._say(f"the connection is lost ({error or type(error).__name__})")
            except NoServer:
                self._say("no server is running; waiting for it")
            except PlayheadError as error:
                if not error.retryable and not isinstance(error, PayloadTooLarge):
                    raise
                self._say(error.message)
            if self._over:
                return
            self._sleep(backoff(self._tries, self._told))
            self._tries += 1

    def _connection(self) -> Iterator[Frame]:
        """The frames of one connection. Returns at its end; `_over` says whether another one makes sense."""
        url = self._place.need()
        query = {"resync": "inline"} if self.cursor is None else {"resync": "inline", "cursor": self.cursor}
        path = f"/runs/{quote(self.run_id, safe='')}/stream?{urlencode(query)}"
        stream = Stream(url, path, HEADERS, LIVENESS * self._place.keepalive)
        try:
            if stream.status == 204:
                self._over = True
                return
            if stream.status != 200:
                self._refused(stream)
                return
            parser = Parser(last_event_id=self.cursor)
            for chunk in stream.chunks():
                for one in parser.feed(chunk):
                    self._tries, self._said = 0, None
                    yield from self._taken(Frame(one.event, one.id, _parsed(one.data)))
                    if self._over:
                        return
                if parser.retry is not None:
                    self._told = parser.retry / 1000
        finally:
            stream.close()

    def _refused(self, stream: Stream) -> None:
        answer = stream.whole()
        problem = problem_of(answer)
        if answer.status not in (429, 503) and (answer.status < 500 or self._tries >= MAX_FAULTS):
            raise problem
        self._told = retry_after(answer.headers)
        self._say(f"the server refuses for now ({problem.code})")

    def _say(self, line: str) -> None:
        """Once, until something has come again: whoever waits for a server need not be told at each try."""
        if line != self._said:
            self._said = line
            self._notice(line)

    def _taken(self, frame: Frame) -> Iterator[Frame]:
        if frame.name == "message":
            # Only events have cursors: the ids of `end` and `resync_required` stop browsers and lead nowhere.
            self.cursor = frame.id or self.cursor
            if self._is_new(frame.data):
                yield Frame("event", frame.id, frame.data)
            return
        if frame.name == "text":
            self._check_text(frame.data)
        yield frame
        if frame.name == "end":
            self._over = True
        elif frame.name == "draining":
            self._say("the server is going down")
        elif frame.name == "resync_required":
            yield from self._resynchronized(frame)

    def _resynchronized(self, frame: Frame) -> Iterator[Frame]:
        """Begin again from a bootstrap; the events in it that are new."""
        data = frame.data if isinstance(frame.data, dict) else {}
        screen = data.get("bootstrap")
        if not isinstance(screen, dict):
            screen = Client(self._place).get(f"/runs/{quote(self.run_id, safe='')}/bootstrap?limit=200")
        self.cursor = screen.get("cursor")
        for event in screen.get("events") or ():
            if self._is_new(event):
                yield Frame("event", None, event)
        yield Frame("state", None, {"snapshot": screen.get("snapshot"), "degraded": screen.get("degraded")})
        for part in screen.get("text") or ():
            self._check_text(part)
            yield Frame("text", None, part)

    def _check_text(self, piece: Any) -> None:
        """A piece that does not continue its part is no use: the next connection begins with the whole part."""
        key = (piece.get("attempt"), piece.get("part"))
        if piece.get("offset") not in (0, self._ends.get(key)):
            raise ConnectionError("text is missing")
        self._ends[key] = piece.get("end")

    def _is_new(self, event: Any) -> bool:
        known = event.get("id") if isinstance(event, dict) else None
        if not isinstance(known, str):
            return True
        if known in self._seen:
            return False
        self._seen[known] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return True


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise PlayheadError("The server sent a frame that is not JSON.") from None
