"""The playground with the built-in model, in a real browser."""

import json
import os
import re
import subprocess
import sys

import jsonschema
import pytest

from compat_tests.support.waiting import eventually
from tests.browser.conftest import answered, ask
from tests.browser.scripted_server import ENDLESS, FAILING, RICH

pytestmark = pytest.mark.browser

LIMIT = "40"


def test_an_answer_streams_and_has_its_figures(page):
    page.fill("#max_completion_tokens", LIMIT)
    answer = answered(page, "Tell me a story about a fox.")
    assert answer.locator(".markdown").inner_text().strip()
    figures = answer.locator(".figures").inner_text()
    assert re.search(r"first token [\d.]+ m?s", figures)
    assert re.search(r"\d+( \(\d+ cached\))? \+ \d+ tokens", figures)
    assert page.locator(".message.user").inner_text() == "Tell me a story about a fox."
    assert page.input_value("#draft") == ""


def test_the_conversation_goes_on_and_begins_anew(page):
    page.fill("#max_completion_tokens", "8")
    answered(page, "Hello!")
    with page.expect_request("**/chat/completions") as caught:
        answered(page, "And then?")
    roles = [message["role"] for message in caught.value.post_data_json["messages"]]
    assert roles == ["user", "assistant", "user"]
    page.click("#clear")
    assert page.locator(".message").count() == 0
    assert page.locator(".suggestion").count() == 3
    with page.expect_request("**/chat/completions") as caught:
        page.locator(".suggestion").first.click()
    assert len(caught.value.post_data_json["messages"]) == 1


def test_text_arrives_before_the_end_and_stop_ends_the_request(open_page, scripted):
    page = open_page(scripted)
    page.wait_for_selector(".dot.ok")
    page.fill("#seed", str(ENDLESS))
    answer = ask(page, "Go on for ever")
    answer.get_by_text("word word").wait_for()
    assert answer.get_attribute("aria-busy") == "true"
    assert scripted.stats()["num_running"] == 1
    page.click("#stop-answer")
    answer.locator("footer").wait_for()
    assert "stopped by you" in answer.locator(".figures").inner_text()
    eventually(lambda: scripted.stats()["num_running"] == 0, what="the end of the request")
    assert page.evaluate("document.activeElement.id") == "draft"
    # what was said stays in the conversation
    page.fill("#seed", str(RICH))
    with page.expect_request("**/chat/completions") as caught:
        answered(page, "More")
    assert caught.value.post_data_json["messages"][1]["content"].startswith("word word")


def test_escape_stops_and_a_new_chat_stops(open_page, scripted):
    page = open_page(scripted)
    page.wait_for_selector(".dot.ok")
    page.fill("#seed", str(ENDLESS))
    for end in (lambda: page.keyboard.press("Escape"), lambda: page.click("#clear")):
        ask(page, "Go on").get_by_text("word word").wait_for()
        end()
        eventually(lambda: scripted.stats()["num_running"] == 0, what="the end of the request")
        page.wait_for_selector("#send:visible")
    assert page.locator(".message").count() == 0


def test_markdown_is_rendered(open_page, scripted):
    page = open_page(scripted)
    page.wait_for_selector(".dot.ok")
    page.fill("#seed", str(RICH))
    text = answered(page, "Show").locator(".markdown")
    for selector in (
        "h4.h1",
        "strong",
        "em",
        "code",
        "ol > li",
        "ul > li",
        "blockquote",
        "td",
        "pre",
    ):
        assert text.locator(selector).count() >= 1, selector
    link = text.locator("a")
    assert link.get_attribute("href") == "https://example.org/a"
    assert "noopener" in link.get_attribute("rel")


def test_a_failure_in_the_middle_is_told_and_can_be_tried_again(open_page, scripted):
    page = open_page(scripted)
    page.wait_for_selector(".dot.ok")
    page.fill("#seed", str(FAILING))
    answer = answered(page, "Fail")
    assert answer.locator("[role=alert]").inner_text()
    assert "failed" in answer.locator(".figures").inner_text()
    page.fill("#seed", "")
    answer.get_by_role("button", name="Try again").click()
    page.get_by_text("Hi there!", exact=True).wait_for()
    assert page.locator(".message.assistant").count() == 1


def test_a_refusal_shows_the_servers_words(page):
    page.fill("#temperature", "9")
    answer = answered(page, "Hello!")
    assert "temperature" in answer.locator("[role=alert]").inner_text()


