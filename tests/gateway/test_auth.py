"""The default rule: this machine, by its own name, from its own pages, and nobody else's form."""

import pytest
from starlette.requests import HTTPConnection

from playhead.errors import Forbidden
from playhead.gateway.auth import Principal, is_json, is_loopback, local, refuse_other_sites
from tests.gateway.stub import scope_of

LOCAL = Principal("local", "local")
HOST = ("host", "localhost:8700")
JSON = ("content-type", "application/json")


def enter(method="GET", headers=(HOST,), **scope):
    return local()(HTTPConnection(scope_of(method, "/runs", headers, **scope)))


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_peers_are_local(peer):
    assert enter(client=(peer, 1)) == LOCAL


@pytest.mark.parametrize("client", [("10.0.0.1", 1), ("::ffff:10.0.0.1", 1), ("", 1), ("localhost.evil.test", 1), None])
def test_other_peers_are_not(client):
    with pytest.raises(Forbidden):
        enter(client=client)


@pytest.mark.parametrize("name", ["forwarded", "x-forwarded-for", "x-real-ip"])
def test_a_proxy_makes_nobody_local(name):
    with pytest.raises(Forbidden):
        enter(headers=[HOST, (name, "127.0.0.1")])


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8700", "[::1]:8700", "[::1]"])
def test_own_names_are_taken(host):
    assert enter(headers=[("host", host)]) == LOCAL


@pytest.mark.parametrize(
    "host",
    [
        "evil.test",
        "evil.test:8700",
        "localhost.evil.test",
        "127.0.0.1.evil.test",
        "0.0.0.0",
        "10.0.0.1",
        "",
        "localhost:8700@evil.test",
        "localhost:x",
        "[::1",
        "::1:80:evil",
        "2130706433",
    ],
)
def test_a_name_that_was_pointed_here_is_refused(host):
    with pytest.raises(Forbidden):
        enter(headers=[("host", host)])


def test_two_hosts_are_refused():
    with pytest.raises(Forbidden):
        enter(headers=[HOST, ("host", "evil.test")])


@pytest.mark.parametrize("site", ["cross-site", "same-site", "x", ""])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_other_sites_are_refused(site, method):
    with pytest.raises(Forbidden):
        enter(method, [HOST, JSON, ("sec-fetch-site", site)])


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.test",
        "null",
        "",
        "http://localhost:3000",
        "http://localhost",
        "http://127.0.0.1:8700",
        "localhost:8700",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_other_origins_are_refused(origin, method):
    with pytest.raises(Forbidden):
        enter(method, [HOST, JSON, ("origin", origin)])


def test_two_origins_are_refused():
    with pytest.raises(Forbidden):
        enter(headers=[HOST, ("origin", "http://localhost:8700"), ("origin", "null")])


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("POST", [JSON]),
        ("POST", [("origin", "http://localhost:8700")]),
        ("POST", [("sec-fetch-site", "same-origin")]),
        ("DELETE", []),
        ("GET", [("sec-fetch-site", "none")]),
    ],
)
def test_own_pages_and_tools_may_change_things(method, headers):
    assert enter(method, [HOST, *headers]) == LOCAL


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
@pytest.mark.parametrize("site", [None, "none"])
def test_what_a_form_could_send_is_refused(kind, site):
    headers = [HOST, *([("content-type", kind)] if kind else []), *([("sec-fetch-site", site)] if site else [])]
    with pytest.raises(Forbidden):
        enter("POST", headers)


@pytest.mark.parametrize(
    ("value", "json"),
    [
        ("application/json", True),
        ("Application/JSON; charset=UTF-8", True),
        ('application/json;charset="utf-8"', True),
        ("application/json; charset=latin-1", False),
        ("application/json, text/plain", False),
        ("text/json", False),
        ("application/jsonp", False),
        ("", False),
    ],
)
def test_json_is_one_media_type(value, json):
    assert is_json(HTTPConnection(scope_of("POST", "/", [("content-type", value)]))) is json


def test_names_are_told_apart_by_their_text():
    assert is_loopback("localhost")
    assert not is_loopback("localhost.")
    assert not is_loopback("fe80::1%lo")


def test_a_listed_origin_may_call_from_its_site():
    request = HTTPConnection(scope_of("GET", "/", {"sec-fetch-site": "cross-site", "origin": "https://app.test"}))
    refuse_other_sites(request, {"https://app.test"})
    with pytest.raises(Forbidden):
        refuse_other_sites(request, {"https://other.test"})
