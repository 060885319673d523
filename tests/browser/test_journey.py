"""A licence review in a real browser on a real server: reload, second tab, decision, stop, cut lines, kill."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser import screen
from tests.browser.server import Proxy, Server
from tests.browser.waiting import page_says

pytestmark = [pytest.mark.browser, pytest.mark.row("H-browser"), pytest.mark.timeout(240)]

SPEC = Path(__file__).parents[2] / "spec"
STRICT = 'name = "Strict"\nallow = ["MIT"]\ndeny = ["BSD-3-Clause"]\n'
Opener = Callable[..., Page]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("data"))
    one.start()
    yield one
    one.stop()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, which it may kill."""
    one = Server(tmp_path / "data")
    one.start()
    yield one
    one.stop()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    one = Proxy(server.port)
    yield one
    one.close()


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "policy.toml"
    path.write_text(STRICT)
    return str(path)


def see(open_page: Opener, url: str, run_id: str, **options: object) -> Page:
    return open_page(f"{url}#/runs/{run_id}", **options)


def is_whole(page: Page, server: Server, run_id: str) -> None:
    """The screen shows what the record and the archive hold, each event once and in its order."""
    every = [event["id"] for event in server.call(f"runs/{run_id}/events?limit=200")["events"]]
    screen.until(page, lambda: every[-1] in screen.ids_of(page))  # the record tells a status before the stream may
    shown = screen.folded(page)
    ids = [one for row in shown for one in row]
    assert len(ids) == len(set(ids)) >= min(len(every), 50)
    assert set(ids) == set(every[-len(ids) :])
    places = [every.index(row[0]) for row in shown]
    assert places == sorted(places)
    expect(page.locator(".timeline")).to_have_attribute("data-complete", "true")


@pytest.mark.row("M-reload")
def test_a_reload_at_every_stage_shows_the_whole_run(open_page: Opener, server: Server, policy: str) -> None:
    run_id = server.run(pace=0.4, policy=policy, limit=32)
    page = see(open_page, server.url, run_id)
    findings = ""
    for done in (1, 8, 16):
        page_says(page, f"Number((document.body.innerText.match(/(\\d+) of \\d+/) || [])[1]) >= {done}")
        page.reload()
        screen.status_is(page, "Running")
        expect(screen.badge(page)).to_have_text("Live")
        expect(page.locator("[data-part=findings]")).to_be_visible()
        shown = screen.said(page, "findings")
        assert shown.startswith(findings)
        assert len(shown) > len(findings)
        findings = shown
        assert screen.ids_of(page)[0].endswith(":1")
    while True:
        expect(screen.field(page, "status")).to_have_text(re.compile("Needs a decision|Succeeded"), timeout=60_000)
        if screen.field(page, "status").inner_text() == "Succeeded":
            break
        card = screen.question(page)
        expect(card).to_have_count(1)
        title = card.get_by_role("heading").inner_text()
        page.reload()
        screen.status_is(page, "Needs a decision")
        expect(page.get_by_role("article", name=title, exact=True)).to_be_visible()
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("article", name=title, exact=True)).to_have_count(0)
    run = server.wait(run_id, "succeeded")
    for _ in range(2):
        expect(screen.badge(page)).to_have_text("Ended")
        expect(page.locator(".result .md h3").first).to_have_text("Licence review")
        expect(page.locator(".result tbody tr").last).to_be_attached()
        assert page.locator(".result .scroll").last.locator("tbody tr").count() == len(run["result"]["distributions"])
        is_whole(page, server, run_id)
        page.reload()


@pytest.mark.row("M-fast-run")
def test_a_run_that_is_over_shows_its_whole_course(open_page: Opener, server: Server) -> None:
    run_id = server.run(pace=0, require_approval=False)
    server.wait(run_id, "succeeded")
    page = see(open_page, server.url, run_id)
    screen.status_is(page, "Succeeded")
    expect(screen.badge(page)).to_have_text("Ended")
    is_whole(page, server, run_id)
    assert screen.ids_of(page)[0] == f"run:{run_id}:1"
    expect(screen.rows(page).last).to_contain_text("Succeeded")


def test_two_tabs_agree_and_the_other_one_decides(open_page: Opener, server: Server, policy: str) -> None:
    run_id = server.run(pace=0.02, policy=policy, limit=15)
    one, two = see(open_page, server.url, run_id), see(open_page, server.url, run_id)
    for page in (one, two):
        screen.status_is(page, "Needs a decision")
        expect(screen.question(page)).to_have_count(1)
    title = screen.question(one).get_by_role("heading").inner_text()
    two.get_by_label("Note").fill("decided over there")
    two.get_by_role("button", name="Reject").click()
    for page in (one, two):
        expect(page.get_by_role("article", name=title, exact=True)).to_have_count(0)
        decided = screen.row_of(page, "approval_decided").first
        expect(decided).to_contain_text("Rejected by local")
        expect(decided).to_contain_text("decided over there")
    while screen.field(one, "status").inner_text() != "Succeeded":
        # In one step: a question that is there now may be gone with the run's end a moment later.
        one.locator(".answers button.main").evaluate_all("all => all[0]?.click()")
        one.wait_for_timeout(200)
    screen.status_is(two, "Succeeded")
    for page in (one, two):
        expect(screen.badge(page)).to_have_text("Ended")
        expect(screen.rows(page).last).to_contain_text("Succeeded")
    assert screen.folded(one) == screen.folded(two)
    is_whole(two, server, run_id)


