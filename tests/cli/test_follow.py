"""The follower against a server that plays a script: each connection gets the next answer."""

import json
import socket
import threading
from contextlib import contextmanager

import pytest

from playhead.cli.folder import Place
from playhead.cli.follow import Follower
from playhead.errors import InvalidRequest, NoServer, NotFound, PlayheadError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
GONE = b"HTTP/1.1 204 No Content\r\n\r\n"


def event(position, *, kind="step_taken", id=None):
    data = {"id": id or f"e{position}", "type": kind, "payload": {}}
    return f"id: 1-{position}.aa\ndata: {json.dumps(data)}\n\n".encode()


def named(name, data, id=None):
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {name}\ndata: {json.dumps(data)}\n\n".encode()


END = named("end", {"run_id": "r", "status": "succeeded"}, "end")


def refusal(status, code, **headers):
    body = json.dumps({"code": code, "detail": "No.", "status": status}).encode()
    lines = [f"HTTP/1.1 {status} No", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def playing(*answers, hold=()):
    """Answer each connection with the next of these; those whose number is in `hold` stay open and silent."""
    asked, held = [], []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def play():
            for number, answer in enumerate(answers):
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                asked.append(peer.recv(65_536).split(b"\r\n")[0].decode())
                peer.sendall(answer)
                if number in hold:
                    held.append(peer)
                else:
                    peer.close()

        thread = threading.Thread(target=play)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for peer in held:
                peer.close()


def follow(url, tmp_path, **options):
    """What a follower of this script gives: names and event ids, waits, notices."""
    waits: list[float] = []
    notices: list[str] = []
    place = Place(tmp_path, url, keepalive=options.pop("keepalive", 15.0))
    follower = Follower(place, "r", sleep=waits.append, notice=notices.append, **options)
    frames = list(follower.frames())
    return frames, waits, notices


def ids(frames):
    return [frame.data["id"] for frame in frames if frame.name == "event"]


def test_it_goes_on_from_its_cursor_and_stops_at_the_end(tmp_path):
    cut = event(3)[:9]
    with playing(HEAD + event(1) + event(2) + cut, HEAD + event(3) + END) as (url, asked):
        frames, waits, notices = follow(url, tmp_path)
    assert ids(frames) == ["e1", "e2", "e3"]
    assert frames[-1].name == "end"
    assert "cursor" not in asked[0]
    assert "cursor=1-2.aa" in asked[1]
    assert (len(waits), notices) == (1, [])


def test_the_ids_of_control_frames_are_no_cursors(tmp_path):
    resync = named("resync_required", {"reason": "expired", "bootstrap": {"cursor": "1-9.bb", "events": []}}, "stop")
    with playing(HEAD + resync, HEAD + END) as (url, asked):
        follow(url, tmp_path, cursor="1-1.aa")
    assert "cursor=1-9.bb" in asked[1]


def test_a_resync_within_the_stream_shows_each_event_once(tmp_path):
    screen = {
        "cursor": "2-2.cc",
        "events": [json.loads(event(n).split(b"data: ")[1]) for n in (1, 2, 3)],
        "snapshot": {"status": "running"},
        "degraded": None,
        "text": [{"part": "answer", "attempt": 1, "offset": 0, "end": 2, "text": "ab", "final": False}],
    }
    more = named("text", {"part": "answer", "attempt": 1, "offset": 2, "end": 3, "text": "c", "final": False})
    body = event(1) + event(2) + named("resync_required", {"reason": "epoch", "bootstrap": screen}) + more
    with playing(HEAD + body + event(3) + event(4) + END) as (url, _):
        frames, waits, _ = follow(url, tmp_path)
    assert ids(frames) == ["e1", "e2", "e3", "e4"]
    assert [frame.data["text"] for frame in frames if frame.name == "text"] == ["ab", "c"]
    assert waits == []


def test_text_that_does_not_continue_is_asked_for_anew(tmp_path):
    def text(offset, words):
        piece = {"part": "answer", "attempt": 1, "offset": offset, "end": offset + len(words), "text": words}
        return named("text", piece)

    with playing(HEAD + text(0, "ab") + text(9, "z"), HEAD + text(0, "abcdefghiz") + END) as (url, asked):
        frames, _, _ = follow(url, tmp_path)
    assert [frame.data["text"] for frame in frames if frame.name == "text"] == ["ab", "abcdefghiz"]
    assert len(asked) == 2


def test_a_silent_connection_is_given_up(tmp_path):
    with playing(HEAD + event(1), HEAD + END, hold={0}) as (url, asked):
        frames, _, notices = follow(url, tmp_path, keepalive=0.1)
    assert ids(frames) == ["e1"]
    assert len(asked) == 2
    assert "timed out" in notices[0]


def test_it_stays_away_as_long_as_it_is_told(tmp_path):
    answers = (
        refusal(503, "not_ready", Retry_After=7),
        HEAD + b"retry: 2000\n\n" + event(1),
        HEAD + b"retry: 5000\n\n" + named("draining", {"retry": 5000}),
        HEAD + END,
    )
    with playing(*answers) as (url, _):
        _, waits, notices = follow(url, tmp_path)
    assert [least for least, wait in zip((7, 2, 5), waits, strict=True) if wait < least] == []
    assert notices == ["the server refuses for now (not_ready)", "the server is going down"]


def test_nothing_more_to_follow_is_the_end(tmp_path):
    with playing(GONE) as (url, _):
        assert follow(url, tmp_path)[0] == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal(404, "not_found"), NotFound),
        (refusal(400, "invalid_request"), InvalidRequest),
        (HEAD + b"data: {\n\n", PlayheadError),
    ],
)
def test_what_cannot_be_followed_is_an_error(tmp_path, answer, error):
    with playing(answer) as (url, _), pytest.raises(error):
        follow(url, tmp_path)


def test_a_server_that_makes_mistakes_is_given_up_at_last(tmp_path):
    with playing(*[refusal(500, "internal_error")] * 9) as (url, asked), pytest.raises(PlayheadError):
        follow(url, tmp_path)
    assert len(asked) == 9


def test_without_a_server_there_is_nothing_to_follow(tmp_path):
    with pytest.raises(NoServer):
        list(Follower(Place(tmp_path), "r").frames())
