"""The dashboard while requests run."""

import re

import pytest

from compat_tests.support.waiting import eventually, pause
from tests.browser.conftest import answered, ask
from tests.browser.scripted_server import ENDLESS

pytestmark = pytest.mark.browser

RECORDS = "**/requests?*"
NONE = "\N{EN DASH}"


def tile(page, name):
    return page.locator(f".tile.{name} .value").inner_text()


def test_it_shows_the_figures_of_the_server(page, server):
    page.fill("#max_completion_tokens", "20")
    answered(page, "Hello!")
    page.click("#to-dashboard")
    page.wait_for_selector(".tile.rate .value")
    stats = server.stats()
    eventually(lambda: "Updated" in page.inner_text("#updated"))
    assert tile(page, "running") == "0"
    assert f"{stats['num_blocks']:,} blocks" in page.inner_text(".tile.cache .note")
    totals = page.locator(".totals div").all_inner_texts()
    assert "\n".join(("Answer tokens", f"{stats['num_output_tokens']:,}")) in totals
    for chart in page.locator(".chart svg").all():
        assert re.search(r"Now: .+Highest: ", chart.get_attribute("aria-label"))
    assert page.title() == f"Dashboard {NONE} roseinfer"


def test_a_running_request_is_seen(open_page, scripted):
    page = open_page(scripted)
    page.wait_for_selector(".dot.ok")
    page.fill("#seed", str(ENDLESS))
    ask(page, "Go on").get_by_text("word word").wait_for()
    page.click("#to-dashboard")
    eventually(lambda: tile(page, "running") == "1", timeout=20)
    page.click("#to-playground")
    page.click("#stop-answer")
    page.click("#to-dashboard")
    eventually(lambda: tile(page, "running") == "0", timeout=20)


def test_without_records_it_shows_the_rest(open_page, server):
    page = open_page(server)
    page.route(RECORDS, lambda route: route.fulfill(status=404, json={"error": {"message": "no"}}))
    page.click("#to-dashboard")
    page.get_by_text("This server keeps no records of requests.").wait_for()
    assert tile(page, "running") == "0"
    assert tile(page, "first") == NONE
    assert page.locator("#dashboard-problem").is_hidden()


def test_it_asks_every_two_seconds_and_only_while_it_is_seen(open_page, server):
    page = open_page(server)
    page.wait_for_selector(".dot.ok")
    page.clock.install()
    asked = []
    page.on(
        "request", lambda request: asked.append(request.url) if "/stats" in request.url else None
    )

    def is_silent():
        drawn = page.inner_text("#updated")
        page.wait_for_load_state("networkidle")
        asked.clear()
        for _ in range(6):
            page.clock.run_for(1000)
        assert not asked, drawn

    def asks():
        """It asks thrice, at most once in two seconds."""
        asked.clear()
        seconds = 0
        while len(asked) < 3:
            page.clock.run_for(1000)
            seconds += 1
            pause(0.02)  # the answers come in real time
            assert seconds < 1000
        assert seconds >= 4

    is_silent()
    page.click("#to-dashboard")
    asks()
    page.click("#pause")
    is_silent()
    page.click("#pause")
    asks()
    page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    is_silent()
    page.evaluate("delete document.hidden")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    asks()
    page.click("#to-playground")
    is_silent()


def test_a_request_opens_to_its_record(page, server):
    page.fill("#max_completion_tokens", "20")
    answer = answered(page, "Hello!")
    answer.get_by_role("button", name="Record").click()
    record = page.locator("#record")
    record.get_by_text("Where the time went").wait_for()
    for text in ("Response id", "chatcmpl-", "From the cache", "Duration", "max"):
        assert text in record.inner_text()
    page.keyboard.press("Escape")
    page.click("#to-dashboard")
    row = page.locator("#request-rows tr").first
    row.wait_for()
    assert "/v1/chat/completions" in row.inner_text()
    assert row.locator("rect.decode").get_attribute("width") != "0"
    assert tile(page, "first") != NONE
    row.locator("button").press("Enter")
    record.get_by_text("Where the time went").wait_for()
    page.click("#record-close")
    assert row.locator("button").evaluate("node => node === document.activeElement")


def test_a_server_that_is_gone_is_told(open_page, server):
    page = open_page(server, view="dashboard")
    page.wait_for_selector(".dot.ok")
    page.route("**/stats", lambda route: route.abort())
    page.route("**/v1/models", lambda route: route.abort())
    page.get_by_text("The server is not reachable.").wait_for()
    page.wait_for_selector(".dot.down")
    page.unroute("**/v1/models")
    page.unroute("**/stats")
    page.wait_for_selector(".dot.ok")
    page.locator("#dashboard-problem").wait_for(state="hidden")
