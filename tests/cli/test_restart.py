"""Commands beside a server that dies, moves and comes back, and beside each other."""

import json

import pytest

from tests.cli.served import finished, frames, playhead, serving, spawn


def seen(process, lines, words):
    """Read what a command prints until these words come."""
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return
    pytest.fail(f"{words} never came: {''.join(lines)} {process.stderr.read()}")


@pytest.mark.slow
def test_tail_goes_on_through_kill_and_restart(tmp_path):
    data = tmp_path / "data"
    count = 30
    lines: list[str] = []
    with serving(data) as first:
        given = json.dumps({"count": count, "pause": 0.5})
        started = playhead("run", "walk", "--input", given, "--data", data)[1].strip()
        watching = spawn("tail", started, "--data", data, "--json", retry=0.2)
        seen(watching, lines, '"number": 8')
        first.process.kill()
        first.process.wait()
    with serving(data) as second:
        assert second.url != first.url
        seen(watching, lines, '"frame": "end"')
        code, rest, err = finished(watching)
        stored = playhead("show", started, "--json", "--data", data)[1]
    assert code == 0, err
    assert json.loads(stored)["status"] == "succeeded"
    events = frames("".join(lines) + rest)
    assert len({one["id"] for one in events}) == len(events)
    steps = [one["payload"] for one in events if one["type"] == "step_taken"]
    # Of the attempt that died, what it had published, without a hole; of the one that ended, everything.
    earlier = [one["number"] for one in steps if one["attempt"] == 1]
    assert earlier == list(range(len(earlier)))
    assert len(earlier) >= 9
    assert [one["number"] for one in steps if one["attempt"] == 2] == list(range(count))
    assert [one["type"] for one in events if one["type"].startswith("run_")] == [
        "run_queued",
        "run_started",
        "run_succeeded",
    ]
    assert "is lost" in err or "is running" in err


@pytest.mark.slow
def test_tail_learns_that_a_run_was_interrupted(tmp_path):
    data = tmp_path / "data"
    lines: list[str] = []
    with serving(data) as first:
        started = playhead("run", "last", "--data", data)[1].strip()
        watching = spawn("tail", started, "--data", data, "--json", retry=0.2)
        seen(watching, lines, '"type": "begun"')
        first.process.kill()
        first.process.wait()
    with serving(data):
        code, rest, err = finished(watching)
    assert code == 5, err
    assert [one["type"] for one in frames("".join(lines) + rest)][-1] == "run_interrupted"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.row("BR-79")
def test_many_commands_beside_one_server_lose_nothing(tmp_path):
    data = tmp_path / "data"
    count = 100
    given = json.dumps({"count": count, "pause": 0.01})
    command = ("run", "walk", "--input", given, "--follow", "--json", "--data", data)
    runs = []
    with serving(data, concurrency=20) as served:
        for _ in range(5):
            for one in [spawn(*command) for _ in range(4)]:
                code, out, err = finished(one)
                assert (code, err) == (0, "")
                events = frames(out)
                steps = [event["payload"]["number"] for event in events if event["type"] == "step_taken"]
                assert steps == list(range(count))
                versions = [event["version"] for event in events]
                assert versions == sorted(set(versions))
                runs.append(events[0]["run_id"])
        listed = json.loads(playhead("runs", "--status", "succeeded", "--json", "--data", data)[1])["runs"]
        assert sorted(one["id"] for one in listed) == sorted(runs)
        assert len(set(runs)) == 20
        served.signal()
        assert served.end() == 0
        log = served.log.read_text()
    assert "locked" not in log
    assert "Traceback" not in log
