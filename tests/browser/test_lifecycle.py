"""What a page goes through while its run goes on: sleep, the back-forward cache, no network, a dead line, no eyes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser import screen, truth
from tests.browser.scripted import RUN, Scripted, bootstrap, event, frame, happened, piece, run
from tests.browser.server import Proxy, Server
from tests.browser.test_page import live

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

Opener = Callable[..., Page]

KEEPALIVE = 0.2  # instead of 15 s
MINUTES = 8 * KEEPALIVE  # what two of them are by that measure

# What the browser does with the page, by its own events.
LIVED = """
window.lived = [];
for (const [target, name] of [[document, 'freeze'], [document, 'resume'], [window, 'pagehide'], [window, 'pageshow']])
  target.addEventListener(name, event => window.lived.push(event.persisted ? `${name} persisted` : name));
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("lifecycle") / "data"
    one = Server(data, "tests.browser.agents:AGENTS", keepalive=KEEPALIVE)
    one.start()
    yield one
    one.stop()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    one = Proxy(server.port)
    yield one
    one.close()


def see(open_one: Opener, url: str, run_id: str) -> Page:
    """The page, live, with a mark that a load would wipe out."""
    page = open_one(f"{url}#/runs/{run_id}")
    screen.is_live(page)
    page.evaluate(f"() => {{ {LIVED} }}")
    return page


@pytest.mark.row("F64@browser", "M-suspended-tab", "R45")
@pytest.mark.parametrize("ends", [False, True], ids=["goes on", "ended meanwhile"])
def test_a_page_that_was_frozen_for_two_minutes_shows_the_truth(server: Server, open_tab: Opener, ends: bool) -> None:
    run_id, gate = server.go("steady")
    page = see(open_tab, server.url, run_id)
    other = open_tab(f"{server.url}healthz")  # what is looked at cannot be frozen
    system = page.context.new_cdp_session(page)
    system.send("Page.setWebLifecycleState", {"state": "frozen"})
    screen.until(other, lambda: server.streams == 0)
    before = len(server.history(run_id))
    other.wait_for_timeout(MINUTES * 1000)
    screen.until(other, lambda: len(server.history(run_id)) > before + 5)
    if ends:
        gate.touch()
        server.wait(run_id, "succeeded")
    system.send("Page.setWebLifecycleState", {"state": "active"})
    if not ends:
        truth.goes_on(page, server, run_id)
        gate.touch()
    assert truth.ends_true(page, server, run_id)["status"] == "succeeded"
    assert page.evaluate("window.lived") == ["freeze", "resume"]


@pytest.mark.row("F64@browser")
@pytest.mark.parametrize("ends", [False, True], ids=["goes on", "ended meanwhile"])
def test_a_page_out_of_the_back_forward_cache_shows_the_truth(server: Server, open_tab: Opener, ends: bool) -> None:
    run_id, gate = server.go("steady")
    page = see(open_tab, server.url, run_id)
    page.goto(f"{server.url}healthz")
    screen.until(page, lambda: server.streams == 0)
    before = len(server.history(run_id))
    screen.until(page, lambda: len(server.history(run_id)) > before + 5)
    if ends:
        gate.touch()
        server.wait(run_id, "succeeded")
    page.go_back(wait_until="commit")
    if not ends:
        truth.goes_on(page, server, run_id)
        gate.touch()
    assert truth.ends_true(page, server, run_id)["status"] == "succeeded"
    assert page.evaluate("window.lived") == ["pagehide persisted", "freeze", "resume", "pageshow persisted"]


@pytest.mark.row("BR-13@browser")
def test_a_page_that_is_offline_ten_times_never_calls_its_run_failed(
    server: Server, proxy: Proxy, open_page: Opener
) -> None:
    run_id, gate = server.go("steady")
    page = see(open_page, proxy.url, run_id)
    words = screen.note_badges(page)
    for _ in range(10):
        page.context.set_offline(True)
        proxy.cut()  # a browser that is told to be offline keeps what is open
        expect(screen.badge(page)).to_have_text("Reconnecting")
        screen.status_is(page, "Running")
        page.context.set_offline(False)
        screen.is_live(page)
    truth.goes_on(page, server, run_id)
    gate.touch()
    assert truth.ends_true(page, server, run_id)["status"] == "succeeded"
    assert set(words) == {"Reconnecting", "Live", "Ended"}
    expect(screen.row_of(page, "cancel_requested")).to_have_count(0)
    expect(screen.notices(page)).to_have_count(0)


