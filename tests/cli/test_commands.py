"""Runs started, listed, shown, watched, stopped and answered from the command line."""

import io
import json
import os
import pty
import re
import subprocess
import uuid

import pytest

from tests.cli.served import COMMAND, PATIENCE, ROOT, environment, finished, frames, playhead, serving, spawn, until

UUID = re.compile(r"[0-9a-f-]{36}")


@pytest.fixture
def run(here):
    """Start a run; its id."""

    def start(agent, *arguments):
        code, out, err = here("run", agent, *arguments)
        assert (code, err) == (0, "")
        assert UUID.fullmatch(out.strip())
        return out.strip()

    return start


@pytest.fixture
def shown(here):
    return lambda run_id: json.loads(here("show", run_id, "--json")[1])


def test_a_run_from_its_start_to_its_result(here, run, shown):
    started = run("greet", "--input", '{"who": "you"}', "--key", "order-7", "--label", "team=legal")
    code, out, err = here("tail", started)
    assert (code, err) == (0, "")
    types = [line.split()[1] for line in out.splitlines() if "|" not in line]
    assert types == ["run_queued", "run_started", "attempt_started", *["step_taken"] * 3, "run_succeeded"]
    assert "\x1b" not in out
    found = shown(started)
    assert (found["status"], found["result"]) == ("succeeded", {"greeted": "you"})
    assert (found["key"], found["labels"], found["interrupts"]) == ("order-7", {"team": "legal"}, [])
    text = here("show", started)[1]
    assert "status        succeeded" in text
    assert '"greeted": "you"' in text


def test_text_is_shown_line_by_line(here, run, shown, server):
    started = run("recite")
    until(lambda: shown(started)["interrupts"])
    watching = spawn("tail", started, "--data", server.data)
    quiet = spawn("tail", started, "--data", server.data, "--no-text")
    for one in (watching, quiet):
        until(lambda one=one: "approval_required" in one.stdout.readline())
    assert here("approve", started)[0] == 0
    code, out, err = finished(watching)
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if line.startswith("answer |")] == [
        "answer | two and more",
        "answer | \\x1b[31mthe end",
    ]
    assert "notes | aside" in out
    assert " | " not in finished(quiet)[1].replace("answer it with | ", "")


