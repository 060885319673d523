"""The command line. What a command needs is imported when it runs, so that help costs nothing."""

from __future__ import annotations

import sys


def main() -> None:
    """Run one command and exit with its code. Guarantees one line for an error, and no traceback without --debug."""
    from playhead.cli import output
    from playhead.cli.commands import app

    arguments = sys.argv[1:]
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug = "--debug" in words
    if debug:
        # Wherever it stands: whoever repeats a failed command adds it at the end.
        arguments.remove("--debug")
    output.prepare()
    try:
        app(arguments, prog_name="playhead")
    except Exception as error:
        sys.exit(output.report(error, debug=debug))
