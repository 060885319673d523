"""The list of runs: live, filtered by its address, and what waits for a person before all else."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser import screen
from tests.browser.scripted import bootstrap, question, run, snapshot, state

pytestmark = pytest.mark.browser


def runs(page: Page):
    return page.get_by_role("list", name="All runs").get_by_role("listitem")


def test_a_run_that_goes_on_moves_in_the_list(open_page, scripted):
    scripted.screen = bootstrap(1, snapshot=snapshot(1, progress=10, current_step="first_step"))
    page = open_page(scripted.url)
    expect(runs(page)).to_contain_text("First step")
    screen.until(page, lambda: scripted.viewers)
    scripted.send(state(5, progress=55, current_step="second_step"))
    expect(runs(page)).to_contain_text("Second step")
    assert runs(page).get_by_role("progressbar").evaluate("bar => bar.value") == 55
    scripted.send(state(6, "waiting", rev=9))
    expect(runs(page)).to_contain_text("Needs a decision")


def test_what_waits_for_a_person_stands_first(open_page, scripted):
    scripted.asked = [question(1), question(2)]
    page = open_page(scripted.url)
    waiting = page.get_by_role("region", name="Waiting for you")
    expect(waiting.get_by_role("link")).to_have_text(["Question 1", "Question 2"])
    expect(page).to_have_title("(2) Runs · playhead")
    waiting.get_by_role("link", name="Question 1").click()
    expect(page.get_by_role("heading", name="Scripted")).to_be_visible()


def test_filters_stand_in_the_address(open_page, scripted):
    scripted.agents = [
        {"name": name, "title": name.title(), "description": "", "input_schema": {}, "resumable": False}
        for name in ("one", "two")
    ]
    page = open_page(scripted.url)
    page.get_by_role("button", name="Running").click()
    page.get_by_role("button", name="Failed").click()
    page.get_by_label("Agent").select_option("two")
    page.get_by_label("Label").fill("team:legal:x")
    page.get_by_label("Key").fill("order 7")
    page.get_by_label("Key").press("Enter")
    page.wait_for_url("**/#/?status=running&status=failed&agent=two&label=team%3Alegal%3Ax&key=order+7")
    asked = "limit=50&status=running&status=failed&label=team%3Alegal%3Ax&agent=two&key=order+7"
    screen.until(page, lambda: asked in scripted.asks)
    page.reload()
    expect(page.get_by_role("button", name="Failed")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("Label")).to_have_value("team:legal:x")
    page.get_by_role("link", name="Clear filters").click()
    expect(page.get_by_role("button", name="Failed")).to_have_attribute("aria-pressed", "false")
    expect(page.get_by_label("Label")).to_have_value("")
    screen.until(page, lambda: scripted.asks[-1] == "limit=50")


def test_nothing_that_fits_is_told_so(open_page, scripted):
    scripted.runs = []
    page = open_page(scripted.url)
    expect(page.get_by_text("No run yet")).to_be_visible()
    page.get_by_role("button", name="Failed").click()
    expect(page.get_by_text("No run fits these filters")).to_be_visible()


def test_a_label_leads_to_the_runs_that_have_it(open_page, scripted):
    scripted.screen = bootstrap(1, run=run(labels={"team": "legal"}, key="order-7"))
    page = open_page(scripted.url)
    expect(runs(page)).to_contain_text("order-7")
    runs(page).get_by_role("link", name="team legal").click()
    page.wait_for_url("**/#/?label=team%3Alegal")
    expect(page.get_by_label("Label")).to_have_value("team:legal")


def test_the_next_page_is_loaded_on_request(open_page, scripted):
    made = [run("succeeded", id=f"019b0000-0000-7000-8000-{n:012d}", key=f"run-{n}") for n in range(1, 4)]
    scripted.runs, scripted.next, scripted.older = made[:2], "token", {"runs": made[2:]}
    page = open_page(scripted.url)
    expect(runs(page)).to_have_count(2)
    page.get_by_role("button", name="Show more").click()
    expect(runs(page)).to_have_count(3)
    expect(runs(page).last).to_contain_text("run-3")
    expect(page.get_by_role("button", name="Show more")).to_have_count(0)


def test_a_list_that_cannot_be_read_says_so_and_comes_back(open_page, scripted):
    page = open_page(f"{scripted.url}#/start")
    page.route("**/runs?**", lambda route: route.abort())
    page.goto(f"{scripted.url}#/")
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    page.unroute("**/runs?**")
    expect(runs(page)).to_have_count(1)
    expect(page.get_by_role("alert")).to_have_count(0)
