from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from playhead.client import transport
from playhead.client.transport import Server, send
from playhead.errors import InvalidRequest, PayloadTooLarge
from tests.client.scripted import HEAD, answer, playing

pytestmark = pytest.mark.anyio
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def whole(url: str) -> bytes:
    response = await send(url, "GET", "/", {})
    try:
        return await response.whole()
    finally:
        await response.close()


@pytest.mark.parametrize(
    "url", ["nowhere", "ftp://h", "http://", "http://h:x", "http://[::1", "http://me:secret@h", "file:///x"]
)
async def test_an_address_that_is_none_is_told(url: str) -> None:
    with pytest.raises(InvalidRequest):
        await send(url, "GET", "/", {})


def test_an_address_is_taken_apart() -> None:
    assert Server.of("http://h/below/") == Server("http", "h", 80, "/below", "h")
    assert Server.of("https://[::1]:8700") == Server("https", "::1", 8700, "", "[::1]:8700")
    assert Server.of("https://h").port == 443


async def test_a_request_is_as_it_should_be() -> None:
    async with playing(answer({"a": 1}, 201, X_More="yes"), answer({}), answer({})) as script:
        response = await send(f"{script.url}/below", "POST", "/runs?x=1", {"X-Own": "a b"}, b"{}")
        assert (response.status, response.headers["x-more"]) == (201, "yes")
        assert await response.whole() == b'{"a": 1}'
        assert await response.read() == b""
        await response.close()
        await (await send(script.url, "POST", "/", {})).close()
        await (await send(script.url, "DELETE", "/", {})).close()
    head = script.heads[0].lower()
    assert script.asked[0] == "POST /below/runs?x=1 HTTP/1.1"
    assert script.bodies == [b"{}", b"", b""]
    assert "content-type: application/json\r\ncontent-length: 2" in head
    assert "connection: close" in head
    assert "content-type: application/json" in script.heads[1].lower()
    assert "content-" not in script.heads[2].lower()


async def test_chunks_are_read_as_they_come() -> None:
    gates = [asyncio.Event() for _ in range(2)]
    body = [CHUNKED + b"3\r\nab", gates[0], b"c\r\n1\r", gates[1], b"\nd\r\n0\r\n\r\n"]
    async with playing(body) as script:
        response = await send(script.url, "GET", "/", {})
        got = [await response.read()]
        gates[0].set()
        got += [await response.read()]
        gates[1].set()
        while chunk := await response.read():
            got += [chunk]
        await response.close()
    assert got == [b"ab", b"c", b"d"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"HTTP/1.1 200",
        b"nonsense\r\n\r\n",
        CHUNKED + b"3\r\nab",
        CHUNKED + b"zz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
)
async def test_every_way_to_break_is_one_error(body: bytes) -> None:
    async with playing(body) as script:
        with pytest.raises(OSError):
            await whole(script.url)


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async with playing(b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"abc") as script:
        assert await whole(script.url) == b"abc"


async def test_a_secure_server_is_one_whose_certificate_is_known(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "here")]), datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate = tmp_path / "certificate.pem"
    certificate.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    keys = tmp_path / "key.pem"
    keys.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(certificate, keys)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer({"secure": True}))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=own)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    known = ssl.create_default_context(cafile=str(certificate))
    response = await send(url, "GET", "/", {}, tls=known)
    assert await response.whole() == b'{"secure": true}'
    await response.close()
    with pytest.raises(OSError, match="certificate"):
        await send(url, "GET", "/", {})
    server.close()


async def test_nobody_there() -> None:
    with pytest.raises(OSError):
        await send("http://127.0.0.1:1", "GET", "/", {})


async def test_an_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_ANSWER", 10)
    async with playing(HEAD + b"x" * 11) as script:
        with pytest.raises(PayloadTooLarge):
            await whole(script.url)


@pytest.mark.parametrize("headers", [{"X": "a\r\nB: c"}, {"a b": "c"}, {"X": "🙂"}])
async def test_a_header_cannot_forge_another(headers: dict[str, str]) -> None:
    async with playing(answer({})) as script:
        with pytest.raises(InvalidRequest):
            await send(script.url, "GET", "/", headers)
    assert script.asked == []
