"""A licence review in a real browser on a real server: reload, second tab, decision, stop, cut lines, kill."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.server import Proxy, Server
from tests.browser.waiting import page_says

pytestmark = [pytest.mark.browser, pytest.mark.row("H-browser"), pytest.mark.timeout(240)]

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


def story(page: Page) -> list[str]:
    """The ids of the events on screen, in their order."""
    return [str(one) for one in page.locator(".time li").evaluate_all("all => all.map(one => one.dataset.id)")]


def text(page: Page, part: str = "findings") -> str:
    """What a part says, character for character."""
    toggle = page.locator(".toggle:visible").first
    if toggle.inner_text() == "Plain text":
        toggle.click()
    return str(page.locator(f"[data-part={part}] .plain").text_content())


def is_whole(page: Page, server: Server, run_id: str) -> None:
    """The screen shows what the record and the archive hold, each event once and in its order."""
    every = [event["id"] for event in server.call(f"runs/{run_id}/events?limit=200")["events"]]
    shown = story(page)
    assert shown == every[-len(shown) :]
    assert len(shown) >= min(len(every), 50)
    expect(page.locator(".hole")).to_be_hidden()


def status(page: Page, word: str) -> None:
    expect(page.locator("#status")).to_have_text(word, timeout=60_000)


@pytest.mark.row("M-reload")
def test_a_reload_at_every_stage_shows_the_whole_run(open_page: Opener, server: Server, policy: str) -> None:
    run_id = server.run(pace=0.15, policy=policy, limit=32)
    page = see(open_page, server.url, run_id)
    findings = ""
    for done in (1, 8, 16):
        page_says(page, f"Number((document.body.innerText.match(/(\\d+) of \\d+/) || [])[1]) >= {done}")
        page.reload()
        status(page, "Running")
        expect(page.locator("#connection")).to_have_text("Live")
        expect(page.locator("[data-part=findings]")).to_be_visible()
        shown = text(page)
        assert shown.startswith(findings)
        assert len(shown) > len(findings)
        findings = shown
        assert story(page)[0].endswith(":1")
    while True:
        expect(page.locator("#status")).to_have_text(re.compile("Needs a decision|Succeeded"), timeout=60_000)
        if page.locator("#status").inner_text() == "Succeeded":
            break
        card = page.locator(".ask")
        expect(card).to_have_count(1)
        title = card.locator("h3").inner_text()
        page.reload()
        status(page, "Needs a decision")
        expect(page.locator(".ask").get_by_role("heading", name=title, exact=True)).to_be_visible()
        page.get_by_role("button", name="Approve").click()
        expect(page.locator(".ask").get_by_role("heading", name=title, exact=True)).to_have_count(0)
    run = server.wait(run_id, "succeeded")
    for _ in range(2):
        expect(page.locator("#connection")).to_have_text("Ended")
        expect(page.locator("#result .md h3").first).to_have_text("Licence review")
        expect(page.locator("#result tbody tr").last).to_be_attached()
        assert page.locator("#result .scroll").last.locator("tbody tr").count() == len(run["result"]["distributions"])
        is_whole(page, server, run_id)
        page.reload()


@pytest.mark.row("M-fast-run")
def test_a_run_that_is_over_shows_its_whole_course(open_page: Opener, server: Server) -> None:
    run_id = server.run(pace=0, require_approval=False)
    server.wait(run_id, "succeeded")
    page = see(open_page, server.url, run_id)
    status(page, "Succeeded")
    expect(page.locator("#connection")).to_have_text("Ended")
    is_whole(page, server, run_id)
    assert story(page)[0] == f"run:{run_id}:1"
    expect(page.locator(".time li").last).to_contain_text("Succeeded")


def test_two_tabs_agree_and_the_other_one_decides(open_page: Opener, server: Server, policy: str) -> None:
    run_id = server.run(pace=0.02, policy=policy, limit=15)
    one, two = see(open_page, server.url, run_id), see(open_page, server.url, run_id)
    for page in (one, two):
        status(page, "Needs a decision")
        expect(page.locator(".ask")).to_have_count(1)
    title = one.locator(".ask h3").inner_text()
    two.get_by_label("Note").fill("decided over there")
    two.get_by_role("button", name="Reject").click()
    for page in (one, two):
        expect(page.locator(".ask").get_by_role("heading", name=title, exact=True)).to_have_count(0)
        decided = page.locator(".time li[data-type=approval_decided]").first
        expect(decided).to_contain_text("Rejected by local")
        expect(decided).to_contain_text("decided over there")
    while one.locator("#status").inner_text() != "Succeeded":
        # In one step: a question that is there now may be gone with the run's end a moment later.
        one.locator(".ask button.main").evaluate_all("all => all[0]?.click()")
        one.wait_for_timeout(200)
    status(two, "Succeeded")
    assert story(one) == story(two)
    is_whole(two, server, run_id)


def test_a_stop_is_seen_by_everybody_and_keeps_the_text(open_page: Opener, server: Server) -> None:
    run_id = server.run(pace=1)
    one, two = see(open_page, server.url, run_id), see(open_page, server.url, run_id)
    for page in (one, two):
        expect(page.locator("[data-part=findings]")).to_be_visible()
    one.get_by_role("button", name="Stop").click()
    for page in (one, two):
        status(page, "Stopped")
        expect(page.locator("#connection")).to_have_text("Ended")
        expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        expect(page.get_by_text("Cut short.")).to_be_visible()
        is_whole(page, server, run_id)
    run = server.wait(run_id, "cancelled")
    assert text(one) == text(two) == run["partial"][0]["text"]


def test_a_run_is_started_from_the_form(open_page: Opener, server: Server) -> None:
    page = open_page(server.url)
    page.get_by_label("Seconds per distribution").fill("61")
    page.get_by_label("At most").fill("0")
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#field-pace-wrong")).to_be_visible()
    expect(page.locator("#field-limit-wrong")).to_be_visible()
    page.get_by_label("Seconds per distribution").fill("0")
    page.get_by_label("At most").fill("2")
    page.get_by_label("Ask for approval").uncheck()
    page.get_by_role("button", name="Start").click()
    status(page, "Succeeded")
    expect(page.locator("#result .scroll").last.locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name="playhead").click()
    expect(page.get_by_role("region", name="All runs").locator("a").first).to_contain_text("Succeeded")


@pytest.mark.row("BR-13", "M-suspended-tab")
def test_cut_lines_neither_stop_nor_fail_the_run(open_page: Opener, server: Server, proxy: Proxy) -> None:
    run_id = server.run(pace=0.2, require_approval=False, limit=40)
    page = see(open_page, f"http://127.0.0.1:{proxy.port}/", run_id)
    words: set[str] = set()
    page.expose_function("badge", lambda word: words.add(word))
    page.evaluate("""new MutationObserver(() => badge(document.getElementById('connection').textContent))
        .observe(document.getElementById('connection'), {childList: true, characterData: true, subtree: true})""")
    for _ in range(5):
        expect(page.locator("#connection")).to_have_text("Live")
        proxy.cut()
        expect(page.locator("#connection")).to_have_text("Reconnecting")
        status(page, "Running")
    status(page, "Succeeded")
    assert words <= {"Live", "Reconnecting", "Resyncing", "Ended"}
    assert server.call(f"runs/{run_id}")["status"] == "succeeded"
    is_whole(page, server, run_id)
    expect(page.locator(".time li[data-type=cancel_requested]")).to_have_count(0)
    expect(page.locator(".notice:visible")).to_have_count(0)
    assert len(text(page).splitlines()) == 40


@pytest.mark.row("M-suspended-tab")
def test_a_frozen_tab_goes_on_where_it_was(open_page: Opener, server: Server, proxy: Proxy) -> None:
    run_id = server.run(pace=0.1, require_approval=False, limit=30)
    page = see(open_page, f"http://127.0.0.1:{proxy.port}/", run_id)
    expect(page.locator("#connection")).to_have_text("Live")
    system = page.context.new_cdp_session(page)
    system.send("Page.setWebLifecycleState", {"state": "frozen"})
    proxy.cut()
    run = server.wait(run_id, "succeeded")
    system.send("Page.setWebLifecycleState", {"state": "active"})
    status(page, "Succeeded")
    expect(page.locator("#result .scroll").last.locator("tbody tr")).to_have_count(len(run["result"]["distributions"]))
    is_whole(page, server, run_id)


def test_a_killed_server_comes_back_and_nothing_is_asked_twice(open_page: Opener, mortal: Server, policy: str) -> None:
    server = mortal
    run_id = server.run(pace=0, policy=policy)
    page = see(open_page, server.url, run_id)
    status(page, "Needs a decision")
    title = page.locator(".ask h3").inner_text()
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".time li[data-type=approval_required]")).to_have_count(2)
    expect(page.locator(".ask h3")).not_to_have_text(title)
    status(page, "Needs a decision")
    server.kill()
    expect(page.locator("#connection")).to_have_text("Reconnecting")
    status(page, "Needs a decision")
    server.start()
    expect(page.locator(".time")).to_contain_text("Attempt 2 started", timeout=60_000)
    expect(page.locator("#connection")).to_have_text("Live")
    status(page, "Needs a decision")
    expect(page.locator(".ask")).to_have_count(1)
    expect(page.locator(".ask").get_by_role("heading", name=title, exact=True)).to_have_count(0)
    is_whole(page, server, run_id)


def test_pictures(open_page: Opener, server: Server, policy: str, pictures: Path) -> None:
    """For a person to look at; that they can be taken at all is what is tested."""
    kinds: dict[str, dict[str, object]] = {
        "light": {"viewport": {"width": 1280, "height": 860}},
        "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
        "phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True},
    }
    run_id = server.run(pace=0.05, policy=policy)
    for kind, options in kinds.items():
        page = see(open_page, server.url, run_id, **options)
        status(page, "Needs a decision")
        expect(page.locator(".ask")).to_have_count(1)
        page.screenshot(path=pictures / f"{kind}-waiting.png", full_page=True)
        page.goto(server.url)
        expect(page.get_by_text("Waiting for you")).to_be_visible()
        page.screenshot(path=pictures / f"{kind}-list.png", full_page=True)
        width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert width <= 0, "the page is wider than the screen"
    for asked in iter(lambda: server.call(f"interrupts?run={run_id}")["interrupts"], None):
        if server.call(f"runs/{run_id}")["status"] == "succeeded":
            break
        for one in asked:
            server.call(f"runs/{run_id}/interrupts/{one['id']}/decision", {"approved": True, "note": "A test tool."})
    for kind, options in kinds.items():
        page = see(open_page, server.url, run_id, **options)
        status(page, "Succeeded")
        expect(page.locator("#result .md")).to_be_visible()
        page.screenshot(path=pictures / f"{kind}-succeeded.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert len(list(pictures.glob("*.png"))) >= 9
