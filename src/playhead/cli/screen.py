"""How a run looks while it goes on: lines for whoever reads a pipe, and a live status line on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from playhead.cli.output import clean, say

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

MAX_SUMMARY = 160  # characters of a payload
MAX_VALUE = 40  # and of one value in it; ids of ours fit
STYLES: Mapping[str, str] = {
    "run_succeeded": "bold green",
    "run_failed": "bold red",
    "run_cancelled": "bold yellow",
    "run_interrupted": "bold magenta",
    "approval_required": "bold yellow",
}


class Screen(Protocol):
    def event(self, event: Mapping[str, Any]) -> None: ...
    def state(self, snapshot: Mapping[str, Any], degraded: str | None) -> None: ...
    def text(self, label: str, line: str) -> None:
        """A whole line of a text part."""

    def typing(self, label: str, rest: str) -> None:
        """The line that is not whole yet."""

    def note(self, line: str) -> None:
        """Something about the connection, not the run."""

    def close(self) -> None: ...


class Lines:
    """Plain lines. Events and text to standard output, notes to standard error; state moves no line."""

    def event(self, event: Mapping[str, Any]) -> None:
        say(f"{clock(event)}  {event.get('type')}  {summary(event.get('payload'))}".rstrip())

    def state(self, snapshot: Mapping[str, Any], degraded: str | None) -> None:
        pass

    def text(self, label: str, line: str) -> None:
        say(f"{label} | {line}".rstrip())

    def typing(self, label: str, rest: str) -> None:
        pass

    def note(self, line: str) -> None:
        print(f"playhead: {clean(line)}", file=sys.stderr, flush=True)

    def close(self) -> None:
        pass


class Terminal:
    """Lines that scroll, over a status line with a progress bar that stays."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._snapshot: Mapping[str, Any] = {}
        self._warning = ""
        self._typed = ("", "")
        self._live: Live = Live(console=console, refresh_per_second=8, transient=True, get_renderable=self._below)
        self._live.start()

    def event(self, event: Mapping[str, Any]) -> None:
        kind = str(event.get("type"))
        self._above((clock(event), "dim"), ("  ", ""), (kind, STYLES.get(kind, "bold")), ("  ", ""), short=event)
        self._warning = ""

    def state(self, snapshot: Mapping[str, Any], degraded: str | None) -> None:
        self._snapshot = snapshot
        self._warning = f"what is shown may be old ({degraded})" if degraded else ""

    def text(self, label: str, line: str) -> None:
        self._above((f"{label} │ ", "cyan"), (line, ""))

    def typing(self, label: str, rest: str) -> None:
        self._typed = (label, rest)

    def note(self, line: str) -> None:
        self._warning = line

    def close(self) -> None:
        self._live.stop()

    def _above(self, *pieces: tuple[str, str], short: Mapping[str, Any] | None = None) -> None:
        from rich.text import Text

        line = Text.assemble(*((clean(words), style) for words, style in pieces))
        if short is not None:
            line.append(clean(summary(short.get("payload"))), "dim")
            self._console.print(line, no_wrap=True, overflow="ellipsis")
        else:
            self._console.print(line, highlight=False)

    def _below(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        known = self._snapshot
        progress = known.get("progress")
        moving = known.get("status") in ("queued", "running")
        line = Table.grid(padding=(0, 1))
        line.add_row(
            Text(clean(str(known.get("status") or "connecting")), "bold"),
            ProgressBar(total=100, completed=progress or 0, width=24, pulse=progress is None and moving),
            Text(clean(" · ".join(_words(known))), no_wrap=True, overflow="ellipsis"),
        )
        rows: list[RenderableType] = []
        label, rest = self._typed
        if rest:
            rows.append(Text.assemble((f"{clean(label)} │ ", "cyan"), clean(rest[-2_000:])))
        rows.append(line)
        if self._warning:
            rows.append(Text(clean(self._warning), "yellow"))
        return Group(*rows)


def open_screen() -> Screen:
    """The live one if standard output is a terminal that can show it."""
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False, markup=False, emoji=False)
        if console.is_terminal and not console.is_dumb_terminal:
            return Terminal(console)
    return Lines()


def clock(event: Mapping[str, Any]) -> str:
    """When it happened, by this machine's zone; for people only."""
    try:
        return datetime.fromisoformat(str(event.get("occurred_at"))).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return "--:--:--"


def summary(payload: Any) -> str:
    """A payload in one short line."""
    if not isinstance(payload, Mapping):
        text = "" if payload is None else json.dumps(payload, ensure_ascii=False)
    else:
        pairs = ((name, value) for name, value in payload.items() if value is not None)
        text = "  ".join(f"{name}={_brief(value)}" for name, value in pairs)
    return text if len(text) <= MAX_SUMMARY else text[: MAX_SUMMARY - 1] + "…"


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 1] + "…"


def _words(snapshot: Mapping[str, Any]) -> list[str]:
    words = [str(snapshot[name]) for name in ("title", "current_step") if snapshot.get(name)]
    if snapshot.get("total") is not None:
        words.append(f"{snapshot.get('done') or 0}/{snapshot['total']}")
    return words + [str(snapshot[name]) for name in ("detail", "next_action") if snapshot.get(name)]