def test_a_stop_is_seen_by_everybody_and_keeps_the_text(open_page: Opener, server: Server) -> None:
    run_id = server.run(pace=1)
    one, two = see(open_page, server.url, run_id), see(open_page, server.url, run_id)
    for page in (one, two):
        expect(page.locator("[data-part=findings]")).to_be_visible()
    screen.stop(one)
    for page in (one, two):
        screen.status_is(page, "Stopped")
        expect(screen.badge(page)).to_have_text("Ended")
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        expect(page.get_by_text("Cut short.")).to_be_visible()
        is_whole(page, server, run_id)
    run = server.wait(run_id, "cancelled")
    assert screen.said(one, "findings") == screen.said(two, "findings") == run["partial"][0]["text"]


def test_a_run_is_started_from_the_form(open_page: Opener, server: Server) -> None:
    page = open_page(server.url)
    page.get_by_role("link", name="New run").click()
    page.get_by_label("Seconds per distribution").fill("61")
    page.get_by_label("At most").fill("0")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("#field-pace-wrong")).to_be_visible()
    expect(page.locator("#field-limit-wrong")).to_be_visible()
    page.get_by_label("Seconds per distribution").fill("0")
    page.get_by_label("At most").fill("2")
    page.get_by_label("Ask for approval").uncheck()
    page.get_by_role("button", name="Start", exact=True).click()
    screen.status_is(page, "Succeeded")
    expect(page.locator(".result .scroll").last.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name="playhead").click()
    expect(page.get_by_role("list", name="All runs").get_by_role("listitem").first).to_contain_text("Succeeded")


@pytest.mark.row("BR-13", "M-suspended-tab")
def test_cut_lines_neither_stop_nor_fail_the_run(open_page: Opener, server: Server, proxy: Proxy) -> None:
    run_id = server.run(pace=0.8, require_approval=False, limit=40)
    page = see(open_page, f"http://127.0.0.1:{proxy.port}/", run_id)
    words = screen.note_badges(page)
    for _ in range(5):  # each wait is longer than the one before
        expect(screen.badge(page)).to_have_text("Live")
        with screen.makes_badge_say(page, words, "Reconnecting"):
            proxy.cut()
        screen.status_is(page, "Running")
    screen.status_is(page, "Succeeded")
    assert set(words) <= {"Live", "Reconnecting", "Resyncing", "Ended"}
    assert server.call(f"runs/{run_id}")["status"] == "succeeded"
    is_whole(page, server, run_id)
    expect(screen.row_of(page, "cancel_requested")).to_have_count(0)
    expect(screen.notices(page)).to_have_count(0)
    expect(page.locator(".result .scroll").last.locator("tbody tr")).to_have_count(40)


def test_a_killed_server_comes_back_and_nothing_is_asked_twice(open_page: Opener, mortal: Server, policy: str) -> None:
    server = mortal
    run_id = server.run(pace=0, policy=policy)
    page = see(open_page, server.url, run_id)
    screen.status_is(page, "Needs a decision")
    title = screen.question(page).get_by_role("heading").inner_text()
    page.get_by_role("button", name="Approve").click()
    expect(screen.row_of(page, "approval_required")).to_have_count(1)  # the next one
    expect(screen.question(page).get_by_role("heading")).not_to_have_text(title)
    screen.status_is(page, "Needs a decision")
    server.kill()
    expect(screen.badge(page)).to_have_text("Reconnecting")
    screen.status_is(page, "Needs a decision")
    server.start()
    expect(page.locator(".timeline")).to_contain_text("Attempt 2 started", timeout=60_000)
    expect(screen.badge(page)).to_have_text("Live")
    screen.status_is(page, "Needs a decision")
    expect(screen.question(page)).to_have_count(1)
    expect(page.get_by_role("article", name=title, exact=True)).to_have_count(0)
    is_whole(page, server, run_id)


def test_a_licence_review_fills_every_field(open_page: Opener, server: Server) -> None:
    run_id = server.run(pace=1)
    page = see(open_page, server.url, run_id)
    page.get_by_text("Details").click()
    lacking = set(json.loads((SPEC / "snapshot.schema.json").read_text())["properties"])
    for _ in range(100):
        told = "all => all.filter(one => one.innerText.trim()).map(one => one.dataset.field)"
        lacking -= set(page.locator("[data-field]").evaluate_all(told))
        if not lacking:
            break
        page.wait_for_timeout(100)
    server.call(f"runs/{run_id}/cancel", {})
    assert lacking == set()