def test_a_terminal_shows_progress_over_the_lines(here, run, shown, server):
    started = run("recite")
    until(lambda: shown(started)["interrupts"])
    master, slave = pty.openpty()
    watching = subprocess.Popen(
        [*COMMAND, "tail", started, "--data", str(server.data)],
        cwd=ROOT,
        env=environment() | {"TERM": "xterm-256color", "COLUMNS": "100"},
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    got = b""
    while not (b"approval_required" in got and b"waiting" in got):
        got += os.read(master, 65_536)
    assert here("approve", started)[0] == 0
    while True:
        try:
            more = os.read(master, 65_536)
        except OSError:  # how a terminal says that nobody writes any more
            break
        if not more:
            break
        got += more
    os.close(master)
    assert watching.wait(PATIENCE) == 0
    text = got.decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "\x1b[?25l" in text  # the cursor is hidden while it is live
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert "answer │ two and more" in plain
    assert "answer │ \\x1b[31mthe end" in plain
    assert "run_succeeded" in plain


def test_a_run_can_be_followed_at_once(here):
    code, out, _ = here("run", "greet", "--follow")
    assert code == 0
    assert UUID.fullmatch(out.splitlines()[0])
    assert "run_succeeded" in out
    code, out, _ = here("run", "greet", "--follow", "--json")
    assert frames(out, "end")[0]["status"] == "succeeded"


def test_frames_as_json(here, run):
    started = run("greet", "--input", '{"count": 5}')
    code, out, _ = here("tail", started, "--json")
    assert code == 0
    events = frames(out)
    assert [one["payload"]["number"] for one in events if one["type"] == "step_taken"] == [0, 1, 2, 3, 4]
    assert len({one["id"] for one in events}) == len(events)
    assert frames(out, "state")
    assert frames(out, "end") == [{"run_id": started, "status": "succeeded"}]
    cursors = [one["id"] for line in out.splitlines() if (one := json.loads(line))["frame"] == "event"]
    code, out, _ = here("tail", started, "--json", "--cursor", cursors[3])
    assert [one["id"] for one in frames(out)] == [one["id"] for one in events[4:]]
    assert here("tail", started, "--json", "--cursor", cursors[-1])[:2] == (0, "")
    code, out, err = here("tail", started, "--cursor", "nonsense")
    assert (code, err) == (0, "playhead: events may be missing here (malformed)\n")


def test_the_exit_code_tells_the_outcome(here, run):
    assert here("tail", run("fail"))[0] == 1
    stopped = run("last")
    code, out, _ = here("cancel", stopped, "--reason", "enough", "--json")
    assert (code, json.loads(out)["cancel_requested"]["reason"]) == (0, "enough")
    assert here("tail", stopped)[0] == 4
    assert here("tail", stopped, "--json")[0] == 4
    assert here("cancel", stopped)[0] == 0  # asked again, it is the same


def test_answers(here, run, shown):
    asked = run("wait")
    until(lambda: shown(asked)["interrupts"])
    assert f"playhead approve {asked}" in here("show", asked)[1]
    code, out, _ = here("approve", asked, "--note", "go on", "--json")
    assert (code, json.loads(out)["status"]) == (0, "decided")
    assert here("tail", asked)[0] == 0
    assert shown(asked)["result"] == {"approved": [True], "notes": ["go on"]}
    code, _, err = here("approve", asked)
    assert (code, err) == (2, "playhead: The run asks nothing now. (not_found)\n")


def test_one_of_several_questions_has_to_be_named(here, run, shown):
    asked = run("wait", "--input", '{"questions": 2}')
    questions = until(lambda: (found := shown(asked)["interrupts"]) and len(found) == 2 and found)
    code, _, err = here("reject", asked)
    assert code == 2
    assert all(one["id"] in err for one in questions)
    assert here("reject", asked, questions[0]["id"])[0] == 0
    assert here("approve", asked, questions[0]["id"])[0] == 2  # the first decision counts
    assert here("approve", asked)[0] == 0
    here("tail", asked)
    assert sorted(shown(asked)["result"]["approved"]) == [False, True]


def test_lists(here, run):
    mark = uuid.uuid4().hex
    first = run("greet", "--label", f"mark={mark}")
    second = run("fail", "--label", f"mark={mark}")
    for one in (first, second):
        here("tail", one)
    lines = here("runs", "--label", f"mark={mark}")[1].splitlines()
    assert [line.split()[0] for line in lines] == [second, first]
    assert [line.split()[1] for line in lines] == ["failed", "succeeded"]
    found = json.loads(here("runs", "--label", f"mark={mark}", "--status", "failed", "--json")[1])
    assert [one["id"] for one in found["runs"]] == [second]
    found = json.loads(here("runs", "--label", f"mark={mark}", "--limit", "1", "--json")[1])
    assert len(found["runs"]) == 1
    assert found["next"] is not None
    assert json.loads(here("runs", "--agent", "nobody", "--json")[1])["runs"] == []


def test_input_from_a_file_and_a_pipe(here, run, shown, tmp_path, monkeypatch):
    file = tmp_path / "input.json"
    file.write_text('{"who": "file"}')
    assert shown(run("greet", "--input", f"@{file}"))["input"]["who"] == "file"
    monkeypatch.setattr("sys.stdin", io.StringIO('{"who": "pipe"}'))
    assert shown(run("greet", "--input", "-"))["input"]["who"] == "pipe"


def test_the_same_idempotency_key_starts_one_run(here, run):
    key = uuid.uuid4().hex
    assert run("greet", "--idempotency-key", key) == run("greet", "--idempotency-key", key)
    code, _, err = here("run", "fail", "--idempotency-key", key)
    assert code == 2
    assert "(key_conflict)" in err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("run", "nobody"), "unknown_agent"),
        (("run", "greet", "--input", "{"), "invalid_request"),
        (("run", "greet", "--input", "@nowhere"), "invalid_request"),
        (("run", "greet", "--input", '{"when": 1}'), "invalid_input"),
        (("run", "greet", "--label", "nothing"), "invalid_request"),
        (("run", "greet", "--key", "a b"), "invalid_request"),
        (("show", "nothing"), "not_found"),
        (("show", "../agents"), "not_found"),
        (("tail", "nothing"), "not_found"),
        (("tail", "01a227ff-1a50-7be8-88b5-a2edcd53ca6e"), "not_found"),
        (("cancel", "nothing"), "not_found"),
        (("approve", "nothing"), "not_found"),
        (("approve", "nothing", "nothing"), "not_found"),
        (("runs", "--status", "nothing"), "invalid_request"),
    ],
)
def test_what_is_refused_is_one_line(here, arguments, code):
    exit_code, out, err = here(*arguments)
    assert (exit_code, out) == (2, "")
    assert err.endswith(f" ({code})\n")
    assert err.count("\n") == 1


def test_a_server_by_its_address(server, cli, tmp_path):
    code, out, _ = cli("runs", "--url", f"{server.url}/", "--data", tmp_path / "none", "--json")
    assert (code, "runs" in json.loads(out)) == (0, True)
    code, _, err = cli("runs", "--url", "nowhere")
    assert (code, "(invalid_request)" in err) == (2, True)


@pytest.mark.parametrize(
    "arguments", [("run", "greet"), ("cancel", "x"), ("approve", "x"), ("reject", "x", "y"), ("runs",), ("tail", "x")]
)
def test_without_a_server_or_data_it_is_told_how_to_start_one(cli, tmp_path, arguments):
    code, out, err = cli(*arguments, "--data", tmp_path / "my data")
    assert (code, out) == (3, "")
    assert f"playhead serve --data '{tmp_path}/my data'" in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_reading_goes_on_without_a_server(cli, tmp_path):
    data = tmp_path / "data"
    with serving(data) as served:
        started = playhead("run", "greet", "--data", data)[1].strip()
        assert playhead("tail", started, "--data", data)[0] == 0
        going = playhead("run", "walk", "--input", '{"pause": 600}', "--data", data)[1].strip()
        until(lambda: '"running"' in playhead("show", going, "--json", "--data", data)[1])
        served.signal()
        assert served.end() == 0
    assert [line.split()[0] for line in cli("runs", "--data", data)[1].splitlines()] == [going, started]
    assert len(json.loads(cli("runs", "--status", "succeeded", "--json", "--data", data)[1])["runs"]) == 1
    assert cli("runs", "--status", "nothing", "--data", data)[0] == 2
    assert json.loads(cli("show", started, "--json", "--data", data)[1])["result"] == {"greeted": "world"}
    code, out, _ = cli("tail", started, "--data", data)
    assert (code, out.splitlines()[-1]) == (0, f"run {started} succeeded")
    assert "step_taken" in out
    assert cli("show", "nothing", "--data", data)[0] == 2
    assert cli("tail", "nothing", "--data", data)[0] == 2
    # A resumable run that was given back goes on with the next server.
    code, _, err = cli("tail", going, "--data", data)
    assert (code, "no server is running" in err) == (3, True)
