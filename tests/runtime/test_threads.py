"""Plain functions in threads that nobody waits for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextvars import ContextVar

import pytest

from playhead.runtime.threads import Threads, ordinary
from tests.runtime.whole import eventually

pytestmark = pytest.mark.anyio
name: ContextVar[str] = ContextVar("name")


async def test_what_it_returns_and_raises_comes_back() -> None:
    threads = Threads(2, "some")
    name.set("of the caller")
    assert await threads.call(name.get) == "of the caller"
    with pytest.raises(ZeroDivisionError):
        await threads.call(lambda: 1 / 0)


@pytest.mark.parametrize(
    "raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(1), asyncio.CancelledError()]
)
async def test_what_a_loop_takes_for_its_own_comes_back_as_an_error(raised: BaseException) -> None:
    def leave() -> None:
        raise raised

    with pytest.raises(RuntimeError, match=f"{type(raised).__name__} was raised") as told:
        await Threads(1, "some").call(leave)
    assert told.value.__cause__ is raised
    error = ValueError("x")
    assert ordinary(error) is error


async def test_only_so_many_run_at_once_and_others_take_their_turn() -> None:
    threads, gate, inside = Threads(2, "some"), threading.Event(), threading.Semaphore(0)
    running: list[int] = []

    def work(n: int) -> int:
        running.append(n)
        inside.release()
        gate.wait(30)
        return n

    calls = [threads.call(work, n) for n in range(6)]
    for _ in range(2):
        await asyncio.to_thread(inside.acquire)
    assert sorted(running) == [0, 1]
    calls[4].cancel()  # before its turn
    calls[0].cancel()  # too late: it goes on, and nobody hears of it
    gate.set()
    assert await asyncio.gather(*(calls[n] for n in (1, 2, 3, 5))) == [1, 2, 3, 5]
    assert 4 not in running
    await eventually(lambda: not any(one.name == "some" for one in threading.enumerate()))


def test_a_function_that_never_ends_does_not_keep_the_process() -> None:
    program = (
        "import asyncio, threading\n"
        "from playhead.runtime.threads import Threads\n"
        "async def main():\n"
        "    begun = threading.Event()\n"
        "    def hang():\n"
        "        begun.set()\n"
        "        threading.Event().wait()\n"
        "    Threads(1, 'some').call(hang)\n"
        "    await asyncio.to_thread(begun.wait)\n"
        "asyncio.run(main())\n"
        "print('over')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "over\n"
