"""Names, order, contrast, sizes and live regions, as the browser computes them."""

from itertools import pairwise

import pytest

from tests.browser.conftest import answered
from tests.browser.scripted_server import RICH

pytestmark = pytest.mark.browser

CONTROLS = {
    "button",
    "link",
    "textbox",
    "combobox",
    "checkbox",
    "spinbutton",
    "tab",
    "option",
    "dialog",
}
NAMED = CONTROLS | {"meter", "image", "navigation", "form", "table", "listbox", "log", "region"}

CONTRAST = """() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return { rgb: [r, g, b], a };
  };
  const over = (top, ground) => top.rgb.map((c, i) => c * top.a + ground[i] * (1 - top.a));
  const groundOf = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      layers.push(parse(getComputedStyle(at).backgroundColor));
    }
    return layers.reverse().reduce((ground, layer) => over(layer, ground), [255, 255, 255]);
  };
  const luminance = (rgb) => {
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb.map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility()) continue;
    if (node.closest(".unseen, .skip, option, noscript")) continue;
    const ground = groundOf(node);
    const colour = parse(getComputedStyle(node).color);
    const [a, b] = [luminance(over(colour, ground)), luminance(ground)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([ratio, walker.currentNode.data.trim().slice(0, 40), node.className]);
  }
  return found;
}"""


def tree_of(page):
    """Role and name of everything that assistive technology is told of."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    return [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"]
    ]


def prepared(open_page, server, view, **options):
    """A view with an answer of tokens, panels open, figures drawn."""
    page = open_page(server, **options)
    page.wait_for_selector(".dot.ok")
    page.check("#logprobs", force=True)
    page.fill("#max_completion_tokens", "12")
    answered(page, "Hello!")
    if view == "dashboard":
        page.click("#to-dashboard")
        page.get_by_text("blocks").first.wait_for()
    else:
        for name in ("tools", "schema"):
            page.locator(f"#{name}-details summary").click()
    return page


@pytest.mark.parametrize("view", ["playground", "dashboard"])
def test_everything_has_a_name(open_page, server, view):
    page = prepared(open_page, server, view)
    tree = tree_of(page)
    roles = {role for role, _ in tree}
    assert {"banner", "main", "navigation", "heading", "button", "link", "status"} <= roles
    nameless = [role for role, name in tree if role in NAMED and not name.strip()]
    assert not nameless
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4')]"
        ".filter((node) => node.checkVisibility()).map((node) => Number(node.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_a_name_for_each_dialog_and_focus_inside(open_page, server):
    page = open_page(server)
    page.wait_for_selector(".dot.ok")
    page.click("#open-key")
    assert ("dialog", "API key") in tree_of(page)
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "open-key"


def test_the_order_of_the_tab_key_is_that_of_the_page(open_page, server):
    page = open_page(server)
    page.wait_for_selector(".dot.ok")
    order = []
    for _ in range(40):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    expected = [
        "skip",
        "to-playground",
        "to-dashboard",
        "open-key",
        "theme",
        "reset-settings",
        "model",
        "system",
    ]
    expected += [
        "temperature",
        "stop",
        "logprobs",
        "clear",
        "transcript",
        "draft",
        "send",
        "tab-curl",
    ]
    places = [order.index(name) for name in expected]
    assert places == sorted(places), order


def test_the_whole_way_by_keyboard(open_page, server):
    page = open_page(server)
    page.wait_for_selector(".dot.ok")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skips to the content
    assert page.evaluate("document.activeElement.id") == "main"
    page.focus("#max_completion_tokens")
    page.keyboard.type("6")
    page.focus("#draft")
    page.keyboard.type("Hello!")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("Bye!")
    page.keyboard.press("Enter")
    page.locator(".message.assistant footer").wait_for()
    assert page.locator(".message.user").inner_text() == "Hello!\nBye!"
    page.focus("#tab-curl")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-python"
    page.focus("#to-dashboard")
    page.keyboard.press("Enter")
    page.locator("#dashboard").wait_for()
    assert page.get_attribute("#to-dashboard", "aria-current") == "page"


@pytest.mark.parametrize("view", ["playground", "dashboard"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast_of_all_text(open_page, server, view, theme):
    page = prepared(open_page, server, view, color_scheme=theme, reduced_motion="reduce")
    if view == "playground":
        page.focus("#tab-python")
    found = page.evaluate(CONTRAST)
    assert len(found) > 30
    low = [(round(ratio, 2), text, name) for ratio, text, name in found if ratio < 4.5]
    assert not low


def test_what_is_told_while_an_answer_grows(open_page, scripted):
    """A reader of the screen hears two sentences for an answer, not its pieces."""
    page = open_page(scripted)
    page.wait_for_selector(".dot.ok")
    page.evaluate(
        """() => {
          window.told = [];
          const status = document.getElementById("status");
          const tell = () => window.told.push(status.textContent);
          new MutationObserver(tell).observe(status, { childList: true });
        }"""
    )
    page.fill("#seed", str(RICH))
    answered(page, "Show")
    told = page.evaluate("window.told")
    assert told[0] == "The model answers."
    assert len(told) == 2
    assert told[1].startswith("Answer: # Title")
    live = page.evaluate(
        """[...document.querySelectorAll("[aria-live], [role=status], [role=alert], [role=log]")]
           .filter((n) => n.getAttribute("aria-live") !== "off" && n.checkVisibility())
           .map((n) => n.id)"""
    )
    assert live == ["status"]


@pytest.mark.parametrize("width", [360, 1280])
def test_targets_are_large_enough(open_page, server, width):
    page = open_page(server, viewport={"width": width, "height": 800})
    page.wait_for_selector(".dot.ok")
    small = page.evaluate(
        """[...document.querySelectorAll("button, select, input, textarea, nav a, summary")]
           .filter((n) => n.checkVisibility())
           .map((n) => (n.type === "checkbox" ? n.parentElement : n))
           .map((n) => [n.id || n.className || n.textContent, n.getBoundingClientRect()])
           .filter(([, { width, height }]) => width < 24 || height < 24)
           .map(([name, { width, height }]) => [name, width, height])"""
    )
    assert not small


def test_motion_stops_for_who_wants_none(open_page, server):
    page = open_page(server, reduced_motion="reduce")
    page.wait_for_selector(".dot.ok")
    answered(page, "Hello!")
    assert page.evaluate("document.getAnimations().length") == 0
