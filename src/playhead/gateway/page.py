"""The page: an index and its assets, served so that nothing but its own script and style can run or be loaded in it."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from urllib.parse import quote

from starlette.responses import Response

from playhead.errors import NotFound
from playhead.gateway.gate import Call, Handler

INDEX = "index.html"
ASSETS = "assets/"  # their names change with their content

# Markup is made from the page's own templates alone: no other policy than theirs may be created.
RULES = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self' data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types lit-html",
)
HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "; ".join(RULES),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
ASSET_HEADERS = {
    "cache-control": "public, max-age=31536000, immutable",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
MEDIA = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}


def read_page() -> dict[str, bytes]:
    """The files of the built page by their place, such as `assets/a.js`; none where it was not built."""
    return dict(_read(files("playhead") / "web", ""))


def handlers(page: Mapping[str, bytes]) -> dict[str, Handler]:
    """Path → handler."""
    if INDEX not in page:
        return {"/": _absent}
    assets = {name.removeprefix(ASSETS): _File(name, page[name], ASSET_HEADERS) for name in page if name != INDEX}

    async def asset(call: Call) -> Response:
        found = assets.get(call.request.path_params["name"])
        if found is None:
            raise NotFound
        return found.answer(call)

    return {"/": _index(page[INDEX]), f"/{ASSETS}{{name}}": asset}


async def with_slash(call: Call) -> Response:
    """Lead from a path under which this app is mounted to the same with a slash, for the page's own links."""
    # Relative, so that no path can make it lead to another host.
    last = call.request.scope["path"].rpartition("/")[2]
    return Response(None, 308, {"location": f"./{quote(last)}/"})


def _index(html: bytes) -> Handler:
    tag = f'"{hashlib.sha256(html).hexdigest()[:32]}"'
    index = _File(INDEX, html, {**HEADERS, "etag": tag})

    async def handle(call: Call) -> Response:
        if tag in call.request.headers.get("if-none-match", ""):
            return Response(None, 304, index.headers)
        return index.answer(call)

    return handle


class _File:
    """A file as it is sent: compressed, once for all, for those who can read that."""

    def __init__(self, name: str, data: bytes, headers: Mapping[str, str]) -> None:
        self.headers = {**headers, "vary": "accept-encoding"}
        self._media = MEDIA.get(name.rpartition(".")[2], "application/octet-stream")
        self._data = data

    @cached_property
    def _packed(self) -> bytes:
        return gzip.compress(self._data, mtime=0)

    def answer(self, call: Call) -> Response:
        if "gzip" in call.request.headers.get("accept-encoding", ""):
            return Response(self._packed, 200, {**self.headers, "content-encoding": "gzip"}, self._media)
        return Response(self._data, 200, self.headers, self._media)


def _read(folder: Traversable, at: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    if not folder.is_dir():
        return found
    for one in folder.iterdir():
        place = f"{at}{one.name}"
        found += _read(one, f"{place}/") if one.is_dir() else [(place, one.read_bytes())]
    return found


async def _absent(call: Call) -> Response:
    raise NotFound
