"""Reads the lines that ``benchmarks.compare`` wrote, and computes medians from them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Line: TypeAlias = dict[str, Any]

US = "roseinfer"

INT8 = "roseinfer int8"

IN_PROCESS = "roseinfer in process"

PLAIN = {"float32", "bfloat16", "float16"}
"""Types of weights that are not quantized."""

ANY = "any"
"""The scenario of a figure that covers all scenarios."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of a scenario. ``is_rate``: higher is better. ``is_compared``: ratios are shown."""

    scenario: str
    key: str
    title: str
    is_rate: bool = False
    is_compared: bool = True

    @property
    def label(self) -> str:
        return self.title if self.scenario == ANY else f"{self.scenario.upper()} {self.title}"

    def ratio(self, ours: float, theirs: float) -> float:
        """Above 1 if ours is better."""
        return ours / theirs if self.is_rate else theirs / ours


FIGURES = (
    Figure(scenario="s1", key="ttft_p50_ms", title="TTFT"),
    Figure(scenario="s1", key="tpot_p50_ms", title="TPOT"),
    Figure(scenario="s2", key="tok_s", title="tok/s", is_rate=True),
    Figure(scenario="s2", key="ttft_p50_ms", title="TTFT p50", is_compared=False),
    Figure(scenario="s2", key="ttft_p99_ms", title="TTFT p99", is_compared=False),
    Figure(scenario="s2", key="rss_mb", title="resident MB"),
    Figure(scenario="s3-16", key="tok_s", title="tok/s", is_rate=True),
    Figure(scenario="s3", key="tok_s", title="tok/s", is_rate=True),
    Figure(scenario="s3", key="ttft_p50_ms", title="TTFT p50", is_compared=False),
    Figure(scenario="s4", key="tok_s", title="tok/s", is_rate=True),
    Figure(scenario="s4", key="ttft_p50_ms", title="TTFT p50", is_compared=False),
    Figure(scenario="s4", key="ttft_p99_ms", title="TTFT p99"),
    Figure(scenario="s4-unshared", key="tok_s", title="tok/s", is_rate=True),
    Figure(scenario="s5", key="long_ttft_ms", title="long TTFT"),
    Figure(scenario="s5", key="gap_quiet_p50_ms", title="quiet gap p50", is_compared=False),
    Figure(scenario="s5", key="gap_max_ms", title="worst gap"),
    Figure(scenario=ANY, key="start_s", title="start, s", is_compared=False),
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The median of ``num_runs`` runs, and whether any of them was disturbed or cut."""

    value: float
    num_runs: int
    is_disturbed: bool
    is_cut: bool

    def __str__(self) -> str:
        star = "\\*" if self.is_disturbed else ""
        return f"{'~' if self.is_cut else ''}{rounded(self.value)}{star}"


@dataclass(frozen=True, order=True)
class Group:
    """Runs are comparable within a group: same CPU features and cores, same model, same scale."""

    machine: str
    model: str
    scale: float

    @property
    def title(self) -> str:
        scaled = "" if self.scale == 1 else f", {self.scale:g} of the work"
        machine = f" ({self.machine})" if self.machine else ""
        return f"{self.model}{scaled}{machine}"


class Results:
    """The runs of one group."""

    def __init__(self, runs: Sequence[Line]) -> None:
        self._runs = runs
        self.contenders = list(dict.fromkeys(run["contender"] for run in _in_order(runs)))
        scenarios = {run["scenario"] for run in runs}
        self.figures = [figure for figure in FIGURES if figure.scenario in {ANY, *scenarios}]

    def cell(self, contender: str, figure: Figure) -> Cell | None:
        """The figure of a contender, or None without a run that has it."""
        runs = self._of(contender, figure.scenario)
        values = [run[figure.key] for run in runs if run.get(figure.key) is not None]
        if not values:
            return None
        return Cell(
            value=statistics.median(values),
            num_runs=len(values),
            is_disturbed=any(run["is_disturbed"] for run in runs),
            is_cut=any(run["is_cut"] for run in runs),
        )

    def floor(self, contender: str, figure: Figure) -> float | None:
        """The median of the floors that were computed before the runs."""
        floors = [
            run["floors"][figure.key]
            for run in self._of(contender, figure.scenario)
            if figure.key in run["floors"]
        ]
        return statistics.median(floors) if floors else None

    def weights(self, contender: str) -> str:
        """The type of a contender's weights."""
        runs = (run for run in self._runs if run["contender"] == contender)
        return str(next(runs)["weights"])

    def peers(self, *, is_quantized: bool) -> list[str]:
        """The other servers with quantized weights, or with plain ones."""
        return [
            name
            for name in self.contenders
            if not name.startswith(US) and (self.weights(name) not in PLAIN) == is_quantized
        ]

    def num_errors(self) -> int:
        """Failed requests of all runs."""
        return sum(run["num_errors"] for run in self._runs)

    def _of(self, contender: str, scenario: str) -> list[Line]:
        """Runs without errors: the undisturbed ones, or all if every run was disturbed."""
        runs = [
            run
            for run in self._runs
            if run["contender"] == contender
            and scenario in {ANY, run["scenario"]}
            and run["num_errors"] == 0
        ]
        return [run for run in runs if not run["is_disturbed"]] or runs


def groups_of(lines: Sequence[Line]) -> dict[Group, list[Line]]:
    """The runs by group, in the order of their first lines."""
    machines = {
        line["session"]: machine_name(line["machine"])
        for line in lines
        if line["kind"] == "session"
    }
    found: dict[Group, list[Line]] = {}
    for line in lines:
        if line["kind"] == "run":
            machine = machines.get(line["session"], "")
            found.setdefault(Group(machine, line["model"], line["scale"]), []).append(line)
    return found


def machine_name(machine: Line) -> str:
    """The properties of a machine by which results are grouped."""
    features = ", ".join(machine["features"]) or "features unknown"
    return f"{features}; {machine['cores']} cores"


def read_lines(paths: Iterable[Path]) -> list[Line]:
    return [
        json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines() if line
    ]


def rounded(value: float) -> str:
    """Three significant digits; all digits of a larger integer part."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def _in_order(runs: Sequence[Line]) -> list[Line]:
    """Roseinfer first, then the peers, then the variants."""
    order: Callable[[Line], tuple[bool, bool]] = lambda run: (  # noqa: E731
        run["is_variant"],
        run["contender"] != US,
    )
    return sorted(runs, key=order)
