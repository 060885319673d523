"""Questions to a person: asked once, answered once, told truly to whoever comes second."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser import screen
from tests.browser.scripted import RUN, bootstrap, event, happened, question, snapshot, state
from tests.browser.test_page import live, see

pytestmark = pytest.mark.browser

UNAVAILABLE = (503, {"status": 503, "code": "store_unavailable", "detail": "Not now.", "retryable": True})


def asking(scripted, *asked):
    scripted.screen = bootstrap(1, interrupts=list(asked), snapshot=snapshot(1, "waiting"))


def test_a_question_is_answered_with_the_keyboard(open_page, scripted):
    ask = question(1, {"title": "Spend 5?", "amount": 5, "to": {"name": "Kim"}, "items": [{"what": "ink", "n": 2}]})
    scripted.screen = bootstrap(1)
    page = live(see(open_page, scripted), scripted)
    said = {"interrupt_id": ask["id"], "title": "Spend 5?"}
    scripted.screen = bootstrap(2, interrupts=[ask], events=[event(1), event(2, "approval_required", said)])
    scripted.send(state(101, "waiting"), happened(2, "approval_required", said))
    card = page.get_by_role("article", name="Spend 5?")
    table = card.locator(".scroll")
    expect(table).to_be_visible()
    assert re.sub(r"\s+", " ", table.inner_text()) == "What N ink 2"
    expect(screen.rows(page).last.get_by_text("Waiting", exact=True)).to_be_visible()
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
    asking(scripted, ask)
    page = live(see(open_page, scripted), scripted)
    expect(screen.question(page)).to_have_count(1)
    decided = {"interrupt_id": ask["id"], "by": "Kim", "decision": {"approved": False, "note": "no"}}
    scripted.send(happened(2, "approval_decided", decided))
    expect(screen.question(page)).to_have_count(0)
    expect(screen.rows(page).last).to_contain_text("Rejected by Kim")
    before = scripted.bootstraps  # a screen that was made before the decision, and knows the next question too
    asking(scripted, ask, question(2))
    scripted.send(happened(3, "approval_required", {"interrupt_id": question(2)["id"], "title": "Question 2"}))
    screen.until(page, lambda: scripted.bootstraps > before)
    page.wait_for_timeout(300)
    expect(screen.question(page)).to_have_count(1)
    expect(page.get_by_role("article", name="Question 2")).to_be_visible()


def test_whoever_decides_second_is_told_what_counts(open_page, scripted):
    asking(scripted, question(1))
    page = live(see(open_page, scripted), scripted, status="waiting")
    details = {"decision": {"approved": False, "note": None}, "decided_by": "Kim"}
    refusal = {"status": 409, "code": "already_decided", "detail": "x", "retryable": False, "details": details}
    scripted.refusals = [(409, refusal)]
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("alert")).to_have_text("This was already rejected by Kim.")
    expect(screen.question(page)).to_have_count(0)


def test_a_decision_that_comes_too_late_is_told_so(open_page, scripted):
    asking(scripted, question(1))
    page = live(see(open_page, scripted), scripted, status="waiting")
    scripted.refusals = [(409, {"status": 409, "code": "approval_expired", "detail": "x", "retryable": False})]
    page.get_by_role("button", name="Reject").click()
    expect(page.get_by_role("alert")).to_have_text("The time to decide is over.")


def test_a_decision_that_does_not_arrive_can_be_sent_again(open_page, scripted):
    asking(scripted, question(1))
    page = live(see(open_page, scripted), scripted, status="waiting")
    scripted.refusals = [UNAVAILABLE] * 3  # however often the client tries by itself
    page.get_by_label("Note").fill("kept")
    page.get_by_role("button", name="Reject").click()
    expect(screen.question(page).get_by_role("alert")).to_have_text("Not now.")
    expect(page.get_by_label("Note")).to_have_value("kept")
    page.get_by_role("button", name="Reject").click()
    expect(screen.question(page)).to_have_count(0)
    assert [body for _, body, _ in scripted.posts] == [{"approved": False, "note": "kept"}] * 4


def test_nobody_decides_on_what_was_not_shown(open_page, scripted):
    ask = question(1, {"title": "Spend 5?", "amount": 5})
    scripted.screen = bootstrap(1)
    page = live(see(open_page, scripted), scripted)
    scripted.screen = bootstrap(2, interrupts=[ask])
    scripted.hold = 1  # the whole question is on its way for long
    scripted.send(happened(2, "approval_required", {"interrupt_id": ask["id"], "title": "Spend 5?"}))
    page.get_by_role("button", name="Approve").click()
    expect(screen.question(page)).to_contain_text("Amount")
    assert scripted.posts == []
    page.get_by_role("button", name="Approve").click()
    expect(screen.question(page)).to_have_count(0)
    assert len(scripted.posts) == 1
    scripted.release()
