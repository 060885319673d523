"""What a person finds on the page: its parts, by what they are called there or by their stable attributes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from playwright.sync_api import Locator, Page, expect


def field(page: Page, name: str) -> Locator:
    """The place of a field of the snapshot."""
    return page.locator(f"[data-field={name}]")


def badge(page: Page) -> Locator:
    return page.locator(".badge")


def rows(page: Page) -> Locator:
    """The rows of the timeline, without the mark of now."""
    return page.locator(".timeline li[data-ids]")


def row_of(page: Page, type: str) -> Locator:
    """The rows that such an event ended, or made alone."""
    return page.locator(f".timeline li[data-type={type}]")


def question(page: Page) -> Locator:
    return page.get_by_role("article")


def notices(page: Page) -> Locator:
    return page.locator(".notice")


def folded(page: Page) -> list[list[str]]:
    """The ids of the events on screen, by row."""
    return [json.loads(one) for one in rows(page).evaluate_all("all => all.map(one => one.dataset.ids)")]


def ids_of(page: Page) -> list[str]:
    """The ids of the events on screen."""
    return [one for row in folded(page) for one in row]


def said(page: Page, part: str = "answer") -> str:
    """What a text part says, character for character."""
    toggle = page.get_by_role("button", name="Plain text").first
    if toggle.get_attribute("aria-pressed") == "false":
        toggle.click()
    return str(page.locator(f"[data-part={part}] .plain").text_content())


def status_is(page: Page, word: str, *, timeout: float = 60_000) -> None:
    expect(field(page, "status")).to_have_text(word, timeout=timeout)


def is_live(page: Page) -> None:
    expect(badge(page)).to_have_text("Live")


def until(page: Page, told: Callable[[], object]) -> None:
    """Let the page go on until this is so: for a minute, as a page that was away waits long before it asks again."""
    for _ in range(1200):
        if told():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not come to that")


def note_badges(page: Page) -> list[str]:
    """Everything that the badge says from now on, where it is live now. A screen that has loaded has another one."""
    is_live(page)
    seen: list[str] = []
    page.expose_function("noteBadge", lambda word: seen.append(word))
    page.evaluate("""() => {
        const says = () => document.querySelector('.badge')?.textContent
        let last = says()
        new MutationObserver(() => {
            const word = says()
            if (word !== undefined && word !== last) noteBadge(last = word)
        }).observe(document.body, {childList: true, characterData: true, subtree: true})
    }""")
    return seen


@contextmanager
def makes_badge_say(page: Page, seen: list[str], word: str) -> Iterator[None]:
    """What is done here makes the badge say this, for however short a time; `seen` is of `note_badges`."""
    before = len(seen)
    yield
    until(page, lambda: word in seen[before:])


def stop(page: Page, reason: str = "") -> None:
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_label("Reason").fill(reason)
    page.get_by_role("button", name="Stop the run").click()
