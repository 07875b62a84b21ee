"""One call of ``benchmarks.compare``: its options, its time limit, and its lines of results."""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from benchmarks.peers import BenchModel, Contender


@dataclass(kw_only=True)
class Session:
    """``gemm`` holds the matrix product rates of this machine (``benchmarks.matmul``)."""

    options: argparse.Namespace
    gemm: dict[str, float]
    started: float = field(default_factory=time.monotonic)
    name: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    turns: dict[tuple[str, str], float] = field(default_factory=dict)
    """(contender, model) -> seconds of its last turn."""

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def write(self, kind: str, **values: Any) -> None:
        """Append a line to ``--out``."""
        line = {"kind": kind, "session": self.name, **values}
        with self.options.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps(_without_nan(line)) + "\n")

    def has_time_for(self, contender: Contender, model: BenchModel) -> bool:
        """Whether a turn as long as the last one would end before ``--max-minutes``."""
        likely = self.turns.get((contender.name, model.name), 0.0)
        return self.elapsed + likely <= 60 * float(self.options.max_minutes)


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
