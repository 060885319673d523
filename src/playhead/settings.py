"""Every setting with its default, its unit and where it may be set, in one frozen object."""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from playhead.errors import PlayheadError


class InvalidSetting(PlayheadError):
    """A setting has a name or a value that is not known."""

    code = "invalid_setting"


ArchiveMode = Literal["off", "async", "sync"]
Delivery = Literal["direct", "asgi"]

# Every other number is more than 0: a period, a bound or a time to live of 0 stops or loses everything.
_MAY_BE_ZERO = frozenset(
    {
        "port",
        "cancel_grace",
        "drain_window",
        "drain_grace",
        "state_flush",
        "text_flush",
        "text_bytes",
        "pending_publishes",
        "pending_bytes",
        "max_streams",
    }
)
_MOST = {"port": 65_535}
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@|\bpassword=\S+\s*")
_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one server behaves. Seconds and bytes throughout; each is read from `PLAYHEAD_<NAME>` or a TOML file too."""

    data: Path = Path("playhead-data")
    record: str | None = None  # a PostgreSQL address; None: a file in the data folder
    live: str | None = None  # a Redis address, likewise; both or neither
    live_prefix: str = "agent"  # of every key there
    record_connections: int = 8  # of this process, at most
    live_connections: int = 32  # likewise
    live_pipelined: bool = True  # all calls share one connection to each server there; False: the driver's own pool
    host: str = "127.0.0.1"
    port: int = 8700

    worker: bool = True  # whether this process takes runs; external agents' code may claim them here all the same
    concurrency: int = 16  # attempts of this process at once; those that wait for a person do not count
    lease: float = 10.0
    beat: float = 3.0
    lost_after: float = 60.0  # without an answered beat a worker stops all its attempts
    cancel_grace: float = 5.0  # for an agent to stop by itself, before it is left behind
    drain_window: float = 5.0  # over which open streams are closed
    drain_grace: float = 10.0  # for running agents to end, before they are recorded as interrupted
    viewer_grace: float = 30.0  # for viewers of a server that is gone to return, before a disconnect policy begins

    keep_events: int = 1_000
    keep_age: float | None = None  # seconds; None: by count alone
    keep_bytes: int = 16 << 20  # of one timeline
    timeline_ttl: float = 3_600.0  # after the final fact
    snapshot_ttl: float = 86_400.0  # likewise
    idle_ttl: float = 86_400.0  # of a thread or topic in the live store, after its last fact or viewer
    outbox_ttl: float = 86_400.0
    archive: ArchiveMode = "async"

    keepalive: float = 15.0
    sweep: float = 15.0
    reconcile: float = 1.0  # between two looks at the outbox, expired leases and deadlines
    recheck: float = 600.0  # between two looks at the grants of an open stream
    tick: float = 0.1  # between two states of one feed
    state_flush: float = 0.05
    text_flush: float = 0.02
    text_bytes: int = 2_048
    retry: float = 3.0  # what native clients are told to wait, before jitter
    page: int = 100  # entries of one replay read
    viewer_bytes: int = 256 << 10
    ring_bytes: int = 512 << 10  # encoded frames kept per live feed
    max_streams: int = 10_000
    delivery: Delivery = "direct"  # how `playhead serve` hands streams to sockets; "asgi": by messages alone
    pending_publishes: int = 1_000
    pending_bytes: int = 1 << 20
    max_body: int = 1 << 20
    max_result: int = 8 << 20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                zero = field.name in _MAY_BE_ZERO
                if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
                    least = "0 or more" if zero else "more than 0"
                    raise InvalidSetting(f"{field.name} is {least}, not {value!r}.", setting=field.name)
                if value > _MOST.get(field.name, value):
                    raise InvalidSetting(f"{field.name} is at most {_MOST[field.name]}.", setting=field.name)
        if (self.record is None) != (self.live is None):
            name, other = ("record", "live") if self.live is None else ("live", "record")
            raise InvalidSetting(f"{name} needs {other} too: both stores are embedded, or neither is.", setting=other)
        if self.beat >= self.lease:  # every lease would be over before it is renewed
            raise InvalidSetting(f"beat is less than lease ({self.lease!r}), not {self.beat!r}.", setting="beat")

    @property
    def place(self) -> str:
        """Where the runs are, for people: an address without its password, or the data folder."""
        return str(self.data) if self.record is None else _USERINFO.sub("", self.record)

    @classmethod
    def load(cls, file: Path | None = None, environ: Mapping[str, str] | None = None, **given: Any) -> Settings:
        """Defaults, then the file's top level, then the environment, then what is given. Raises InvalidSetting."""
        values: dict[str, Any] = {}
        if file is not None:
            try:
                values.update(tomllib.loads(file.read_text("utf-8")))
            except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
                raise InvalidSetting(f"The settings file cannot be read: {error}") from None
        names = {field.name for field in fields(cls)}
        if unknown := set(values) - names:
            raise InvalidSetting(f"There is no setting {', '.join(sorted(unknown))}.")
        for name, text in (os.environ if environ is None else environ).items():
            if name.startswith("PLAYHEAD_") and name[9:].lower() in names:
                values[name[9:].lower()] = text
        values.update({name: value for name, value in given.items() if value is not None})
        hints = get_type_hints(cls)
        return cls(**{name: _read(name, hints[name], value) for name, value in values.items()})


def _read(name: str, kind: Any, value: Any) -> Any:
    if value is None or (kind in (float | None, str | None) and value in ("", "none")):
        return None
    try:
        if kind is Path:
            return Path(value)
        if kind is bool:
            return value if isinstance(value, bool) else _WORDS[str(value).lower()]
        if kind is int:
            return int(value)
        if kind is float or kind == float | None:
            return float(value)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise InvalidSetting(f"{name} cannot be {value!r}.", setting=name) from None
    if kind in (str, str | None):
        return str(value)
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise InvalidSetting(f"{name} is one of {', '.join(get_args(kind))}.", setting=name)
    return value
