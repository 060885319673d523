"""A real browser, and pages that fail a test when anything was loaded from elsewhere or refused by the policy."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.scripted import Scripted

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 15_000  # ms that the page gets to show something

# Kept with the page from its first moment: what the policy refused, and what a hostile payload managed to do.
WATCH = """
window.refused = []; window.harmed = 0;
document.addEventListener('securitypolicyviolation',
  e => window.refused.push(e.violatedDirective + ' ' + e.blockedURI));
window.alert = window.confirm = window.prompt = () => { window.harmed += 1; };
"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "these tests need Chromium on the PATH"
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open a page in a tab; all tabs of a test share one context unless another is wanted."""
    contexts: list[BrowserContext] = []
    pages: list[Page] = []
    outside: list[str] = []
    errors: list[str] = []
    hosts: set[str] = set()

    def open_page(url: str, *, apart: bool = False, **options: object) -> Page:
        hosts.add(url.split("/")[2])
        if apart or options or not contexts:
            context = browser.new_context(**options)  # type: ignore[arg-type]
            context.set_default_timeout(PATIENCE)
            context.add_init_script(WATCH)
            context.on("request", lambda request: outside.append(request.url) if not mine(request.url) else None)
            contexts.append(context)
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        pages.append(page)
        page.goto(url)
        return page

    def mine(url: str) -> bool:
        return url.startswith("data:") or url.split("/")[2] in hosts

    yield open_page
    for page in pages:
        if not page.is_closed():
            assert page.evaluate("window.refused") == []
            assert page.evaluate("window.harmed") == 0
    for context in contexts:
        context.close()
    assert outside == []
    assert errors == []


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    with Scripted().serving() as server:
        yield server


@pytest.fixture
def pictures() -> Path:
    """Where screenshots go, for people to look at; git ignores it."""
    folder = Path(__file__).parents[2] / ".cache" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
