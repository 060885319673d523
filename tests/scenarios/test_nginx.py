"""The nginx of deploy/, with two gateways behind it: HTTP/2, no buffering, and another gateway when one is gone."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import pytest

from playhead.testing.harness.process import Process, free_port
from tests.scenarios.fleet import PATIENCE, ROOT, Fleet
from tests.scenarios.scene import Scene
from tests.support.certificates import self_signed
from tests.support.wire import Client

pytestmark = [pytest.mark.anyio, pytest.mark.wide]

VIEWERS = 500
LONG = 2 * PATIENCE  # for as many
CONFIGURATION = ROOT / "deploy" / "nginx.conf"


@dataclass(frozen=True)
class Front:
    port: int
    certificate: Path

    @property
    def client(self) -> Client:
        return Client("127.0.0.1", self.port, tls=ssl.create_default_context(cafile=str(self.certificate)))


def configuration(port: int, gateways: list[int], certificate: Path, key: Path, folder: Path) -> str:
    """What is shipped, with the three things changed that it says are to be changed, and its files in this folder."""
    text = CONFIGURATION.read_text()
    changes = {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "127.0.0.1:8701": f"127.0.0.1:{gateways[0]}",
        "127.0.0.1:8702": f"127.0.0.1:{gateways[1]}",
        "/etc/playhead/tls.crt": str(certificate),
        "/etc/playhead/tls.key": str(key),
    }
    for shipped, here in changes.items():
        assert text.count(shipped) == 1, shipped
        text = text.replace(shipped, here)
    places = [f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")]
    return text.replace("http {", "\n    ".join(["http {", "access_log off;", *places]), 1)


@pytest.fixture
def nginx(fleet: Fleet, tmp_path: Path) -> Iterator[Front]:
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    certificate, key = self_signed(tmp_path)
    folder, port = Path(tempfile.mkdtemp(prefix="playhead-nginx-")), free_port()
    file = folder / "nginx.conf"
    file.write_text(configuration(port, [one.port for one in fleet.gateways], certificate, key, folder))
    told = f"daemon off; pid {folder}/pid; error_log stderr;"

    def ready() -> bool:
        return (folder / "pid").exists() and bool((folder / "pid").read_text())

    server = Process([program, "-e", "stderr", "-p", folder, "-c", file, "-g", told], folder=folder, ready=ready)
    server.start()
    try:
        yield Front(port, certificate)
    finally:
        server.close()


@pytest.mark.row("F5", "M-other-process")
@pytest.mark.timeout(5 * LONG)  # half a minute of work for two cores that are not alone here
async def test_500_viewers_of_two_gateways_of_which_one_is_killed(scene: Scene, nginx: Front) -> None:
    """They are all back, with what came meanwhile, before the run goes on to its end."""
    one = await scene.start("plain", steps=24, gates=["at-12", "end"], viewers=0)
    began = monotonic()
    for _ in range(VIEWERS):
        scene.watch(one, through=[nginx.client])
    await scene.seen(one, "step_taken", wait=LONG)
    killed = monotonic()
    await scene.fleet.gateways[0].kill()
    await scene.reached(one, "at-12")
    scene.open(one, "at-12")
    await scene.reached(one, "end")
    await scene.seen(one, "step_taken", 24, wait=LONG)
    back = (monotonic() - killed) / (killed - began)
    print(f"{VIEWERS} viewers were back in {back:.2f} of the time in which they came")
    assert back < 3.0
    scene.open(one, "end")
    await scene.settle(wait=LONG)
    assert all(viewer.screen.finals == ["run_succeeded"] for viewer in one.viewers)
    await scene.fleet.gateways[0].start()
    await scene.judge()


async def test_frames_come_over_http_2_when_they_are_said(scene: Scene, nginx: Front) -> None:
    one = await scene.start("plain", steps=3, gates=["at-2"], viewers=1)
    address = f"https://127.0.0.1:{nginx.port}/runs/{one.id}/stream"
    command = ["curl", "-sS", "-N", "--http2", "--cacert", str(nginx.certificate), "-D", "-", address]
    curl = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert curl.stdout is not None
    said = b""
    async with asyncio.timeout(PATIENCE):
        while b'"step_taken"' not in said:  # while the run waits: nothing that follows could push it out of a buffer
            more = await curl.stdout.read(65_536)
            assert more, said
            said += more
        scene.open(one, "at-2")
        said += await curl.stdout.read()
        assert await curl.wait() == 0
    assert said.startswith(b"HTTP/2 200")
    steps = [json.loads(data)["payload"]["i"] for data in re.findall(rb"^data: (.*\"step_taken\".*)$", said, re.M)]
    assert steps == [1, 2, 3]
    await scene.settle()
    await scene.judge()
