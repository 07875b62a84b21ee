"""Draws goodput and TTFT over load, one curve for each policy, as an SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.drawing import svg
from bench.drawing.plot import Axis, Curve, Plot
from benchmarks.fleet.compare import Line
from benchmarks.fleet.simulate import Goal

WIDTH, HEIGHT = 960, 400
MARGIN = 24

COLORS = ("#cf2f5b", "#6b7d93", "#b7791f", "#2f7fcf", "#4a8f4a", "#8a5fbf")
"""Of curves, by policy."""

_LIGHT = """\
  .head { font-weight: bold; }
  .rule { stroke: #d0d7de; }
  .curve { fill: none; stroke-width: 2; }"""


def chart(lines: Sequence[Line], machine: str, goal: Goal) -> str:
    """The SVG document. The same lines always give the same bytes."""
    policies = list(dict.fromkeys(line.case.policy for line in lines))
    title = f"{lines[0].case.num_replicas} replicas by routing policy, simulated"
    about = f"A replica: {machine}"
    parts = svg.opening(WIDTH, HEIGHT, title, f"Goodput and TTFT over load. {about}", _rules())
    parts.append(svg.text(MARGIN, 36, title, "title"))
    parts.append(svg.text(MARGIN, 56, about, "note"))
    good = f"TTFT up to {goal.ttft:g} s, TPOT up to {1e3 * goal.tpot:g} ms"
    most = 2 * goal.ttft
    plots = (
        ("Good requests", f"per second and replica; good: {good}", _goodput),
        ("Time to first token, p99", f"s, cut at {most:g}", lambda x: min(x.ttft_p99, most)),
    )
    for i, (name, label, value) in enumerate(plots):
        parts += _plot(lines, policies, name, label, value).draw(MARGIN + 460 * i, 76)
    for i, policy in enumerate(policies):
        x = MARGIN + 150 * i
        parts.append(svg.path([(x, HEIGHT - 26), (x + 24, HEIGHT - 26)], f"curve {_kind(i)}"))
        parts.append(svg.text(x + 30, HEIGHT - 22, policy))
    return "\n".join([*parts, "</svg>", ""])


def _rules() -> str:
    colors = [
        f"  .{_kind(i)} {{ stroke: {color}; }}\n  .point.{_kind(i)} {{ fill: {color}; }}"
        for i, color in enumerate(COLORS)
    ]
    return svg.style("\n".join([_LIGHT, *colors]), "    .rule { stroke: #3d444d; }")


def _plot(
    lines: Sequence[Line],
    policies: Sequence[str],
    name: str,
    label: str,
    value: Callable[[Line], float],
) -> Plot:
    curves = [
        Curve(
            [(line.case.sessions, value(line)) for line in lines if line.case.policy == policy],
            _kind(i),
        )
        for i, policy in enumerate(policies)
    ]
    x = Axis.up_to(
        "conversations begun per minute and replica", max(x.case.sessions for x in lines)
    )
    y = Axis.up_to(label, max(map(value, lines)))
    return Plot(name, x, y, curves, width=440, height=270)


def _goodput(line: Line) -> float:
    return line.goodput / line.case.num_replicas


def _kind(index: int) -> str:
    return f"p{index}"
