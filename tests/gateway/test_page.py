"""The page runs its own script and style and nothing else, nobody frames it, and its assets are kept for good."""

import gzip
from pathlib import Path

import pytest

from playhead.gateway import Options, page, problems
from tests.gateway.stub import ask, make

pytestmark = pytest.mark.anyio

HTML = b"<!doctype html><script type='module' src='./assets/a-1.js'></script><p>"
SCRIPT = b"export const a = '<style>x</style>'\n" * 40
BUILT = {"index.html": HTML, "assets/a-1.js": SCRIPT, "assets/b-2.css": b"p {}", "assets/c-3.bin": b"\0"}


@pytest.fixture
def app(monkeypatch):
    monkeypatch.setattr(page, "read_page", lambda: BUILT)
    return make(options=Options())[1]


async def test_the_policy_lets_in_what_is_the_servers_own(app):
    answer = await ask(app, "GET", "/")
    assert (answer.status, answer.body) == (200, HTML)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    rules = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["img-src"] == "'self' data:"
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in answer.headers["content-security-policy"]


async def test_the_page_is_not_kept_framed_or_guessed_at(app):
    headers = (await ask(app, "GET", "/")).headers
    assert headers["cache-control"] == "no-cache"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    again = await ask(app, "GET", "/", headers={"if-none-match": headers["etag"]})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    ("name", "media"),
    [
        ("a-1.js", "text/javascript; charset=utf-8"),
        ("b-2.css", "text/css; charset=utf-8"),
        ("c-3.bin", "application/octet-stream"),
    ],
)
async def test_an_asset_is_kept_for_good(app, name, media):
    answer = await ask(app, "GET", f"/assets/{name}", headers={"sec-fetch-site": "cross-site"})
    assert (answer.status, answer.body) == (200, BUILT[f"assets/{name}"])
    assert answer.headers["content-type"] == media
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("path", ["/", "/assets/a-1.js"])
async def test_it_is_compressed_for_whoever_can_read_that(app, path):
    plain = await ask(app, "GET", path)
    packed = await ask(app, "GET", path, headers={"accept-encoding": "br, gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert "content-encoding" not in plain.headers
    assert plain.headers["vary"] == packed.headers["vary"] == "accept-encoding"


@pytest.mark.parametrize("name", ["nothing.js", "..%2findex.html", "%2e%2e%2findex.html", ""])
async def test_what_is_no_asset_is_not_there(app, name):
    assert (await ask(app, "GET", f"/assets/{name}")).code == "not_found"


async def test_the_page_is_for_everybody_and_can_be_switched_off(app):
    assert (await ask(app, "GET", "/", headers={"sec-fetch-site": "cross-site"})).status == 200
    off = make(options=Options(page=False))[1]
    assert (await ask(off, "GET", "/")).status == (await ask(off, "GET", "/assets/a-1.js")).status == 404


async def test_a_page_that_was_not_built_is_not_there(monkeypatch):
    monkeypatch.setattr(page, "read_page", dict)
    assert (await ask(make(options=Options())[1], "GET", "/")).code == "not_found"


async def test_every_answer_tells_the_version_of_the_wire(app):
    for path in ("/agents", "/runs/nothing"):
        assert (await ask(app, "GET", path)).headers["playhead-wire"] == "1"


def test_the_page_is_made_for_the_wire_that_its_server_speaks():
    source = (Path(__file__).parents[2] / "web" / "src" / "wire.ts").read_text()
    assert f"export const WIRE = {problems.VERSION}\n" in source


def test_the_built_page_is_read_whole(monkeypatch, tmp_path):
    (tmp_path / "web" / "assets").mkdir(parents=True)
    (tmp_path / "web" / "index.html").write_bytes(b"<p>\r\n")
    (tmp_path / "web" / "assets" / "a.js").write_bytes(b"1")
    monkeypatch.setattr(page, "files", lambda name: tmp_path)
    assert page.read_page() == {"index.html": b"<p>\r\n", "assets/a.js": b"1"}
    monkeypatch.setattr(page, "files", lambda name: tmp_path / "nowhere")
    assert page.read_page() == {}
