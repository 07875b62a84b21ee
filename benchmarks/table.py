"""Tables of what was measured, in Markdown, from the lines that ``benchmarks.compare`` wrote.

    python -m benchmarks.table results.jsonl [more.jsonl] [--into benchmarks/RESULTS.md]

Prints them, or puts them between the two marks of a document. Medians over undisturbed runs; where
there are none, over all, with a star. A tilde is before figures of runs that were cut.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Line: TypeAlias = dict[str, Any]

BEGIN, END = "<!-- begin: made by benchmarks/table.py -->", "<!-- end -->"

US = "roseinfer"

INT8 = "roseinfer int8"

IN_PROCESS = "roseinfer in process"

PLAIN = {"float32", "bfloat16", "float16"}
"""Weights that are not quantised."""

ANY = "any"

DASH = "-"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of a scenario, or of all (ANY). ``is_rate`` says that more is better."""

    scenario: str
    key: str
    title: str
    is_rate: bool = False
    is_judged: bool = True

    @property
    def label(self) -> str:
        """Scenario and title."""
        return self.title if self.scenario == ANY else f"{self.scenario.upper()} {self.title}"


FIGURES = (
    Figure(scenario="s1", key="ttft_p50_ms", title="TTFT"),
    Figure(scenario="s1", key="tpot_p50_ms", title="TPOT"),
    Figure(scenario="s2", key="tok_s", title="tok/s", is_rate=True),
    Figure(scenario="s2", key="ttft_p50_ms", title="TTFT p50", is_judged=False),
    Figure(scenario="s2", key="ttft_p99_ms", title="TTFT p99", is_judged=False),
    Figure(scenario="s2", key="rss_mb", title="resident MB"),
    Figure(scenario="s3-16", key="tok_s", title="tok/s", is_rate=True),
    Figure(scenario="s3", key="tok_s", title="tok/s", is_rate=True),
    Figure(scenario="s3", key="ttft_p50_ms", title="TTFT p50", is_judged=False),
    Figure(scenario="s4", key="tok_s", title="tok/s", is_rate=True),
    Figure(scenario="s4", key="ttft_p50_ms", title="TTFT p50", is_judged=False),
    Figure(scenario="s4", key="ttft_p99_ms", title="TTFT p99"),
    Figure(scenario="s4-unshared", key="tok_s", title="tok/s", is_rate=True),
    Figure(scenario="s5", key="long_ttft_ms", title="long TTFT"),
    Figure(scenario="s5", key="gap_quiet_p50_ms", title="quiet gap p50", is_judged=False),
    Figure(scenario="s5", key="gap_max_ms", title="worst gap"),
    Figure(scenario=ANY, key="start_s", title="start, s", is_judged=False),
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A median, how many runs are behind it, and what is wrong with them."""

    value: float
    num_runs: int
    is_disturbed: bool
    is_cut: bool

    def __str__(self) -> str:
        star = "\\*" if self.is_disturbed else ""
        return f"{'~' if self.is_cut else ''}{rounded(self.value)}{star}"


class Results:
    """The runs with one model at one scale."""

    def __init__(self, runs: Sequence[Line]) -> None:
        self._runs = runs
        self.contenders = list(dict.fromkeys(run["contender"] for run in _by_show(runs)))
        scenarios = {run["scenario"] for run in runs}
        self.figures = [figure for figure in FIGURES if figure.scenario in {ANY, *scenarios}]

    def cell(self, contender: str, figure: Figure) -> Cell | None:
        """The figure of a contender; None if it has none."""
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
        """The median of the floors that were computed from the probes before the runs."""
        floors = [
            run["floors"][figure.key]
            for run in self._of(contender, figure.scenario)
            if figure.key in run["floors"]
        ]
        return statistics.median(floors) if floors else None

    def weights(self, contender: str) -> str:
        """How a contender holds the weights."""
        runs = (run for run in self._runs if run["contender"] == contender)
        return str(next(runs)["weights"])

    def num_errors(self) -> int:
        """Requests that failed, of all runs."""
        return sum(run["num_errors"] for run in self._runs)

    def _of(self, contender: str, scenario: str) -> list[Line]:
        """Good runs, the undisturbed ones if there are any."""
        runs = [
            run
            for run in self._runs
            if run["contender"] == contender
            and scenario in {ANY, run["scenario"]}
            and run["num_errors"] == 0
        ]
        return [run for run in runs if not run["is_disturbed"]] or runs


def tables(lines: Sequence[Line]) -> str:
    """Everything that is made from the lines."""
    parts = [_preface(lines)]
    groups: dict[tuple[str, float], list[Line]] = {}
    for line in lines:
        if line["kind"] == "run":
            groups.setdefault((line["model"], line["scale"]), []).append(line)
    for (model, scale), runs in groups.items():
        scaled = "" if scale == 1 else f", {scale:g} of the work"
        results = Results(runs)
        parts.append(f"### {model}{scaled}\n")
        parts.append(figures_table(results))
        parts += [ratios_table(results, ours, peers) for ours, peers in _matches(results)]
        parts.append(_remarks(results, runs))
    told = {"failure": "did not run", "warning": "warned"}
    news = [
        f"{line['model']}: {line['contender']} {told[line['kind']]}: {line['message']}\n"
        for line in lines
        if line["kind"] in told
    ]
    parts += dict.fromkeys(news)
    return "\n".join(part for part in parts if part)


def figures_table(results: Results) -> str:
    """A row for each contender, and the limits below."""
    rows = [["", *(figure.label for figure in results.figures), "runs"]]
    for contender in results.contenders:
        cells = [results.cell(contender, figure) for figure in results.figures]
        counts = sorted({cell.num_runs for cell in cells if cell})
        spread = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        rows.append([contender, *(str(cell) if cell else DASH for cell in cells), spread])
    told = set()
    for contender in results.contenders:
        weights = results.weights(contender)
        if weights not in told:
            told.add(weights)
            floors = [results.floor(contender, figure) for figure in results.figures]
            shown = [DASH if floor is None else rounded(floor) for floor in floors]
            rows.append([f"*limit, {weights}*", *shown, ""])
    return markdown(rows)


def ratios_table(results: Results, us: str, peers: Sequence[str]) -> str:
    """How far ahead one of ours is: of each peer, and how much of the limit it reaches."""
    judged = [figure for figure in results.figures if figure.is_judged]
    rows = [[f"{us} against", "of the limit", *peers]]
    for figure in judged:
        ours = results.cell(us, figure)
        if ours is None or not ours.value:
            continue
        floor = results.floor(us, figure)
        share = DASH
        if floor is not None:
            share = f"{100 * (_ahead(figure, ours.value, floor)):.0f}%"
        against = []
        for peer in peers:
            theirs = results.cell(peer, figure)
            is_known = theirs is not None and theirs.value > 0  # a rate of 0: cut before a token
            against.append(_times(figure, ours, theirs) if theirs and is_known else DASH)
        rows.append([figure.label, share, *against])
    return markdown(rows) if len(rows) > 1 else ""


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its head, the first column its names."""
    head, *body = rows
    marks = ["---", *["--:" for _ in head[1:]]]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, marks, *body]) + "\n"


