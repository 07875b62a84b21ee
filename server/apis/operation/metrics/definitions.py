"""Metric: one metric, as data. The endpoint, the table in the docs and tests are made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from core.histogram import Counts
from server.generation.serving import Serving

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

Number: TypeAlias = float | Counts
"""A value: a number, or the counts of a histogram."""

Values: TypeAlias = Mapping[tuple[str, ...], Number]
"""The values of one metric by the values of its labels."""


MetricValues: TypeAlias = list[tuple["Metric", Values]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. Names of counters end in ``_total``.

    ``read`` returns the value now; with ``labels`` the values by the values of these labels. It is
    called on the event loop and takes microseconds. ``twin`` is the name under which vLLM has the
    same number.
    """

    name: str
    kind: Kind
    help: str
    read: Callable[[Serving], Number | Values]
    labels: tuple[str, ...] = ()
    twin: str = ""

    def values(self, serving: Serving) -> Values:
        """The values now, by the values of the labels."""
        value = self.read(serving)
        return value if isinstance(value, Mapping) else {(): value}


def by_label(values: Mapping[str, Number]) -> Values:
    """The values of a metric with one label."""
    return {(label,): value for label, value in values.items()}
