"""README stays short, and its commands exist."""

import re

from tests.docs.markdown import PAGES, ROOT, page

README = page(ROOT / "README.md")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")

MAX_LINES = 160


def test_readme_has_at_most_160_lines() -> None:
    assert len(README.text.splitlines()) <= MAX_LINES


def test_make_targets_named_in_the_documentation_exist() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE))
    named = set()
    for path in PAGES:
        for text in (*page(path).shell_commands(), *page(path).spans):
            named |= set(re.findall(r"^make ([a-z][\w-]*)", text))
    assert {"serve", "test"} <= named <= targets


def test_plain_commands_install_the_torch_that_make_installs() -> None:
    pinned = set(re.findall(r'"(torch==[\d.]+)"', README.text))
    assert pinned == set(re.findall(r'"(torch==[\d.]+)"', MAKEFILE))
    assert len(pinned) == 1


def test_the_licence_is_the_one_that_readme_names() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "Apache-2.0" in README.text
