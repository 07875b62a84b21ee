"""Makes the Markdown tables of RESULTS.md from the lines that ``benchmarks.compare`` wrote.

    python -m benchmarks.table results.jsonl [more.jsonl] [--into benchmarks/RESULTS.md]

Prints them, or replaces the text between two marks of a document. Figures are medians of the
undisturbed runs; a star marks figures of disturbed runs, a tilde those of runs that were cut. In
brackets stands the share of the limit that was measured beside the run, and its range over the
probes of the run. An exclamation mark says that their limits differ by more than a tenth, and ``≈``
that the memory of a ratio's two servers did.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.lines import Line, read_lines
from benchmarks.results import (
    DASH,
    FIGURES,
    IN_PROCESS,
    STREAMS,
    US,
    Figure,
    Group,
    Results,
    groups_of,
    probes_of,
    rounded,
)

BEGIN, END = "<!-- begin: made by benchmarks/table.py -->", "<!-- end -->"

_STAMP = re.compile(r"^\d\d-\d\d [\d:]+ (\[\S+:\d+\] )?")
"""Time and place at the start of a line of vLLM's log."""


def tables(lines: Sequence[Line]) -> str:
    """The machines and versions, the tables of every group, and the machines side by side."""
    parts = [preface(lines)]
    groups = {group: Results(runs) for group, runs in groups_of(lines).items()}
    for group, results in groups.items():
        parts.append(f"### {group.title}\n")
        parts.append(figures_table(results))
        parts.append(streams_table(results))
        parts.append(ratios_table(results, US, results.peers(is_quantized=False)))
        parts += [
            ratios_table(results, us, results.peers(is_quantized=True))
            for us in results.ours()
            if results.bits(us) is not None
        ]
        parts.append(_remarks(results))
    parts.append(side_by_side(groups))
    messages = []
    for line in lines:
        if line["kind"] == "failure":
            messages.append(
                f"{line['model']}: {line['contender']} did not run: {line['message']}\n"
            )
        elif line["kind"] == "warning":
            text = _STAMP.sub("", line["message"])
            messages.append(f"{line['contender']} warned: {text}\n")
    parts += dict.fromkeys(messages)
    return "\n".join(part for part in parts if part)


def figures_table(results: Results) -> str:
    """A row for each figure, a column for each contender: the median, and its share of the limit.

    The last column is the limit of plain weights.
    """
    limit = f"*limit, {results.weights(US)}*" if US in results.contenders else None
    rows = [["", *results.contenders, *([limit] if limit else [])]]
    for figure in results.figures:
        cells = [cell_with_share(results, contender, figure) for contender in results.contenders]
        if limit:
            floor = results.floor(US, figure)
            cells.append(DASH if floor is None else rounded(floor))
        rows.append([figure.label, *cells])
    runs = [results.num_runs(contender) for contender in results.contenders]
    rows.append(["runs", *runs, *([""] if limit else [])])
    return markdown(rows)


def streams_table(results: Results) -> str:
    """Tokens per second by the number of streams: a row for each contender, then our ratio."""
    figures = results.streams
    if not figures:
        return ""
    rows = [["tok/s by streams", *(figure.scenario.removeprefix("streams-") for figure in figures)]]
    for contender in results.contenders:
        if any(results.cell(contender, figure) for figure in figures):
            cells = [cell_with_share(results, contender, figure) for figure in figures]
            rows.append([contender, *cells])
    best = [results.best_peer(US, figure) for figure in figures]
    if any(best):
        cells = [
            f"{results.ratio(US, found[0], figure)} ({found[0]})" if found else DASH
            for found, figure in zip(best, figures, strict=True)
        ]
        rows.append([f"{US} against the best", *cells])
    return markdown(rows)


def ratios_table(results: Results, us: str, peers: Sequence[str]) -> str:
    """The ratio of one of our contenders to each peer."""
    if not peers:
        return ""
    rows = [[f"{us} against", *peers]]
    for figure in results.figures:
        ours = results.cell(us, figure)
        if not figure.is_compared or ours is None or not ours.value:
            continue
        ratios = [results.ratio(us, peer, figure) for peer in peers]
        if any(ratio != DASH for ratio in ratios):
            rows.append([figure.label, *ratios])
    return markdown(rows) if len(rows) > 1 else ""


def side_by_side(groups: Mapping[Group, Results]) -> str:
    """Each model on every machine; empty with one machine.

    A cell: our figure, its share of that machine's limit, and the ratio to the best peer there.
    """
    machines = list(dict.fromkeys(group.machine for group in groups))
    if len(machines) < 2:
        return ""
    parts = ["### Machines side by side\n"]
    for model in dict.fromkeys(group.model for group in groups):
        columns = [(group, found) for group, found in groups.items() if group.model == model]
        if len({group.machine for group, _ in columns}) < 2:
            continue
        rows = [[model, *(group.place for group, _ in columns)]]
        for us in dict.fromkeys(us for _, found in columns for us in found.ours()):
            for figure in (*FIGURES, *STREAMS):
                cells = [_beside_peers(found, us, figure) for _, found in columns]
                if figure.is_compared and any(cell != DASH for cell in cells):
                    kind = us.removeprefix(US).strip()
                    name = f"{figure.label}, {kind}" if kind else figure.label
                    rows.append([name, *cells])
        parts.append(markdown(rows))
    return "\n".join(parts) if len(parts) > 1 else ""


