"""The server goes and comes back while the page is open, and nothing but the server itself is ever asked."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import screen, truth
from tests.browser.server import Proxy, Server, Socks

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

Opener = Callable[..., Page]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "data", "tests.browser.agents:AGENTS")
    one.start()
    yield one
    one.stop()


@pytest.mark.row("H-browser", "M-restart")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_after_a_restart_the_open_page_shows_the_truth(server: Server, open_page: Opener, number: int) -> None:
    """Of a run that goes on, one that waits for a person, one that its server took along, and one that ended since."""
    proxy = Proxy(server.port)
    on, lost, ended = (server.go(agent) for agent in ("steady", "plain", "steady"))
    asks, gate = server.go("steady", question=True)
    gate.touch()
    pages = {run_id: open_page(f"{proxy.url}#/runs/{run_id}") for run_id, _ in (on, lost, ended)}
    pages[asks] = open_page(f"{proxy.url}#/runs/{asks}")
    for page in pages.values():
        screen.is_live(page)
    expect(screen.question(pages[asks])).to_have_count(1)
    server.end(number)
    for page in pages.values():
        expect(screen.badge(page)).to_have_text("Reconnecting")
    proxy.shut()
    server.start()
    ended[1].touch()
    server.wait(ended[0], "succeeded")
    server.wait(lost[0], "interrupted")
    server.wait(asks, "waiting")
    proxy.open()
    assert truth.ends_true(pages[ended[0]], server, ended[0])["attempt"] == 2
    assert truth.ends_true(pages[lost[0]], server, lost[0])["status"] == "interrupted"
    truth.goes_on(pages[on[0]], server, on[0])
    expect(screen.question(pages[asks])).to_have_count(1)
    pages[asks].get_by_role("button", name="Approve").click()
    on[1].touch()
    assert truth.ends_true(pages[on[0]], server, on[0])["attempt"] == 2
    assert truth.ends_true(pages[asks], server, asks)["status"] == "succeeded"
    proxy.close()


def test_a_whole_journey_reaches_for_nothing_but_its_server(
    server: Server, browser: Browser, open_page: Opener, tmp_path: Path
) -> None:
    """Counted at the browser's only way out, so also for what no page tells: workers, icons, names, prefetches."""
    policy = tmp_path / "policy.toml"
    policy.write_text('name = "Strict"\nallow = ["MIT"]\ndeny = ["BSD-3-Clause"]\n')
    out = Socks(server.port)
    way: Any = {"server": f"socks5://127.0.0.1:{out.port}"}
    page = open_page(server.url, proxy=way)
    page.get_by_role("link", name="New run").click()
    page.get_by_label("Agent").select_option("licence_review")
    page.get_by_label("Policy file").fill(str(policy))
    page.get_by_label("At most").fill("15")
    page.get_by_label("Seconds per distribution").fill("0.01")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(screen.field(page, "status")).to_have_text("Needs a decision")
    page.reload()
    while screen.field(page, "status").inner_text() != "Succeeded":
        page.locator(".answers button.main").evaluate_all("all => all[0]?.click()")
        page.wait_for_timeout(100)
    page.get_by_text("Download").click()
    with page.expect_download():
        page.get_by_role("button", name="Result as Markdown").click()
    page.get_by_role("button", name="Deutsch").click()
    page.get_by_role("link", name="playhead").click()
    expect(page.locator(".chip").first).to_be_visible()
    assert set(out.asked) == {f"127.0.0.1:{server.port}"}
    apart = browser.new_context(proxy=way)  # whatever else it asked for would be noticed
    stray = apart.new_page()
    stray.evaluate("() => { new Image().src = 'http://elsewhere.invalid/x.png' }")
    screen.until(stray, lambda: "elsewhere.invalid:80" in out.asked)
    apart.close()
    out.close()
