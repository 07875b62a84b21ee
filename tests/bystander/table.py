"""The table of the soak: what was done, how often, what was lost."""

from __future__ import annotations

import datetime as dt
import os
import platform
from pathlib import Path
from typing import ClassVar

import pytest

BEGIN, END = "<!-- begin: made by `make soak` -->", "<!-- end -->"

FLAGS_OF_NOTE = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


class Table:
    """Rows by title, in the order in which they were added."""

    KEY: ClassVar = pytest.StashKey["Table"]()

    def __init__(self) -> None:
        self._parts: dict[str, list[dict[str, str]]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def add(self, title: str, row: dict[str, str]) -> None:
        self._parts.setdefault(title, []).append(row)

    def text(self) -> str:
        """Markdown."""
        lines = [f"Run on {dt.datetime.now(dt.UTC):%Y-%m-%d}, {machine()}.", ""]
        for title, rows in self._parts.items():
            names = list(dict.fromkeys(name for row in rows for name in row))
            lines += [f"### {title}", "", row_of(names), row_of(["---"] * len(names))]
            lines += [row_of([row.get(name, "") for name in names]) for row in rows]
            lines += [""]
        return "\n".join(lines)

    def write(self, page: Path) -> None:
        """Replace what is between the page's marks."""
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        page.write_text(f"{before}{BEGIN}\n\n{self.text()}\n{END}{after}", encoding="utf-8")


def row_of(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def machine() -> str:
    """Kind of processor, by its features; number of CPUs."""
    features = ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        words = set(info.read_text(encoding="utf-8").split())
        features = ", " + " ".join(flag for flag in FLAGS_OF_NOTE if flag in words)
    return f"{len(os.sched_getaffinity(0))} CPUs ({platform.machine()}{features})"