def rounded(value: float) -> str:
    """Three digits, but never a digit of an integer less."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def read_lines(paths: Iterable[Path]) -> list[Line]:
    """The lines of some files."""
    return [
        json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines() if line
    ]


def put_into(document: str, made: str) -> str:
    """The document with what lies between its marks replaced. Raises ValueError without marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{made.strip()}\n\n{END}{after}"


def _preface(lines: Sequence[Line]) -> str:
    """When, on what, and what exactly."""
    parts = []
    for session in (line for line in lines if line["kind"] == "session"):
        machine = session["machine"]
        gemm = ", ".join(f"{name} {rate:.0f}" for name, rate in session["gemm_gflops"].items())
        probes = [
            line["probe"]
            for line in lines
            if line["kind"] == "run" and line["session"] == session["session"]
        ]
        parts.append(
            f"**{session['session']}** on {machine['cpu']} (family/model {machine['cpu_family']}; "
            f"{', '.join(machine['features']) or 'no features told'}), {machine['cores']} cores, "
            f"{machine['memory_gib']} GiB, {machine['system']}, Python {machine['python']}.\n"
        )
        if probes:
            parts.append(
                f"Probes before the servers: read bandwidth {_range(probes, 'read_gbs')} GB/s, "
                f"float32 multiply-adds {_range(probes, 'fma_gflops')} GFLOP/s; "
                f"torch's matrix products: {gemm} GFLOP/s.\n"
            )
        parts += [f"- {name}: {what}" for name, what in session["contenders"].items()]
        parts.append(f"\n```sh\n{session['command']}\n```\n")
    return "\n".join(parts)


