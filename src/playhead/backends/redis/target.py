"""Where the store is: the URL and what follows from it for every connection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from redis.asyncio.connection import parse_url

_FORM = re.compile(r"(rediss?)(?:\+(cluster|sentinel))?://(?:([^@/?]*)@)?([^/?]+)(?:/([^?]*))?(?:\?(.*))?")


@dataclass(frozen=True, slots=True)
class Target:
    """`kind` says how to find the server of a key. `name` is for messages: no password is in it."""

    kind: Literal["single", "cluster", "sentinel"]
    name: str
    hosts: tuple[tuple[str, int], ...]
    service: str | None  # the master's name at the sentinels
    options: Mapping[str, Any]  # of every connection


def parse(url: str) -> Target:
    """Read `redis://`, `rediss://` (TLS), `unix://`, `redis+cluster://`, `redis+sentinel://`, TLS forms of both.

    `redis+cluster://user:password@host:port,host:port`, `redis+sentinel://…@host:port,…/service/db`. What follows `?`
    are options of the driver's connections, such as `ssl_ca_certs`. Raises ValueError.
    """
    if url.startswith("unix://"):
        options = dict(parse_url(url))
        return Target("single", f"unix://{options.get('path')}", (), None, options)
    found = _FORM.fullmatch(url)
    if found is None:
        raise ValueError("not a URL of Redis: redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://")
    scheme, kind, user, places, path, query = found.groups()
    hosts = tuple(_host(place) for place in places.split(","))
    service, database = None, path or ""
    if kind == "sentinel":
        service, _, database = database.partition("/")
        if not service:
            raise ValueError("a URL of sentinels names the service: redis+sentinel://host:port/service")
    elif len(hosts) > 1 and kind is None:
        raise ValueError("several hosts are those of a cluster or of sentinels")
    if database and (kind == "cluster" or not database.isdecimal()):
        raise ValueError("the path of a URL of Redis is the number of a database, of which a cluster has one")
    name = f"{scheme}{'+' + kind if kind else ''}://{places}"
    plain = f"{scheme}://{user + '@' if user else ''}host/{database}{'?' + query if query else ''}"
    options = dict(parse_url(plain))
    options.pop("host")
    return Target(kind or "single", name, hosts, unquote(service) if service else None, options)  # type: ignore[arg-type]  # the form allows no other


def _host(place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":") if re.search(r":\d+$", place) else (place, "", "6379")
    return host.strip("[]"), int(port)
