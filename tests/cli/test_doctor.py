import json
import os
import resource
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from playhead.cli import checks, doctor, mounts
from playhead.settings import Settings
from tests.cli.served import serving


@pytest.fixture(autouse=True)
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def findings(cli, data, *, code=0):
    exit_code, out, err = cli("doctor", "--data", data, "--json")
    assert (exit_code, err) == (code, "")
    told = json.loads(out)
    assert told["ok"] is (code == 0)
    return {one["name"]: one for one in told["findings"]}


def test_a_folder_that_is_not_there(cli, tmp_path):
    found = findings(cli, tmp_path / "data")
    assert found["folder"]["level"] == "warn"
    assert found["writable"]["level"] == found["space"]["level"] == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_a_server(cli, server):
    found = findings(cli, server.data)
    assert server.url in found["server"]["message"]
    assert found["record"]["level"] == found["live"]["level"] == "ok"
    assert "runs have not ended" in found["record"]["message"]


def test_lines_for_people(cli, tmp_path):
    code, out, _ = cli("doctor", "--data", tmp_path)
    assert code == 0
    assert {line.split()[0] for line in out.splitlines()} <= {"ok", "warn", "settings:"}
    assert "lease=10.0" in out


def test_a_folder_that_is_a_file(cli, tmp_path):
    (tmp_path / "data").touch()
    assert findings(cli, tmp_path / "data", code=1)["folder"]["level"] == "fail"


def test_damage_and_readable_files_and_what_a_killed_server_left(cli, tmp_path):
    data = tmp_path / "data"
    with serving(data) as served:
        served.process.kill()
        served.process.wait()
    assert "did not end by itself" in findings(cli, data)["server"]["message"]
    data.chmod(0o755)
    (data / "record.db").chmod(0o644)
    permissions = findings(cli, data)["permissions"]
    assert permissions["level"] == "warn"
    assert "record.db" in permissions["message"]
    assert "chmod" in permissions["advice"]
    (data / "live.db-wal").unlink()
    (data / "live.db").write_bytes(b"nothing of the kind " * 400)
    live = findings(cli, data, code=1)["live"]
    assert live["level"] == "fail"
    assert "made again" in live["advice"]


def test_a_server_that_does_not_answer(tmp_path, monkeypatch):
    info = SimpleNamespace(pid=1, url="http://127.0.0.1:9", started_at=0, version="0")
    monkeypatch.setattr(checks, "find_server", lambda data: info)
    monkeypatch.setattr(checks, "read_server", lambda data: info)
    (found,) = checks.server(Settings(data=tmp_path))
    assert found.level == "fail"


@pytest.mark.parametrize(("version", "level"), [(False, "ok"), (True, "warn")])
def test_the_wal_reset_fault_is_told_and_does_not_fail(tmp_path, monkeypatch, version, level):
    monkeypatch.setattr(checks, "has_wal_reset_fault", lambda: version)
    assert next(checks.stores(Settings(data=tmp_path))).level == level


@pytest.mark.parametrize(("free", "level"), [(1 << 40, "ok"), (512 << 20, "warn"), (1 << 20, "fail")])
def test_space(tmp_path, monkeypatch, free, level):
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=free))
    assert {one.name: one.level for one in checks.folder(Settings(data=tmp_path))}["space"] == level


def test_a_file_system_that_is_read_only(tmp_path, monkeypatch):
    def refuse(**options):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    found = {one.name: one for one in checks.folder(Settings(data=tmp_path))}
    assert found["writable"].level == "fail"
    assert "Read-only" in found["writable"].message


def test_network_file_systems_are_known(tmp_path, monkeypatch):
    table = tmp_path / "mounts"
    place = str(tmp_path).replace(" ", "\\040")
    table.write_text(f"/dev/a / ext4 rw 0 0\nhost:/x {place} nfs4 rw 0 0\nproc /proc proc rw 0 0\nbroken\n")
    assert mounts.file_system(tmp_path / "data", table) == "nfs4"
    assert mounts.file_system(tmp_path.parent, table) == "ext4"
    assert mounts.file_system(tmp_path, tmp_path / "none") is None
    for kind in ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"):
        assert mounts.NETWORK.fullmatch(kind)
    for kind in ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "fuse.ext4"):
        assert not mounts.NETWORK.fullmatch(kind)
    monkeypatch.setattr(checks, "file_system", lambda place: "nfs4")
    assert {one.name: one.level for one in checks.folder(Settings(data=tmp_path))}["file system"] == "warn"


def test_a_clock_that_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "MADE", datetime.now(UTC) + timedelta(days=1))
    found = {one.name: one.level for one in checks.machine(Settings(data=tmp_path))}
    assert found["clock"] == "fail"


def test_files_of_the_future(tmp_path):
    file = tmp_path / "record.db"
    file.touch()
    later = datetime.now(UTC).timestamp() + 3_600
    os.utime(file, (later, later))
    assert {one.name: one.level for one in checks.machine(Settings(data=tmp_path))}["clock"] == "warn"


def test_open_files(tmp_path, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1_024, 4_096))
    assert {one.name: one.level for one in checks.machine(Settings(data=tmp_path))}["open files"] == "warn"


def test_secrets_are_masked():
    shown = doctor.masked({"token": "abc", "dsn": None, "url": "postgresql://me:pw@host/db", "lease": 10.0})
    assert shown == {"token": "***", "dsn": None, "url": "postgresql://***@host/db", "lease": 10.0}


def test_a_missing_package_fails(monkeypatch):
    monkeypatch.setattr(doctor, "NEEDED", ("no-such-thing",))
    assert [one.level for one in doctor.packages()] == ["ok", "fail"]


def test_settings_that_are_wrong_are_one_line(cli, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text("leese = 3")
    code, out, err = cli("doctor", "--settings", file)
    assert (code, out) == (2, "")
    assert err.endswith("(invalid_setting)\n")
