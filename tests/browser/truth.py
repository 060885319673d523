"""What a page shows, held against what the server keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser import screen
from tests.browser.server import FINAL, Calls

WORDS = {
    "queued": "Queued",
    "running": "Running",
    "waiting": "Needs a decision",
    "succeeded": "Succeeded",
    "failed": "Failed",
    "cancelled": "Stopped",
    "interrupted": "Interrupted",
}


def is_whole(page: Page, history: Callable[[], list[str]]) -> None:
    """The events on screen are a piece of all of them without a gap, each once and in its order; its newest counts.

    The history is asked for when the page was read: of a run that goes on it would lack what the page has since.
    """
    shown = screen.folded(page)
    ids, every = [one for row in shown for one in row], history()
    assert len(ids) == len(set(ids)) > 0
    places = sorted(every.index(one) for one in ids)
    assert places == list(range(places[0], places[-1] + 1))
    assert len(places) >= min(places[-1] + 1, 50)
    firsts = [every.index(row[0]) for row in shown]
    assert firsts == sorted(firsts)
    expect(page.locator(".timeline")).to_have_attribute("data-complete", "true")


def hears(page: Page) -> None:
    """The tab hears of what happens from now on, looked at or not."""
    before = page.title()
    screen.until(page, lambda: page.title() != before)


def goes_on(page: Page, server: Calls, run_id: str) -> None:
    """It does, and its page lacks nothing of what was."""
    hears(page)
    page.bring_to_front()
    newest = server.history(run_id)[-1]
    screen.until(page, lambda: newest in screen.ids_of(page))
    screen.is_live(page)
    screen.status_is(page, WORDS[server.call(f"runs/{run_id}")["status"]])
    is_whole(page, lambda: server.history(run_id))


def ends_true(page: Page, server: Calls, run_id: str, *, timeout: float = 60_000) -> dict[str, Any]:
    """The run is over, and the page shows what the record and the archive hold: status, events and what it said."""
    run: dict[str, Any] = server.wait(run_id, *FINAL)
    screen.until(page, lambda: page.title().startswith(WORDS[run["status"]]))
    page.bring_to_front()
    expect(screen.badge(page)).to_have_text("Ended", timeout=timeout)
    screen.status_is(page, WORDS[run["status"]])
    every = server.history(run_id)
    # The record may have told the end before the stream of a page that has come back brings the last event.
    screen.until(page, lambda: every[-1] in screen.ids_of(page))
    is_whole(page, lambda: every)
    if run["status"] == "succeeded" and "markdown" in run["result"]:
        assert text(page, ".result .plain") == run["result"]["markdown"]
    elif run["status"] == "succeeded":
        assert json.loads(page.locator(".result pre").text_content() or "") == run["result"]
    elif run["partial"]:
        assert text(page, "[data-part] .plain") == run["partial"][0]["text"]
    if run["error"]:
        expect(page.locator(".error")).to_contain_text(run["error"]["code"])
    return run


def text(page: Page, place: str) -> str:
    """Character for character."""
    toggle = page.get_by_role("button", name="Plain text").first
    if toggle.get_attribute("aria-pressed") == "false":
        toggle.click()
    return str(page.locator(place).text_content())
