"""Plot: lines over two axes in a rectangle of a chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.drawing import svg

NUM_TICKS = 5
LEFT, BOTTOM = 52, 34
"""Pixels for the numbers of the axes."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from 0 to its last tick."""

    label: str
    ticks: tuple[float, ...]

    @classmethod
    def up_to(cls, label: str, most: float) -> Axis:
        """Return an axis with room for ``most`` and ticks at round numbers."""
        step = _round_step(most / NUM_TICKS if most > 0 else 1.0)
        count = max(1, math.ceil(most / step - 1e-9))
        return cls(label, tuple(step * index for index in range(count + 1)))

    def share(self, value: float) -> float:
        """The position of a value on the axis, between 0 and 1."""
        return value / self.ticks[-1]


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through points. ``labels`` are drawn beside its points, which are then marked."""

    points: Sequence[tuple[float, float]]
    kind: str
    labels: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Plot:
    """A titled plot, ``width`` by ``height`` pixels."""

    title: str
    x: Axis
    y: Axis
    curves: Sequence[Curve]
    width: int = 430
    height: int = 260

    def draw(self, left: int, top: int) -> list[str]:
        """Draw it with its upper left corner there."""
        parts = [svg.text(left, top + 14, self.title, "head")]
        x0, y0 = left + LEFT, top + self.height - BOTTOM
        width, height = self.width - LEFT - 16, self.height - BOTTOM - 40

        def at(x: float, y: float) -> tuple[float, float]:
            return x0 + width * self.x.share(x), y0 - height * self.y.share(y)

        for tick in self.y.ticks:
            y = at(0, tick)[1]
            parts.append(svg.line(x0, round(y, 1), x0 + width, round(y, 1), "rule"))
            parts.append(svg.text(x0 - 6, round(y + 4, 1), shown(tick), "note", "end"))
        for tick in self.x.ticks:
            x = round(at(tick, 0)[0], 1)
            parts.append(svg.text(x, y0 + 16, shown(tick), "note", "middle"))
        parts.append(svg.text(x0, top + 32, self.y.label, "note", "start"))
        parts.append(svg.text(x0 + width, y0 + 31, self.x.label, "note", "end"))
        for curve in self.curves:
            points = [at(x, y) for x, y in curve.points]
            parts.append(svg.path(points, f"curve {curve.kind}"))
            for (x, y), label in zip(points, curve.labels, strict=False):
                parts.append(svg.dot(x, y, f"point {curve.kind}"))
                parts.append(svg.text(round(x + 6, 1), round(y - 6, 1), label, "note"))
        return parts


def shown(value: float) -> str:
    """Write a tick's number without needless digits."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.3g}"


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= least * (1 - 1e-9))
