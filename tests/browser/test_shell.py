"""What is around the screens: languages, what is taken home, calls for attention, and a page that became old."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser import screen
from tests.browser.scripted import AT, RUN, bootstrap, event, frame, happened, question, run, snapshot, state
from tests.browser.test_page import live, see

pytestmark = pytest.mark.browser

SCHEMA = json.loads((Path(__file__).parents[2] / "spec" / "snapshot.schema.json").read_text())
CALLS = """
window.calls = [];
window.Notification = class { constructor(title, options) { window.calls.push([title, options.body, options.tag]); }
    static permission = 'default';
    static async requestPermission() { return (this.permission = 'granted'); } };
"""


def away(page: Page) -> None:
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")


def test_the_screen_shows_every_field_of_the_snapshot_and_no_other(open_page, scripted):
    texts = ("title", "subtitle", "current_step", "detail", "scope", "as_of", "next_action")
    whole = snapshot(7, **{name: f"the {name}" for name in texts}, progress=50, done=1, total=2, step_started_at=AT)
    scripted.screen = bootstrap(1, snapshot=whole)
    page = live(
        see(open_page, scripted), scripted, **{k: v for k, v in whole.items() if k not in ("version", "status")}
    )
    page.get_by_text("Details").click()
    run_facts = {"agent", "key", "labels", "id"}
    shown = set(page.locator("[data-field]").evaluate_all("all => all.map(one => one.dataset.field)"))
    assert shown - run_facts == set(SCHEMA["properties"])
    empty = page.locator("[data-field]").evaluate_all(
        "all => all.filter(one => !one.innerText.trim()).map(one => one.dataset.field)"
    )
    assert set(empty) <= {"key", "labels"}


def test_ages_go_on_by_themselves_and_by_the_servers_clock(open_page, scripted):
    page = live(see(open_page, scripted), scripted)
    page.evaluate("const now = Date.now; Date.now = () => now() + 3600000")  # this machine's own clock is an hour off
    page.evaluate("document.querySelector('.brand').click()")
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    page.go_back()
    at = page.evaluate("async () => new Date((await fetch('agents')).headers.get('date')).toISOString()")
    scripted.send(state(200, updated_at=at))
    updated = screen.field(page, "updated_at")
    expect(updated).to_contain_text(re.compile(r"just now|\d s ago"))
    expect(updated).not_to_have_text(updated.inner_text())


def test_the_page_speaks_german_too(open_page, scripted):
    page = open_page(f"{scripted.url}?lang=de#/runs/{RUN}")
    screen.status_is(page, "Läuft")
    assert page.locator("html").get_attribute("lang") == "de"
    expect(page.get_by_role("button", name="Anhalten")).to_be_visible()
    page.get_by_role("button", name="English").click()
    screen.status_is(page, "Running")
    page.goto(f"{scripted.url}#/runs/{RUN}")  # and remembers what was chosen
    screen.status_is(page, "Running")


def test_the_language_is_the_browsers(open_page, scripted):
    page = open_page(f"{scripted.url}#/runs/{RUN}", locale="de-AT")
    screen.status_is(page, "Läuft")


def test_result_and_timeline_can_be_taken_home(open_page, scripted):
    done = run("succeeded", result={"markdown": "# Report\n", "n": 1}, ended_at=AT)
    older = {"complete": True, "has_older": True, "oldest": event(3)["id"]}
    scripted.screen = bootstrap(0, run=done, events=[event(3), event(4)], timeline=older)
    scripted.older = {
        "events": [event(1), event(2)],
        "timeline": {"complete": True, "has_older": False, "oldest": None},
    }
    page = see(open_page, scripted)

    def take(name: str) -> tuple[str, str]:
        page.get_by_text("Download").click()
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        expect(page.get_by_role("button", name=name)).to_have_count(0)
        return download.value.suggested_filename, Path(download.value.path()).read_text()

    assert take("Result as Markdown") == ("scripted-00000001-result.md", "# Report\n")
    assert json.loads(take("Result as JSON")[1])["result"] == {"markdown": "# Report\n", "n": 1}
    timeline = json.loads(take("Timeline as JSON")[1])
    assert [one["id"] for one in timeline["events"]] == [event(n)["id"] for n in range(1, 5)]
    assert timeline["complete"] is True
    assert take("Timeline as Markdown")[1].count("\n- ") == 4


def test_the_tab_tells_how_it_stands(open_page, scripted):
    page = live(see(open_page, scripted), scripted, progress=40)
    expect(page).to_have_title("40 % · Scripted")
    icon = "document.querySelector('link[rel=icon]').href"
    running = page.evaluate(icon)
    scripted.send(state(101, "waiting"))
    expect(page).to_have_title("Needs a decision · Scripted")
    assert page.evaluate(icon) not in ("", running)
    assert page.evaluate(icon).startswith("data:image/svg+xml,")


def test_whoever_asked_for_it_is_called(open_page, scripted):
    scripted.screen = bootstrap(1)
    page = see(open_page, scripted)
    page.context.add_init_script(CALLS)
    page.reload()
    live(page, scripted)
    ask = question(1)

    def asks(n: int) -> None:
        scripted.screen = bootstrap(2, interrupts=[ask])
        scripted.send(
            state(100 + n, "waiting"),
            happened(n, "approval_required", {"interrupt_id": ask["id"], "title": "Question 1"}),
        )

    away(page)
    asks(2)
    expect(screen.question(page)).to_have_count(1)
    assert page.evaluate("calls") == []  # nobody asked for it yet
    bell = page.get_by_role("button", name="Notify me")
    bell.click()
    expect(bell).to_have_attribute("aria-pressed", "true")
    scripted.screen = bootstrap(2, run=run("failed", error={"code": "x", "message": "No room."}, ended_at=AT))
    scripted.send(frame({"run_id": RUN, "status": "failed"}, "end", "end"))
    screen.status_is(page, "Failed")
    screen.until(page, lambda: page.evaluate("calls").__len__())
    assert page.evaluate("calls") == [["Scripted: Failed", "No room.", RUN]]
    bell.click()
    expect(bell).to_have_attribute("aria-pressed", "false")


def test_what_changes_all_the_time_is_not_said_aloud(open_page, scripted):
    page = live(see(open_page, scripted), scripted)
    spoken: list[str] = []
    page.expose_function("noteWord", lambda word: spoken.append(word))
    page.evaluate("""new MutationObserver(() => noteWord(document.getElementById('say').textContent))
        .observe(document.getElementById('say'), {childList: true, characterData: true, subtree: true})""")
    seen = screen.note_badges(page)
    live_regions = page.locator("[aria-live], [role=status], [role=log], [role=alert]")
    expect(live_regions).to_have_count(1)
    for n in range(1, 6):
        scripted.send(state(100 + n, progress=n * 10), happened(n))
        expect(screen.rows(page)).to_have_count(n)
        with screen.makes_badge_say(page, seen, "Reconnecting"):
            scripted.cut()
        live(page, scripted, version=200 + n)
    assert spoken == []
    ask = question(1, {"title": "Spend 5?"})
    scripted.screen = bootstrap(6, interrupts=[ask])
    scripted.send(
        state(300, "waiting"), happened(6, "approval_required", {"interrupt_id": ask["id"], "title": "Spend 5?"})
    )
    expect(screen.question(page)).to_have_count(1)
    assert spoken == ["A decision is needed: Spend 5?"]


def test_a_page_that_is_older_than_its_server_loads_itself_anew_once(open_page, scripted):
    scripted.screen = bootstrap(1)
    page = live(see(open_page, scripted), scripted)
    loads: list[str] = []
    page.on("load", lambda _: loads.append("load"))
    scripted.wire = "2"
    scripted.send(
        frame({"reason": "epoch", "requested": None, "oldest": None, "newest": None}, "resync_required", "stop")
    )
    screen.until(page, lambda: loads)
    expect(screen.rows(page)).to_have_count(1)
    live(page, scripted)
    scripted.cut()
    live(page, scripted, version=200)
    page.wait_for_timeout(1000)
    assert loads == ["load"]
