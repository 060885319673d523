"""The run's screen against a server that says by script what a true one says seldom: losses, late answers, refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import screen
from tests.browser.scripted import (
    RUN,
    bootstrap,
    cursor,
    event,
    frame,
    happened,
    piece,
    question,
    run,
    snapshot,
    state,
    text,
)
from tests.browser.waiting import page_says

pytestmark = pytest.mark.browser

RESYNC = {"reason": "epoch", "requested": None, "oldest": None, "newest": None}
SAYS = "t => document.querySelector('[data-part=answer] .plain')?.textContent === t"


def see(open_page: Any, scripted: Any) -> Page:
    page: Page = open_page(f"{scripted.url}#/runs/{RUN}")
    expect(screen.rows(page)).to_have_count(len(scripted.screen["events"]))
    return page


def live(page: Page, scripted: Any, version: int = 100, **fields: Any) -> Page:
    screen.until(page, lambda: scripted.viewers)
    scripted.send(state(version, **fields))
    screen.is_live(page)
    return page


def ids(*numbers: int) -> list[str]:
    return [event(n)["id"] for n in numbers]


@pytest.mark.row("S1-8", "M-duplicate-delivery", "F58@browser")
def test_an_event_that_comes_twice_is_shown_once(open_page, scripted):
    scripted.screen = bootstrap(2)
    page = live(see(open_page, scripted), scripted)
    scripted.send(happened(2), happened(3), happened(3), happened(2))
    expect(screen.rows(page)).to_have_count(3)
    assert screen.ids_of(page) == ids(1, 2, 3)


@pytest.mark.row("A28@browser")
def test_every_type_has_words_and_an_unknown_one_its_own(open_page, scripted):
    scripted.screen = bootstrap(0)
    page = live(see(open_page, scripted), scripted)
    scripted.send(
        happened(1, "run_queued", {"agent": "a"}),
        happened(2, "distributions_collected", {"count": 1}),
        happened(3, "never_heard_of", {"size": 3}),
        happened(4, "constructor"),
    )
    shown = screen.rows(page)
    expect(shown).to_have_count(4)
    told = [shown.nth(i).locator(".title").inner_text() for i in range(4)]
    assert told == ["Queued", "1 distribution found", "Never heard of", "Constructor"]
    expect(shown.nth(2).locator(".detail")).to_have_text("size 3")


def test_what_began_and_ended_is_one_row(open_page, scripted):
    scripted.screen = bootstrap(0)
    page = live(see(open_page, scripted), scripted)
    scripted.send(happened(1, "tool_call_started", {"call_id": "a", "name": "search", "title": "Search the web"}))
    row = screen.rows(page)
    expect(row).to_have_attribute("data-state", "running")
    expect(row).to_contain_text("running")  # what the mark says to those who do not see it
    scripted.send(
        happened(2, "tool_executed", {"call_id": "a", "name": "search", "outcome": "failed", "summary": "No"})
    )
    expect(row).to_have_attribute("data-state", "failed")
    expect(row.locator(".title")).to_have_text("Search the web")
    expect(row.locator(".detail")).to_have_text("No")
    assert screen.folded(page) == [ids(1, 2)]


def test_an_older_state_does_not_overwrite_a_newer_one(open_page, scripted):
    page = live(see(open_page, scripted), scripted, version=7, current_step="new_step", progress=70)
    expect(screen.field(page, "progress")).to_have_text("70 %")
    scripted.send(state(6, current_step="old_step", progress=60), happened(1))
    expect(screen.rows(page)).to_have_count(1)
    expect(screen.field(page, "progress")).to_have_text("70 %")
    scripted.send(state(8, current_step="newer_step", progress=80))
    expect(screen.field(page, "current_step")).to_have_text("Newer step")


@pytest.mark.row("A29@browser")
def test_progress_moves_without_an_entry_on_the_timeline(open_page, scripted):
    scripted.screen = bootstrap(2)
    page = live(see(open_page, scripted), scripted, version=3, progress=10)
    for n in range(4, 9):
        scripted.send(state(n, progress=n * 10, done=n, total=9))
        expect(screen.field(page, "progress")).to_have_text(f"{n * 10} %")
    assert page.get_by_role("progressbar").evaluate("bar => bar.value") == 80
    expect(page.get_by_role("region", name="Current work")).to_contain_text("8 of 9")
    assert screen.ids_of(page) == ids(1, 2)


@pytest.mark.row("BR-47@browser")
def test_a_late_bootstrap_does_not_overwrite_what_came_live(open_page, scripted):
    scripted.screen = bootstrap(6, interrupts=[question(1)])
    page = live(see(open_page, scripted), scripted, version=6, status="waiting")
    asked = {"interrupt_id": question(2)["id"], "title": "Question 2"}
    scripted.screen = bootstrap(7, interrupts=[question(1), question(2, {"title": "Question 2", "size": "large"})])
    scripted.hold = 1
    scripted.send(happened(7, "approval_required", asked))  # of which only a bootstrap tells the whole
    screen.until(page, lambda: scripted.bootstraps == 2)
    decided = {"interrupt_id": question(1)["id"], "by": "Kim", "decision": {"approved": True}}
    scripted.send(state(8, "waiting", progress=70), happened(8, "approval_decided", decided))
    expect(screen.question(page)).to_have_count(1)
    scripted.release()
    expect(screen.question(page)).to_contain_text("large")
    expect(screen.question(page)).to_have_count(1)
    assert sorted(screen.ids_of(page)) == ids(*range(1, 9))
    expect(screen.field(page, "progress")).to_have_text("70 %")


@pytest.mark.row("BR-12", "BR-12@browser")
def test_text_is_exact_and_a_missing_piece_is_sent_again(open_page, scripted):
    whole = "Grüße, 世界 🎬\n  two  spaces\tand a tab"
    scripted.screen = bootstrap(1, text=[text("answer", 0, whole[:7])])
    page = live(see(open_page, scripted), scripted)
    assert screen.said(page) == whole[:7]
    assert scripted.streams[0][0]["text"] == f"1.answer:{len(whole[:7].encode())}"
    scripted.send(piece("answer", len(whole[:7].encode()), whole[7:12]))
    page_says(page, SAYS, whole[:12])
    scripted.opening = state(101) + piece("answer", 0, whole[:20])
    scripted.send(piece("answer", len(whole[:18].encode()), whole[18:20]))  # what came before it was lost
    page_says(page, SAYS, whole[:20])
    assert "text" not in scripted.streams[1][0]
    scripted.opening = state(101) + piece("answer", 0, whole)
    scripted.send(piece("answer", 0, whole[:20]), piece("answer", len(whole[:20].encode()), whole[20:], final=True))
    page_says(page, SAYS, whole)


def test_a_new_attempt_voids_the_text_of_the_one_before(open_page, scripted):
    scripted.screen = bootstrap(1, text=[text("answer", 0, "first try")])
    page = live(see(open_page, scripted), scripted)
    assert screen.said(page) == "first try"
    scripted.send(happened(2, "attempt_started", {"attempt": 2, "voids_attempts_before": 2}))
    expect(page.locator("[data-part]")).to_have_count(0)
    scripted.send(piece("answer", 9, " goes on"), piece("answer", 0, "second", attempt=2))
    page_says(page, SAYS, "second")
    assert scripted.bootstraps == 1


@pytest.mark.row("A31")
@pytest.mark.parametrize("inline", [True, False])
def test_a_resync_reads_everything_again_and_goes_on_from_there(open_page, scripted, inline):
    scripted.screen = bootstrap(3)
    page = live(see(open_page, scripted), scripted)
    fresh = bootstrap(5, cursor=cursor(5, epoch=9), snapshot=snapshot(2, progress=20))
    scripted.screen = fresh
    if inline:
        scripted.send(frame({**RESYNC, "bootstrap": fresh}, "resync_required", cursor(5, epoch=9)))
    else:
        scripted.send(frame(RESYNC, "resync_required", "stop"))
    expect(screen.rows(page)).to_have_count(5)
    expect(screen.field(page, "progress")).to_have_text("20 %")  # of a lower version, and of the epoch that is now
    if inline:
        scripted.send(happened(6))
        expect(screen.rows(page)).to_have_count(6)
        assert (len(scripted.streams), scripted.bootstraps) == (1, 1)
        return
    screen.until(page, lambda: len(scripted.streams) == 2)
    assert scripted.streams[1][0]["cursor"] == cursor(5, epoch=9)
    live(page, scripted, version=3)
    assert screen.ids_of(page) == ids(1, 2, 3, 4, 5)


@pytest.mark.row("A31")
def test_a_server_that_only_resyncs_is_not_asked_in_a_tight_loop(open_page, scripted):
    page = see(open_page, scripted)
    for _ in range(60):
        scripted.send(frame({**RESYNC, "reason": "ahead"}, "resync_required", "stop"))
        page.wait_for_timeout(50)
    assert scripted.bootstraps < 30


@pytest.mark.row("BR-13", "BR-13@browser")
def test_a_cut_connection_is_no_failure(open_page, scripted):
    scripted.screen = bootstrap(1)
    page = live(see(open_page, scripted), scripted)
    seen = screen.note_badges(page)
    for n in range(2, 7):
        scripted.send(happened(n))
        expect(screen.rows(page)).to_have_count(n)
        with screen.makes_badge_say(page, seen, "Reconnecting"):
            scripted.cut()
        screen.until(page, lambda: scripted.viewers == 1)
        assert scripted.streams[-1][0]["cursor"] == cursor(n)
        live(page, scripted, version=100 + n)
    assert set(seen) == {"Reconnecting", "Live"}
    assert scripted.bootstraps == 1
    assert scripted.posts == []
    expect(screen.notices(page)).to_have_count(0)
    screen.status_is(page, "Running")


def test_a_server_that_cannot_be_reached_is_tried_again(open_page, scripted):
    scripted.screen = bootstrap(1)
    page = open_page(f"{scripted.url}#/start")
    page.route("**/bootstrap**", lambda route: route.abort())
    page.goto(f"{scripted.url}#/runs/{RUN}")
    expect(page.get_by_text("This page keeps trying.")).to_be_visible()
    expect(page.get_by_text("Failed")).to_have_count(0)
    page.unroute("**/bootstrap**")
    expect(screen.rows(page)).to_have_count(1)
    live(page, scripted)


def test_a_drain_is_waited_out(open_page, scripted):
    scripted.screen = bootstrap(1)
    page = live(see(open_page, scripted), scripted)
    seen = screen.note_badges(page)
    scripted.send(happened(2))
    expect(screen.rows(page)).to_have_count(2)
    with screen.makes_badge_say(page, seen, "Reconnecting"):
        scripted.send(frame({"retry_ms": 200}, "draining"))
    screen.until(page, lambda: len(scripted.streams) == 2)
    assert scripted.streams[1][0]["cursor"] == cursor(2)
    live(page, scripted)


@pytest.mark.row("M-suspended-tab")
@pytest.mark.parametrize("wake", ["online", "pageshow", "visibilitychange"])
def test_a_tab_that_wakes_up_opens_its_stream_anew(open_page, scripted, wake):
    scripted.screen = bootstrap(1)
    page = live(see(open_page, scripted), scripted)
    scripted.send(happened(2))
    expect(screen.rows(page)).to_have_count(2)
    scripted.screen = bootstrap(2)
    page.evaluate(
        """wake => {
            const hide = state => {
                Object.defineProperty(document, 'visibilityState', {value: state, configurable: true});
                document.dispatchEvent(new Event('visibilitychange'));
            };
            const sleep = () => { const now = Date.now; Date.now = () => now() + 120000; };
            if (wake === 'online') { dispatchEvent(new Event('offline')); sleep(); dispatchEvent(new Event('online')); }
            if (wake === 'pageshow') {
                dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}));
                dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}));
            }
            if (wake === 'visibilitychange') { hide('hidden'); sleep(); hide('visible'); }
        }""",
        wake,
    )
    screen.until(page, lambda: len(scripted.streams) == 2 and scripted.viewers == 1)
    assert scripted.streams[1][0]["cursor"] == cursor(2)
    live(page, scripted)
    assert scripted.posts == []


@pytest.mark.row("A31", "M-reconnect-after-end")
def test_the_end_is_read_from_the_record_once(open_page, scripted):
    scripted.screen = bootstrap(1, text=[text("answer", 0, "Hel")])
    page = live(see(open_page, scripted), scripted)
    done = run("succeeded", rev=5, result={"markdown": "# Hello\n\n**whole** answer", "n": 1})
    scripted.screen = bootstrap(1, run=done, snapshot=snapshot(9, "succeeded", progress=100))
    scripted.send(happened(2, "run_succeeded"), frame({"run_id": RUN, "status": "succeeded"}, "end", "end"))
    screen.status_is(page, "Succeeded")
    expect(screen.badge(page)).to_have_text("Ended")
    result = page.get_by_role("region", name="Result")
    expect(result.get_by_role("heading", name="Hello")).to_be_visible()
    expect(result.locator("strong")).to_have_text("whole")
    assert json.loads(result.locator("pre").text_content() or "") == {"n": 1}
    expect(page.locator("[data-part]")).to_have_count(0)
    page.wait_for_timeout(1500)
    assert (scripted.bootstraps, len(scripted.streams)) == (2, 1)


@pytest.mark.row("A31")
def test_a_stream_that_is_refused_leads_to_the_record(open_page, scripted):
    scripted.stream_status = 204
    scripted.screen = bootstrap(0)
    page = see(open_page, scripted)
    scripted.screen = bootstrap(0, run=run("failed", error={"code": "agent_error", "message": "It fell over."}))
    expect(screen.badge(page)).to_have_text("Ended")
    screen.status_is(page, "Failed")
    expect(page.locator(".error")).to_contain_text("It fell over.")
    expect(page.locator(".error")).to_contain_text("agent_error")
    asked = len(scripted.streams)
    page.wait_for_timeout(1000)
    assert len(scripted.streams) == asked


def test_a_view_that_cannot_be_read_is_called_degraded(open_page, scripted):
    scripted.screen = bootstrap(0, degraded="store_unavailable", cursor=None)
    page = see(open_page, scripted)
    screen.until(page, lambda: scripted.viewers == 1)
    assert "cursor" not in scripted.streams[0][0]
    scripted.send(state(1, degraded="store_unavailable"))
    expect(screen.badge(page)).to_have_text("Degraded")
    live(page, scripted)


def test_older_events_are_loaded_and_a_hole_is_marked(open_page, scripted):
    scripted.screen = bootstrap(
        0, events=[event(3), event(4)], timeline={"complete": True, "has_older": True, "oldest": event(3)["id"]}
    )
    scripted.older = {
        "events": [event(1), event(2)],
        "timeline": {"complete": False, "has_older": False, "oldest": event(1)["id"]},
    }
    page = see(open_page, scripted)
    incomplete = page.get_by_text("Incomplete: some events are not kept any more.")
    expect(incomplete).to_have_count(0)
    page.get_by_role("button", name="Load older").click()
    expect(screen.rows(page)).to_have_count(4)
    assert screen.ids_of(page) == ids(1, 2, 3, 4)
    expect(incomplete).to_be_visible()
    expect(page.get_by_role("button", name="Load older")).to_have_count(0)


@pytest.mark.row("BR-29")
def test_a_cancelled_run_shows_the_text_that_was_kept(open_page, scripted):
    kept = [{"part": "answer", "text": "half an ans"}]
    scripted.screen = bootstrap(1, run=run("cancelled", partial=kept), snapshot=snapshot(3, "cancelled"))
    page = see(open_page, scripted)
    screen.status_is(page, "Stopped")
    assert screen.said(page) == "half an ans"
    expect(page.get_by_text("Cut short.")).to_be_visible()


def test_a_run_that_is_not_there_is_called_so(open_page, scripted):
    page = open_page(f"{scripted.url}#/runs/019b0000-0000-7000-8000-00000000ffff")
    expect(page.get_by_role("heading", name="There is no such run")).to_be_visible()


def test_a_stop_asks_first_and_says_that_it_was_asked_for(open_page, scripted):
    page = live(see(open_page, scripted), scripted)
    page.get_by_role("button", name="Stop", exact=True).click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert scripted.posts == []
    screen.stop(page, "wrong one")
    expect(page.get_by_role("button", name="Stopping")).to_be_disabled()
    expect(page.get_by_role("region", name="Status")).to_contain_text("Asked to stop.")
    screen.status_is(page, "Running")  # until it has stopped
    assert [(path, body) for path, body, _ in scripted.posts] == [(f"/runs/{RUN}/cancel", {"reason": "wrong one"})]


def test_a_stop_that_somebody_else_asked_for_is_told_too(open_page, scripted):
    page = live(see(open_page, scripted), scripted)
    scripted.send(happened(1, "cancel_requested", {"by": "Kim", "reason": None}))
    expect(page.get_by_role("button", name="Stopping")).to_be_disabled()
    expect(screen.rows(page)).to_contain_text("Stop asked for by Kim")


def test_the_page_works_below_any_path(open_page, scripted):
    scripted.agents = [
        {"name": "scripted", "title": "Scripted", "description": "", "input_schema": {}, "resumable": False}
    ]
    page = open_page(f"{scripted.url}base/")
    page.get_by_role("link", name="Scripted").click()
    expect(page.get_by_role("heading", name="Scripted")).to_be_visible()
    live(page, scripted)
    screen.stop(page)
    expect(page.get_by_role("button", name="Stopping")).to_be_disabled()
    assert scripted.posts[0][0] == f"/base/runs/{RUN}/cancel"
    page.go_back()
    expect(page.get_by_role("link", name="New run")).to_be_visible()
