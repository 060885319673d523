"""The listening socket: taken before anything else is touched, and bounded in what it buffers."""

from __future__ import annotations

import errno
import socket

from playhead.errors import PortInUse
from playhead.settings import InvalidSetting

BACKLOG = 2_048


def listen(host: str, port: int, *, send_buffer: int, silence: float) -> socket.socket:
    """Take an address. Raises PortInUse, and InvalidSetting for one that is not ours to take.

    Connections inherit both bounds: `send_buffer` bytes that the system keeps for a slow reader, and `silence`
    seconds after which a peer that acknowledges nothing is given up.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, OverflowError, UnicodeError) as error:
        raise InvalidSetting(f"{host}:{port} is not an address to listen on: {error}", setting="host") from None
    taken = socket.socket(family, kind, protocol)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silence * 1000))
        taken.bind(address)
        taken.listen(BACKLOG)  # two sockets may be bound to one address; only one of them can listen
        taken.setblocking(False)
    except OSError as error:
        taken.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"{host}:{port} is in use by another program; choose another one with --port.", host=host, port=port
            ) from None
        raise InvalidSetting(f"Cannot listen on {host}:{port}: {error.strerror}.", setting="host") from None
    return taken


def address_of(taken: socket.socket) -> str:
    """The address at which this machine reaches the socket."""
    host, port = taken.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
