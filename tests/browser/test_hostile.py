"""Whatever comes from outside is shown as words; nothing of it runs, and nothing is loaded from elsewhere."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser import screen
from tests.browser.scripted import RUN, bootstrap, event, frame, question, run, snapshot, text
from tests.browser.test_page import live, see
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
    "{{constructor.constructor('alert(1)')()}} ${alert(1)} lit$1$ <!--?lit$1$-->",
    "\"'`><b onmouseover=alert(1)>x</b>",
    "<!--<meta http-equiv=refresh content='0;url=https://example.com'>",
)
HOSTILE = (
    " ".join(ATTACKS[:6]),
    " ".join(ATTACKS[6:]),
    "\u202egnp.exe\u202c \u0000 \ufeff &lt;b&gt;",
    "__proto__",
)
FOREIGN = "main :is(script, img, iframe, svg, style, meta, object, embed, base), main a:not([href^='#/'])"


@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_words_are_shown_as_words(open_page, scripted, evil):
    fields = dict.fromkeys(("title", "subtitle", "current_step", "detail", "scope", "as_of", "next_action"), evil)
    rows = [{evil: evil, "__proto__x": evil}, {"n": [evil]}]
    ask = question(1, {"title": evil, evil: evil, "rows": rows})
    markdown = f"# {evil}\n\n- {evil}\n\n| {evil} | b |\n| --- | --- |\n| {evil} | **{evil}** |\n\n{evil}\n"
    schema = {"properties": {"a": {"title": evil, "description": evil, "type": "string", "default": evil}}}
    scripted.agents = [
        {"name": "scripted", "title": evil, "description": evil, "resumable": False, "input_schema": schema}
    ]
    scripted.asked = [ask]
    scripted.screen = bootstrap(
        0,
        run=run(input={evil: evil}, labels={"evil": evil}, key="k"),
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
    assert page.locator(f"{FOREIGN}, main b:not(.chip b, .now b)").count() == 0
    assert screen.said(page) == markdown
    scripted.screen |= {"run": run("failed", rev=9, error={"code": "x", "message": evil}, input={evil: evil})}
    scripted.send(frame({"run_id": RUN, "status": "failed"}, "end", "end"))
    expect(screen.badge(page)).to_have_text("Ended")
    scripted.screen |= {"run": run("succeeded", rev=9, result={"markdown": markdown, "x": evil}, input={evil: evil})}
    page = open_page(f"{scripted.url}#/runs/{RUN}", apart=True)  # that has not seen it fail
    expect(page.get_by_role("region", name="Result").locator(".md")).to_be_visible()
    assert page.locator(f"{FOREIGN}, main b").count() == 0
    page.goto(f"{scripted.url}#/")
    expect(page.get_by_role("list", name="All runs").get_by_role("link").first).to_be_visible()
    page.goto(f"{scripted.url}#/start")
    expect(page.get_by_role("button", name="Start", exact=True)).to_be_visible()
    assert page.locator(f"{FOREIGN}, main b").count() == 0


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_refused(open_page, scripted):
    # The fixture counts both for every test here; this one shows that it would notice.
    page = see(open_page, scripted)
    page.evaluate("try { document.body.innerHTML = '<img src=x onerror=alert(1)>' } catch { window.caught = true }")
    page_says(page, "window.refused.length === 1 && window.caught")
    assert "require-trusted-types-for" in page.evaluate("window.refused.splice(0)")[0]
    assert page.evaluate("window.harmed") == 0
