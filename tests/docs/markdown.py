"""Reads Markdown pages: links, anchors, code blocks, code spans."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PAGES = (
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "benchmarks" / "RESULTS.md",
    ROOT / "benchmarks" / "peers.md",
    ROOT / "compat_tests" / "README.md",
    ROOT / "core" / "builtin_model" / "README.md",
    ROOT / "examples" / "README.md",
)

_FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n\n?)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]\[]*\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} +(.+?)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced code block. ``mark`` is the comment right above it, ``line`` that of its text."""

    language: str
    text: str
    mark: str = ""
    line: int = 0

    @property
    def commands(self) -> list[str]:
        """The lines of a shell block, continued lines joined, comments removed."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for raw in lines if (line := re.sub(r"(^|\s)#.*$", "", raw).strip())]


@dataclass(frozen=True)
class Page:
    """One Markdown file."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def blocks(self) -> list[Block]:
        return [
            Block(
                found["language"],
                found["text"],
                found["mark"] or "",
                self.text.count("\n", 0, found.start("text")) + 1,
            )
            for found in _FENCE.finditer(self.text)
        ]

    @property
    def prose(self) -> str:
        """The text without fenced code blocks."""
        return _FENCE.sub("", self.text)

    @property
    def spans(self) -> list[str]:
        """Inline code."""
        return _SPAN.findall(self.prose)

    @property
    def links(self) -> list[str]:
        """The targets of links and images."""
        return [inline or reference for inline, reference in _LINK.findall(self.prose)]

    @property
    def anchors(self) -> set[str]:
        """The fragments of the headings, as GitHub makes them."""
        slugs: set[str] = set()
        for heading in _HEADING.findall(self.prose):
            slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            unique, number = slug, 0
            while unique in slugs:
                number += 1
                unique = f"{slug}-{number}"
            slugs.add(unique)
        return slugs

    def section(self, heading: str) -> str:
        """The text below a heading, up to the next heading of the same or a higher level."""
        start = re.search(rf"^(#+) {re.escape(heading)}$", self.text, re.MULTILINE)
        assert start, f"{self.name} has no heading {heading!r}"
        rest = self.text[start.end() :]
        end = re.search(rf"^#{{1,{len(start[1])}}} ", rest, re.MULTILINE)
        return rest[: end.start()] if end else rest

    def shell_commands(self) -> Iterator[str]:
        for block in self.blocks:
            if block.language == "sh":
                yield from block.commands


@cache
def page(path: Path) -> Page:
    return Page(path, path.read_text(encoding="utf-8"))
