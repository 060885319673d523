"""`playhead doctor`: one line for each thing that can be wrong, with what to do about it. Changes nothing."""

from __future__ import annotations

import json
import platform
import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from playhead.cli import output
from playhead.settings import Settings
from playhead.version import __version__

Level = Literal["ok", "warn", "fail"]
NEEDED = (
    "anyio",
    "license-expression",
    "orjson",
    "prometheus-client",
    "pydantic",
    "rich",
    "starlette",
    "typer",
    "uvicorn",
)
_SECRET = re.compile(r"secret|token|password|credential|dsn|private", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look found. `advice` is what to do, where there is something to do."""

    name: str
    level: Level
    message: str
    advice: str | None = None


def examine(data: Path | None, settings_file: Path | None, *, as_json: bool) -> int:
    """Look at everything and print it; 1 if something fails. Raises InvalidSetting."""
    from playhead.cli import checks

    settings = Settings.load(settings_file, data=data)
    if settings.record is None:
        found = [*checks.folder(settings), *checks.stores(settings), *checks.server(settings)]
    else:
        from playhead.cli.servers import servers

        found = list(servers(settings))
    found += [*checks.machine(settings), *packages()]
    failed = any(one.level == "fail" for one in found)
    shown = masked(asdict(settings))
    if as_json:
        output.dump({"ok": not failed, "findings": [asdict(one) for one in found], "settings": shown})
        return int(failed)
    for one in found:
        output.say(f"{one.level:<4}  {one.name:<13} {one.message}" + (f" {one.advice}" if one.advice else ""))
    output.say("settings: " + "  ".join(f"{name}={_text(value)}" for name, value in shown.items()))
    return int(failed)


def packages() -> Iterator[Finding]:
    """Python, and everything that is needed beside it."""
    yield Finding("python", "ok", f"{platform.python_version()} ({platform.python_implementation()})")
    known = {name: _installed(name) for name in NEEDED}
    if missing := [name for name, version in known.items() if version is None]:
        yield Finding("packages", "fail", f"Missing: {', '.join(missing)}.", "Install playhead again.")
    else:
        yield Finding("packages", "ok", ", ".join(f"{name} {version}" for name, version in known.items()))


def versions() -> dict[str, str]:
    """What runs here, by name."""
    found = {"playhead": __version__, "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    found |= {name: version for name in NEEDED if (version := _installed(name)) is not None}
    return found | {"platform": platform.platform()}


def masked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they may be shown: no secret, and no password within an address."""
    return {
        name: "***" if value is not None and _SECRET.search(name) else _plain(value) for name, value in settings.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, str | Path):
        return _USERINFO.sub("***", str(value))
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
