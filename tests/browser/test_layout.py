"""Widths and colours."""

import pytest

from compat_tests.support.waiting import eventually
from tests.browser.conftest import answered

pytestmark = pytest.mark.browser

LONG = "an-unbroken-word-" * 20

SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize("width", [320, 360, 768, 901, 1280, 1600])
def test_nothing_scrolls_sideways(open_page, server, width):
    page = open_page(server, viewport={"width": width, "height": 800})
    page.wait_for_selector(".dot.ok")
    page.evaluate("document.getElementById('max_completion_tokens').value = '30'")
    answered(page, LONG)
    assert page.evaluate(SIDEWAYS) <= 0
    if width <= 900:
        for name in ("settings", "code"):
            page.click(f"#toggle-{name}")
            page.locator(f"#{name}").wait_for()
            assert page.get_attribute(f"#toggle-{name}", "aria-expanded") == "true"
    assert page.evaluate(SIDEWAYS) <= 0
    page.click("#to-dashboard")
    page.get_by_text("blocks").first.wait_for()
    assert page.evaluate(SIDEWAYS) <= 0


@pytest.mark.parametrize("width", [360, 1280, 1600])
def test_the_field_for_the_message_is_in_view(open_page, server, width):
    page = open_page(server, viewport={"width": width, "height": 700})
    page.wait_for_selector(".dot.ok")
    for _ in range(3):
        answered(page, "Tell me a story about a fox.")
    box = page.locator("#draft").bounding_box()
    assert box["y"] + box["height"] <= 700


def test_a_long_answer_is_followed_until_someone_scrolls(open_page, scripted):
    page = open_page(scripted, viewport={"width": 1280, "height": 500})
    page.wait_for_selector(".dot.ok")
    page.fill("#seed", "2")
    page.fill("#draft", "Go on")
    page.press("#draft", "Enter")
    transcript = page.locator("#transcript")
    at_end = "t => t.scrollTop > 200 && t.scrollHeight - t.clientHeight - t.scrollTop < 60"
    eventually(lambda: transcript.evaluate(at_end), timeout=30, what="following")
    transcript.evaluate("t => { t.scrollTop = 0 }")
    before = transcript.evaluate("t => t.scrollHeight")
    eventually(
        lambda: transcript.evaluate("t => t.scrollHeight") > before + 40, timeout=30, what="growth"
    )
    assert transcript.evaluate("t => t.scrollTop") == 0
    page.click("#stop-answer")


def test_colours_follow_the_system_and_the_switch(open_page, server):
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    page = open_page(server, color_scheme="dark")
    dark = page.evaluate(ground)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(ground)
    assert dark != light
    page.click("#theme")
    page.click("#theme")
    assert page.inner_text("#theme") == "Theme: dark"
    assert page.evaluate(ground) == dark
    page.reload()
    assert page.evaluate(ground) == dark
    assert page.inner_text("#theme") == "Theme: dark"
    page.click("#theme")
    assert page.inner_text("#theme") == "Theme: system"
    assert page.evaluate(ground) == light
