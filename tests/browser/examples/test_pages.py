"""Each example follows a run to its end in a real browser, over reloads, and shows what is true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.examples.conftest import Site
from tests.browser.waiting import page_says

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

Serve = Callable[..., Site]
Visit = Callable[..., Page]


def run_of(page: Page) -> str:
    """The id that the page has put into its address."""
    page_says(page, "() => location.hash.length > 1")
    return str(page.evaluate("location.hash.slice(1)"))


def said(screen: dict[str, Any]) -> str:
    return "".join(part["text"] for part in screen["text"])


def has_all(page: Page, items: str, site: Site, run_id: str) -> None:
    """The page lists as many events as there are."""
    expect(page.locator(items)).to_have_count(len(site.call(f"runs/{run_id}/bootstrap?limit=200")["events"]))


def test_plain_html_over_a_reload_and_a_restart(site: Serve, visit: Visit, complaints: list[str]) -> None:
    served = site("examples.serve:app")
    page = visit(served, "plain-html/")
    run_id = run_of(page)
    served.wait(run_id, "waiting")
    page.reload()
    expect(page.locator("#status")).to_have_text("waiting")
    expect(page.locator("#title")).to_have_text("Survey of the standard library")
    expect(page.locator("#text")).to_have_text(said(served.call(f"runs/{run_id}/bootstrap")))
    assert page.locator("#progress").evaluate("one => one.value") == 50
    has_all(page, "#events li", served, run_id)
    assert complaints == []

    served.kill()
    expect(page.locator("#line")).to_have_text("reconnecting")
    served.start()
    expect(page.locator("#line")).to_have_text("live")
    expect(page.locator("#events li").filter(has_text="attempt_started")).to_have_count(2)
    expect(page.locator("#events li").filter(has_text="package_counted")).to_have_count(8)  # four in each attempt
    served.wait(run_id, "waiting")
    screen = served.call(f"runs/{run_id}/bootstrap")
    assert [part["attempt"] for part in screen["text"]] == [2]
    expect(page.locator("#text")).to_have_text(said(screen))
    has_all(page, "#events li", served, run_id)

    streams: list[str] = []
    served.approve(run_id)
    expect(page.locator("#line")).to_have_text("ended")
    page.on("request", lambda request: streams.append(request.url) if "/stream" in request.url else None)
    result = served.call(f"runs/{run_id}")["result"]
    for _ in range(2):
        expect(page.locator("#status")).to_have_text("succeeded")
        expect(page.locator("#text")).to_have_text(result)
        has_all(page, "#events li", served, run_id)
        page.wait_for_timeout(1_000)  # longer than the time after which it would return
        assert len(streams) <= 1
        streams.clear()
        page.reload()
        expect(page.locator("#line")).to_have_text("ended")
    assert {text.split(":")[0] for text in complaints} == {"Failed to load resource"}  # while the server was away


def test_react_in_two_tabs_on_one_connection(site: Serve, visit: Visit, complaints: list[str]) -> None:
    served = site("examples.serve:app")
    page = visit(served, "react/")
    page.get_by_text("Start").click()
    run_id = run_of(page)
    other = visit(served, f"react/#{run_id}")
    for one in (page, other):
        expect(one.get_by_role("status")).to_have_text("waiting")
        expect(one).to_have_title("(1) Runs in React")
    page_says(page, "async () => (await (await fetch('/playhead/metrics')).text()).includes('streams_open 1.0')")
    page.reload()
    expect(page.get_by_role("status")).to_have_text("waiting")
    expect(page.locator("pre")).to_have_text(said(served.call(f"runs/{run_id}/bootstrap")))
    has_all(page, "ol li", served, run_id)
    other.get_by_text("Approve").click()
    for one in (page, other):
        expect(one.get_by_role("status")).to_have_text("succeeded")
        expect(one.locator("pre")).to_have_text(served.wait(run_id, "succeeded")["result"])
        expect(one.locator("nav li")).to_contain_text("succeeded 100 %")
        expect(one).to_have_title("Runs in React")
        has_all(one, "ol li", served, run_id)
    assert complaints == []


def test_vue_with_the_element_in_its_own_words(site: Serve, visit: Visit, complaints: list[str]) -> None:
    served = site("examples.serve:app")
    page = visit(served, "vue/")
    page.get_by_text("Neu starten").click()
    run_id = run_of(page)
    expect(page.get_by_role("status")).to_have_text("Wartet auf dich")
    page.reload()
    expect(page.get_by_role("status")).to_have_text("Wartet auf dich")
    expect(page.locator("[part=text]")).to_have_text(said(served.call(f"runs/{run_id}/bootstrap")))
    has_all(page, "[part=event]", served, run_id)
    page.get_by_text("Ja", exact=True).click()
    expect(page.get_by_role("status")).to_have_text("Fertig")
    expect(page.locator("footer")).to_have_text("succeeded")
    expect(page.locator("[part=text]")).to_have_text(served.wait(run_id, "succeeded")["result"])
    expect(page.locator("[part=event]").filter(has_text="Paket gezählt")).to_have_count(8)
    has_all(page, "[part=event]", served, run_id)
    assert complaints == []


def test_fastapi_with_a_login(site: Serve, visit: Visit, complaints: list[str]) -> None:
    served = site("examples.fastapi.app:app", EXAMPLES_SECRET="of the test")
    page = visit(served, "")
    page.get_by_label("Your name").fill("ann")
    page.get_by_text("Log in").click()
    page.get_by_text("Start").click()
    run_id = run_of(page)
    expect(page.get_by_role("status")).to_have_text("waiting live")
    page.reload()
    expect(page.get_by_role("status")).to_have_text("waiting live")

    guest = visit(served, f"#{run_id}", apart=True)
    guest.get_by_label("Your name").fill("guest")
    guest.get_by_text("Log in").click()
    expect(guest.get_by_role("status")).to_have_text("waiting live")
    guest.get_by_text("Approve: Count the large packages too?").click()
    expect(guest.get_by_role("alert")).not_to_be_empty()

    page.get_by_text("Approve: Count the large packages too?").click()
    for one in (page, guest):
        expect(one.get_by_role("status")).to_have_text("succeeded ended")
        expect(one.locator("pre")).to_contain_text("unittest: ")
        assert str(one.locator("pre").inner_text()).count("\n") >= 7
    answers = {text.partition("status of ")[2][:3] for text in complaints}
    assert answers == {"401", "403"}  # nobody logged in yet, and the guest's decision


def test_react_while_it_is_written(site: Serve, developed: Callable[[Site], str], open_page: Visit) -> None:
    """Vite's own server passes on what is for the gateway."""
    served = site("examples.serve:app")
    page = open_page(f"{developed(served)}react/")
    page.get_by_text("Start").click()
    page.get_by_text("Approve").click()
    expect(page.get_by_role("status")).to_have_text("succeeded")
    expect(page.locator("pre")).to_have_text(served.wait(run_of(page), "succeeded")["result"])


def test_react_reads_what_it_cannot_follow(site: Serve, visit: Visit) -> None:
    """The part of the client that follows does not come: it was lost on the way, or is gone since a deployment."""
    served = site("examples.serve:app")
    page = visit(served, "react/")
    page.get_by_text("Start").click()
    run_id = run_of(page)
    expect(page.get_by_role("status")).to_have_text("waiting")
    lost: list[str] = []

    def lose(route: Route) -> None:
        lost.append(route.request.url)
        route.abort()

    page.route("**/lines-*.js", lose)
    page.reload()
    expect(page.get_by_role("status")).to_have_text("waiting")
    assert lost
    page.get_by_text("Approve").click()
    served.wait(run_id, "succeeded")
    expect(page.get_by_role("status")).to_have_text("succeeded", timeout=60_000)
    has_all(page, "ol li", served, run_id)

    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("status")).to_have_text("waiting", timeout=60_000)
    page.unroute("**/lines-*.js")
    page_says(page, "async () => (await (await fetch('/playhead/metrics')).text()).includes('streams_open 1.0')")
