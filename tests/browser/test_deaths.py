"""The server is killed at any moment while pages are open, and each of them ends in what the server keeps."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest
from playwright.sync_api import Browser, Page, expect

from playhead.testing.harness.process import free_port
from tests.browser import screen, truth
from tests.browser.conftest import PATIENCE, WATCH
from tests.browser.server import Calls
from tests.plugins.histories import seed
from tests.support.nursery import Nursery, Server

pytestmark = [pytest.mark.browser, pytest.mark.deep]

KILLS = int(os.environ.get("PLAYHEAD_KILLS", "6"))
TABS = 3


class Mortal(Calls):
    """Servers on one data folder and one port, one after the other."""

    def __init__(self, nursery: Nursery, data: Path) -> None:
        super().__init__(free_port())
        self._nursery, self._data = nursery, data
        self._process: Server | None = None

    def start(self) -> None:
        if self._process is not None and self._process.code is None:
            return
        process = self._process = self._nursery.start(self._data, port=self.port)
        until(lambda: process.url is not None)

    def kill(self) -> None:
        process = self._process
        if process is not None:
            process.signal(signal.SIGKILL)
            until(lambda: process.code is not None)

    def ask_for(self, agent: str, key: str, **given: Any) -> str:
        """Start a run, however often it takes: under one key it is one."""
        body = {"agent": agent, "input": given, "key": key}
        while True:
            with contextlib.suppress(URLError, HTTPError, ConnectionError):
                return str(self.call("runs", body, {"Idempotency-Key": key})["id"])
            time.sleep(0.05)  # between two looks


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE / 1000
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)  # between two looks


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortal]:
    nursery = Nursery()
    one = Mortal(nursery, tmp_path_factory.mktemp("deaths") / "data")
    one.start()
    yield one
    one.kill()
    nursery.close()


@pytest.fixture(scope="module")
def tabs(browser: Browser) -> Iterator[list[Page]]:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    context.add_init_script(WATCH)
    pages = [context.new_page() for _ in range(TABS)]
    errors: list[str] = []
    for page in pages:
        page.on("pageerror", lambda error: errors.append(str(error)))
    yield pages
    context.close()
    assert errors == []


def answer(tabs: list[Page]) -> None:
    """Approve what is asked on a page, if anything is."""
    for page in tabs:
        page.locator(".answers button.main").evaluate_all("all => all.forEach(one => one.click())")


def are_over(tabs: list[Page]) -> bool:
    answer(tabs)
    return all(screen.badge(page).all_text_contents() == ["Ended"] for page in tabs)


@pytest.mark.parametrize("n", range(KILLS))
def test_whatever_the_moment_every_page_ends_in_what_is_kept(mortal: Mortal, tabs: list[Page], n: int) -> None:
    chance = random.Random(f"{seed()} {n}")
    moment, away, early = chance.uniform(0.0, 1.5), chance.uniform(0.0, 0.4), chance.random() < 0.5
    print(f"PLAYHEAD_SEED={seed()} {n}: killed after {moment:.3f} s, for {away:.3f} s, decided early: {early}")
    mortal.start()
    runs = []
    for i, page in enumerate(tabs):
        agent = "plain" if i == n % TABS else "resumable"
        given = {"steps": chance.randint(2, 25), "question": chance.random() < 0.7}
        runs.append(mortal.ask_for(agent, f"{n}-{i}", **given))
        page.goto("about:blank")  # a page that lost many connections in a row waits long: each kill is the first one
        page.goto(f"{mortal.url}#/runs/{runs[i]}")
        page.evaluate("window.first = true")
    end = time.monotonic() + moment
    while time.monotonic() < end:
        if early:
            answer(tabs)
        tabs[0].wait_for_timeout(10)
    mortal.kill()
    tabs[0].wait_for_timeout(away * 1000)
    mortal.start()
    screen.until(tabs[0], lambda: are_over(tabs))
    for page, run_id in zip(tabs, runs, strict=True):
        run = truth.ends_true(page, mortal, run_id)
        assert run["status"] in ("succeeded", "interrupted")
        assert page.evaluate("window.first && !window.refused.length")
        expect(screen.question(page)).to_have_count(0)
