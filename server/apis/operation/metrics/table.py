"""METRICS: all metrics, in the order of the page."""

from __future__ import annotations

from server.apis.operation.metrics.definitions import Metric, MetricValues
from server.apis.operation.metrics.engine import ENGINE_METRICS
from server.apis.operation.metrics.requests import FRONT_METRICS, REQUEST_METRICS
from server.generation.serving import Serving

METRICS: tuple[Metric, ...] = (*REQUEST_METRICS, *ENGINE_METRICS, *FRONT_METRICS)


def read_all(serving: Serving) -> MetricValues:
    """The values of all metrics now. Event loop only."""
    return [(metric, metric.values(serving)) for metric in METRICS]
