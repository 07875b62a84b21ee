"""Relative links in the documentation lead somewhere."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as ET

import pytest

from tests.docs.markdown import PAGES, ROOT, Page, page


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_resolve_to_a_file_and_a_heading(path: Path) -> None:
    broken = [link for link in page(path).links if not resolves(page(path), link)]
    assert not broken


def resolves(source: Page, link: str) -> bool:
    parts = urlsplit(link)
    if parts.scheme:
        return parts.scheme in {"https", "http"}
    target = source.path
    if parts.path:
        target = (source.path.parent / unquote(parts.path)).resolve()
        if not target.is_relative_to(ROOT) or not target.exists():
            return False
    if not parts.fragment:
        return True
    return target.suffix == ".md" and parts.fragment in page(target).anchors


def test_a_link_to_a_missing_file_or_heading_is_noticed() -> None:
    readme = page(ROOT / "README.md")
    assert resolves(readme, "docs/operating.md#drain")
    assert not resolves(readme, "docs/operating.md#drained")
    assert not resolves(readme, "docs/nothing.md")


def test_every_page_of_docs_is_linked_from_the_index() -> None:
    index = page(ROOT / "docs" / "index.md")
    linked = {(index.path.parent / link.partition("#")[0]).resolve() for link in index.links}
    assert linked >= set((ROOT / "docs").rglob("*.md")) - {index.path}


def test_images_are_well_formed_and_scale() -> None:
    for image in sorted((ROOT / "docs" / "images").glob("*.svg")):
        assert ET.parse(image).getroot().get("viewBox"), image  # noqa: S314 - our own


def test_paths_named_in_code_spans_exist() -> None:
    folders = (
        r"(?:bench|benchmarks|compat_tests|core|deploy|docs|examples|schemas|server|tests|training)"
    )
    missing = [
        f"{page(path).name}: {span}"
        for path in PAGES
        for span in page(path).spans
        if re.fullmatch(folders + r"/[\w./-]*", span)
        if not (ROOT / span).exists() and path.name != "CHANGELOG.md"
    ]
    assert not missing


def test_code_spans_do_not_break_over_lines() -> None:
    for path in PAGES:
        for number, line in enumerate(page(path).prose.splitlines(), 1):
            assert line.count("`") % 2 == 0, f"{page(path).name}, line {number} of the prose"
