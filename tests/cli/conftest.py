import sys

import pytest

from playhead.cli import main
from tests.cli.served import serving, spawned


@pytest.fixture(autouse=True)
def nothing_left_running():
    yield
    while spawned:
        process = spawned.pop()
        process.kill()
        process.communicate()


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run a command in this process: exit code, output, errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["playhead", *map(str, arguments)])
        capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A server that tests share."""
    with serving(tmp_path_factory.mktemp("served") / "data") as served:
        yield served


@pytest.fixture
def here(server, cli):
    """Run a command on the shared server's data folder."""
    return lambda *arguments: cli(*arguments, "--data", server.data)
