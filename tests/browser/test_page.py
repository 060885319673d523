"""The page against a server that says by script what a true one says seldom: losses, late answers, hostile words."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from playhead.demo.review import licence_review
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

ATTACKS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<iframe srcdoc='<script>parent.alert(1)</script>'></iframe>",
    "<a href='javascript:alert(1)'>click</a>",
    "</script><script>alert(1)</script>",
    "</textarea><style>body{display:none}</style>",
    "[click](javascript:alert(1)) ![x](https://example.com/x.png)",
    "{{constructor.constructor('alert(1)')()}}",
    "\"'`><b onmouseover=alert(1)>x</b>",
    "<!--<meta http-equiv=refresh content='0;url=https://example.com'>",
)
HOSTILE = (
    " ".join(ATTACKS[:6]),
    " ".join(ATTACKS[6:]),
    "\u202egnp.exe\u202c \u0000 \ufeff &lt;b&gt;",
    "__proto__",
)


def see(open_page: Any, scripted: Any, path: str = "") -> Page:
    page: Page = open_page(f"{scripted.url}{path}#/runs/{RUN}")
    expect(page.locator(".time li")).to_have_count(len(scripted.screen["events"]))
    return page


def live(page: Page, scripted: Any, version: int = 100, **fields: Any) -> Page:
    until(page, lambda: scripted.viewers)
    scripted.send(state(version, **fields))
    expect(page.locator("#connection")).to_have_text("Live")
    return page


def types(page: Page) -> list[str]:
    return [str(one) for one in page.locator(".time li").evaluate_all("all => all.map(one => one.dataset.id)")]


def ids(*numbers: int) -> list[str]:
    return [event(n)["id"] for n in numbers]


def words(page: Page, part: str = "answer") -> str:
    """What a part says, character for character."""
    if page.locator(".toggle:visible").first.inner_text() == "Plain text":
        page.locator(".toggle:visible").first.click()
    return str(page.locator(f"[data-part={part}] .plain").text_content())


def until(page: Page, told: Any) -> None:
    for _ in range(300):
        if told():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not come to that")


@pytest.mark.row("S1-8", "M-duplicate-delivery")
def test_an_event_that_comes_twice_is_shown_once(open_page, scripted):
    scripted.screen = bootstrap(2)
    page = live(see(open_page, scripted), scripted)
    scripted.send(happened(2), happened(3), happened(3), happened(2))
    expect(page.locator(".time li")).to_have_count(3)
    assert types(page) == ids(1, 2, 3)


def test_every_type_has_words_and_an_unknown_one_its_own(open_page, scripted):
    scripted.screen = bootstrap(0)
    page = live(see(open_page, scripted), scripted)
    scripted.send(
        happened(1, "run_queued", {"agent": "a"}),
        happened(2, "distributions_collected", {"count": 1}),
        happened(3, "never_heard_of", {"size": 3}),
        happened(4, "constructor"),
    )
    shown = page.locator(".time li")
    expect(shown).to_have_count(4)
    told = [shown.nth(i).locator("span").nth(1).inner_text() for i in range(4)]
    assert told == ["Queued", "1 distribution found", "Never heard of", "Constructor"]
    expect(shown.nth(2).locator(".more")).to_have_text("size 3")


def test_an_older_state_does_not_overwrite_a_newer_one(open_page, scripted):
    page = live(see(open_page, scripted), scripted, version=7, current_step="new_step", progress=70)
    expect(page.locator(".percent")).to_have_text("70 %")
    scripted.send(state(6, current_step="old_step", progress=60), happened(1))
    expect(page.locator(".time li")).to_have_count(1)
    expect(page.locator(".percent")).to_have_text("70 %")
    scripted.send(state(8, current_step="newer_step", progress=80))
    expect(page.locator(".big")).to_have_text("Newer step")


def test_a_late_bootstrap_does_not_overwrite_what_came_live(open_page, scripted):
    scripted.screen = bootstrap(6)
    page = live(see(open_page, scripted), scripted, version=6)
    scripted.hold = 1
    scripted.send(
        frame({"reason": "epoch", "requested": None, "oldest": None, "newest": None}, "resync_required", "stop")
    )
    until(page, lambda: scripted.bootstraps == 2)
    page.evaluate("dispatchEvent(new Event('online'))")  # and so the stream is open again before the answer is there
    until(page, lambda: scripted.viewers == 1 and len(scripted.streams) == 2)
    scripted.send(state(7, progress=70), happened(7))
    expect(page.locator(".time li")).to_have_count(7)
    scripted.release()
    page.wait_for_timeout(300)
    assert types(page) == ids(*range(1, 8))
    expect(page.locator(".percent")).to_have_text("70 %")


@pytest.mark.row("BR-12")
def test_text_is_exact_and_a_missing_piece_is_read_again(open_page, scripted):
    whole = "Grüße, 世界 🎬\n  two  spaces\tand a tab"
    scripted.screen = bootstrap(1, text=[text("answer", 0, whole[:7])])
    page = live(see(open_page, scripted), scripted)
    assert words(page) == whole[:7]
    at = len(whole[:7].encode())
    scripted.send(piece("answer", at, whole[7:12]))
    page_says(page, "t => document.querySelector('[data-part=answer] .plain').textContent === t", whole[:12])
    scripted.screen = bootstrap(1, text=[text("answer", 0, whole[:20])])
    scripted.send(piece("answer", len(whole[:18].encode()), whole[18:20]))  # what came before it was lost
    page_says(page, "t => document.querySelector('[data-part=answer] .plain').textContent === t", whole[:20])
    until(page, lambda: scripted.viewers == 1)
    live(page, scripted)
    scripted.send(piece("answer", 0, whole[:20]), piece("answer", len(whole[:20].encode()), whole[20:], final=True))
    page_says(page, "t => document.querySelector('[data-part=answer] .plain').textContent === t", whole)
    assert scripted.bootstraps == 2


def test_a_new_attempt_voids_the_text_of_the_one_before(open_page, scripted):
    scripted.screen = bootstrap(1, text=[text("answer", 0, "first try")])
    page = live(see(open_page, scripted), scripted)
    assert words(page) == "first try"
    scripted.send(happened(2, "attempt_started", {"attempt": 2, "voids_attempts_before": 2}))
    expect(page.locator("[data-part]")).to_have_count(0)
    scripted.send(piece("answer", 9, " goes on"), piece("answer", 0, "second", attempt=2))
    page_says(page, "document.querySelector('[data-part=answer] .plain')?.textContent === 'second'")
    assert scripted.bootstraps == 1


@pytest.mark.row("A31")
def test_a_resync_reads_everything_again_and_goes_on_from_there(open_page, scripted):
    scripted.screen = bootstrap(3)
    page = live(see(open_page, scripted), scripted)
    scripted.screen = bootstrap(5, cursor=cursor(5, epoch=9), snapshot=snapshot(2, progress=20))
    scripted.send(
        frame({"reason": "epoch", "requested": None, "oldest": None, "newest": None}, "resync_required", "stop")
    )
    expect(page.locator(".time li")).to_have_count(5)
    until(page, lambda: len(scripted.streams) == 2)
    assert scripted.streams[1] == ({"cursor": cursor(5, epoch=9)}, None)
    expect(page.locator(".percent")).to_have_text("20 %")  # of a lower version, and of the epoch that is now
    live(page, scripted, version=3)
    assert types(page) == ids(1, 2, 3, 4, 5)


@pytest.mark.row("A31")
def test_a_server_that_only_resyncs_is_not_asked_in_a_tight_loop(open_page, scripted):
    page = see(open_page, scripted)
    for _ in range(60):
        scripted.send(
            frame({"reason": "ahead", "requested": None, "oldest": None, "newest": None}, "resync_required", "stop")
        )
        page.wait_for_timeout(50)
    assert scripted.bootstraps < 30


@pytest.mark.row("BR-13")
def test_a_cut_connection_is_no_failure(open_page, scripted):
    scripted.screen = bootstrap(1)
    page = live(see(open_page, scripted), scripted)
    seen: list[str] = []
    page.expose_function("badge", lambda word: seen.append(word))
    page.evaluate("""new MutationObserver(() => badge(document.getElementById('connection').textContent))
        .observe(document.getElementById('connection'), {childList: true, characterData: true, subtree: true})""")
    for n in range(2, 7):
        scripted.send(happened(n))
        expect(page.locator(".time li")).to_have_count(n)
        scripted.cut()
        expect(page.locator("#connection")).to_have_text("Reconnecting")
        until(page, lambda: scripted.viewers == 1)
        assert scripted.streams[-1][1] == cursor(n)  # the browser's own Last-Event-ID
        live(page, scripted, version=100 + n)
    assert set(seen) == {"Reconnecting", "Live"}
    assert scripted.bootstraps == 1
    assert scripted.posts == []
    expect(page.locator(".notice:visible")).to_have_count(0)
    expect(page.locator("#status")).to_have_text("Running")


def test_a_drain_is_waited_out(open_page, scripted):
    scripted.screen = bootstrap(1)
    page = live(see(open_page, scripted), scripted)
    scripted.send(happened(2), frame({"retry": 200}, "draining"))
    expect(page.locator("#connection")).to_have_text("Reconnecting")
    until(page, lambda: len(scripted.streams) == 2)
    assert scripted.streams[1][0] == {"cursor": cursor(2)}
    live(page, scripted)


@pytest.mark.row("M-suspended-tab")
@pytest.mark.parametrize("wake", ["online", "pageshow", "visibilitychange"])
def test_a_tab_that_wakes_up_opens_its_stream_anew(open_page, scripted, wake):
    scripted.screen = bootstrap(1)
    page = live(see(open_page, scripted), scripted)
    scripted.send(happened(2))
    expect(page.locator(".time li")).to_have_count(2)
    scripted.screen = bootstrap(2)
    page.evaluate(
        """wake => {
            const hide = hidden => Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
            const later = Date.now() + 120000;
            if (wake === 'online') { dispatchEvent(new Event('offline')); dispatchEvent(new Event('online')); }
            if (wake === 'pageshow') {
                dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}));
                dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}));
            }
            if (wake === 'visibilitychange') {
                hide(true);
                document.dispatchEvent(new Event('visibilitychange'));
                const now = Date.now;
                Date.now = () => later;
                hide(false);
                document.dispatchEvent(new Event('visibilitychange'));
                Date.now = now;
            }
        }""",
        wake,
    )
    until(page, lambda: len(scripted.streams) == 2 and scripted.viewers == 1)
    assert scripted.streams[1][0] == {"cursor": cursor(2)}
    live(page, scripted)
    assert scripted.posts == []


@pytest.mark.row("A31", "M-reconnect-after-end")
def test_the_end_is_read_from_the_record_once(open_page, scripted):
    scripted.screen = bootstrap(1, text=[text("answer", 0, "Hel")])
    page = live(see(open_page, scripted), scripted)
    done = run("succeeded", rev=5, result={"markdown": "# Hello\n\n**whole** answer", "n": 1})
    scripted.screen = bootstrap(1, run=done, snapshot=snapshot(9, "succeeded", progress=100))
    scripted.send(happened(2, "run_succeeded"), frame({"run_id": RUN, "status": "succeeded"}, "end", "end"))
    expect(page.locator("#status")).to_have_text("Succeeded")
    expect(page.locator("#connection")).to_have_text("Ended")
    expect(page.locator("#result h3")).to_have_text("Hello")
    expect(page.locator("#result strong")).to_have_text("whole")
    assert json.loads(page.locator("#result pre").text_content() or "") == {"n": 1}
    expect(page.locator("[data-part]")).to_have_count(0)
    page.wait_for_timeout(1500)
    assert (scripted.bootstraps, len(scripted.streams)) == (2, 1)


@pytest.mark.row("A31")
def test_a_stream_that_is_refused_leads_to_the_record(open_page, scripted):
    scripted.stream_status = 204
    page = see(open_page, scripted)
    scripted.screen = bootstrap(0, run=run("failed", error={"code": "agent_error", "message": "It fell over."}))
    expect(page.locator("#connection")).to_have_text("Ended")
    expect(page.locator("#status")).to_have_text("Failed")
    expect(page.locator(".notice:visible")).to_have_text("It fell over. (agent_error)")
    asked = len(scripted.streams)
    page.wait_for_timeout(1000)
    assert len(scripted.streams) == asked


def test_a_view_that_cannot_be_read_is_called_degraded(open_page, scripted):
    scripted.screen = bootstrap(0, degraded="store_unavailable", cursor=None)
    page = see(open_page, scripted)
    until(page, lambda: scripted.viewers == 1)
    assert scripted.streams[0] == ({}, None)
    scripted.send(state(1, degraded="store_unavailable"))
    expect(page.locator("#connection")).to_have_text("Degraded")
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
    expect(page.locator(".hole")).to_be_hidden()
    page.get_by_role("button", name="Load older").click()
    expect(page.locator(".time li")).to_have_count(4)
    assert types(page) == ids(1, 2, 3, 4)
    expect(page.locator(".hole")).to_be_visible()
    expect(page.get_by_role("button", name="Load older")).to_be_hidden()


@pytest.mark.row("BR-29")
def test_a_cancelled_run_shows_the_text_that_was_kept(open_page, scripted):
    kept = [{"part": "answer", "text": "half an ans"}]
    scripted.screen = bootstrap(1, run=run("cancelled", partial=kept), snapshot=snapshot(3, "cancelled"))
    page = see(open_page, scripted)
    expect(page.locator("#status")).to_have_text("Stopped")
    assert words(page) == "half an ans"
    expect(page.get_by_text("Cut short.")).to_be_visible()


def test_a_question_is_answered_with_the_keyboard(open_page, scripted):
    ask = question(1, {"title": "Spend 5?", "amount": 5, "to": {"name": "Kim"}, "items": [{"what": "ink", "n": 2}]})
    scripted.screen = bootstrap(1)
    scripted.asked = [ask]
    page = live(see(open_page, scripted), scripted)
    scripted.send(
        state(101, "waiting"), happened(2, "approval_required", {"interrupt_id": ask["id"], "title": "Spend 5?"})
    )
    card = page.locator(".ask")
    expect(card.get_by_role("heading", name="Spend 5?")).to_be_visible()
    assert re.sub(r"\s+", " ", card.locator(".scroll").inner_text()) == "What N ink 2"
    card.get_by_label("Note").focus()
    page.keyboard.type("go on")
    page.keyboard.press("Tab")
    expect(card.get_by_role("button", name="Approve")).to_be_focused()
    page.keyboard.press("Enter")
    expect(card).to_have_count(0)
    path, body, _ = scripted.posts[0]
    assert path == f"/runs/{RUN}/interrupts/{ask['id']}/decision"
    assert body == {"approved": True, "note": "go on"}


@pytest.mark.row("M-stale-interrupt")
def test_a_question_that_is_closed_does_not_come_back(open_page, scripted):
    ask = question(1)
    scripted.screen = bootstrap(1, interrupts=[ask], snapshot=snapshot(1, "waiting"))
    scripted.asked = [ask]  # a list that was made before the decision
    page = live(see(open_page, scripted), scripted)
    expect(page.locator(".ask")).to_have_count(1)
    decided = {"interrupt_id": ask["id"], "by": "Kim", "decision": {"approved": False, "note": "no"}}
    scripted.send(happened(2, "approval_decided", decided))
    expect(page.locator(".ask")).to_have_count(0)
    expect(page.locator(".time li").last).to_contain_text("Rejected by Kim")
    scripted.send(happened(3, "approval_required", {"interrupt_id": question(2)["id"], "title": "Next"}))
    expect(page.locator(".time li")).to_have_count(3)
    page.wait_for_timeout(300)
    expect(page.locator(".ask")).to_have_count(0)


def test_whoever_decides_second_is_told_what_counts(open_page, scripted):
    scripted.screen = bootstrap(1, interrupts=[question(1)], snapshot=snapshot(1, "waiting"))
    page = live(see(open_page, scripted), scripted, status="waiting")
    details = {"decision": {"approved": False, "note": None}, "decided_by": "Kim"}
    scripted.refusal = (
        409,
        {"status": 409, "code": "already_decided", "detail": "x", "retryable": False, "details": details},
    )
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("alert").first).to_have_text("This was already rejected by Kim.")
    expect(page.locator(".ask")).to_have_count(0)


def test_a_decision_that_does_not_arrive_can_be_sent_again(open_page, scripted):
    scripted.screen = bootstrap(1, interrupts=[question(1)], snapshot=snapshot(1, "waiting"))
    page = live(see(open_page, scripted), scripted, status="waiting")
    scripted.refusal = (503, {"status": 503, "code": "store_unavailable", "detail": "Not now.", "retryable": True})
    page.get_by_label("Note").fill("kept")
    page.get_by_role("button", name="Reject").click()
    expect(page.locator(".ask .wrong")).to_have_text("Not now.")
    expect(page.get_by_label("Note")).to_have_value("kept")
    page.get_by_role("button", name="Reject").click()
    expect(page.locator(".ask")).to_have_count(0)
    assert [body for _, body, _ in scripted.posts] == [{"approved": False, "note": "kept"}] * 2


def test_a_run_that_is_not_there_is_called_so(open_page, scripted):
    page = open_page(f"{scripted.url}#/runs/019b0000-0000-7000-8000-00000000ffff")
    expect(page.get_by_role("heading", name="There is no such run")).to_be_visible()


def test_the_page_works_below_any_path(open_page, scripted):
    scripted.agents = [
        {"name": "scripted", "title": "Scripted", "description": "", "input_schema": {}, "resumable": False}
    ]
    page = open_page(f"{scripted.url}base/")
    page.locator(".runs a").first.click()
    expect(page.get_by_role("heading", name="Scripted")).to_be_visible()
    live(page, scripted)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stopping")).to_be_disabled()
    assert scripted.posts[0][0] == f"/base/runs/{RUN}/cancel"
    page.go_back()
    expect(page.get_by_role("button", name="Start")).to_be_visible()


def test_the_form_sends_every_type_and_shows_each_problem_at_its_field(open_page, scripted):
    schema = licence_review.input_schema
    scripted.agents = [
        {"name": "licence_review", "title": "Licences", "description": "", "input_schema": schema, "resumable": True}
    ]
    page = open_page(scripted.url)
    page.get_by_label("Python interpreter").fill("/usr/bin/python3")
    page.get_by_label("At most").fill("3")
    page.get_by_label("Seconds per distribution").fill("-1")
    page.get_by_label("Ask for approval").uncheck()
    problems = [{"field": "pace", "message": "Not below 0."}, {"field": "other", "message": "Odd."}]
    scripted.refusal = (422, {"status": 422, "code": "invalid_input", "detail": "x", "details": {"problems": problems}})
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#field-pace-wrong")).to_have_text("Not below 0.")
    expect(page.get_by_label("Seconds per distribution")).to_be_focused()
    expect(page.get_by_role("alert").filter(has_text="other: Odd.")).to_be_visible()
    page.get_by_label("Seconds per distribution").fill("0.5")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/#/runs/{RUN}")
    bodies = [body for _, body, _ in scripted.posts]
    assert bodies[1] == {
        "agent": "licence_review",
        "input": {
            "python": "/usr/bin/python3",
            "policy": None,
            "limit": 3,
            "pace": 0.5,
            "require_approval": False,
            "deadline_minutes": 60,
        },
    }
    keys = [headers["idempotency-key"] for _, _, headers in scripted.posts]
    assert keys[0] != keys[1]


def test_a_start_without_an_answer_is_sent_again_under_the_same_key(open_page, scripted):
    scripted.agents = [
        {"name": "scripted", "title": "Scripted", "description": "", "input_schema": {}, "resumable": False}
    ]
    page = open_page(scripted.url)
    expect(page.get_by_role("button", name="Start")).to_be_visible()
    keys: list[str] = []

    def lose(route: Route) -> None:
        if route.request.method != "POST":
            route.continue_()
            return
        keys.append(route.request.headers["idempotency-key"])
        route.abort()

    page.route("**/runs", lose)
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert").filter(has_text="cannot be reached").first).to_be_visible()
    page.unroute("**/runs")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url(f"**/#/runs/{RUN}")
    assert [headers["idempotency-key"] for _, _, headers in scripted.posts] == keys


@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_words_are_shown_as_words(open_page, scripted, evil):
    fields = dict.fromkeys(("title", "subtitle", "current_step", "detail", "scope", "as_of", "next_action"), evil)
    rows = [{evil: evil, "__proto__x": evil}, {"n": [evil]}]
    ask = question(1, {"title": evil, evil: evil, "rows": rows})
    markdown = f"# {evil}\n\n- {evil}\n\n| {evil} | b |\n| --- | --- |\n| {evil} | **{evil}** |\n\n{evil}\n"
    scripted.agents = [
        {
            "name": "scripted",
            "title": evil,
            "description": evil,
            "resumable": False,
            "input_schema": {
                "properties": {"a": {"title": evil, "description": evil, "type": "string", "default": evil}}
            },
        }
    ]
    scripted.asked = [ask]
    scripted.screen = bootstrap(
        0,
        run=run(input={evil: evil}, agent="scripted", key="k"),
        snapshot=snapshot(1, "waiting", **fields),
        events=[
            event(1, "approval_required", {"title": evil, "interrupt_id": ask["id"]}),
            event(2, "odd", {evil: evil}),
        ],
        interrupts=[ask],
        text=[text("answer", 0, markdown)],
    )
    page = live(see(open_page, scripted), scripted, status="waiting", **fields)
    assert (page.locator("h1").text_content() or "").strip() == evil.strip()
    assert words(page) == markdown
    scripted.screen |= {
        "run": run("failed", rev=9, result=None, error={"code": "x", "message": evil}, input={evil: evil})
    }
    scripted.send(frame({"run_id": RUN, "status": "failed"}, "end", "end"))
    expect(page.locator("#connection")).to_have_text("Ended")
    scripted.screen |= {"run": run("succeeded", rev=9, result={"markdown": markdown, "x": evil}, input={evil: evil})}
    page.reload()
    expect(page.locator("#result .md")).to_be_visible()
    assert page.locator("main :is(script, img, iframe, svg, style, a, meta, b)").count() == 0
    page.goto(f"{scripted.url}#/")
    expect(page.locator(".runs a").first).to_be_visible()
    assert page.get_by_role("button", name="Start").is_visible()
    assert page.locator("main :is(script, img, iframe, svg, style, meta, b)").count() == 0


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_refused(open_page, scripted):
    # The fixture counts both for every test here; this one shows that it would notice.
    page = see(open_page, scripted)
    page.evaluate("const s = document.createElement('script'); s.textContent = 'alert(1)'; document.body.append(s)")
    page_says(page, "window.refused.length === 1")
    assert "script-src" in page.evaluate("window.refused.splice(0)")[0]
    assert page.evaluate("window.harmed") == 0
