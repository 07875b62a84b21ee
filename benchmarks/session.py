"""One call of ``benchmarks.compare``: its options, its time limit, and its lines of results."""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from benchmarks.peers import BenchModel, Contender

RunKey: TypeAlias = tuple[str, str, str, float, int]
"""Model, contender, scenario, scale and round of a run."""

START_SECONDS = 60.0
"""What the start of a server is expected to take at most."""


@dataclass(kw_only=True)
class Session:
    """``gemm`` holds the matrix product rates of this machine (``benchmarks.matmul``)."""

    options: argparse.Namespace
    gemm: dict[str, float]
    started: float = field(default_factory=time.monotonic)
    name: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    done: set[RunKey] = field(default_factory=set)
    """The runs that ``--resume`` found in ``--out``, and those of this session."""

    num_left: int = 0
    """Runs for which there was no time."""

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def write(self, kind: str, **values: Any) -> None:
        """Append a line to ``--out``."""
        line = {"kind": kind, "session": self.name, **values}
        with self.options.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps(_without_nan(line)) + "\n")

    def key(self, contender: Contender, model: BenchModel, scenario: str, number: int) -> RunKey:
        """The key of a run of round ``number``."""
        return model.name, contender.name, scenario, self.options.scale, number

    def resume(self) -> None:
        """Count the runs that ``--out`` holds as done."""
        if not self.options.out.is_file():
            return
        for text in self.options.out.read_text("utf-8").splitlines():
            line = json.loads(text)
            if line["kind"] == "run":
                self.done.add(
                    (
                        *(line["model"], line["contender"], line["scenario"]),
                        *(line["scale"], line["round"]),
                    )
                )

    def has_time(self, seconds: float) -> bool:
        """Whether work of so many seconds would end before ``--max-minutes``."""
        return self.elapsed + seconds <= 60 * float(self.options.max_minutes)


def strip_paths(text: str) -> str:
    """Reduce absolute paths to file names; results are published."""
    return re.sub(r"(?<![\w./:])/(?:[^\s/:'\"]+/)+", "", text)


def _without_nan(value: Any) -> Any:
    """Replace NaN and infinity by None: JSON has neither."""
    match value:
        case dict():
            return {key: _without_nan(item) for key, item in value.items()}
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
