"""The failure matrix: what was done to the cluster, what clients saw, and after how long."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import ClassVar

import pytest

from tests.bystander.table import machine, row_of

BEGIN, END = "<!-- begin: made by `make test-ray` -->", "<!-- end -->"
NAMES = ["what happens", "what clients see", "seconds"]


class Matrix:
    """Rows in the order in which they were added."""

    KEY: ClassVar = pytest.StashKey["Matrix"]()

    def __init__(self) -> None:
        self.rows: list[list[str]] = []

    def add(self, what: str, seen: str, **seconds: float) -> None:
        """``seconds`` by what they are the time of."""
        times = ", ".join(f"{name.replace('_', ' ')} {s:.1f}" for name, s in seconds.items())
        self.rows.append([what, seen, times])

    def text(self) -> str:
        """Markdown."""
        head = f"Run on {dt.datetime.now(dt.UTC):%Y-%m-%d}, {machine()}."
        lines = [row_of(NAMES), row_of(["---"] * len(NAMES)), *map(row_of, self.rows)]
        return "\n".join([head, "", *lines, ""])

    def write(self, page: Path) -> None:
        """Replace what is between the page's marks."""
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        page.write_text(f"{before}{BEGIN}\n\n{self.text()}\n{END}{after}", encoding="utf-8")
