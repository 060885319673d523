import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from playhead.backends.sqlite.lock import DataLock, ServerInfo, find_server, read_server
from playhead.errors import DataLocked, FolderUnusable

INFO = ServerInfo(os.getpid(), "http://127.0.0.1:8700", 1_767_225_600_000, "0.1.0")

HOLD = """
import sys, pathlib
from playhead.backends.sqlite.lock import DataLock, ServerInfo
import os
lock = DataLock.acquire(pathlib.Path(sys.argv[1]))
lock.announce(ServerInfo(os.getpid(), "http://127.0.0.1:8701", 1, "0.1.0"))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.row("F50")
def test_a_second_holder_is_refused_and_told_who_the_first_is(tmp_path):
    first = DataLock.acquire(tmp_path)
    with pytest.raises(DataLocked, match=f"process {os.getpid()}"):
        DataLock.acquire(tmp_path)
    first.announce(INFO)
    with pytest.raises(DataLocked, match=r"http://127\.0\.0\.1:8700") as caught:
        DataLock.acquire(tmp_path)
    assert caught.value.details["pid"] == os.getpid()
    first.release()
    first.release()
    second = DataLock.acquire(tmp_path)
    second.release()


@pytest.mark.row("F50")
def test_another_process_holds_the_lock_until_it_is_killed(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(DataLocked, match=r"8701"):
            DataLock.acquire(tmp_path)
        found = find_server(tmp_path)
        assert found is not None
        assert found.pid == holder.pid
        holder.kill()
        holder.wait()
        # server.json is still there, and counts for nothing.
        assert read_server(tmp_path) is not None
        assert find_server(tmp_path) is None
    lock = DataLock.acquire(tmp_path)
    with pytest.raises(DataLocked):
        DataLock.acquire(tmp_path)
    lock.release()


def test_a_stale_address_is_not_named_as_the_holders(tmp_path):
    (tmp_path / "server.json").write_text(json.dumps({"pid": 1, "url": "http://old", "started_at": 1, "version": "0"}))
    lock = DataLock.acquire(tmp_path)
    with pytest.raises(DataLocked) as caught:
        DataLock.acquire(tmp_path)
    assert "http://old" not in caught.value.message
    lock.release()
    assert read_server(tmp_path) is None


def test_the_announcement_is_read_back_and_removed(tmp_path):
    lock = DataLock.acquire(tmp_path / "deep" / "data")
    assert find_server(lock.folder) is None
    lock.announce(INFO)
    assert find_server(lock.folder) == INFO
    assert (lock.folder / "server.json").stat().st_mode & 0o777 == 0o600
    lock.release()
    assert find_server(lock.folder) is None
    assert read_server(lock.folder) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1}', "\x00"])
def test_a_broken_announcement_is_none(tmp_path, text):
    (tmp_path / "server.json").write_text(text)
    assert read_server(tmp_path) is None


def test_looking_for_a_server_makes_nothing(tmp_path):
    assert find_server(tmp_path / "absent") is None
    assert find_server(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_told(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(FolderUnusable, match="data"):
        DataLock.acquire(tmp_path / "data")
    with pytest.raises(FolderUnusable, match="data"):
        DataLock.acquire(tmp_path / "data" / "below")


def test_a_folder_that_cannot_be_made_or_written_is_told(tmp_path):
    with pytest.raises(FolderUnusable):
        DataLock.acquire(Path("/proc/playhead"))
    (tmp_path / "server.lock").mkdir()
    with pytest.raises(FolderUnusable):
        DataLock.acquire(tmp_path)


def test_the_lock_does_not_pass_to_programs_that_are_started(tmp_path):
    lock = DataLock.acquire(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, close_fds=False
    )
    with child:
        lock.release()
        DataLock.acquire(tmp_path).release()
        child.kill()
