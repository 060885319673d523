"""Who is asking, and may they: two ports, and the rule for a server that only its own machine can reach.

An Authenticator turns a request into a Principal or raises Unauthenticated or Forbidden. An Authorizer is asked
afterwards, for each action, with the record's row: never with an id alone, and never with a projection.
"""

from __future__ import annotations

import inspect
import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from starlette.requests import HTTPConnection

from playhead.core.run import Run
from playhead.errors import Forbidden

T = TypeVar("T")

LIST_AGENTS = "agents.list"
LIST_RUNS = "runs.list"
LIST_INTERRUPTS = "interrupts.list"
CREATE = "run.create"
READ = "run.read"
STREAM = "run.stream"
CANCEL = "run.cancel"
DECIDE = "run.decide"
DELETE = "run.delete"

ACTIONS = (LIST_AGENTS, LIST_RUNS, LIST_INTERRUPTS, CREATE, READ, STREAM, CANCEL, DECIDE, DELETE)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking. `tenant` bounds everything they can see; `expires_at` is in seconds since 1970."""

    subject: str
    tenant: str
    expires_at: float | None = None


Authenticator = Callable[[HTTPConnection], Awaitable[Principal] | Principal]

# Asked with one of ACTIONS; the run is None for the actions on no single run. In a list, rows that `run.read` denies
# are left out. A denied action on a run that may be read is Forbidden, on any other run NotFound.
Authorizer = Callable[[Principal, str, Run | None], Awaitable[bool] | bool]

_HOST = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9.-]{1,253})(?::[0-9]{1,5})?", re.ASCII)
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")
_OWN_SITE = ("same-origin", "none")


def local() -> Authenticator:
    """Trust whoever sits at this machine, as the tenant and subject `local`.

    Guarantees: only a peer with a loopback address, not through a proxy, that named this server by a loopback name or
    address (so no outside name that was pointed at this machine); from a browser only the server's own pages, on any
    method; and a request that changes something is JSON, or from an own page, or of a method that no form can send.
    """
    return _local


def _local(request: HTTPConnection) -> Principal:
    if request.client is None or not is_loopback(request.client.host):
        raise Forbidden("This server answers its own machine only.")
    if any(name in request.headers for name in _FORWARDED):
        raise Forbidden("This server does not answer through a proxy without an authenticator of its own.")
    host = _only(request, "host")
    named = _HOST.fullmatch(host)
    if named is None or not is_loopback(named[1].strip("[]")):
        raise Forbidden("This server was called by a name that is not its own.")
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in _OWN_SITE:
        raise Forbidden("Another site's page may not call this server.")
    if "origin" in request.headers and not _same(_only(request, "origin"), host):
        raise Forbidden("A page of another origin may not call this server.")
    own_page = site == "same-origin" or "origin" in request.headers
    form_like = request.scope.get("method") == "POST" and not is_json(request)
    if form_like and not own_page:
        raise Forbidden("A request that changes something has the header Content-Type: application/json.")
    return Principal("local", "local")


@lru_cache(maxsize=1_024)  # asked twice for every request, and mostly of the same few names
def is_loopback(name: str) -> bool:
    """Whether this host name or address is this machine's own, by its text alone: nothing is looked up."""
    if name.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def is_json(request: HTTPConnection) -> bool:
    """Whether the request says that its body is JSON in UTF-8, which no form of another site can."""
    values = request.headers.getlist("content-type")
    if len(values) != 1:
        return False
    kind, _, parameters = values[0].lower().replace(" ", "").replace('"', "").partition(";")
    return kind == "application/json" and parameters in ("", "charset=utf-8")


def refuse_other_sites(request: HTTPConnection, origins: Collection[str]) -> None:
    """Refuse what a browser says comes from another site, whoever is logged in there, unless its origin is listed."""
    if request.headers.get("sec-fetch-site") == "cross-site" and request.headers.get("origin") not in origins:
        raise Forbidden("Another site's page may not call this server.")


async def answer(value: Awaitable[T] | T) -> T:
    """The value of a port that may be a plain function or a coroutine function."""
    return await value if inspect.isawaitable(value) else value


def _only(request: HTTPConnection, name: str) -> str:
    values = request.headers.getlist(name)
    if len(values) != 1:
        raise Forbidden(f"The request has not exactly one {name} header.")
    return values[0]


def _same(origin: str, host: str) -> bool:
    scheme, _, authority = origin.partition("://")
    return scheme in ("http", "https") and authority.lower() == host.lower()
