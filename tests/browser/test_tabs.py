"""Many tabs of one browser: one connection for all, and it outlives the tab that holds it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import CDPSession, Error, Page, expect

from tests.browser import screen, truth
from tests.browser.server import Server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

Opener = Callable[[str], Page]

# A page asks for a lock of its own, and reads in the browser's list who that makes it.
WHO = """async () => {
  const name = `who ${Math.random()}`
  return navigator.locks.request(name, async () =>
    (await navigator.locks.query()).held.find(one => one.name === name).clientId)
}"""
LEADS = """async name => (await navigator.locks.query()).held.find(one => one.name === name)?.clientId ?? null"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("tabs") / "data", "tests.browser.agents:AGENTS")
    one.start()
    yield one
    one.stop()


class Tabs:
    """The tabs of one browser, and which of them the browser says is the one that leads."""

    def __init__(self, server: Server) -> None:
        self._lock = f"playhead 2 {server.url}"
        self.by_name: dict[str, Page] = {}

    def add(self, page: Page) -> Page:
        self.by_name[page.evaluate(WHO)] = page
        return page

    def leads(self, observer: Page) -> str | None:
        return observer.evaluate(LEADS, self._lock)

    def leader(self) -> str:
        observer = next(iter(self.by_name.values()))
        screen.until(observer, lambda: self.leads(observer) in self.by_name)
        name = self.leads(observer)
        assert name is not None
        return name


def one_stream(page: Page, server: Server) -> None:
    screen.until(page, lambda: server.streams == 1)


@pytest.mark.row("BR-21", "F62@browser", "R46")
def test_eight_tabs_share_one_stream_and_every_call_is_still_answered(server: Server, open_tab: Opener) -> None:
    """A browser opens six connections to a server of HTTP/1.1 at most, which is what this one speaks."""
    runs = [server.go("steady"), server.go("steady", question=True), server.go("plain")]
    ids = [run_id for run_id, _ in runs]
    tabs = [open_tab(f"{server.url}#/runs/{ids[i % 3]}") for i in range(7)]
    listing = open_tab(server.url)
    for page in tabs:
        truth.hears(page)
    listing.bring_to_front()
    bar = listing.get_by_role("list", name="All runs").get_by_role("progressbar").first
    before = bar.evaluate("bar => bar.value")
    screen.until(listing, lambda: bar.evaluate("bar => bar.value") != before)
    one_stream(listing, server)
    for page in [*tabs, listing]:
        assert page.evaluate("async () => (await fetch('agents', {signal: AbortSignal.timeout(15000)})).status") == 200
    runs[1][1].touch()
    for page in (tabs[1], tabs[4]):
        expect(page).to_have_title(re.compile("^Needs a decision"))
    tabs[4].bring_to_front()
    tabs[4].get_by_role("button", name="Approve").click()
    tabs[2].bring_to_front()
    screen.stop(tabs[2])
    tabs[0].bring_to_front()
    tabs[0].evaluate("location.hash = '#/start/plain'")
    tabs[0].get_by_label("Gate").fill(str(runs[0][1]))
    tabs[0].get_by_label("Pace").fill("0.1")
    tabs[0].get_by_role("button", name="Start", exact=True).click()
    screen.status_is(tabs[0], "Running")
    runs[0][1].touch()
    assert [truth.ends_true(tabs[i], server, ids[i % 3])["status"] for i in range(1, 7)] == [
        "succeeded",
        "cancelled",
        "succeeded",
        "succeeded",
        "cancelled",
        "succeeded",
    ]
    tabs[0].bring_to_front()
    screen.status_is(tabs[0], "Succeeded")


def close(page: Page, system: CDPSession) -> None:
    page.close()


def freeze(page: Page, system: CDPSession) -> None:
    system.send("Page.setWebLifecycleState", {"state": "frozen"})


def crash(page: Page, system: CDPSession) -> None:
    with page.expect_event("crash"), pytest.raises(Error):
        page.goto("chrome://crash")


def stick(page: Page, system: CDPSession) -> None:
    """It says nothing any more, and nobody tells it or the others."""
    page.evaluate("() => { setTimeout(() => { for (const end = Date.now() + 4000; Date.now() < end;); }) }")


@pytest.mark.row("F63@browser")
@pytest.mark.parametrize("lose", [close, freeze, crash, stick], ids=lambda lose: lose.__name__)
def test_another_tab_leads_within_three_seconds_and_no_tab_lacks_anything(
    server: Server, open_tab: Opener, lose: Callable[[Page, CDPSession], None]
) -> None:
    runs = [server.go("steady") for _ in range(2)]
    tabs = Tabs(server)
    pages = [tabs.add(open_tab(f"{server.url}#/runs/{runs[i % 2][0]}")) for i in range(4)]
    follows = {page: runs[i % 2][0] for i, page in enumerate(pages)}
    for page in pages:
        truth.hears(page)
    one_stream(pages[0], server)
    lost = tabs.by_name.pop(tabs.leader())
    others = list(tabs.by_name.values())
    others[-1].bring_to_front()  # which leaves the one that leads behind it
    lost.evaluate("window.before = true")
    system = lost.context.new_cdp_session(lost)
    began = time.monotonic()
    lose(lost, system)
    while tabs.leads(others[-1]) not in tabs.by_name:
        assert time.monotonic() - began < 3.0
        others[-1].wait_for_timeout(20)
    for page in others:
        truth.hears(page)
    if lose in (close, crash):
        lost.close()
    else:
        if lose is freeze:
            system.send("Page.setWebLifecycleState", {"state": "active"})
        truth.goes_on(lost, server, follows[lost])
        assert lost.evaluate("window.before")
        # It is back, and takes nothing from the others.
        screen.until(lost, lambda: tabs.leads(lost) in tabs.by_name)
        others.append(lost)
    one_stream(others[0], server)
    for _, gate in runs:
        gate.touch()
    for page in others:
        assert truth.ends_true(page, server, follows[page])["status"] == "succeeded"
