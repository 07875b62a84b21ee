"""Reads the lines that ``benchmarks.compare`` wrote, and computes medians from them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from benchmarks import scenarios
from benchmarks.lines import Line, machine_names

T = TypeVar("T")


US = "roseinfer"

IN_PROCESS = "roseinfer in process"

STEADY = 1.1
"""Limits of a run's probes that differ by a larger factor say little about it."""

DASH = "-"

BITS = {"int8": 8, "q8_0": 8, "q4_k_m": 4}
"""Bits of quantized types of weights; all others are plain."""

ANY = "any"
"""The scenario of a figure that covers all scenarios."""

NAMES = {
    "s2-sampled": "S2 sampled",
    "s4-unshared": "S4 unshared",
    "prefill": "Prompt of 1,024",
    "long": "Long prompt",
    "context-8k": "Context of 8k:",
    "context-32k": "Context of 32k:",
} | {f"streams-{number}": f"{number} streams" for number in scenarios.STREAMS}
"""Names of scenarios in tables, where they are not just upper case."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of a scenario. ``is_rate``: higher is better. ``is_compared``: ratios are shown.

    ``cut`` is the mark of a run in which this figure is that of a cut load.
    """

    scenario: str
    key: str
    title: str
    is_rate: bool = False
    is_compared: bool = True
    cut: str = "is_cut"

    @property
    def label(self) -> str:
        name = "" if self.scenario == ANY else NAMES.get(self.scenario, self.scenario.upper())
        return f"{name} {self.title}".strip()

    def ratio(self, ours: float, theirs: float) -> float:
        """Above 1 if ours is better."""
        return ours / theirs if self.is_rate else theirs / ours


def _context_figures(name: str) -> tuple[Figure, ...]:
    """Of a load with a long context: one request alone, then eight with its prefix."""
    return (
        Figure(scenario=name, key="first_ttft_ms", title="TTFT", cut="first_is_cut"),
        Figure(scenario=name, key="first_tpot_ms", title="TPOT", cut="first_is_cut"),
        Figure(scenario=name, key="ttft_p50_ms", title="8 streams, TTFT"),
        Figure(scenario=name, key="tpot_p50_ms", title="8 streams, TPOT"),
        Figure(scenario=name, key="tok_s", title="8 streams, tok/s", is_rate=True),
        Figure(scenario=name, key="rss_mb", title="resident MB"),
    )


FIGURES = (
    Figure(scenario="s1", key="ttft_p50_ms", title="TTFT"),
    Figure(scenario="s1", key="tpot_p50_ms", title="TPOT"),
    Figure(scenario="s2", key="tok_s", title="tok/s", is_rate=True),
    Figure(scenario="s2", key="ttft_p50_ms", title="TTFT p50", is_compared=False),
    Figure(scenario="s2", key="ttft_p99_ms", title="TTFT p99", is_compared=False),
    Figure(scenario="s2", key="rss_mb", title="resident MB"),
    Figure(scenario="s2-sampled", key="tok_s", title="tok/s", is_rate=True),
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
    Figure(scenario="prefill", key="ttft_p50_ms", title="TTFT"),
    Figure(scenario="long", key="ttft_p50_ms", title="TTFT"),
    Figure(scenario="long", key="tpot_p50_ms", title="TPOT"),
    *(figure for name in scenarios.CONTEXTS for figure in _context_figures(name)),
    Figure(scenario=ANY, key="start_s", title="start, s", is_compared=False),
)

STREAMS = tuple(
    Figure(scenario=f"streams-{number}", key="tok_s", title="tok/s", is_rate=True)
    for number in scenarios.STREAMS
)
"""Rates by the number of streams; they have a table of their own."""


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


@dataclass(frozen=True, kw_only=True)
class Share:
    """The part of the limit that was reached.

    The limit is the median of those that a run's probes give; ``low`` and ``high`` are the shares
    of the highest and the lowest of them. They are ``value`` if there was one probe. Of several
    runs, all three are medians. See ``share_of``. ``is_old``: the probe was one loop before the
    server's start, which is not the fastest way to read, so the share is too high.
    """

    value: float
    low: float
    high: float
    is_steady: bool
    is_old: bool

    def __str__(self) -> str:
        value, low, high = (f"{100 * part:.0f}" for part in (self.value, self.low, self.high))
        mark = "" if self.is_steady else "!"
        return f"{value}%{mark}" if low == high else f"{value}%{mark}, {low}-{high}"


