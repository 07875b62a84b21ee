"""Makes the Markdown tables of RESULTS.md from the lines that ``benchmarks.compare`` wrote.

    python -m benchmarks.table results.jsonl [more.jsonl] [--into benchmarks/RESULTS.md]

Prints them, or replaces the text between two marks of a document. Figures are medians of the
undisturbed runs; a star marks figures of disturbed runs, a tilde those of runs that were cut.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import (
    IN_PROCESS,
    INT8,
    US,
    Cell,
    Figure,
    Line,
    Results,
    groups_of,
    read_lines,
    rounded,
)

BEGIN, END = "<!-- begin: made by benchmarks/table.py -->", "<!-- end -->"

DASH = "-"


def tables(lines: Sequence[Line]) -> str:
    """The machines and versions, then the tables of every group."""
    parts = [_preface(lines)]
    for group, runs in groups_of(lines).items():
        results = Results(runs)
        parts.append(f"### {group.title}\n")
        parts.append(figures_table(results))
        parts.append(ratios_table(results, US, results.peers(is_quantized=False)))
        parts.append(ratios_table(results, INT8, results.peers(is_quantized=True)))
        parts.append(_remarks(results, runs))
    verbs = {"failure": "did not run", "warning": "warned"}
    messages = [
        f"{line['model']}: {line['contender']} {verbs[line['kind']]}: {line['message']}\n"
        for line in lines
        if line["kind"] in verbs
    ]
    parts += dict.fromkeys(messages)
    return "\n".join(part for part in parts if part)


def figures_table(results: Results) -> str:
    """A row for each contender, then the floors by type of weights."""
    rows = [["", *(figure.label for figure in results.figures), "runs"]]
    for contender in results.contenders:
        cells = [results.cell(contender, figure) for figure in results.figures]
        counts = sorted({cell.num_runs for cell in cells if cell})
        spread = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        rows.append([contender, *(str(cell) if cell else DASH for cell in cells), spread])
    shown = set()
    for contender in results.contenders:
        weights = results.weights(contender)
        if weights not in shown:
            shown.add(weights)
            floors = [results.floor(contender, figure) for figure in results.figures]
            cells_of_row = [DASH if floor is None else rounded(floor) for floor in floors]
            rows.append([f"*limit, {weights}*", *cells_of_row, ""])
    return markdown(rows)


def ratios_table(results: Results, us: str, peers: Sequence[str]) -> str:
    """The ratio of one of our contenders to the limit and to each peer."""
    rows = [[f"{us} against", "of the limit", *peers]]
    for figure in results.figures:
        ours = results.cell(us, figure)
        if not figure.is_compared or ours is None or not ours.value:
            continue
        floor = results.floor(us, figure)
        share = DASH if floor is None else f"{100 * figure.ratio(ours.value, floor):.0f}%"
        ratios = [_ratio(figure, ours, results.cell(peer, figure)) for peer in peers]
        rows.append([figure.label, share, *ratios])
    return markdown(rows) if len(rows) > 1 else ""


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its head, the first column its names."""
    head, *body = rows
    marks = ["---", *["--:" for _ in head[1:]]]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, marks, *body]) + "\n"


def put_into(document: str, made: str) -> str:
    """Replace the text between the marks of a document. Raises ValueError without marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{made.strip()}\n\n{END}{after}"


def _preface(lines: Sequence[Line]) -> str:
    """Time, machine, versions and command of each session."""
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
            f"{', '.join(machine['features']) or 'features unknown'}), {machine['cores']} cores, "
            f"{machine['memory_gib']} GiB, {machine['system']}, Python {machine['python']}.\n"
        )
        if probes:
            parts.append(
                f"Probes before the servers: read bandwidth {_range(probes, 'read_gbs')} GB/s, "
                f"float32 multiply-adds {_range(probes, 'fma_gflops')} GFLOP/s; "
                f"torch's matrix products: {gemm} GFLOP/s.\n"
            )
        parts += [f"- {name}: {versions}" for name, versions in session["contenders"].items()]
        parts.append(f"\n```sh\n{session['command']}\n```\n")
    return "\n".join(parts)


def _range(probes: Sequence[Line], key: str) -> str:
    values = [probe[key] for probe in probes]
    middle = statistics.median(values)
    return f"{middle:.0f} ({min(values):.0f} to {max(values):.0f})"


def _remarks(results: Results, runs: Sequence[Line]) -> str:
    """The cost of HTTP, and the numbers of disturbed, cut and failed runs."""
    found = []
    rate = Figure(scenario="s2", key="tok_s", title="tok/s", is_rate=True)
    over_http, in_process = results.cell(US, rate), results.cell(IN_PROCESS, rate)
    if over_http and in_process and not (over_http.is_cut or in_process.is_cut):
        cost = 100 * (1 - over_http.value / in_process.value)
        mark = ", disturbed" if over_http.is_disturbed or in_process.is_disturbed else ""
        found.append(f"HTTP and its client cost {cost:.1f}% of the engine's rate in S2{mark}.")
    num_disturbed = sum(run["is_disturbed"] for run in runs)
    if num_disturbed:
        found.append(f"Other processes disturbed {num_disturbed} of {len(runs)} runs.")
    num_cut = sum(run["is_cut"] for run in runs)
    if num_cut:
        found.append(f"{num_cut} runs were cut at the time limit (~).")
    if results.num_errors():
        found.append(f"{results.num_errors()} requests failed; their runs do not count.")
    return "\n".join(found) + "\n" if found else ""


def _ratio(figure: Figure, ours: Cell, theirs: Cell | None) -> str:
    if theirs is None or theirs.value <= 0:  # a run that was cut before its first token has rate 0
        return DASH
    mark = "~" if ours.is_cut or theirs.is_cut else ""
    star = "\\*" if ours.is_disturbed or theirs.is_disturbed else ""
    return f"{mark}{figure.ratio(ours.value, theirs.value):.2f}x{star}"


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
