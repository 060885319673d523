"""A real browser, and pages that fail a test when anything was loaded from elsewhere or refused by the policy."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Request, expect, sync_playwright

from tests.browser.scripted import Scripted

# What Chromium does by itself, and asks its maker for, is switched off; the last such flag is the one that counts.
OFF = (
    "AimEnabled",
    "AutofillServerCommunication",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
)
FLAGS = (
    f"--disable-features={','.join(OFF)}",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
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


def executable() -> str:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "these tests need Chromium on the PATH"
    return path


@pytest.fixture(scope="session")
def driver() -> Iterator[Playwright]:
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="session")
def browser(driver: Playwright) -> Iterator[Browser]:
    browser = driver.chromium.launch(executable_path=executable(), args=list(FLAGS))
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def window(driver: Playwright, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """A browser in which nothing is emulated. Its driver usually pretends that every tab is looked at, and does without
    the back-forward cache; here a tab behind another one is hidden, is slowed down, and can be frozen."""
    profile = tmp_path_factory.mktemp("profile")
    own = ("--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}")
    command = [executable(), *FLAGS, *own, "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    told = profile / "DevToolsActivePort"
    end = time.monotonic() + PATIENCE / 1000
    while not (told.exists() and len(lines := told.read_text().splitlines()) == 2):
        assert time.monotonic() < end
        time.sleep(0.02)  # between two looks
    browser = driver.chromium.connect_over_cdp(f"ws://127.0.0.1:{lines[0]}{lines[1]}", no_defaults=True)
    context = browser.contexts[0]
    context.add_init_script(WATCH)
    yield context
    browser.close()
    process.terminate()
    process.wait()


@dataclass
class Watched:
    """Pages, and what may not happen on any of them."""

    pages: list[Page] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def request(self, request: Request) -> None:
        url = request.url
        if not url.startswith("data:") and url.split("/")[2] not in self.hosts:
            self.outside.append(url)

    def open(self, context: BrowserContext, url: str) -> Page:
        self.hosts.add(url.split("/")[2])
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.pages.append(page)
        page.goto(url)
        return page

    def look(self) -> None:
        for page in self.pages:
            if not page.is_closed():
                assert page.evaluate("window.refused") == []
                assert page.evaluate("window.harmed") == 0

    def verify(self) -> None:
        assert self.outside == []
        assert self.errors == []


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open a page in a tab; all tabs of a test share one context unless another is wanted."""
    contexts: list[BrowserContext] = []
    watched = Watched()

    def open_page(url: str, *, apart: bool = False, **options: object) -> Page:
        if apart or options or not contexts:
            context = browser.new_context(**options)  # type: ignore[arg-type]
            context.add_init_script(WATCH)
            context.on("request", watched.request)
            contexts.append(context)
        return watched.open(contexts[-1], url)

    yield open_page
    watched.look()
    for context in contexts:
        context.close()
    watched.verify()


@pytest.fixture
def open_tab(window: BrowserContext) -> Iterator[Callable[[str], Page]]:
    """Open a page in a tab of the one window; it is before the others then."""
    watched = Watched()
    window.on("request", watched.request)
    yield partial(watched.open, window)
    try:
        watched.look()
    finally:
        for page in watched.pages:
            page.close()
        window.remove_listener("request", watched.request)
    watched.verify()


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
