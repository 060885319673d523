"""The form that starts a run: every type, each problem at its field, and nothing started twice."""

from __future__ import annotations

import pytest
from playwright.sync_api import Route, expect

from playhead.demo.review import licence_review
from tests.browser import screen
from tests.browser.scripted import RUN, bootstrap, run
from tests.browser.test_page import see

pytestmark = pytest.mark.browser

PLAIN = {"name": "scripted", "title": "Scripted", "description": "", "input_schema": {}, "resumable": False}
REVIEW = PLAIN | {"name": "licence_review", "title": "Licences", "input_schema": licence_review.input_schema}


def test_the_form_sends_every_type_and_shows_each_problem_at_its_field(open_page, scripted):
    scripted.agents = [REVIEW]
    page = open_page(f"{scripted.url}#/start")
    page.get_by_label("Python interpreter").fill("/usr/bin/python3")
    page.get_by_label("At most").fill("3")
    page.get_by_label("Seconds per distribution").fill("-1")
    page.get_by_label("Ask for approval").uncheck()
    problems = [{"field": "pace", "message": "Not below 0."}, {"field": "other", "message": "Odd."}]
    refusal = {"status": 422, "code": "invalid_input", "detail": "x", "retryable": False}
    scripted.refusals = [(422, refusal | {"details": {"problems": problems}})]
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("#field-pace-wrong")).to_have_text("Not below 0.")
    expect(page.get_by_label("Seconds per distribution")).to_be_focused()
    expect(page.get_by_role("alert")).to_have_text("other: Odd.")
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
        "labels": {},
    }
    keys = [headers["idempotency-key"] for _, _, headers in scripted.posts]
    assert keys[0] != keys[1]


KINDS = {
    "prompt": {"type": "string", "default": "", "title": "Prompt", "description": "What it is to do."},
    "rules": {"type": "string", "default": "Be brief.\n\nBe kind.", "title": "Rules"},
    "loud": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None, "title": "Loud"},
    "sure": {"type": "boolean", "default": False, "title": "Sure"},
    "pace": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None, "title": "Pace"},
}
EVERY = PLAIN | {"name": "every", "title": "Every kind", "input_schema": {"type": "object", "properties": KINDS}}


def test_a_text_keeps_its_lines_and_a_switch_may_be_left_open(open_page, scripted):
    scripted.agents = [EVERY]
    page = open_page(f"{scripted.url}#/start")
    prompt, loud = page.get_by_label("Prompt"), page.get_by_label("Loud")
    one_line = prompt.bounding_box()
    prompt.fill("First this.")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("Then that.")
    page.keyboard.press("Enter")
    page.keyboard.type("Then stop.")
    text = "First this.\nThen that.\nThen stop."
    expect(prompt).to_have_value(text)
    grown = prompt.bounding_box()
    assert one_line
    assert grown
    assert grown["height"] > one_line["height"] + 20
    assert loud.locator("option").all_text_contents() == ["not set", "yes", "no"]
    expect(loud).to_have_value("null")
    loud.select_option("no")
    prompt.press("Control+Enter")
    page.wait_for_url(f"**/#/runs/{RUN}")
    (sent,) = [body["input"] for _, body, _ in scripted.posts]
    assert sent == {"prompt": text, "rules": "Be brief.\n\nBe kind.", "loud": False, "sure": False, "pace": None}


def test_a_text_of_one_line_is_sent_with_enter(open_page, scripted):
    scripted.agents = [EVERY]
    page = open_page(f"{scripted.url}#/start")
    page.get_by_label("Prompt").fill("Go.")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/#/runs/{RUN}")
    assert [body["input"]["prompt"] for _, body, _ in scripted.posts] == ["Go."]


def test_what_is_no_value_is_not_sent(open_page, scripted):
    scripted.agents = [PLAIN | {"input_schema": {"properties": {"many": {"type": "array"}, "n": {"type": "number"}}}}]
    page = open_page(f"{scripted.url}#/start")
    page.get_by_label("Many").fill("[1")
    page.get_by_text("Key and labels").click()
    page.get_by_label("Labels").fill("no colon")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_text("This is no JSON.")).to_be_visible()
    expect(page.get_by_text("This is no number.")).to_be_visible()
    expect(page.get_by_text("Each line is a name, a colon and a value.")).to_be_visible()
    page.get_by_label("Many").fill("[1, 2]")
    page.get_by_label("N", exact=True).fill("3")
    page.get_by_label("Labels").fill("team: legal\nenv:prod")
    page.get_by_label("Key", exact=True).fill("order-7")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url(f"**/#/runs/{RUN}")
    assert [body for _, body, _ in scripted.posts] == [
        {
            "agent": "scripted",
            "input": {"many": [1, 2], "n": 3},
            "labels": {"team": "legal", "env": "prod"},
            "key": "order-7",
        }
    ]


def test_a_start_without_an_answer_is_sent_again_under_the_same_key(open_page, scripted):
    scripted.agents = [PLAIN]
    page = open_page(f"{scripted.url}#/start")
    expect(page.get_by_role("button", name="Start", exact=True)).to_be_visible()
    keys: list[str] = []

    def lose(route: Route) -> None:
        if route.request.method != "POST":
            route.continue_()
            return
        keys.append(route.request.headers["idempotency-key"])
        route.abort()

    page.route("**/runs", lose)
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    page.unroute("**/runs")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url(f"**/#/runs/{RUN}")
    keys += [headers["idempotency-key"] for _, _, headers in scripted.posts]
    assert len(set(keys)) == 1


def test_an_agent_is_chosen_by_its_address(open_page, scripted):
    scripted.agents = [PLAIN, REVIEW]
    page = open_page(f"{scripted.url}#/start/licence_review")
    expect(page.get_by_label("Agent")).to_have_value("licence_review")
    expect(page.get_by_label("Minutes to approve")).to_have_value("60")
    page.get_by_label("Agent").select_option("scripted")
    page.wait_for_url("**/#/start/scripted")
    expect(page.get_by_text("This agent needs no input.")).to_be_visible()


def test_a_run_is_started_again_as_it_was_or_changed(open_page, scripted):
    scripted.agents = [REVIEW]
    given = {"python": None, "policy": None, "limit": 7, "pace": 2.5, "require_approval": False, "deadline_minutes": 9}
    ended = run("succeeded", agent="licence_review", input=given, labels={"team": "legal"}, key="k", result={})
    scripted.screen = bootstrap(1, run=ended)
    page = see(open_page, scripted)
    page.get_by_role("button", name="Run again").click()
    screen.until(page, lambda: scripted.posts)
    path, body, headers = scripted.posts[0]
    assert path == "/runs"
    assert body == {"agent": "licence_review", "input": given, "labels": {"team": "legal"}, "key": "k"}
    assert headers["idempotency-key"]
    page.get_by_text("Details").click()
    page.get_by_role("link", name="Change and run").click()
    expect(page.get_by_label("At most")).to_have_value("7")
    expect(page.get_by_label("Seconds per distribution")).to_have_value("2.5")
    expect(page.get_by_label("Ask for approval")).not_to_be_checked()
    expect(page.get_by_label("Labels")).to_have_value("team:legal")
    expect(page.get_by_label("Key", exact=True)).to_have_value("k")


def test_without_an_agent_it_says_so(open_page, scripted):
    page = open_page(f"{scripted.url}#/start")
    expect(page.get_by_text("No agent is registered here")).to_be_visible()
