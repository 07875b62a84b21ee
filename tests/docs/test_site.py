"""The documentation's site: every page is in it, and every link inside it leads somewhere."""

from __future__ import annotations

import importlib.util
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs import make_site
from docs.make_site import DOCS, configuration, navigation, page_text, repository, title_of
from tests.docs.markdown import ROOT, page

pytestmark = pytest.mark.xdist_group("site")  # it is built once


def test_every_page_is_in_the_navigation_once():
    pages = [page for _, pages in navigation() for page in pages]
    assert sorted(pages) == sorted(DOCS.rglob("*.md"))
    assert pages[0] == DOCS / "index.md"
    text = configuration()
    for shown in pages:
        assert f'"{title_of(shown)}" = "{shown.name}"' in text


def test_links_out_of_the_folder_lead_to_files_of_the_repository():
    found = 0
    for shown in sorted(DOCS.glob("*.md")):
        for link in re.findall(rf"\({repository()}/(?:blob|tree)/main/([^)#]+)", page_text(shown)):
            assert (ROOT / link).exists(), f"{shown}: {link}"
            found += 1
        relative = [link for link in page(shown).links if link.startswith("..")]
        assert not re.search(r"\]\(\.\./", page_text(shown)), relative
    assert found > 20


def test_what_looks_like_a_link_in_code_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(make_site, "DOCS", tmp_path)
    monkeypatch.setattr(make_site, "ROOT", ROOT)
    shown = tmp_path / "page.md"
    shown.write_text("```sh\n[a](../b.py)\n```\n[c](other.md) [d](https://e.example)\n")
    assert page_text(shown) == shown.read_text()


class Links(HTMLParser):
    """The targets of one HTML page, and what its fragments may name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.ids: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        target = values.get("href") or values.get("src")
        if target:
            self.targets.add(target)
            if tag in {"script", "img"} or values.get("rel") in {"stylesheet", "preload"}:
                self.loaded.add(target)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    if importlib.util.find_spec("zensical") is None:
        pytest.skip("needs zensical")
    out = tmp_path_factory.mktemp("site") / "out"
    make_site.build(out)
    return out


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Links]:
    return {file: Links(file.read_text("utf-8")) for file in site.rglob("*.html")}


@pytest.mark.docs
def test_every_page_is_built(site):
    for shown in DOCS.glob("*.md"):
        name = "index.html" if shown.stem == "index" else f"{shown.stem}/index.html"
        assert (site / name).is_file(), name


@pytest.mark.docs
def test_every_link_inside_the_site_leads_somewhere(site, pages):
    broken = []
    for file, links in pages.items():
        if file.name == "404.html":  # is served below any path
            continue
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            path = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            path = path / "index.html" if path.is_dir() else path
            known = pages[path].ids if path in pages else set()
            if not path.is_file() or (parts.fragment and unquote(parts.fragment) not in known):
                broken.append(f"{file.relative_to(site)}: {target}")
    assert not broken


@pytest.mark.docs
def test_the_site_loads_nothing_from_elsewhere(pages):
    for file, links in pages.items():
        assert not [target for target in links.loaded if "//" in target], file


@pytest.mark.docs
def test_a_broken_link_fails_the_build(tmp_path, monkeypatch):
    if importlib.util.find_spec("zensical") is None:
        pytest.skip("needs zensical")
    (tmp_path / "index.md").write_text("# Index\n\n[gone](gone.md)\n")
    monkeypatch.setattr(make_site, "DOCS", tmp_path)
    with pytest.raises(make_site.subprocess.CalledProcessError):
        make_site.build(tmp_path / "out")
