"""README stays short, and its commands exist."""

import re

from tests.docs.markdown import PAGES, ROOT, page
from tests.support.constraints import constraints

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
    pinned = set(re.findall(r'"torch==([\d.]+)"', README.text))
    assert pinned == {constraints()["torch"]}


def test_make_and_the_plain_commands_install_by_the_constraints() -> None:
    makefile = MAKEFILE.replace("$(INSTALL)", "pip install --constraint constraints.txt")
    installs = re.findall(r"pip install .* \"?\.(?:\[.*\])?\"?$", makefile, re.MULTILINE)
    plain = [line for line in README.shell_commands() if re.search(r"pip install .*\.", line)]
    assert len(installs) >= 3
    assert len(plain) >= 3
    for command in (*installs, *plain[1:]):
        assert re.search(r" (-c|--constraint) constraints\.txt ", command), command


def test_the_licence_is_the_one_that_readme_names() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "Apache-2.0" in README.text