def _range(probes: Sequence[Line], key: str) -> str:
    values = [probe[key] for probe in probes]
    middle = statistics.median(values)
    return f"{middle:.0f} ({min(values):.0f} to {max(values):.0f})"


def _remarks(results: Results, runs: Sequence[Line]) -> str:
    """What HTTP costs, and what a reader should know of the runs."""
    found = []
    rate = Figure(scenario="s2", key="tok_s", title="tok/s", is_rate=True)
    over_http, in_process = results.cell(US, rate), results.cell(IN_PROCESS, rate)
    if over_http and in_process and not (over_http.is_cut or in_process.is_cut):
        cost = 100 * (1 - over_http.value / in_process.value)
        mark = ", disturbed" if over_http.is_disturbed or in_process.is_disturbed else ""
        found.append(f"HTTP and its client cost {cost:.1f}% of the engine's rate in S2{mark}.")
    num_disturbed = sum(run["is_disturbed"] for run in runs)
    if num_disturbed:
        found.append(f"{num_disturbed} of {len(runs)} runs were disturbed by other processes.")
    num_cut = sum(run["is_cut"] for run in runs)
    if num_cut:
        found.append(f"{num_cut} runs were cut at the limit of time (~).")
    if results.num_errors():
        found.append(f"{results.num_errors()} requests failed; their runs are left out.")
    return "\n".join(found) + "\n" if found else ""


def _matches(results: Results) -> list[tuple[str, list[str]]]:
    """Who is held against whom: us against servers, our int8 against others that quantise."""
    peers = [name for name in results.contenders if not name.startswith(US)]
    plain = [name for name in peers if results.weights(name) in PLAIN]
    return [(US, plain), (INT8, [name for name in peers if name not in plain])]


def _ahead(figure: Figure, ours: float, theirs: float) -> float:
    """Above 1 where we are better."""
    return ours / theirs if figure.is_rate else theirs / ours


def _times(figure: Figure, ours: Cell, theirs: Cell) -> str:
    mark = "~" if ours.is_cut or theirs.is_cut else ""
    star = "\\*" if ours.is_disturbed or theirs.is_disturbed else ""
    return f"{mark}{_ahead(figure, ours.value, theirs.value):.2f}x{star}"


def _by_show(runs: Sequence[Line]) -> list[Line]:
    """Us first, then the peers, then the side shows."""
    order: Callable[[Line], tuple[bool, bool]] = lambda run: (  # noqa: E731
        run["is_side_show"],
        run["contender"] != US,
    )
    return sorted(runs, key=order)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, help="a document with the two marks")
    options = parser.parse_args()
    made = tables(read_lines(options.files))
    if options.into is None:
        print(made)
    else:
        options.into.write_text(put_into(options.into.read_text("utf-8"), made), "utf-8")


if __name__ == "__main__":
    main()
