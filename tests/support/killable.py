"""A real server that kills itself, as `kill -9` would, when it comes to a chosen place for the n-th time.

python -m tests.support.killable --data D --port P [--kill NAME:N] [--acks FILE] [--set name=value]... [--tz ZONE]
python -m tests.support.killable --nursery      # one JSON list of such arguments a line; see tests.support.nursery

The places, each also as NAME@ACT for one act alone (`before_commit@finish`):

before_commit  a record act has changed something, in the writer's thread, and nothing is committed
               (`before_commit@publish`, `@fact`, `@open` and `@append` are of the live store, and count for themselves)
after_commit   it is committed, and nothing else is done
projected      the live store has a fact or a publish, and who wrote it has no answer yet
text           around an append to a text part
waiting        a question is open and shown
archive        events are in the archive, and the timeline does not know it
drain          any of these while the server drains; at the latest when it has drained
"""

from __future__ import annotations

import argparse
import asyncio
import contextvars
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import playhead
from playhead.app import App
from playhead.cli.listen import address_of, listen
from playhead.cli.server import Server
from playhead.runtime.setup import Ports
from playhead.settings import Settings

POINTS = ("before_commit", "after_commit", "projected", "text", "waiting", "archive", "drain")

# Acts of the record that write facts.
FACT_ACTS = ("create", "acquire", "claim", "finish", "request_cancel", "lose", "ask", "decide", "lapse")
LIVE_ACTS = ("open", "fact", "publish")

QUICK: Mapping[str, Any] = {
    "lease": 2.0,
    "beat": 0.5,
    "sweep": 0.3,
    "reconcile": 0.1,
    "retry": 0.1,
    "keepalive": 0.5,
    "cancel_grace": 0.3,
    "drain_window": 0.2,
    "drain_grace": 0.3,
    "tick": 0.02,
    "state_flush": 0.01,
    "text_flush": 0.005,
}


class Death:
    """Counts how often a place was passed, and kills this process there when its time has come."""

    def __init__(self, where: str | None) -> None:
        name, _, number = (where or "").partition(":")
        self._name, self._left = name, int(number or 1)
        self._lock = threading.Lock()
        self.draining = False

    def passed(self, place: str, act: str = "") -> None:
        names = {f"{place}@{act}"} if place == "before_commit" and act in (*LIVE_ACTS, "append") else {place}
        names |= {f"{place}@{act}"} | ({"drain"} if self.draining else set())
        if self._name not in names:
            return
        with self._lock:
            self._left -= 1
            if self._left <= 0:
                die()

    def drained(self) -> None:
        if self._name == "drain":
            die()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # not one more instruction of this thread, however late the signal is


class Around:
    """A port whose acts of these names go through the given functions."""

    def __init__(self, port: Any, around: Mapping[str, Callable[..., Awaitable[Any]]]) -> None:
        self._port, self._around = port, around

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._port, name)
        around = self._around.get(name)
        return act if around is None else partial(around, act)


# The act that the current task is in, for the writer's thread to know what it commits.
_act: contextvars.ContextVar[str] = contextvars.ContextVar("act", default="")


def watch_file(file: Any, death: Death) -> None:
    """Pass `before_commit` in the writer's thread, inside the transaction, and `after_commit` as soon as it is over."""
    write = file.write

    async def watched(work: Callable[[Any], Any], **options: Any) -> Any:
        act, changed = _act.get(), False

        def watched_work(db: Any) -> Any:
            nonlocal changed
            before = db.total_changes
            result = work(db)
            changed = db.total_changes > before
            if act and changed:
                death.passed("before_commit", act)
            return result

        result = await write(watched_work, **options)
        if act in FACT_ACTS and changed:
            death.passed("after_commit", act)
        return result

    file.write = watched


