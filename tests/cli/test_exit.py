"""The end of a process in which somebody's threads hang: nothing is lost, and it comes."""

import subprocess
import sys

import pytest

from tests.cli.served import PATIENCE, ROOT

SCRIPT = """
import asyncio, logging.handlers, os, signal, sys, threading, time
from playhead.cli import exit
from playhead.errors import NotFound

target = logging.StreamHandler()
logging.getLogger().addHandler(logging.handlers.MemoryHandler(1_000, flushLevel=100, target=target))

def tell():
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        time.sleep(0.01)  # between two looks
    os.kill(os.getpid(), signal.SIGTERM)

async def work(what):
    print("printed", end="")
    logging.warning("logged")
    if what != "plain":
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
    if what == "failing":
        raise NotFound("Nothing.")
    if what == "told":
        exit._PATIENCE = 3600.0
        threading.Thread(target=tell, daemon=True).start()
    await asyncio.sleep(0)

code = exit.run(asyncio.Runner(), work(sys.argv[1]))
print(" and it went on", end="")
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("what", "code", "printed", "told"),
    [
        ("plain", 0, "printed and it went on", "logged\n"),
        ("hanging", 0, "printed", "logged\n"),
        ("told", 0, "printed", "logged\n"),
        ("failing", 2, "printed", "playhead: Nothing. (not_found)\nlogged\n"),
    ],
)
def test_it_ends_with_its_code_and_everything_written(what, code, printed, told):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, what], cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, printed, told)
