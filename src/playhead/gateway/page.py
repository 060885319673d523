"""The page: one file, served so that nothing but its own script and style can run or be loaded in it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from importlib.resources import files
from urllib.parse import quote

from starlette.responses import Response

from playhead.errors import NotFound
from playhead.gateway.gate import Call, Handler

_INLINE = {
    name: re.compile(rb"<%b\b[^>]*>(.*?)</%b\s*>" % (name, name), re.DOTALL | re.IGNORECASE)
    for name in (b"script", b"style")
}


def read_page() -> bytes | None:
    """The built page, or None where it was not built."""
    try:
        data = (files("playhead") / "web" / "index.html").read_bytes()
    except OSError:
        return None
    # Browsers hash the text as they parsed it, with LF alone.
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def policy(html: bytes) -> str:
    """The page's Content-Security-Policy, with the hashes of what stands in it."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_sources(html, b'script')}",
            f"style-src {_sources(html, b'style')}",
            "connect-src 'self'",
            "img-src 'self' data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def serve(html: bytes | None) -> Handler:
    """A handler for `/`. Below another path it leads to the address with the slash, for the page's own links."""
    if html is None:
        return _absent
    tag = f'"{hashlib.sha256(html).hexdigest()[:32]}"'
    headers = {
        "cache-control": "no-cache",
        "content-security-policy": policy(html),
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "etag": tag,
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }

    async def page(call: Call) -> Response:
        if tag in call.request.headers.get("if-none-match", ""):
            return Response(None, 304, headers)
        return Response(html, 200, headers, "text/html")

    return page


async def with_slash(call: Call) -> Response:
    # Relative, so that no path can make it lead to another host.
    last = call.request.scope["path"].rpartition("/")[2]
    return Response(None, 308, {"location": f"./{quote(last)}/"})


async def _absent(call: Call) -> Response:
    raise NotFound


def _sources(html: bytes, name: bytes) -> str:
    return " ".join(_hashes(html, name)) or "'none'"


def _hashes(html: bytes, name: bytes) -> Iterator[str]:
    for text in _INLINE[name].findall(html):
        yield f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"
