"""Keys, hostile texts, the policy, pages of other sites."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.browser.conftest import KEY, answered
from tests.browser.scripted_server import HOSTILE, PWNED

pytestmark = pytest.mark.browser

MARKUP = f'"><img src=x onerror="{PWNED}"><script>{PWNED}</script>'


def test_the_page_asks_for_a_key_and_keeps_it_in_the_tab(open_page, guarded):
    page = open_page(guarded)
    dialog = page.locator("#key-dialog")
    dialog.wait_for()
    page.fill("#key", "sk-wrong")
    page.keyboard.press("Enter")
    page.get_by_text("The server does not accept this key.").wait_for()
    assert page.evaluate("document.activeElement.id") == "key"
    page.fill("#key", KEY)
    page.keyboard.press("Enter")
    page.wait_for_selector(".dot.ok")
    page.fill("#max_completion_tokens", "5")
    answered(page, "Hello!")
    assert page.evaluate("Object.values(localStorage)") == []
    assert page.evaluate("Object.values(sessionStorage)") == [KEY]
    assert KEY not in page.content()
    assert "$ROSEINFER_API_KEY" in page.inner_text("#code-text")
    page.reload()
    page.wait_for_selector(".dot.ok")
    page.click("#open-key")
    page.click("#key-forget")
    dialog.wait_for()
    assert page.evaluate("Object.values(sessionStorage)") == []
    other = open_page(guarded)
    other.locator("#key-dialog").wait_for()


def test_the_key_goes_to_this_server_only_and_never_into_an_address(open_page, guarded):
    page = open_page(guarded)
    page.locator("#key-dialog").wait_for()
    with page.expect_request(f"{guarded.url}/v1/models") as caught:
        page.fill("#key", KEY)
        page.keyboard.press("Enter")
    assert caught.value.headers["authorization"] == f"Bearer {KEY}"
    page.wait_for_selector(".dot.ok")
    assert KEY not in page.url


def test_hostile_text_of_a_model_stays_text(open_page, scripted):
    page = open_page(scripted)
    page.wait_for_selector(".dot.ok")
    assert page.inner_text("#server-state") == scripted.model  # a tag in the name of the model
    page.fill("#seed", str(HOSTILE))
    answer = answered(page, MARKUP)
    answer.get_by_text("end of it").wait_for()
    assert page.locator(".message.user").inner_text() == MARKUP
    assert "<script>" in answer.locator(".markdown").inner_text()
    for selector in ("img", "script", "svg", "iframe", "style", "[onclick]", "[onerror]"):
        assert answer.locator(selector).count() == 0, selector
    targets = [link.get_attribute("href") for link in answer.locator("a").all()]
    assert targets == ["http://evil.example/x.png"]  # an image becomes a link, which loads nothing
    assert page.evaluate("window.pwned") is None


HOSTILE_RECORD = {
    **dict.fromkeys(
        ("id", "request_id", "key", "route", "model", "error", "prompt", "text", "ended_by"), MARKUP
    ),
    "stream": True,
    "state": "ended",
    "started_at": 1.0,
    "status": 200,
    "parameters": {MARKUP: MARKUP},
    "prompt_tokens": 1,
    "cached_tokens": 0,
    "cache_miss": {"reason": MARKUP, "first_differing_block": MARKUP},
    "completion_tokens": 2,
    "finish_reasons": [MARKUP],
    "ttft_ms": 1.0,
    "duration_ms": 2.0,
    "times_ms": {MARKUP: 1.0, "decode": 1.0},
    "num_steps": 1,
    "mean_batch": 1.0,
    "max_batch": 1,
    "num_preemptions": 0,
}


def test_hostile_records_stay_text(open_page, server):
    """No server of ours gives such records; whatever gives them, they are shown as texts."""
    page = open_page(server)
    page.route(
        "**/requests?*",
        lambda route: route.fulfill(json={"object": "list", "data": [HOSTILE_RECORD]}),
    )
    page.route("**/requests/*", lambda route: route.fulfill(json=HOSTILE_RECORD))
    page.click("#to-dashboard")
    page.locator("#request-rows button").click()
    record = page.locator("#record")
    record.get_by_text("Where the time went").wait_for()
    assert record.inner_text().count(MARKUP) >= 8
    for place in ("#record", "#request-rows"):
        assert page.locator(f"{place} :is(img, script)").count() == 0
    assert page.evaluate("window.pwned") is None


@pytest.mark.parametrize(
    "code",
    [
        "document.body.innerHTML = '<b>x</b>'",
        "document.write('x')",
        "window.setTimeout('window.pwned = 1')",
    ],
)
def test_the_policy_stops_text_from_becoming_code(open_page, server, code):
    page = open_page(server)
    stopped = page.evaluate(
        "(code) => { const s = document.createElement('a');"
        " try { (() => { " + code + " })(); return false; } catch { return true; } }",
        code,
    )
    assert stopped
    open_page.forgive()  # the browser tells of the attempt


def test_inline_scripts_and_other_hosts_are_blocked(open_page, server):
    page = open_page(server)
    blocked = page.evaluate(
        """async () => {
          const seen = [];
          const note = (event) => seen.push(event.effectiveDirective);
          document.addEventListener("securitypolicyviolation", note);
          const style = document.createElement("style");
          style.textContent = "body { display: none }";
          document.head.append(style);
          const image = document.createElement("img");
          image.src = "http://evil.example/x.png";
          document.body.append(image);
          await fetch("http://evil.example/").catch(() => {});
          await new Promise((done) => setTimeout(done));
          style.remove();
          image.remove();
          return seen;
        }"""
    )
    assert {"style-src-elem", "img-src", "connect-src"} <= set(blocked)
    open_page.forgive()


class _Neighbour(BaseHTTPRequestHandler):
    """A page that frames what its query names."""

    def do_GET(self):
        body = f"<iframe src='{self.path.partition('?')[2]}'></iframe>".encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def neighbour():
    """Another server on loopback: from far away, a browser lets no page reach loopback at all."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Neighbour) as other:
        thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{other.server_port}"
        other.shutdown()
        thread.join()


def test_a_page_of_another_server_gets_nothing(browser, server, neighbour):
    """It can neither frame the page, nor load its files, nor read data."""
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(f"{neighbour}/?{server.url}/")
        frame = page.frames[1]
        assert "roseinfer" not in frame.content()
        results = page.evaluate(
            """async (base) => {
              const tried = {};
              for (const [name, path, options] of [
                ["stats", "/stats", {}],
                ["chat", "/v1/chat/completions", { method: "POST", body: "{}" }],
                ["file", "/ui/app.js", {}],
                ["blind", "/ui/app.js", { mode: "no-cors" }],
              ]) {
                try { await (await fetch(base + path, options)).text(); tried[name] = "read"; }
                catch { tried[name] = "blocked"; }
              }
              return tried;
            }""",
            server.url,
        )
        assert set(results.values()) == {"blocked"}, json.dumps(results)
    finally:
        context.close()
