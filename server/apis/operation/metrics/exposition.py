"""The text format of Prometheus.

OpenMetrics has no use here: it would add exemplars. prometheus-client's writer of it also replaces
the colon in vLLM's names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from core.histogram import Counts
from server.apis.operation.metrics.definitions import Metric, MetricValues, Values

MEDIA_TYPE = "text/plain; version=0.0.4"  # Litestar adds the charset

_process = ProcessCollector(registry=None)


class _Page(Collector):
    """A collector for prometheus-client."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def render(values: MetricValues, *, model_name: str) -> bytes:
    """Return the page. Any thread; it takes milliseconds.

    ``model_name`` is a label of the metrics with vLLM's names.
    """
    return generate_latest(_Page(_families(values, model_name)))


def _families(values: MetricValues, model_name: str) -> Iterator[Family]:
    twins = []
    labels_of_twins = {"model_name": model_name, "engine": "0"}
    for metric, found in values:
        yield _family(metric, metric.name, found, {})
        if metric.twin:
            twins.append(_family(metric, metric.twin, found, labels_of_twins))
    yield from twins
    yield from _process.collect()


def _family(metric: Metric, name: str, values: Values, more: Mapping[str, str]) -> Family:
    """``more`` are labels of every value."""
    names = [*more, *metric.labels]
    match metric.kind:
        case "counter":
            family: Family = CounterMetricFamily(name, metric.help, labels=names)
        case "gauge":
            family = GaugeMetricFamily(name, metric.help, labels=names)
        case "histogram":
            family = HistogramMetricFamily(name, metric.help, labels=names)
    for labels, value in values.items():
        _add(family, [*more.values(), *labels], value)
    return family


def _add(family: Family, labels: list[str], value: float | Counts) -> None:
    if isinstance(family, HistogramMetricFamily) and isinstance(value, Counts):
        names = [*map(floatToGoString, value.bounds), "+Inf"]
        buckets = list(zip(names, accumulate(value.counts), strict=True))
        family.add_metric(labels, buckets, value.total)
    elif isinstance(family, CounterMetricFamily | GaugeMetricFamily) and not isinstance(
        value, Counts
    ):
        family.add_metric(labels, value)
    else:
        raise TypeError(f"{family.name} is no {type(value).__name__}")
