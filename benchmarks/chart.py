"""Draws the comparison with other servers as an SVG, from the lines of ``benchmarks.compare``.

    python -m benchmarks.chart [benchmarks/results.jsonl ...] [--out docs/images/benchmarks.svg]

Shows every machine of the files, the last one first: for each model one row of bars per server,
roseinfer first, then the servers with quantized weights. A model without any of the columns'
scenarios is left out. The bars of a column share a scale within a model. A tilde marks figures of
runs that were cut at the time limit. The colors follow the reader's light or dark scheme. The same
lines always give the same bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.drawing import svg
from benchmarks.lines import Line, machine_name, read_lines
from benchmarks.results import US, Cell, Figure, Results, groups_of, rounded

DEFAULT_RESULTS = Path("benchmarks/results.jsonl")
DEFAULT_OUT = Path("docs/images/benchmarks.svg")

MODELS = {
    "gpt2": "GPT-2",
    "qwen3-0.6b": "Qwen3-0.6B",
    "qwen3-8b": "Qwen3-8B",
    "smollm2": "SmolLM2-135M",
}

WIDTH = 960
MARGIN = 24
LABEL_WIDTH = 176
COLUMN_WIDTH = 245
BAR_WIDTH = 168
"""Length of the longest bar; its value stands beside it."""

BAR_HEIGHT = 14
ROW_HEIGHT = 22
HEAD_HEIGHT = 92
MACHINE_HEIGHT = 28
MODEL_HEIGHT = 34
FOOT_HEIGHT = 40

_LIGHT = """\
  .head, .model, .us { font-weight: bold; }
  .rule { stroke: #d0d7de; }
  .bar-us { fill: #cf2f5b; }
  .bar-int8 { fill: #e88ba3; }
  .bar-peer { fill: #6b7d93; }
  .bar-quantized { fill: #a9b6c6; }"""

_DARK = """\
    .rule { stroke: #3d444d; }
    .bar-us { fill: #e5537b; }
    .bar-int8 { fill: #9c3d57; }
    .bar-peer { fill: #8b98a9; }
    .bar-quantized { fill: #55606e; }"""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A figure as a column of bars. ``per_second``: show 1000 / value of a time in ms."""

    figure: Figure
    title: str
    note: str
    per_second: bool = False

    def value(self, cell: Cell) -> float:
        return 1000 / cell.value if self.per_second else cell.value


COLUMNS = (
    Column(
        figure=Figure(scenario="s1", key="tpot_p50_ms", title="TPOT"),
        title="One stream, tokens/s",
        note="higher is better",
        per_second=True,
    ),
    Column(
        figure=Figure(scenario="s2", key="tok_s", title="tok/s", is_rate=True),
        title="64 requests, tokens/s",
        note="20 ms apart; higher is better",
    ),
    Column(
        figure=Figure(scenario="s2", key="rss_mb", title="resident MB"),
        title="Resident memory, MB",
        note="after 64 requests; lower is better",
    ),
)


def chart(lines: Sequence[Line]) -> str:
    """The SVG document. Raises IndexError without results."""
    body: list[str] = []
    y = HEAD_HEIGHT
    for session, models in _machines(lines):
        body += _machine(session, y)
        y += MACHINE_HEIGHT
        for model, results in models.items():
            body += _model(MODELS.get(model, model), results, y)
            y += MODEL_HEIGHT + ROW_HEIGHT * len(_contenders(results))
    return "\n".join([*_head(y + FOOT_HEIGHT), *body, *_foot(y), "</svg>", ""])


def _machines(lines: Sequence[Line]) -> list[tuple[Line, dict[str, Results]]]:
    """The last session of every machine, and its models' last groups; the last machine first."""
    sessions = {machine_name(line["machine"]): line for line in lines if line["kind"] == "session"}
    models: dict[str, dict[str, Results]] = {machine: {} for machine in sessions}
    shown = {column.figure.scenario for column in COLUMNS}
    for group, runs in groups_of(lines).items():
        if any(run["scenario"] in shown for run in runs):
            models[group.machine][group.model] = Results(runs)
    found = [(session, models[machine]) for machine, session in sessions.items()]
    return sorted(found, key=lambda pair: pair[0]["session"], reverse=True)


def _contenders(results: Results) -> list[str]:
    """Plain weights first; within them roseinfer first."""
    plain, *quantized = results.ours() or [US]
    peers = results.peers
    shown = [plain, *peers(is_quantized=False), *quantized, *peers(is_quantized=True)]
    return [name for name in shown if name in results.contenders]


def _head(height: int) -> list[str]:
    title = "roseinfer and other servers on the same machine"
    columns = "; ".join(column.title for column in COLUMNS)
    about = f"Bars by model and server: {columns}."
    parts = svg.opening(WIDTH, height, title, about, svg.style(_LIGHT, _DARK))
    parts.append(svg.text(MARGIN, 34, title, "title"))
    for number, column in enumerate(COLUMNS):
        parts.append(svg.text(_x(number), 66, column.title, "head"))
        parts.append(svg.text(_x(number), 83, column.note, "note"))
    return parts


def _machine(session: Line, y: int) -> list[str]:
    machine = session["machine"]
    where = f"{machine['cpu']} ({machine_name(machine)}), {session['session'][:10]}"
    scale = "" if session["scale"] == 1 else f"; {session['scale']:g} of each scenario's work"
    return [
        svg.line(MARGIN, y, WIDTH - MARGIN, y, "rule"),
        svg.text(MARGIN, y + 20, f"{where}{scale}", "note"),
    ]


def _model(name: str, results: Results, y: int) -> list[str]:
    parts = [svg.text(MARGIN, y + 22, name, "model")]
    contenders = _contenders(results)
    for row, contender in enumerate(contenders):
        baseline = y + MODEL_HEIGHT + ROW_HEIGHT * row + 11
        label = f"roseinfer {results.weights(US)}" if contender == US else contender
        parts.append(svg.text(MARGIN + 12, baseline, label, "us" if contender == US else ""))
    for number, column in enumerate(COLUMNS):
        cells = [results.cell(contender, column.figure) for contender in contenders]
        longest = max((column.value(cell) for cell in cells if cell), default=1.0)
        for row, (contender, cell) in enumerate(zip(contenders, cells, strict=True)):
            top = y + MODEL_HEIGHT + ROW_HEIGHT * row
            kind = _kind(contender, results)
            parts += _bar(_x(number), top, column, cell, longest, kind)
    return parts


def _bar(
    x: int, top: int, column: Column, cell: Cell | None, longest: float, kind: str
) -> list[str]:
    if cell is None:
        return [svg.text(x, top + 11, "not measured", "note")]
    value = column.value(cell)
    width = max(1.0, BAR_WIDTH * value / longest)
    shown = f"{'~' if cell.is_cut else ''}{rounded(value)}"
    box = f'x="{x}" y="{top - 1}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2"'
    return [
        f'<rect class="bar-{kind}" {box}/>',
        svg.text(round(x + width + 6), top + 11, shown, "us" if kind == "us" else ""),
    ]


def _kind(contender: str, results: Results) -> str:
    if contender in results.ours():
        return "us" if contender == US else "int8"
    return "quantized" if contender in results.peers(is_quantized=True) else "peer"


def _foot(y: int) -> list[str]:
    notes = "Medians. A tilde marks runs that were cut at the time limit."
    where = "Versions, commands, limits: benchmarks/RESULTS.md"
    return [
        svg.line(MARGIN, y, WIDTH - MARGIN, y, "rule"),
        svg.text(MARGIN, y + 24, f"{notes} {where}", "note"),
    ]


def _x(column: int) -> int:
    return MARGIN + LABEL_WIDTH + COLUMN_WIDTH * column


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, default=[DEFAULT_RESULTS])
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(chart(read_lines(options.files)), "utf-8")


if __name__ == "__main__":
    main()
