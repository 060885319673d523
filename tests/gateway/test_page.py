"""The page runs its own script and style and nothing else, and nobody frames it."""

import base64
import hashlib

import pytest

from playhead.gateway import Options, page
from tests.gateway.stub import ask, make

pytestmark = pytest.mark.anyio

SCRIPT = "\n  const a = '<style>x</style>';\n"
HTML = f"<!doctype html>\r\n<style>body {{}}</style><SCRIPT type='module'>{SCRIPT}</SCRIPT><p>".encode()


def source(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.fixture
def app(monkeypatch):
    monkeypatch.setattr(page, "read_page", lambda: HTML.replace(b"\r\n", b"\n"))
    return make(options=Options())[1]


async def test_the_policy_names_what_stands_in_the_page(app):
    answer = await ask(app, "GET", "/")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    rules = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == source(SCRIPT)
    assert source("body {}") in rules["style-src"]
    assert rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in answer.headers["content-security-policy"]


async def test_the_page_is_not_kept_framed_or_guessed_at(app):
    headers = (await ask(app, "GET", "/")).headers
    assert headers["cache-control"] == "no-cache"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    again = await ask(app, "GET", "/", headers={"if-none-match": headers["etag"]})
    assert (again.status, again.body) == (304, b"")


async def test_the_page_is_for_everybody_and_can_be_switched_off(app):
    assert (await ask(app, "GET", "/", headers={"sec-fetch-site": "cross-site"})).status == 200
    assert (await ask(make(options=Options(page=False))[1], "GET", "/")).status == 404


async def test_a_page_that_was_not_built_is_not_there(monkeypatch):
    monkeypatch.setattr(page, "read_page", lambda: None)
    assert (await ask(make(options=Options())[1], "GET", "/")).code == "not_found"


def test_windows_line_ends_are_hashed_as_browsers_see_them(monkeypatch, tmp_path):
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "index.html").write_bytes(b"<script>a\r\nb\rc</script>")
    monkeypatch.setattr(page, "files", lambda name: tmp_path)
    html = page.read_page()
    assert html is not None
    assert source("a\nb\nc") in page.policy(html)