@dataclass(frozen=True, order=True)
class Group:
    """Runs are comparable within a group: same CPU features and cores, same model, same scale."""

    machine: str
    model: str
    scale: float

    @property
    def scaled(self) -> str:
        return "" if self.scale == 1 else f", {self.scale:g} of the work"

    @property
    def title(self) -> str:
        machine = f" ({self.machine})" if self.machine else ""
        return f"{self.model}{self.scaled}{machine}"

    @property
    def place(self) -> str:
        return f"{self.machine}{self.scaled}"


class Results:
    """The runs of one group. ``failures``: of servers that did not start, or died in a run."""

    def __init__(self, runs: Sequence[Line], failures: Sequence[Line] = ()) -> None:
        self.runs = runs
        self.failures = failures
        self.contenders = list(dict.fromkeys(run["contender"] for run in _in_order(runs)))
        ran = {run["scenario"] for run in runs}
        self.figures = [figure for figure in FIGURES if figure.scenario in {ANY, *ran}]
        self.streams = [figure for figure in STREAMS if figure.scenario in ran]

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
            is_cut=any(run.get(figure.cut, run["is_cut"]) for run in runs),
        )

    def floor(self, contender: str, figure: Figure) -> float | None:
        """The median of the floors that were computed beside the runs."""
        floors = [
            run["floors"][figure.key]
            for run in self._of(contender, figure.scenario)
            if figure.key in run["floors"]
        ]
        return statistics.median(floors) if floors else None

    def share(self, contender: str, figure: Figure) -> Share | None:
        """The median part of the limit that was reached, each run beside its own probes."""
        key = figure.key
        runs = [
            run
            for run in self._of(contender, figure.scenario)
            if key in run["floors"] and run.get(key)
        ]
        if not runs:
            return None
        shares = [share_of(run, figure) for run in runs]
        return Share(
            value=statistics.median(share.value for share in shares),
            low=statistics.median(share.low for share in shares),
            high=statistics.median(share.high for share in shares),
            is_steady=all(share.is_steady for share in shares),
            is_old=any(share.is_old for share in shares),
        )

    def is_same_memory(self, one: str, other: str, figure: Figure) -> bool:
        """Whether the memory of two contenders' runs was about as fast, by their probes."""
        reads: list[float] = [
            statistics.median(run["probe"]["read_gbs"] for run in self._of(name, figure.scenario))
            for name in (one, other)
        ]
        return max(reads) <= STEADY * min(reads)

    def ratio(self, us: str, other: str, figure: Figure) -> str:
        """Above 1 if ours is better. Marks say what it suffers from; a dash if it has no value."""
        ours, theirs = self.cell(us, figure), self.cell(other, figure)
        if ours is None or theirs is None or theirs.value <= 0:  # cut before its first token
            return DASH
        cut = "~" if ours.is_cut or theirs.is_cut else ""
        memory = "" if self.is_same_memory(us, other, figure) else "≈"
        star = "\\*" if ours.is_disturbed or theirs.is_disturbed else ""
        return f"{cut}{memory}{figure.ratio(ours.value, theirs.value):.2f}x{star}"

    def best_peer(self, us: str, figure: Figure) -> tuple[str, float] | None:
        """The best of the peers with weights of as many bits as ours, and our ratio to it."""
        ours = self.cell(us, figure)
        if ours is None or not ours.value:
            return None
        ratios = [
            (peer, figure.ratio(ours.value, cell.value))
            for peer in self.contenders
            if not peer.startswith(US) and self.bits(peer) == self.bits(us)
            if (cell := self.cell(peer, figure)) and cell.value > 0
        ]
        return min(ratios, key=lambda found: found[1], default=None)

    def absent(self, us: str, figure: Figure) -> list[str]:
        """Peers with weights of as many bits as ours that do not have this figure.

        They have others, or they failed.
        """
        failed = [line["contender"] for line in self.failures if "weights" in line]
        cells = {
            peer: self.cell(peer, figure)
            for peer in dict.fromkeys([*self.contenders, *failed])
            if not peer.startswith(US) and self.bits(peer) == self.bits(us)
        }
        return [peer for peer, cell in cells.items() if cell is None or cell.value <= 0]

    def bits(self, contender: str) -> int | None:
        """Bits of quantized weights; None for plain ones."""
        return BITS.get(self.weights(contender))

    def weights(self, contender: str) -> str:
        """The type of a contender's weights."""
        lines = (line for line in (*self.runs, *self.failures) if line["contender"] == contender)
        return next(str(line["weights"]) for line in lines if "weights" in line)

    def peers(self, *, is_quantized: bool) -> list[str]:
        """The other servers with quantized weights, or with plain ones."""
        return [
            name
            for name in self.contenders
            if not name.startswith(US) and (self.bits(name) is not None) == is_quantized
        ]

    def ours(self) -> list[str]:
        """Our servers, plain weights first."""
        return [name for name in self.contenders if name.startswith(US) and name != IN_PROCESS]

    def num_runs(self, contender: str) -> str:
        """The fewest and the most runs behind any of its medians: ``1 to 3``, or ``3`` if equal."""
        cells = [self.cell(contender, figure) for figure in self.figures if figure.scenario != ANY]
        counts = sorted({cell.num_runs for cell in cells if cell})
        return " to ".join(str(count) for count in dict.fromkeys([*counts[:1], *counts[-1:]]))

    def count(self, key: str) -> int:
        """The sum of a count, or of a mark, over all runs."""
        return sum(run[key] for run in self.runs)

    def sessions(self, contender: str, figure: Figure) -> list[str]:
        """The sessions of the runs behind a figure."""
        return sorted({run["session"] for run in self._of(contender, figure.scenario)})

    def _of(self, contender: str, scenario: str) -> list[Line]:
        """Runs without errors: the undisturbed ones, or all if every run was disturbed."""
        runs = [
            run
            for run in self.runs
            if run["contender"] == contender
            and scenario in {ANY, run["scenario"]}
            and run["num_errors"] == 0
        ]
        return [run for run in runs if not run["is_disturbed"]] or runs


