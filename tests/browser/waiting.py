"""Waiting for a page without asking it to evaluate text, which its policy forbids."""

import time
from typing import Any

from playwright.sync_api import Page


def page_says(page: Page, expression: str, arg: Any = None, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not page.evaluate(expression, arg):
        assert time.monotonic() < end, f"not within {seconds} s: {expression}"
        page.wait_for_timeout(50)
