"""Whatever overlaps, repeats itself or comes late: a view ends as the run is."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from playhead.client import RunView
from playhead.client.events import REMEMBERED
from playhead.client.frames import Frame, read
from playhead.client.reducer import MAX_EVENTS, Reducer
from playhead.core import sse
from tests.client.scripted import RUN
from tests.client.test_cases import shown
from tests.client.world import World, piece

RECORDED = Path(__file__).parents[2] / "spec" / "cases" / "stream-alone.json"

ACTIONS = st.one_of(
    st.sampled_from(["publish", "update", "say", "restart", "ask", "decide", "rebuild"]),
    st.sampled_from(["open", "drop", "rewind", "hold", "release"]),
    st.tuples(st.just("take"), st.sampled_from([0, 2, 50])),
    st.tuples(st.just("deliver"), st.integers(0, 5)),
    st.tuples(st.just("repeat"), st.integers(1, 4)),
)


class Meeting:
    """A world, a reader of it, and whatever lies between the two."""

    def __init__(self) -> None:
        self.world, self.reducer = World(), Reducer(RUN)
        self.open = False
        self.pocket: list[tuple[dict[str, Any], int]] = []  # bootstraps on their way, and when they were asked for
        self.cursors: list[str | None] = [None]
        self.told: list[Frame] = []
        self.held: list[Frame] | None = None  # on their way

    def hear(self, frames: list[Frame]) -> None:
        if self.held is not None:
            self.held += frames
            return
        for frame in frames:
            if self.open:
                self.reducer.frame(frame)
                self.told = [] if frame.name == "resync_required" else [*self.told, frame]
                self.open = not self.reducer.reopen
                self.cursors.append(self.reducer.cursor)

    def connect(self, cursor: str | None) -> None:
        self.held = None
        self.reducer.cursor = cursor
        ends = dict(self.reducer.ends)
        self.reducer.opened()
        self.open, self.told = True, []
        self.hear(self.world.opening(cursor, ends))

    def act(self, action: Any) -> None:
        match action:
            case "publish" | "update" | "restart" | "ask" | "decide":
                self.hear(getattr(self.world, action)())
            case "say":
                self.hear(self.world.say(f"é{len(self.world.events)}🙂"))
            case "rebuild":
                self.world.rebuild()
                if self.open:
                    self.hear([self.world.resync()])
            case "open":
                self.connect(self.reducer.cursor)
            case "rewind":  # the cursor of an earlier moment, which overlaps
                self.connect(self.cursors[len(self.cursors) // 2])
            case "drop":
                self.open, self.held = False, None
            case "hold":
                self.held = [] if self.open and self.held is None else self.held
            case "release":
                held, self.held = self.held or [], None
                self.hear(held)
            case ("take", limit):
                self.pocket.append((self.world.bootstrap(limit), self.reducer.epoch))
            case ("deliver", number):
                for told, asked in self.pocket[number : number + 1]:
                    self.reducer.bootstrap(told, asked)
            case ("repeat", many):
                self.hear([one for one in self.told[-many:] if one.name in ("event", "state")])

    def settle(self) -> RunView:
        """A last connection, which stays."""
        self.connect(self.reducer.cursor)
        while self.reducer.reopen:
            self.connect(self.reducer.cursor)
        if self.reducer.wants:
            self.reducer.bootstrap(self.world.bootstrap(), self.reducer.epoch)
        return self.reducer.view


@given(st.lists(ACTIONS, max_size=40))
@example([("take", 2), "publish", "publish", "publish", ("deliver", 0), "open"])
@example(["ask", "open", ("take", 50), "decide", ("deliver", 0), "ask"])
@example(["say", "open", "restart", "say", ("take", 50), "drop", ("deliver", 0)])
@example(["publish", "open", ("take", 50), "rebuild", "publish", ("deliver", 0), "publish"])
@example(["publish", ("take", 0), ("take", 2), ("deliver", 0), "publish", ("deliver", 1)])
@example(["publish", ("take", 2), "publish", ("take", 0), ("deliver", 1), ("deliver", 0)])
@example(["open", "update", "drop", "update", "open", "drop", "rebuild", "open"])
@example(["publish", "open", "hold", "publish", ("repeat", 1), "publish", "release"])
@example(["open", "restart", "say", ("take", 50), "restart", "say", ("deliver", 0)])
@example(["open", "publish", "say", "hold", "restart", ("take", 50), ("deliver", 0), "release"])
@example([*["publish"] * 5, "open", ("take", 50), "rebuild", ("deliver", 0)])
@example([*["publish"] * 3, ("take", 2), ("deliver", 0), "rewind"])
@settings(max_examples=500, deadline=None)
@pytest.mark.row("BR-47@client")
def test_any_overlap_repetition_and_order_ends_in_the_truth(actions: list[Any]) -> None:
    meeting = Meeting()
    for action in actions:
        meeting.act(action)
    view, world = meeting.settle(), meeting.world
    assert view.snapshot == world.snapshot
    ids, all_ids = [event["id"] for event in view.events], [event["id"] for event in world.events]
    assert ids == all_ids[len(all_ids) - len(ids) :]
    assert view.timeline.has_older or ids == all_ids
    assert view.timeline.oldest == (ids[0] if ids else None)
    assert {(part.attempt, part.part): part.text for part in view.text} == world.texts
    assert [part.end for part in view.text] == [len(part.text.encode()) for part in view.text]
    assert [one["id"] for one in view.interrupts] == list(world.questions)
    if view.events or view.cursor is not None:
        assert view.cursor == world.cursor()
    assert view.status == "running"
    assert not meeting.reducer.over
    # And then it ends.
    meeting.hear(world.end())
    meeting.reducer.bootstrap(world.bootstrap())
    view = meeting.reducer.view
    assert (view.status, view.text, view.connection) == ("succeeded", (), "ended")
    assert view.run is not None
    assert view.run["result"] == {"said": list(world.texts.values())}


def test_a_state_is_older_also_where_no_bootstrap_came_first() -> None:
    reducer, world = Reducer(RUN), World()
    (first,), (second,) = world.update(), world.update()
    reducer.opened()
    for frame in (second, first):
        reducer.frame(frame)
    assert reducer.view.snapshot == second.data["snapshot"]
    # What the record alone knows is less than what is shown, also on a connection that begins without a cursor.
    reducer.opened()
    degraded = {**first.data["snapshot"], "version": 0}
    reducer.frame(Frame("state", None, {"snapshot": degraded, "degraded": "store_unavailable"}))
    assert reducer.view.snapshot == second.data["snapshot"]
    assert reducer.view.connection == "degraded"


def test_a_late_word_of_the_record_that_the_run_has_ended_replaces_text() -> None:
    reducer, world = Reducer(RUN), World()
    reducer.bootstrap(world.bootstrap())
    reducer.opened()
    for frame in world.say("so far"):
        reducer.frame(frame)
    world.status = "succeeded"
    world.rev += 1
    late = world.bootstrap()
    late["snapshot"] = {**late["snapshot"], "status": "running", "rev": 1}
    reducer.bootstrap(late)
    assert reducer.view.text == ()
    assert (reducer.view.status, reducer.over) == ("succeeded", False)
    for frame in world.say(" and on"):
        assert reducer.frame(frame) == []
    assert not reducer.reopen


def test_a_question_that_is_known_to_be_answered_is_not_opened_by_its_event() -> None:
    meeting = Meeting()
    for action in ("ask", "decide", "publish", ("take", 2), ("deliver", 0), "rewind"):
        meeting.act(action)
    assert [event["id"] for event in meeting.reducer.view.events] == ["e1", "e2", "e3"]
    assert meeting.reducer.view.interrupts == ()
    assert not meeting.reducer.wants


def test_a_cursor_that_cannot_be_continued_is_kept_no_longer() -> None:
    reducer, world = Reducer(RUN), World()
    for frame in world.publish():
        reducer.frame(frame)
    reducer.frame(Frame("resync_required", None, {"reason": "epoch"}))
    view = reducer.view
    assert (view.cursor, view.connection) == (None, "resyncing")
    assert reducer.wants
    reducer.bootstrap(world.bootstrap())
    assert (reducer.view.cursor, reducer.wants) == (world.cursor(), False)


def test_a_recorded_stream_cut_anywhere_ends_as_the_uncut_one() -> None:
    """At every byte, and so at every frame too; what the next connection brings is what a server would tell then."""
    case = json.loads(RECORDED.read_text())
    body = case["steps"][0]["stream"].encode()
    frames = [one for frame in sse.Parser().feed(body) if (one := read(frame)) is not None]
    texts: dict[tuple[int, str], str] = {}
    for frame in frames:
        if frame.name == "text":
            key = (frame.data["attempt"], frame.data["part"])
            texts[key] = texts.get(key, "") + frame.data["text"]
    states = [frame for frame in frames if frame.name == "state"]
    events = [frame for frame in frames if frame.name == "event"]

    def rest(cursor: str | None) -> list[Frame]:
        places = [frame.cursor for frame in events]
        begin = 0 if cursor is None else places.index(cursor) + 1
        whole = [Frame("text", None, {**piece(key, "", words), "final": True}) for key, words in texts.items()]
        return [states[-1], *whole, *events[begin:], frames[-1]]

    def read_all(told: list[Frame], reducer: Reducer) -> None:
        reducer.opened()
        for frame in told:
            reducer.frame(frame)

    uncut = Reducer(case["run"])
    read_all(frames, uncut)
    assert uncut.over
    for cut in range(len(body) + 1):
        reducer = Reducer(case["run"])
        begun = [one for frame in sse.Parser().feed(body[:cut]) if (one := read(frame)) is not None]
        read_all(begun, reducer)
        if not reducer.over:
            read_all(rest(reducer.cursor), reducer)
        assert shown(reducer) == shown(uncut), cut


def test_a_view_never_changes() -> None:
    reducer, world = Reducer(RUN), World()
    reducer.bootstrap(world.bootstrap())
    reducer.opened()
    seen = []
    for number in range(20):
        for frame in [*world.publish(), *world.say(f"{number} ")]:
            reducer.frame(frame)
        view = reducer.view
        seen.append((view, [event["id"] for event in view.events], [part.text for part in view.text]))
    for view, ids, texts in seen:
        assert [event["id"] for event in view.events] == ids
        assert [part.text for part in view.text] == texts
    assert reducer.view is reducer.view


@pytest.mark.row("A29")
def test_a_frame_without_an_id_is_never_a_duplicate() -> None:
    reducer, world = Reducer(RUN), World()
    (state, event), (said,) = world.publish(), world.say("so")
    told = [one for frame in (event, state, state, said, said, event, state) for one in reducer.frame(frame)]
    assert [frame.name for frame in told] == ["event", "state", "state", "text", "text", "state"]
    # The end that a record tells has no cursor; it is known by the id in its data, and moves nothing.
    last = Frame("event", None, {"id": "run:r:9", "type": "run_succeeded", "version": 0, "payload": {}})
    assert reducer.frame(last) == [last]
    assert reducer.frame(last) == []
    assert reducer.view.cursor == world.cursor()


@pytest.mark.row("A30")
def test_what_was_seen_is_remembered_in_bounded_memory() -> None:
    reducer = Reducer(RUN)

    def event(number: int) -> Frame:
        return Frame("event", f"1-{number}.aa", {"id": f"e{number}", "type": "counted", "payload": {}})

    many = MAX_EVENTS + 3 * REMEMBERED
    for number in range(1, many + 1):
        assert reducer.frame(event(number))
    events = reducer._events
    assert len(events.shown) == MAX_EVENTS
    assert len(events._gone) == REMEMBERED
    assert [n for n in range(many - MAX_EVENTS - REMEMBERED + 1, many + 1) if reducer.frame(event(n))] == []
    assert len(reducer.view.events) == MAX_EVENTS


def cost(pieces: int) -> float:
    """CPU time of a piece of text, from its bytes to the view that has it; the least of some tries."""
    world, body = World(), []
    for number in range(pieces):
        held = number * 7
        data = {"part": "answer", "attempt": 1, "offset": held, "end": held + 7, "text": "a word ", "final": False}
        body.append(b"event: text\ndata: " + json.dumps(data).encode() + b"\n\n")
    least = float("inf")
    for _ in range(5):
        reducer, parser = Reducer(RUN), sse.Parser()
        reducer.bootstrap(world.bootstrap())
        begin = time.process_time()
        for chunk in body:
            for frame in parser.feed(chunk):
                told = read(frame)
                assert told is not None
                reducer.frame(told)
            assert reducer.view.text
        least = min(least, time.process_time() - begin)
        assert reducer.view.text[0].text == "a word " * pieces
    return least / pieces


@pytest.mark.slow
def test_the_work_of_a_piece_does_not_grow_with_the_text() -> None:
    """A ratio of two measurements beside each other, and not a time."""
    ratios = []
    for _ in range(3):
        ratios.append(cost(50_000) / cost(5_000))
        if ratios[-1] <= 1.3:
            return
    pytest.fail(f"ten times the text makes a piece {min(ratios):.2f} times as dear")
