"""What the command line writes: text that cannot steer a terminal, JSON, one line for an error, and exit codes."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from playhead.errors import NoServer, PlayheadError

P = ParamSpec("P")
T = TypeVar("T")

USAGE = 2  # and every other error
NO_SERVER = 3
OUTCOMES: Mapping[str, int] = {"succeeded": 0, "failed": 1, "cancelled": 4, "interrupted": 5}
PIPE = 141  # as a shell tells of a program that wrote to a closed pipe

# Control characters steer a terminal, and direction marks make a line read as another one.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def prepare() -> None:
    """Let no character fail to be written, whatever the terminal's encoding."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def clean(text: str) -> str:
    """The text as one line that shows control characters instead of obeying them."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def say(line: str = "") -> None:
    """Write one line to standard output, at once: whoever reads a pipe waits for it."""
    print(clean(line), flush=True)


def note(line: str) -> None:
    """Write one line to standard error."""
    print(f"playhead: {clean(line)}", file=sys.stderr, flush=True)


def dump(value: Any) -> None:
    """Write a value as one line of JSON, in ASCII: it survives every pipe."""
    print(json.dumps(value), flush=True)


def report(error: Exception, *, debug: bool) -> int:
    """Tell the error in one line; the exit code that says the same."""
    if debug:
        traceback.print_exception(error)
    if isinstance(error, PlayheadError):
        note(f"{_whole(error)} ({error.code})")
        return NO_SERVER if isinstance(error, NoServer) else USAGE
    note(f"{type(error).__name__}: {error} (internal_error); --debug shows where")
    return USAGE


def quiet_pipe(command: Callable[P, T]) -> Callable[P, T]:
    """Wrap a command that prints: whoever reads its output may leave at any time."""

    @wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> T:
        try:
            return command(*args, **options)
        except BrokenPipeError:
            # What is still in the buffers goes nowhere, so that the interpreter's exit does not complain again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(PIPE)

    return run


def _whole(error: PlayheadError) -> str:
    """The message with what is wrong in each field of an input."""
    problems = error.details.get("problems")
    if not isinstance(problems, list):
        return error.message
    told = [f"{one.get('field') or 'input'}: {one.get('message')}" for one in problems if isinstance(one, dict)]
    return " ".join([error.message, "; ".join(told)]).strip()