def cell_with_share(results: Results, contender: str, figure: Figure) -> str:
    """The median of a figure, and its share of the limit if it has one."""
    cell, share = results.cell(contender, figure), results.share(contender, figure)
    if cell is None:
        return DASH
    return str(cell) if share is None else f"{cell} ({share})"


def _beside_peers(results: Results, us: str, figure: Figure) -> str:
    shown = cell_with_share(results, us, figure)
    best = results.best_peer(us, figure)
    return shown if best is None else f"{shown}, {results.ratio(us, best[0], figure)} {best[0]}"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its head, the first column its names."""
    head, *body = rows
    marks = ["---", *["--:" for _ in head[1:]]]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, marks, *body]) + "\n"


def put_into(document: str, made: str, mark: str = BEGIN) -> str:
    """Replace the text between the marks of a document. Raises ValueError without marks."""
    before, begin, rest = document.partition(mark)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no {mark} ... {END}")
    return f"{before}{mark}\n\n{made.strip()}\n\n{END}{after}"


def preface(lines: Sequence[Line]) -> str:
    """Time, machine, versions and command of each session; slices of one comparison are one."""
    probes: dict[str, list[Line]] = {}
    for line in lines:
        if line["kind"] == "run":
            probes.setdefault(line["session"], []).extend(probes_of(line))
    slices: dict[str, list[Line]] = {}
    for session in (line for line in lines if line["kind"] == "session"):
        same = json.dumps([session["machine"], session["contenders"], session["command"]])
        slices.setdefault(same, []).append(session)
    parts = []
    for sessions in slices.values():
        first = sessions[0]
        machine = first["machine"]
        times = ", ".join(session["session"] for session in sessions)
        parts.append(
            f"**{times}** on {machine['cpu']} (family/model {machine['cpu_family']}; "
            f"{', '.join(machine['features']) or 'features unknown'}), {machine['cores']} cores, "
            f"{machine['memory_gib']} GiB, {machine['system']}, Python {machine['python']}.\n"
        )
        found = [probe for session in sessions for probe in probes.get(session["session"], [])]
        if found:
            gemm = ", ".join(f"{name} {rate:.0f}" for name, rate in first["gemm_gflops"].items())
            parts.append(
                f"Probes: read bandwidth {_range(found, 'read_gbs')} GB/s, "
                f"float32 multiply-adds {_range(found, 'fma_gflops')} GFLOP/s{_products(found)}; "
                f"torch's matrix products: {gemm} GFLOP/s.\n"
            )
        parts += [f"- {name}: {versions}" for name, versions in first["contenders"].items()]
        parts.append(f"\n```sh\n{first['command']}\n```\n")
    return "\n".join(parts)


def _range(probes: Sequence[Line], key: str) -> str:
    values = [probe[key] for probe in probes]
    middle = statistics.median(values)
    return f"{middle:.0f} ({min(values):.0f} to {max(values):.0f})"


def _products(probes: Sequence[Line]) -> str:
    """The rates of products in registers, which older probes do not have."""
    found = [probe["products"] for probe in probes if probe.get("products")]
    kinds = found[0] if found else {}
    shown = ", ".join(f"{kind} {_range(found, kind)}" for kind in kinds)
    return f"; products in registers: {shown} GFLOP/s" if shown else ""


def _remarks(results: Results) -> str:
    """The cost of HTTP, and the numbers of disturbed, cut and failed runs."""
    found = []
    rate = Figure(scenario="s2", key="tok_s", title="tok/s", is_rate=True)
    over_http, in_process = results.cell(US, rate), results.cell(IN_PROCESS, rate)
    if over_http and in_process and not (over_http.is_cut or in_process.is_cut):
        cost = 100 * (1 - over_http.value / in_process.value)
        mark = ", disturbed" if over_http.is_disturbed or in_process.is_disturbed else ""
        found.append(f"HTTP and its client cost {cost:.1f}% of the engine's rate in S2{mark}.")
    if num_disturbed := results.count("is_disturbed"):
        found.append(f"Other processes disturbed {num_disturbed} of {len(results.runs)} runs.")
    if num_cut := results.count("is_cut"):
        found.append(f"{num_cut} runs were cut at the time limit (~).")
    if num_errors := results.count("num_errors"):
        found.append(f"{num_errors} requests failed; their runs do not count.")
    return "\n".join(found) + "\n" if found else ""


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
