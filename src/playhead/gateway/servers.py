"""What is known of the ASGI servers under us: how to hand a stream to the socket without detours, and how to cut it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from typing import Any

from playhead.runtime.delivery import Direct

# Names the extension of a scope by which a server offers its socket to a stream.
DIRECT = "playhead.direct"

# Module → the class whose bound methods a request gets as `receive` and `send`.
_REQUESTS = {
    "uvicorn.protocols.http.h11_impl": "RequestResponseCycle",
    "uvicorn.protocols.http.httptools_impl": "RequestResponseCycle",
}


def is_own(call: Any, name: str) -> bool:
    """Whether this is a known server's own method, wrapped by nobody.

    The hub may drive such a `send` by hand: it waits for nothing but its socket, and does not ask for a task.
    """
    owner = type(getattr(call, "__self__", None))
    return _REQUESTS.get(owner.__module__) == owner.__name__ and getattr(call, "__func__", None) is getattr(
        owner, name, None
    )


def transport_of(call: Any) -> asyncio.Transport | None:
    """The connection of a request, by a `receive` or `send` that is a known server's own.

    Most middlewares wrap `send` alone.
    """
    if not (is_own(call, "receive") or is_own(call, "send")):
        return None
    transport: asyncio.Transport | None = getattr(call.__self__, "transport", None)
    return transport


def direct_of(scope: Mapping[str, Any], send: Any) -> Direct | None:
    """The socket of this request, if its server offers it and nobody wrapped `send` to see or change what it says."""
    offered: Direct | None = scope.get("extensions", {}).get(DIRECT)
    return offered if is_own(send, "send") else None


def temper(transport: asyncio.Transport, *, buffer: int, silence: float) -> None:
    """Bound what the kernel holds for a slow reader, and notice a peer that is gone without a word."""
    held = transport.get_extra_info("socket")
    if held is None:
        return
    wanted = [(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)]
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        wanted.append((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silence * 1000)))
    try:
        # Not every event loop lends its socket's options; a copy of the descriptor has the same ones.
        with socket.socket(fileno=os.dup(held.fileno())) as shared:
            for option in wanted:
                shared.setsockopt(*option)
    except OSError:
        pass  # of a kind that has no such option, or gone already
