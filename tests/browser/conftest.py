"""Headless Chromium with the page of a real server process; skips where either is absent."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.support.process import ServerProcess

LAUNCH = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
"""Tests run as root in containers. Without the flags of the network, Chromium asks its maker."""

TIMEOUT_MS = 120_000
"""Of a wait: as much as a start may take, because the machine may be busy."""

SCRIPTED = ("-m", "tests.browser.scripted_server")
KEY = "sk-of-the-tests"


def chromium() -> str | None:
    """The path of Chromium, if it is installed."""
    return shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = chromium()
    if program is None:
        pytest.skip("chromium is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(LAUNCH))
        yield browser
        browser.close()


def _running(*flags: str, **options: Any) -> Iterator[ServerProcess]:
    server = ServerProcess(*flags, **options)
    try:
        yield server.wait_ready()
        assert server.stop() == 0
        assert "Traceback" not in server.final_stderr, server.final_stderr[-4000:]
    finally:
        server.close()


@pytest.fixture(scope="session")
def server(browser) -> Iterator[ServerProcess]:
    """The built-in model, with defaults."""
    yield from _running()


@pytest.fixture(scope="session")
def guarded(browser) -> Iterator[ServerProcess]:
    """The built-in model behind a key."""
    yield from _running("--api-key", KEY)


@pytest.fixture(scope="session")
def scripted(browser) -> Iterator[ServerProcess]:
    """An engine that says what the request's seed asks for, and a model with a hostile name."""
    name = "<img src=x onerror=window.pwned=1>"
    yield from _running("--served-model-name", name, command=SCRIPTED)


OpenPage = Callable[..., Any]


@pytest.fixture
def open_page(browser) -> Iterator[OpenPage]:
    """Open the page of a server. At the end it has logged nothing, and asked no other host."""
    contexts, complaints, asked = [], [], []
    allowed: set[str] = set()

    def open_at(server: ServerProcess, view: str = "", **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("request", lambda request: asked.append(request.url))
        allowed.add(server.url)
        page.goto(f"{server.url}/{f'#{view}' if view else ''}")
        return page

    open_at.forgive = lambda: (complaints.clear(), asked.clear())  # type: ignore[attr-defined]
    yield open_at
    for context in contexts:
        context.close()
    others = {url for url in asked if not any(url.startswith(f"{one}/") for one in allowed)}
    assert not others
    unexpected = [text for text in complaints if not re.match(r"Failed to load resource", text)]
    assert not unexpected


@pytest.fixture
def page(open_page, server) -> Any:
    """The playground of the built-in model, ready."""
    page = open_page(server)
    page.wait_for_selector(".dot.ok")
    return page


def ask(page: Any, text: str) -> Any:
    """Send a message; the answer's element, complete or not."""
    before = page.locator(".message.assistant").count()
    page.fill("#draft", text)
    page.press("#draft", "Enter")
    return page.locator(".message.assistant").nth(before)


def answered(page: Any, text: str) -> Any:
    """Send a message and wait for the end of the answer."""
    answer = ask(page, text)
    answer.locator("footer").wait_for()
    return answer
