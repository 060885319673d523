"""Several runs on one connection of a browser's own EventSource: it goes on by the id blocks, and the end stops it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.server import PATIENCE, Proxy, Server
from tests.browser.waiting import page_says

pytestmark = [pytest.mark.browser, pytest.mark.slow]

OPEN = """path => {
  window.told = []; window.ended = []; window.opened = 0;
  const source = window.source = new EventSource(path);
  source.onopen = () => { window.opened += 1; };
  source.onmessage = ({data, lastEventId}) => {
    const {feed, cursor, event} = JSON.parse(data);
    window.told.push({feed, cursor, id: event.id, last: lastEventId});
  };
  source.addEventListener('end', ({data, lastEventId}) =>
    window.ended.push({feed: JSON.parse(data).feed, last: lastEventId}));
}"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.mark.timeout(300)
@pytest.mark.row("A29", "A31", "BR-01")
def test_a_native_event_source_follows_two_runs_over_broken_connections(
    server: Server, open_page: Callable[..., Page]
) -> None:
    proxy = Proxy(server.port)
    page = open_page(f"http://127.0.0.1:{proxy.port}/healthz")
    runs = [server.run(pace=0.05), server.run(pace=0.05)]
    page.evaluate(OPEN, f"/stream?run={runs[0]}&run={runs[1]}")
    page_says(page, "() => window.told.length >= 8")
    proxy.cut()
    page_says(page, "() => window.opened === 2")
    for run_id in runs:
        server.wait(run_id, "waiting")
    told = len(page.evaluate("window.told"))
    proxy.cut()
    page_says(page, "() => window.opened === 3")
    end = time.monotonic() + PATIENCE
    while any(server.call(f"runs/{run_id}")["status"] != "succeeded" for run_id in runs):
        assert time.monotonic() < end
        for asked in server.call("interrupts")["interrupts"]:
            server.call(f"runs/{asked['run_id']}/interrupts/{asked['id']}/decision", {"approved": True})
        time.sleep(0.1)
    page_says(page, "() => window.source.readyState === 2")
    heard = page.evaluate("window.told")
    for run_id in runs:
        ids = [one["id"] for one in heard if one["feed"] == f"run:{run_id}"]
        events = server.call(f"runs/{run_id}/events?limit=200")["events"]
        assert list(dict.fromkeys(ids)) == [event["id"] for event in events]
    assert heard[0]["id"] not in {one["id"] for one in heard[told:]}, "it went on behind the id that it had"
    assert {one["last"][:2] for one in heard} == {"", "1."}
    assert {one["feed"] for one in page.evaluate("window.ended")} == {f"run:{run_id}" for run_id in runs}
    assert page.evaluate("window.opened") == 3  # the answer to `end` opens nothing
    proxy.close()
