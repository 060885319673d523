"""For everybody: no finding of axe in any state, theme and width, and all of it with the keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import screen
from tests.browser.scripted import AT, RUN, bootstrap, event, question, run, snapshot, text
from tests.browser.test_page import live, see
from tests.browser.test_start import EVERY, REVIEW

pytestmark = pytest.mark.browser

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
KINDS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 860}},
    "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
}
SHOWN: dict[str, Any] = {
    "subtitle": "All that can be seen",
    "current_step": "apply_policy",
    "step_started_at": AT,
    "progress": 40,
    "done": 4,
    "total": 10,
    "detail": "numpy",
    "scope": "Here",
    "as_of": "2026-01-01",
    "next_action": "Go on",
}
EVENTS = [
    event(1, "run_queued"),
    event(2, "run_started"),
    event(3, "tool_call_started", {"call_id": "a", "name": "search"}),
    event(4, "tool_executed", {"call_id": "a", "name": "search", "outcome": "failed", "summary": "Nothing"}),
    event(5, "approval_required", {"interrupt_id": question(1)["id"], "title": "Spend 5?"}),
]
ASK = question(1, {"title": "Spend 5?", "items": [{"what": "ink", "n": 2}], "to": {"name": "Kim"}})
REPORT = "# Report\n\n- a **bold** point\n\n| a | b |\n| --- | --- |\n| 1 | `2` |\n\n```\ncode\n```\n"
HOLE = {"complete": False, "has_older": True, "oldest": EVENTS[0]["id"]}
WORDS = [text("answer", 0, REPORT), text("log", 0, "line\nline\n", final=True)]
ERROR = {"code": "agent_error", "message": "It fell over."}


def one(status: str, **more: Any) -> dict[str, Any]:
    return bootstrap(
        5,
        run=run(status, labels={"team": "legal"}, key="order-7", input={"a": 1, "b": [{"c": 2}]}, **more),
        snapshot=snapshot(5, status, **SHOWN),
        events=EVENTS,
        timeline=HOLE,
        text=WORDS if status in ("running", "waiting") else [],
        interrupts=[ASK] if status == "waiting" else [],
    )


STATES = {
    "queued": one("queued"),
    "running": one("running"),
    "waiting": one("waiting"),
    "succeeded": one("succeeded", result={"markdown": REPORT, "n": 1}, ended_at=AT),
    "structured": one("succeeded", result={"rows": [{"a": 1, "b": None}, {"a": 2, "b": "x"}]}, ended_at=AT),
    "failed": one("failed", error=ERROR, partial=[{"part": "answer", "text": REPORT}], ended_at=AT),
    "cancelled": one("cancelled", partial=[{"part": "answer", "text": "half"}], ended_at=AT),
    "interrupted": one("interrupted", error={"code": "lease_expired", "message": "Gone."}, ended_at=AT),
}


def check(page: Page) -> None:
    """No finding of any impact; nothing wider than the screen."""
    assert AXE.exists(), "run `npm ci` in web/ first"
    page.evaluate(AXE.read_text())
    found = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
    assert [(one["id"], [node["html"][:160] for node in one["nodes"]]) for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def settled(page: Page) -> Page:
    """Nothing moves any more, so that colours are what they are."""
    page.emulate_media(reduced_motion="reduce")
    return page


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", STATES)
def test_a_run_in_every_state(open_page, scripted, kind, state, pictures):
    scripted.screen = STATES[state]
    page = settled(open_page(f"{scripted.url}#/runs/{RUN}", **KINDS[kind]))
    expect(screen.rows(page).first).to_be_visible()
    if state in ("queued", "running", "waiting"):
        live(page, scripted, **{"status": state, **SHOWN})
    page.screenshot(path=pictures / f"{state}-{kind}.png", full_page=True)
    for summary in page.locator("details:not(.menu) > summary").all():
        summary.click()
    check(page)


@pytest.mark.parametrize("kind", KINDS)
def test_the_other_screens(open_page, scripted, kind, pictures):
    scripted.agents = [REVIEW, EVERY]
    scripted.asked = [ASK]
    scripted.screen = STATES["running"]
    scripted.runs = [
        {**STATES[name]["run"], "id": f"019b0000-0000-7000-8000-{n:012d}"} for n, name in enumerate(STATES, 1)
    ]
    scripted.next = "more"
    page = settled(open_page(f"{scripted.url}#/?status=failed&label=team:legal", **KINDS[kind]))
    expect(page.get_by_role("link", name="Spend 5?")).to_be_visible()
    expect(page.get_by_role("list", name="All runs").get_by_role("listitem")).to_have_count(len(STATES))
    page.screenshot(path=pictures / f"list-{kind}.png", full_page=True)
    check(page)
    page.goto(f"{scripted.url}#/start/licence_review")
    page.get_by_text("Key and labels").click()
    page.get_by_label("Labels").fill("wrong")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_label("Labels")).to_be_focused()
    page.screenshot(path=pictures / f"start-{kind}.png", full_page=True)
    check(page)
    page.get_by_label("Agent").select_option("every")
    expect(page.get_by_label("Rules")).to_be_visible()
    page.screenshot(path=pictures / f"start-every-{kind}.png", full_page=True)
    check(page)
    page.goto(f"{scripted.url}#/runs/019b0000-0000-7000-8000-00000000ffff")
    expect(page.get_by_role("heading", name="There is no such run")).to_be_visible()
    check(page)


@pytest.mark.parametrize("kind", ["light", "dark"])
def test_what_opens_over_the_page(open_page, scripted, kind, pictures):
    scripted.screen = STATES["running"]
    page = settled(live(settled(open_page(f"{scripted.url}#/runs/{RUN}", **KINDS[kind])), scripted, **SHOWN))
    page.get_by_text("Download").click()
    check(page)
    page.keyboard.press("Escape")
    expect(page.get_by_text("Download")).to_be_focused()
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_label("Reason")).to_be_focused()
    page.screenshot(path=pictures / f"stop-{kind}.png")
    check(page)


def test_the_keyboard_reaches_the_content_first_and_everything_then(open_page, scripted):
    scripted.screen = STATES["waiting"]
    page = live(see_rows(open_page, scripted), scripted, **{"status": "waiting", **SHOWN})
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    names: list[str] = []
    for _ in range(24):
        page.keyboard.press("Tab")
        names.append(page.evaluate("(document.activeElement.labels?.[0] || document.activeElement).innerText.trim()"))
    wanted = ["Stop", "Download", "Note", "Approve", "Reject", "Plain text", "Load older", "Details"]
    assert [name for name in dict.fromkeys(names) if name in wanted] == wanted


def see_rows(open_page: Any, scripted: Any) -> Page:
    page: Page = open_page(f"{scripted.url}#/runs/{RUN}")
    expect(screen.rows(page).first).to_be_visible()
    return page


def test_a_new_screen_takes_the_focus(open_page, scripted):
    page = open_page(scripted.url)
    page.get_by_role("link", name="Scripted").click()
    expect(page.get_by_role("heading", name="Scripted")).to_be_visible()
    expect(page.get_by_role("main")).to_be_focused()


def test_nothing_moves_for_whoever_wants_it_still(open_page, scripted):
    page = settled(live(see(open_page, scripted), scripted))
    assert page.evaluate("document.getAnimations().length") == 0