class KillableApp(App):
    def __init__(self, death: Death, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.death = death

    async def _open_ports(self, stack: AsyncExitStack) -> Ports:
        ports = await super()._open_ports(stack)
        death = self.death
        record: Any = ports.record
        live: Any = ports.live
        watch_file(record.file, death)
        watch_file(live._file, death)

        def named(name: str, *after: str) -> Callable[..., Awaitable[Any]]:
            async def act(inner: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
                token = _act.set(name)
                try:
                    answer = await inner(*args, **options)
                finally:
                    _act.reset(token)
                for place in after:
                    death.passed(place, name)
                if name == "fact" and args[1].event.type == "approval_required":
                    # Late enough for viewers to have it on their screens.
                    asyncio.get_running_loop().call_later(0.03, death.passed, "waiting")
                return answer

            return act

        async def append(inner: Callable[..., Awaitable[Any]], *args: Any) -> Any:
            death.passed("text", "before")
            answer = await named("append")(inner, *args)
            death.passed("text", "after")
            return answer

        async def archived(inner: Callable[..., Awaitable[Any]], *args: Any) -> Any:
            death.passed("archive")
            return await inner(*args)

        watched_record: Any = Around(record, {name: named(name) for name in FACT_ACTS})
        around_live = {name: named(name, "projected") for name in LIVE_ACTS}
        watched_live: Any = Around(live, {**around_live, "append": append, "archived": archived})
        return Ports(watched_record, ports.archive, watched_live, watched_live, ports.signal)

    async def drain(self) -> None:
        self.death.draining = True
        await super().drain()
        self.death.drained()


class Acks:
    """What agents were told is done, in a file that outlives them: one line is one write, whole or not there."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def note(self, run: playhead.RunContext, **what: Any) -> None:
        if self._path is None:
            return
        line = json.dumps({"run": run.id, "attempt": run.attempt, **what}).encode() + b"\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def agents(acks: Acks) -> Sequence[playhead.Agent]:
    """`plain` and `resumable` do the same: events, text, one question, a result that repeats the text."""

    async def work(run: playhead.RunContext, steps: int, question: bool) -> dict[str, Any]:
        n, said = 0, ""

        async def event(name: str, payload: dict[str, Any], **state: Any) -> None:
            nonlocal n
            await run.event(name, payload, **state)
            n += 1
            acks.note(run, n=n)

        await event("work_begun", {"attempt": run.attempt}, progress=0, current_step="work", total=steps)
        for i in range(1, steps + 1):
            await event("step_taken", {"i": i}, progress=90 * i / steps, done=i)
            for j in range(5):
                piece = f"{run.attempt}.{i}.{j} Grüße, "
                await run.text(piece)
                said += piece
                await asyncio.sleep(0.003)
        if question:
            decision = await run.ask({"title": "Go on?", "steps": steps}, key="go")
            acks.note(run, approved=decision.approved)
        await event("work_ended", {}, progress=100)
        await run.text("End.")
        return {"attempt": run.attempt, "text": said + "End."}

    @playhead.agent
    async def plain(run: playhead.RunContext, steps: int = 4, question: bool = True, mark: str = "") -> dict[str, Any]:
        return await work(run, steps, question)

    @playhead.agent(resumable=True, max_attempts=5)
    async def resumable(
        run: playhead.RunContext, steps: int = 4, question: bool = True, mark: str = ""
    ) -> dict[str, Any]:
        return await work(run, steps, question)

    @playhead.agent
    async def endless(run: playhead.RunContext, mark: str = "") -> None:
        await run.event("work_begun", progress=1, current_step="wait")
        await asyncio.Event().wait()

    return [plain, resumable, endless]


async def serve(app: App, port: int) -> None:
    """As `playhead serve` does; says on the standard output that it answers, and where."""
    taken = listen("127.0.0.1", port, send_buffer=256 << 10, silence=30.0)

    async def ready() -> None:
        said = json.dumps({"ready": os.getpid(), "url": address_of(taken)})
        os.write(1, said.encode() + b"\n")

    try:
        await Server(app, ready).serve(sockets=[taken])
    finally:
        await app.close()


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--kill")
    parser.add_argument("--acks", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--tz")
    given = parser.parse_args(argv)
    if given.tz:
        os.environ["TZ"] = given.tz
        time.tzset()
    changed = dict(pair.split("=", 1) for pair in given.set)
    settings = Settings.load(data=given.data, environ={}, **{**QUICK, **changed})
    app = KillableApp(Death(given.kill), agents(Acks(given.acks)), settings=settings)
    asyncio.run(serve(app, given.port))
    return 0


def nurse() -> None:
    """Fork a server for each line of the standard input, and tell of each that ended: one import serves many."""
    children: set[int] = set()
    buffer = b""
    while True:
        readable, _, _ = select.select([0], [], [], 0.01)
        if readable:
            got = os.read(0, 65_536)
            if not got:
                break
            *lines, buffer = (buffer + got).split(b"\n")
            for line in lines:
                children.add(_born(json.loads(line)))
        for pid in list(children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                children.discard(pid)
                os.write(1, json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}).encode() + b"\n")
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _born(argv: list[str]) -> int:
    pid = os.fork()
    if pid:
        os.write(1, json.dumps({"born": pid}).encode() + b"\n")
        return pid
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        log = os.open(argv[argv.index("--data") + 1] + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 2)
        code = main(argv)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if sys.argv[1:] == ["--nursery"]:
        nurse()
    else:
        sys.exit(main(sys.argv[1:]))