@pytest.mark.row("F56@browser", "F60@browser", "R45")
def test_a_line_that_is_dead_without_a_word_is_found_out(server: Server, proxy: Proxy, open_page: Opener) -> None:
    run_id, gate = server.go("steady")
    page = open_page(f"{proxy.url}#/start")
    page.clock.install()
    page.goto(f"{proxy.url}#/runs/{run_id}")
    screen.is_live(page)
    proxy.hold()
    page.clock.fast_forward(30_000)  # two keep-alives of a server as it usually is
    page.wait_for_timeout(200)
    screen.is_live(page)
    page.clock.fast_forward(10_000)
    expect(screen.badge(page)).to_have_text("Reconnecting")
    screen.status_is(page, "Running")
    proxy.cut()
    proxy.open()
    page.clock.fast_forward(31_000)
    truth.goes_on(page, server, run_id)
    gate.touch()
    assert truth.ends_true(page, server, run_id)["status"] == "succeeded"


@pytest.mark.row("F61@browser")
def test_a_quiet_run_stays_connected_behind_a_proxy_that_ends_what_is_idle(server: Server, open_page: Opener) -> None:
    run_id, gate = server.go("steady", question=True)
    gate.touch()
    server.wait(run_id, "waiting")
    proxy = Proxy(server.port, idle=10 * KEEPALIVE)
    page = see(open_page, proxy.url, run_id)
    words = screen.note_badges(page)
    screen.until(page, lambda: proxy.idled > 0)  # the connections of the page's own requests
    page.wait_for_timeout(10 * KEEPALIVE * 1000)
    page.get_by_role("button", name="Approve").click()
    assert truth.ends_true(page, server, run_id)["status"] == "succeeded"
    assert words == ["Ended"]
    proxy.close()


@pytest.mark.row("F65@browser")
def test_a_flood_of_text_costs_no_event_and_ends_in_what_the_record_says(open_page: Opener, scripted: Scripted) -> None:
    scripted.screen = bootstrap(0)
    page = live(open_page(f"{scripted.url}#/runs/{RUN}"), scripted)
    said = ""
    for burst in range(50):
        frames = []
        for n in range(100):
            words = f"{burst}.{n} Grüße\n"
            frames.append(piece("answer", len(said.encode()), words))
            said += words
        scripted.send(*frames, happened(burst + 1))
    expect(screen.rows(page)).to_have_count(50)
    screen.until(page, lambda: screen.said(page) == said)
    assert screen.ids_of(page) == [event(n)["id"] for n in range(1, 51)]
    assert (scripted.bootstraps, len(scripted.streams)) == (1, 1)
    scripted.screen = bootstrap(50, run=run("succeeded", rev=9, result={"markdown": "short\n"}))
    scripted.send(frame({"run_id": RUN, "status": "succeeded"}, "end", "end"))
    screen.status_is(page, "Succeeded")
    assert truth.text(page, ".result .plain") == "short\n"


CALLS = """
window.calls = [];
window.Notification = class extends Notification {
  constructor(title, options) { super(title, options); window.calls.push([title, document.hidden]); }
};
"""


@pytest.mark.row("H-browser")
def test_a_tab_that_nobody_looks_at_calls_whoever_asked_for_it(server: Server, open_tab: Opener) -> None:
    first, gate = server.go("steady", question=True)
    page = see(open_tab, server.url, first)
    page.context.grant_permissions(["notifications"], origin=server.url.rstrip("/"))
    page.evaluate(f"() => {{ {CALLS} }}")
    bell = page.get_by_role("button", name="Notify me")
    bell.click()
    expect(bell).to_have_attribute("aria-pressed", "true")
    other = open_tab(f"{server.url}healthz")
    assert page.evaluate("[document.hidden, window.calls.length]") == [True, 0]
    gate.touch()
    screen.until(other, lambda: page.evaluate("window.calls") == [["Steady: Needs a decision", True]])
    [asked] = server.call(f"runs/{first}/bootstrap")["interrupts"]
    server.call(f"runs/{first}/interrupts/{asked['id']}/decision", {"approved": True})
    screen.until(other, lambda: page.evaluate("window.calls.length") == 2)
    assert page.evaluate("window.calls")[1] == ["Steady: Succeeded", True]


def test_a_tab_that_was_never_looked_at_follows_too(server: Server, open_tab: Opener) -> None:
    run_id, gate = server.go("steady")
    page = open_tab(f"{server.url}healthz")
    open_tab(f"{server.url}healthz")
    page.goto(f"{server.url}#/runs/{run_id}")
    truth.hears(page)
    assert page.evaluate("document.hidden")
    gate.touch()
    assert truth.ends_true(page, server, run_id)["status"] == "succeeded"