def groups_of(lines: Sequence[Line]) -> dict[Group, list[Line]]:
    """The runs by group, in the order of their first lines."""
    machines = machine_names(lines)
    found: dict[Group, list[Line]] = {}
    for line in lines:
        if line["kind"] == "run":
            machine = machines.get(line["session"], "")
            found.setdefault(Group(machine, line["model"], line["scale"]), []).append(line)
    return found


def failures_of(lines: Sequence[Line]) -> dict[tuple[str, str], list[Line]]:
    """The failures by machine and model. Older ones do not say their weights."""
    machines = machine_names(lines)
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if line["kind"] == "failure":
            found.setdefault((machines.get(line["session"], ""), line["model"]), []).append(line)
    return found


def probes_of(run: Line) -> list[Line]:
    """The probes beside a run; older runs have only the one before their server."""
    probes: list[Line] = run.get("probes", [run["probe"]])
    return probes


def idle_of(values: Sequence[T], is_busy: Sequence[bool]) -> list[T]:
    """Those of probes during which the server was idle; all of them if there are none."""
    idle = [value for value, busy in zip(values, is_busy, strict=True) if not busy]
    return idle or list(values)


def share_of(run: Line, figure: Figure) -> Share:
    """The share of the limit in a run that has the figure and its floor.

    For the time per token of one stream, that of the requests between two probes that agree, if
    these are half of them or more: memory may change during the others. A probe during which the
    server was busy finds too low limits.
    """
    key = figure.key
    floors = [floor[key] for floor in run.get("floors_by_probe", [run["floors"]])]
    is_busy = run.get("is_busy_by_probe", [False] * len(floors))
    times = run.get("tpot_each_ms", []) if key == "tpot_p50_ms" else []
    if len(times) == len(floors) - 1:
        pairs = zip(times, pairwise(floors), pairwise(is_busy), strict=True)
        beside = [
            (a + b) / 2 / time
            for time, (a, b), are_busy in pairs
            if time and not any(are_busy) and max(a, b) <= STEADY * min(a, b)
        ]
        if beside and 2 * len(beside) >= len(times):
            value = statistics.median(beside)
            return Share(
                value=value, low=min(beside), high=max(beside), is_steady=True, is_old=False
            )
    floors = idle_of(floors, is_busy)
    shares = [figure.ratio(run[key], floor) for floor in floors]
    return Share(
        value=figure.ratio(run[key], run["floors"][key]),
        low=min(shares),
        high=max(shares),
        is_steady=max(floors) <= STEADY * min(floors),
        is_old="probes" not in run,
    )


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
