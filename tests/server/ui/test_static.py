"""The files of the page: no inline code, no foreign host, no text that becomes HTML."""

import re
from html.parser import HTMLParser
from pathlib import PurePosixPath

import pytest

from server.ui.routes import INDEX, read_files

TEXTS = {name: file.content.decode() for name, file in read_files().items()}
SCRIPTS = {name: text for name, text in TEXTS.items() if name.endswith(".js")}
STYLES = {name: text for name, text in TEXTS.items() if name.endswith(".css")}

MAX_LINES = 300
SVG = "http://www.w3.org/2000/svg"
IMPORT = re.compile(r'^(?:import|export)\b[^;]*?\bfrom "([^"]+)";', re.MULTILINE | re.DOTALL)


class Page(HTMLParser):
    """Tags with their attributes, and the texts of labels."""

    def __init__(self):
        super().__init__()
        self.tags = []
        self.feed(TEXTS[INDEX])

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def of(self, *names):
        return [attributes for tag, attributes in self.tags if tag in names]


PAGE = Page()


def asked_for():
    """Every file that the page asks for, by path from its folder, with where it is named."""
    for attributes in PAGE.of("script", "link", "img"):
        address = attributes.get("src") or attributes["href"]
        assert address.startswith("ui/"), address
        yield address.removeprefix("ui/"), INDEX
    for name, text in SCRIPTS.items():
        for target in IMPORT.findall(text):
            assert target.startswith("."), f"{name} imports {target}"
            parts = []
            for part in (*PurePosixPath(name).parent.parts, *target.split("/")):
                if part == "..":
                    parts.pop()
                elif part != ".":
                    parts.append(part)
            yield "/".join(parts), name


def test_every_file_that_is_asked_for_exists_and_every_other_is_not_shipped():
    asked = dict(asked_for())
    assert set(asked) - set(TEXTS) == set()
    assert set(TEXTS) - set(asked) == {INDEX}


def test_nothing_is_inline():
    for tag, attributes in PAGE.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
    assert all("src" in attributes for attributes in PAGE.of("script"))
    assert not PAGE.of("style", "iframe", "object", "embed", "base")


def test_no_other_host_is_named():
    for name, text in TEXTS.items():
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w{2,}[^\s\"')]*", text)) - {SVG}
        assert not addresses, name
        assert "@import" not in text, name
    for name, text in STYLES.items():
        assert "url(" not in text, name


@pytest.mark.parametrize(
    "sink",
    [
        *(r"\.(inner|outer)HTML\b", r"insertAdjacentHTML", r"document\.write", r"srcdoc"),
        *(r"\beval\(", r"new Function", r"DOMParser", r"setHTML", r"createContextualFragment"),
        *(r"javascript:(?!`)", r"\bimport\(", r"setAttribute\(\"style\"", r"cookie", r"console\."),
    ],
)
def test_no_script_turns_text_into_code(sink):
    for name, text in SCRIPTS.items():
        code = re.sub(r"^\s*(//|\*|/\*\*).*$", "", text, flags=re.MULTILINE)
        assert not re.search(sink, code), name


def test_the_key_is_kept_for_the_tab_only():
    users = [name for name, text in SCRIPTS.items() if "sessionStorage" in text]
    assert users == ["lib/api.js"]
    kept = [
        text for text in SCRIPTS.values() for text in re.findall(r"localStorage\.\w+\([^)]*", text)
    ]
    assert kept
    assert all("roseinfer.theme" in text for text in kept)


def test_files_are_short():
    for name, text in {**SCRIPTS, **STYLES, INDEX: TEXTS[INDEX]}.items():
        assert len(text.splitlines()) <= MAX_LINES, name


def test_every_control_has_a_name():
    labelled = {attributes["for"] for attributes in PAGE.of("label")}
    for attributes in PAGE.of("input", "select", "textarea"):
        assert attributes["id"] in labelled, attributes
    ids = [attributes["id"] for _, attributes in PAGE.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in PAGE.tags:
        for name in ("for", "aria-labelledby", "aria-describedby", "aria-controls"):
            assert set(attributes.get(name, "").split()) <= set(ids), attributes


def test_ids_that_scripts_look_up_exist():
    ids = {attributes["id"] for _, attributes in PAGE.tags if "id" in attributes}
    for name, text in SCRIPTS.items():
        assert set(re.findall(r'byId\("([^"$]+)"\)', text)) <= ids, name
