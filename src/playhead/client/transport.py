"""HTTP/1.1 over one socket for one request: what a client needs of it, and no more."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
import h11
from anyio.abc import ByteStream

from playhead.errors import InvalidRequest, PayloadTooLarge
from playhead.version import __version__

READ = 64 << 10
CLOSED = "the server closed the connection"
MAX_ANSWER = 64 << 20  # bytes of an answer that is read whole

BROKEN = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, h11.RemoteProtocolError)


@dataclass(frozen=True, slots=True)
class Server:
    """The address of a server, taken apart."""

    scheme: str
    host: str
    port: int
    prefix: str
    authority: str

    @classmethod
    def of(cls, url: str) -> Server:
        """Raises InvalidRequest for what is no address."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        else:
            if parts.scheme in ("http", "https") and host and "@" not in parts.netloc:
                default = 443 if parts.scheme == "https" else 80
                return cls(parts.scheme, host, port or default, parts.path.rstrip("/"), parts.netloc)
        raise InvalidRequest(f"{url} is not the address of a server; it looks like http://127.0.0.1:8700")


class Response:
    """An answer that is read as it comes. Every way in which a connection breaks is an OSError here."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=READ)
        self._over = False
        self.status = 0
        self.headers: Mapping[str, str] = {}

    async def ask(self, head: h11.Request, body: bytes) -> None:
        """Send the request, and read as far as the body of its answer. Raises InvalidRequest too."""
        try:
            sent = self._protocol.send(head) or b""
        except h11.LocalProtocolError as error:
            raise InvalidRequest(f"The request cannot be sent: {error}.") from None
        if body:
            sent += self._protocol.send(h11.Data(data=body)) or b""
        self._protocol.send(h11.EndOfMessage())
        try:
            await self._stream.send(sent)
        except BROKEN as error:
            raise ConnectionResetError(_words(error)) from error
        while not isinstance(answer := await self._next(), h11.Response):
            pass
        self.status = answer.status_code
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in answer.headers}

    async def read(self) -> bytes:
        """What has come, as soon as it comes; nothing at the end."""
        while not self._over:
            event = await self._next()
            if isinstance(event, h11.Data):
                return bytes(event.data)
            self._over = isinstance(event, h11.EndOfMessage)
        return b""

    async def whole(self) -> bytes:
        """All of the body. Raises PayloadTooLarge."""
        body = bytearray()
        while chunk := await self.read():
            body += chunk
            if len(body) > MAX_ANSWER:
                raise PayloadTooLarge("The server's answer is larger than its bound.", limit=MAX_ANSWER)
        return bytes(body)

    async def close(self) -> None:
        await anyio.aclose_forcefully(self._stream)

    async def _next(self) -> object:
        closed = False
        try:
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                try:
                    data = await self._stream.receive(READ)
                except anyio.EndOfStream:
                    data, closed = b"", True
                self._protocol.receive_data(data)
        except BROKEN as error:
            raise ConnectionResetError(CLOSED if closed else _words(error)) from error
        if isinstance(event, h11.ConnectionClosed):
            raise ConnectionResetError(CLOSED)
        return event


async def send(
    url: str,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    *,
    tls: ssl.SSLContext | None = None,
) -> Response:
    """Send a request; the answer, once its head is there. Raises OSError, and InvalidRequest."""
    server = Server.of(url)
    given = {"Host": server.authority, "User-Agent": f"playhead/{__version__}", "Accept": "application/json", **headers}
    given["Connection"] = "close"
    if body is not None or method == "POST":
        given |= {"Content-Type": "application/json", "Content-Length": str(len(body or b""))}
    try:
        head = h11.Request(method=method, target=server.prefix + path, headers=list(given.items()))
    except (h11.LocalProtocolError, UnicodeEncodeError) as error:
        raise InvalidRequest(f"The request cannot be sent: {error}.") from None
    response = Response(await _connect(server, tls))
    try:
        await response.ask(head, body or b"")
    except BaseException:
        await response.close()
        raise
    return response


async def _connect(server: Server, tls: ssl.SSLContext | None) -> ByteStream:
    if server.scheme == "http":
        return await anyio.connect_tcp(server.host, server.port)
    context = tls or ssl.create_default_context()
    return await anyio.connect_tcp(server.host, server.port, ssl_context=context, tls_standard_compatible=False)


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
