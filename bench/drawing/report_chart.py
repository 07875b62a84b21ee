"""The chart of ``roseinfer bench``: latency distributions, and throughput against latency.

The same reports always give the same bytes.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.drawing import svg
from bench.drawing.plot import Axis, Curve, Plot
from bench.report import Report, describe

MARGIN = 24
COLUMN, ROW = 446, 284
HEAD = 84
LEGEND = 24
MAX_CURVES = 6
"""Levels of a sweep in a distribution. More would hide each other; first and last are kept."""

TAIL = 99
"""The distributions end at this percentile: one outlier would flatten all the rest."""

_LIGHT = """\
  .head { font-weight: bold; }
  .rule { stroke: #d0d7de; }
  .curve { fill: none; stroke-width: 2; }
  .c0 { stroke: #cf2f5b; } .c1 { stroke: #2f6fcf; } .c2 { stroke: #2f8f5b; }
  .c3 { stroke: #b5762a; } .c4 { stroke: #7d4fbf; } .c5 { stroke: #6b7d93; }
  .point { fill: #ffffff; stroke-width: 2; }"""

_DARK = """\
    .rule { stroke: #3d444d; }
    .point { fill: #0d1117; }"""

PANELS = {
    "ttft_ms": "Time to first token",
    "itl_ms": "Inter-token latency",
    "latency_ms": "Latency of a request",
}


def report_chart(reports: Sequence[Report]) -> str:
    """Return the SVG document: one report, or those of a sweep in the order of concurrency."""
    shown = _spread_out(reports)
    plots = [
        _distribution(title, [_curve(report, name) for report in shown])
        for name, title in PANELS.items()
    ]
    if len(reports) > 1:
        plots.insert(0, _throughput(reports))
    num_rows = -(-len(plots) // 2)
    names = [_name(report) for report in shown] if len(reports) > 1 else []
    height = HEAD + ROW * num_rows + LEGEND * bool(names) + MARGIN
    title = f"roseinfer bench: {reports[0].target}"
    about = "; ".join(plot.title for plot in plots)
    parts = svg.opening(2 * COLUMN + 2 * MARGIN, height, title, about, svg.style(_LIGHT, _DARK))
    parts.append(svg.text(MARGIN, 34, title, "title"))
    parts.append(svg.text(MARGIN, 56, _subtitle(reports), "note"))
    for index, plot in enumerate(plots):
        parts += plot.draw(MARGIN + COLUMN * (index % 2), HEAD + ROW * (index // 2))
    for index, name in enumerate(names):
        x, y = MARGIN + 140 * index, HEAD + ROW * num_rows + 12
        parts.append(svg.line(x, y - 4, x + 20, y - 4, f"curve c{index}"))
        parts.append(svg.text(x + 26, y, name, "note"))
    return "\n".join([*parts, "</svg>", ""])


def _spread_out(reports: Sequence[Report]) -> list[Report]:
    """At most MAX_CURVES of them, evenly, the first and the last among them."""
    last = len(reports) - 1
    count = min(len(reports), MAX_CURVES)
    return [reports[round(last * i / max(1, count - 1))] for i in range(count)]


def _distribution(title: str, curves: Sequence[Sequence[float]]) -> Plot:
    """The share of values up to each, from the percentiles of each report."""
    most = max((curve[TAIL] for curve in curves if curve), default=1.0)
    return Plot(
        title,
        Axis.up_to(f"ms, up to the {TAIL}th percentile", most),
        Axis("% of all, cumulated", (0, 25, 50, 75, 100)),
        [
            Curve([(value, i) for i, value in enumerate(curve[: TAIL + 1])], f"c{index}")
            for index, curve in enumerate(curves)
        ],
    )


def _throughput(reports: Sequence[Report]) -> Plot:
    points, labels = [], []
    for report in reports:
        client = report.median.client
        if client.tpot_ms is not None:
            points.append((client.tpot_ms.p50, client.output_tok_s))
            labels.append(str(report.settings.pace.concurrency))
    return Plot(
        "Throughput against latency, by concurrency",
        Axis.up_to("ms per output token, median", max((x for x, _ in points), default=1.0)),
        Axis.up_to("output tokens/s", max((y for _, y in points), default=1.0)),
        [Curve(points, "c0", labels)],
    )


def _curve(report: Report, name: str) -> list[float]:
    """The percentiles from 0 to 100, each the median over the runs; empty without values."""
    curves = [getattr(run.curves, name) for run in report.runs if run.curves is not None]
    known = [curve for curve in curves if curve]
    return [statistics.median(values) for values in zip(*known, strict=True)]


def _subtitle(reports: Sequence[Report]) -> str:
    machine = reports[0].machine
    where = f"{machine['processor']}, {machine['cpus']} CPUs"
    return f"{describe(reports[0].settings, with_concurrency=len(reports) == 1)}; {where}"


def _name(report: Report) -> str:
    return f"{report.settings.pace.concurrency} in flight"