def test_tokens_are_coloured_with_alternatives_on_hover_and_by_keyboard(page):
    page.check("#logprobs")
    page.fill("#max_completion_tokens", "12")
    page.fill("#temperature", "0")
    answer = answered(page, "Hello!")
    tokens = answer.locator(".token[role=option]")
    assert 1 < tokens.count() <= 12
    classes = {tokens.nth(i).get_attribute("class") for i in range(tokens.count())}
    assert all(re.fullmatch(r"token p[0-5]", name) for name in classes)
    tokens.first.hover()
    tip = page.locator("#tip")
    tip.wait_for()
    shares = [float(cell.strip("< %")) for cell in tip.locator("td:nth-child(3)").all_inner_texts()]
    assert len(shares) >= 5
    assert shares == sorted(shares, reverse=True)
    assert tip.locator("tr.sampled").count() == 1
    page.mouse.move(0, 0)
    tip.wait_for(state="hidden")
    tokens.first.focus()
    page.keyboard.press("ArrowRight")
    assert tokens.nth(1).evaluate("node => node === document.activeElement")
    assert tokens.nth(1).get_attribute("aria-describedby") == "tip"
    assert [tokens.nth(i).get_attribute("tabindex") for i in (0, 1)] == ["-1", "0"]
    text = answer.locator(".tokens").inner_text()
    answer.get_by_role("button", name="Tokens").click()
    shown = answer.locator(".markdown").inner_text()
    assert text.split()[:3] == shown.split()[:3]


def test_an_answer_keeps_to_the_schema(page):
    page.click("#schema-details summary")
    page.check("#useSchema")
    answer = answered(page, "Who are you?")
    schema = json.loads(page.input_value("#schema"))
    jsonschema.validate(json.loads(answer.locator(".markdown").inner_text()), schema)


def test_a_tool_is_called_and_its_result_sent_back(page):
    page.click("#tools-details summary")
    page.check("#useTools")
    page.select_option("#toolChoice", "required")
    page.fill("#max_completion_tokens", "200")
    answer = answered(page, "What is the weather in Paris?")
    call = answer.locator(".call")
    assert call.first.locator("h4").inner_text() == "Calls get_weather"
    assert json.loads(call.first.locator("pre").inner_text())
    page.select_option("#toolChoice", "auto")
    call.first.locator("textarea").fill('{"sky": "clear"}')
    with page.expect_request("**/chat/completions") as caught:
        answer.get_by_role("button", name=re.compile("Send result")).click()
    *_, asked, result = [m for m in caught.value.post_data_json["messages"] if m["role"] != "user"][
        :2
    ]
    assert result["content"] == '{"sky": "clear"}'
    assert result["tool_call_id"] == asked["tool_calls"][0]["id"]
    page.locator(".message.assistant").nth(1).locator("footer").wait_for()


def test_what_is_no_json_is_marked_and_not_sent(page):
    page.click("#tools-details summary")
    page.check("#useTools")
    page.fill("#tools", "[{")
    assert page.get_attribute("#tools", "aria-invalid") == "true"
    assert "no JSON" in page.inner_text("#tools-problem")
    page.fill("#draft", "Hello!")
    page.press("#draft", "Enter")
    assert page.locator(".message").count() == 0
    assert page.evaluate("document.activeElement.id") == "tools"
    page.select_option("#tools-example", "Calculator")
    assert page.get_attribute("#tools", "aria-invalid") is None
    assert "calculate" in page.inner_text("#code-text")


def test_the_code_is_the_request_live_and_runs(page, server):
    page.fill("#temperature", "0")
    page.fill("#top_k", "3")
    page.fill("#max_completion_tokens", "10")
    page.fill("#system", 'It\'s a "test" of $HOME')
    page.fill("#draft", "Hel")
    assert '"Hel"' in page.inner_text("#code-text")
    page.fill("#draft", "Hello!")
    command = page.inner_text("#code-text")
    page.click("#tab-python")
    program = page.inner_text("#code-text")
    assert page.get_attribute("#tab-python", "aria-selected") == "true"
    with page.expect_request("**/chat/completions") as caught:
        answer = answered(page, "Hello!")
    said = answer.locator(".markdown").inner_text().split()
    clean = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    ran = subprocess.run(
        ["sh", "-c", command], env=clean, capture_output=True, text=True, check=True, timeout=60
    )
    chunks = [
        json.loads(line.removeprefix("data: "))
        for line in ran.stdout.splitlines()
        if line.startswith("data: {")
    ]
    text = "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"])
    assert text.split() == said
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=clean,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stdout.split() == said
    body = caught.value.post_data_json
    assert (body["top_k"], body["temperature"]) == (3, 0)
    assert body["messages"][0]["content"] == 'It\'s a "test" of $HOME'
