"""Build the documentation's site: ``python -m docs.make_site [--out site]``. Needs Zensical.

The pages are those of this folder, as they stand. Links that leave the folder lead to the
repository. The build fails on a link to a page, a heading or an image that does not exist.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent

SECTIONS = (
    ("Start", ("getting-started", "sdks", "clients", "terminal", "ui")),
    ("Requests", ("sampling", "structured-output", "api", "responses", "messages", "ollama")),
    ("Models", ("models", "quantisation", "quantised-models", "embeddings")),
    (
        "Operating",
        ("operating", "metrics", "deployment", "routing", "several-machines", "sizing", "flags"),
    ),
    ("Bounds", ("limits", "reliability")),
    ("Inside", ("architecture", "kernels", "benchmarks")),
)
"""Headings of the navigation and their pages, in order. A page that is not named is in "More"."""

_LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )([^)\s]+)", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def repository() -> str:
    """The URL of the repository, as pyproject.toml has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    url: str = project["urls"]["Repository"]
    return url


def page_text(page: Path) -> str:
    """A page of the site: relative links out of this folder become links to the repository."""

    def moved(found: re.Match[str]) -> str:
        start, link = found.groups()
        path, _, _ = link.partition("#")
        target = Path(os.path.normpath(page.parent / path))
        if "://" in link or not path or target.is_relative_to(DOCS):
            return found[0]
        kind = "tree" if target.is_dir() else "blob"
        rest = link[len(path) :]
        return f"{start}{repository()}/{kind}/main/{target.relative_to(ROOT).as_posix()}{rest}"

    text = page.read_text("utf-8")
    parts, end = [], 0
    for fence in _FENCE.finditer(text):  # what looks like a link in code is none
        parts += [_LINK.sub(moved, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(moved, text[end:])])


def title_of(page: Path) -> str:
    """The text of the first heading."""
    heading = re.search(r"^# (.+)$", page.read_text("utf-8"), re.MULTILINE)
    assert heading, f"{page} has no heading"
    return heading[1]


def navigation() -> Iterator[tuple[str, list[Path]]]:
    """Headings and their pages. Every page of this folder is in it once, index.md first."""
    left = {page.stem: page for page in sorted(DOCS.glob("*.md"))}
    yield "", [left.pop("index")]
    for heading, names in SECTIONS:
        yield heading, [left.pop(name) for name in names if name in left]
    if left:
        yield "More", list(left.values())


def configuration() -> str:
    """Zensical's configuration, for pages in ``docs`` beside it and a site in ``site``."""
    entries = []
    for heading, pages in navigation():
        items = [f'{{ "{title_of(page)}" = "{page.name}" }}' for page in pages]
        entries += [f'{{ "{heading}" = [{", ".join(items)}] }}'] if heading else items
    lines = ",\n    ".join(entries)
    return f"""[project]
site_name = "roseinfer"
site_description = "An OpenAI-compatible LLM inference server in Python"
repo_url = "{repository()}"
docs_dir = "docs"
site_dir = "site"
nav = [
    {lines},
]

[project.theme]
font = false
features = ["navigation.indexes", "navigation.footer", "content.code.copy", "search.highlight"]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
"""


def build(out: Path) -> None:
    """Write the site into a folder, which is emptied first. Raises if a link is broken."""
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "docs"
        shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        for page in DOCS.glob("*.md"):
            (source / page.name).write_text(page_text(page), "utf-8")
        file = Path(folder) / "zensical.toml"
        file.write_text(configuration(), "utf-8")
        command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(file)]
        subprocess.run(command, cwd=folder, check=True)  # noqa: S603 - our own arguments
        shutil.copytree(Path(folder) / "site", out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m docs.make_site")
    parser.add_argument("--out", type=Path, default=ROOT / "site")
    build(parser.parse_args().out)
