"""The wire from the client's side, with nothing but the standard library: calls that are tried again, and streams."""

from __future__ import annotations

import http.client
import json
import os
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from playhead import errors
from playhead.cli.folder import Place
from playhead.errors import InvalidRequest, NoServer, PlayheadError
from playhead.version import __version__

BASE = 0.25  # seconds; the first wait is somewhere below, each later one below twice as much
CAP = 15.0
MAX_TOLD = 3_600.0  # a server cannot send a client away for longer
BROKEN = (OSError, http.client.HTTPException)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Stream:
    """An open answer that is read as it comes. Silence for longer than `timeout` raises TimeoutError."""

    def __init__(self, url: str, path: str, headers: Mapping[str, str], timeout: float) -> None:
        self._connection, prefix = _connect(url, timeout)
        try:
            self._connection.request("GET", prefix + path, headers=_headers(headers))
            self._response = self._connection.getresponse()
        except BaseException:
            self._connection.close()
            raise
        self.status = self._response.status
        self.headers = _lowered(self._response)

    def chunks(self) -> Iterator[bytes]:
        """What has come, as soon as it comes. Ends with the answer, whole or cut."""
        while chunk := self._response.read1(64 << 10):
            yield chunk

    def whole(self) -> Answer:
        return Answer(self.status, self.headers, self._response.read())

    def close(self) -> None:
        self._response.close()
        self._connection.close()


class Client:
    """Calls to the server of a place. Each is safe to send again, and is, for `patience` seconds."""

    def __init__(self, place: Place, *, patience: float = 10.0, timeout: float = 30.0) -> None:
        self.place = place
        self._patience, self._timeout = patience, timeout

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def call(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any:
        """The answer's JSON (None: it has none). Raises NoServer, and what the server's problem says."""
        end = time.monotonic() + self._patience
        tries = 0
        while True:
            told = 0.0
            try:
                url = self.place.need()
            except NoServer as error:
                if not tries:
                    raise
                problem: PlayheadError = error  # it was there a moment ago, and may come back
            else:
                try:
                    answer = self._exchange(url, method, path, body, headers or {})
                except BROKEN as error:
                    problem = NoServer(f"The server at {url} does not answer: {error or type(error).__name__}.")
                else:
                    if answer.status < 300:
                        return _parsed(answer.body) if answer.body else None
                    problem = problem_of(answer)
                    if answer.status not in (429, 503):
                        raise problem
                    told = retry_after(answer.headers)
            wait = backoff(tries, told)
            if time.monotonic() + wait > end:
                raise problem
            tries += 1
            time.sleep(wait)

    def _exchange(self, url: str, method: str, path: str, body: object, headers: Mapping[str, str]) -> Answer:
        connection, prefix = _connect(url, self._timeout)
        given = dict(headers)
        if body is not None:
            given["Content-Type"] = "application/json"
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, prefix + path, body=data, headers=_headers(given))
            response = connection.getresponse()
            return Answer(response.status, _lowered(response), response.read())
        finally:
            connection.close()


def backoff(tries: int, told: float = 0.0) -> float:
    """How long to wait: full jitter over a growing time, on top of what the server told. Never less than that."""
    return told + random.uniform(0, max(told, min(CAP, BASE * 2 ** min(tries, 16))))


def retry_after(headers: Mapping[str, str]) -> float:
    """The seconds of a Retry-After header; 0 without one that can be read."""
    given = headers.get("retry-after", "").strip()
    return min(float(given), MAX_TOLD) if given.isascii() and given.isdigit() else 0.0


def problem_of(answer: Answer) -> PlayheadError:
    """The server's problem as the error it was made from."""
    body = _parsed(answer.body)
    if not isinstance(body, dict) or not isinstance(body.get("code"), str):
        return PlayheadError(f"The server answered {answer.status}.")
    details = body.get("details")
    given = {str(name): value for name, value in details.items()} if isinstance(details, dict) else {}
    given.pop("message", None)
    return _class(body["code"])(str(body.get("detail") or body.get("title") or ""), **given)


def _class(code: str) -> type[PlayheadError]:
    for one in vars(errors).values():
        if isinstance(one, type) and issubclass(one, PlayheadError) and one.code == code:
            return one
    return type("Refused", (PlayheadError,), {"code": code, "__doc__": PlayheadError.__doc__})


def _connect(url: str, timeout: float) -> tuple[http.client.HTTPConnection, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    else:
        if parts.scheme in ("http", "https") and host:
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            return kind(host, port, timeout=timeout), parts.path.rstrip("/")
    raise InvalidRequest(f"{url} is not the address of a server; it looks like http://127.0.0.1:8700")


def _headers(given: Mapping[str, str]) -> dict[str, str]:
    answer = {"User-Agent": f"playhead/{__version__}", "Accept": "application/json", **given}
    # Never on the command line: other people of this machine can read that.
    if token := os.environ.get("PLAYHEAD_TOKEN"):
        answer["Authorization"] = f"Bearer {token}"
    return answer


def _lowered(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None
