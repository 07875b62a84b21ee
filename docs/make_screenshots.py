"""Write the pictures of the page in docs/images: ``python -m docs.make_screenshots``.

It needs Chromium, and playwright (the extra ``browser``). It serves the built-in model with a load.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from compat_tests.support.process import ServerProcess
from tests.browser.conftest import LAUNCH, answered, chromium

IMAGES = Path(__file__).with_name("images")
QUESTIONS = (
    "Tell me a story about a fox.",
    "Hello! Who are you?",
    "Write a short poem about the sea.",
    "Tell me a story about a girl and her dog.",
)
NUM_CLIENTS = 6
VIEW = {"width": 1440, "height": 900}


def keep_asking(server: ServerProcess, number: int, is_over: threading.Event) -> None:
    """Send one request after the other, of different kinds."""
    turn = number
    while not is_over.is_set():
        body = {
            "messages": [{"role": "user", "content": QUESTIONS[turn % len(QUESTIONS)]}],
            "max_tokens": 40 + 60 * (turn % 5),
            "seed": turn,
        }
        with server.connect() as connection:
            connection.request("POST", "/v1/chat/completions", json.dumps(body).encode())
        turn += NUM_CLIENTS
        is_over.wait(0.4 * (turn % 4))


def picture(page: Any, name: str) -> None:
    """Write what is seen."""
    page.mouse.move(0, 0)
    page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")


def playground(browser: Any, server: ServerProcess) -> None:
    """An answer with its tokens and what is known of one of them, in light colours."""
    page = browser.new_page(viewport=VIEW, color_scheme="light")
    page.goto(server.url)
    page.wait_for_selector(".dot.ok")
    page.fill("#temperature", "0.9")
    page.fill("#max_completion_tokens", "120")
    page.fill("#seed", "7")
    answered(page, "Hello! Who are you?")
    page.check("#logprobs")
    answer = answered(page, "Tell me a story about a fox.")
    page.click("#tab-python")
    page.evaluate("document.getElementById('settings').scrollTop = 0")
    unsure = answer.locator(".tokens .p1, .tokens .p2").first
    unsure.hover()
    page.locator("#tip").wait_for()
    page.screenshot(path=IMAGES / "playground.png", animations="disabled")
    page.close()


def dashboard(browser: Any, server: ServerProcess, seconds: int) -> None:
    """The dashboard after some time of load, and one record."""
    page = browser.new_page(viewport={"width": 1440, "height": 1180}, color_scheme="dark")
    page.goto(f"{server.url}/#dashboard")
    is_over = threading.Event()
    clients = [
        threading.Thread(target=keep_asking, args=(server, number, is_over))
        for number in range(NUM_CLIENTS)
    ]
    for client in clients:
        client.start()
    page.select_option("#span", "10")
    page.wait_for_timeout(seconds * 1000)
    picture(page, "dashboard")
    is_over.set()
    for client in clients:
        client.join()
    rows = page.locator("#request-rows button")
    if rows.count():
        rows.first.click()
        page.get_by_text("Where the time went").wait_for()
        picture(page, "record")
    page.close()


def narrow(browser: Any, server: ServerProcess) -> None:
    """The playground on a telephone."""
    page = browser.new_page(viewport={"width": 390, "height": 780}, color_scheme="light")
    page.goto(server.url)
    page.wait_for_selector(".dot.ok")
    answered(page, "Tell me a story about a fox.")
    picture(page, "playground-narrow")
    page.close()


def main() -> None:
    server = ServerProcess("--seed", "1").wait_ready()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=list(LAUNCH))
            playground(browser, server)
            narrow(browser, server)
            dashboard(browser, server, seconds=60)
            browser.close()
    finally:
        server.stop()


if __name__ == "__main__":
    main()
