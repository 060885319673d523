"""What a person should know of the servers before relying on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from playhead.backends.redis.nodes import Nodes
from playhead.interfaces import Clock

OLDEST = (7, 0)
_SKEW_MS = 5_000


@dataclass(frozen=True, slots=True)
class Finding:
    """`level` is `error` for what breaks promises, `warning` for what may surprise, `info` for what is just so."""

    level: str
    server: str
    text: str


async def examine(nodes: Nodes, clock: Clock) -> list[Finding]:
    """What each master says of itself. Raises what the driver raises."""
    found: list[Finding] = []
    told: dict[str, dict[str, str]] = {}
    for server, answer in (await nodes.everywhere(["INFO"])).items():
        if isinstance(answer, Exception):
            if not isinstance(answer, ResponseError):
                raise answer
            found.append(Finding("warning", server, f"INFO is refused, so nothing can be said of it: {answer}"))
        else:
            told[server] = _read(answer)
    for server, info in told.items():
        version = info.get("valkey_version") or info.get("redis_version", "0")
        name = "Valkey" if "valkey_version" in info else "Redis"
        found.append(Finding("info", server, f"{name} {version}"))
        if _numbers(info.get("redis_version", "0")) < OLDEST:
            found.append(Finding("error", server, f"{name} {version} is too old: 7.0 is the oldest that will do."))
        policy = info.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            found.append(
                Finding("error", server, f"maxmemory-policy is {policy}: live runs may vanish; set noeviction.")
            )
        if info.get("maxmemory", "0") == "0":
            found.append(Finding("info", server, "maxmemory is not set: the system's memory is the bound."))
        if info.get("aof_enabled", "0") == "0":
            found.append(
                Finding("info", server, "No append-only file: a restart loses projections, which are rebuilt.")
            )
    for server, answer in (await nodes.everywhere(["TIME"])).items():
        if isinstance(answer, Exception):
            continue
        skew = int(answer[0]) * 1000 + int(answer[1]) // 1000 - clock.wall_ms()
        if abs(skew) > _SKEW_MS:
            found.append(Finding("warning", server, f"Its clock differs from ours by {skew / 1000:.1f} s."))
    return found


def _read(answer: Any) -> dict[str, str]:
    """INFO, as the driver read it or as it was said."""
    if not isinstance(answer, bytes):
        return {str(key): str(value) for key, value in answer.items()}
    lines = answer.decode(errors="replace").splitlines()
    return {name: value for name, found, value in (line.partition(":") for line in lines) if found}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
