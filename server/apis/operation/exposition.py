"""The text format of Prometheus: OpenMetrics' writer would replace the colon in vLLM's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from core.observe.histogram import Counts
from server.apis.operation.metrics import Metric, MetricValues, Values

_FAMILIES: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}

_process = ProcessCollector(registry=None)


class _Page(Collector):
    def __init__(self, values: MetricValues, model_name: str) -> None:
        self._values, self._model_name = values, model_name

    def collect(self) -> Iterator[Family]:
        for metric, found in self._values:
            yield _family(metric, metric.name, found, {})
        labels = {"model_name": self._model_name, "engine": "0"}
        for metric, found in self._values:
            if metric.twin:
                yield _family(metric, metric.twin, found, labels)
        yield from _process.collect()


def render(values: MetricValues, *, model_name: str) -> bytes:
    """The page; ``model_name`` labels vLLM's metrics. Any thread; it takes milliseconds."""
    return generate_latest(_Page(values, model_name))


def _family(metric: Metric, name: str, values: Values, more: Mapping[str, str]) -> Family:
    """``more`` are labels of every value."""
    family: Any = _FAMILIES[metric.kind](name, metric.help, labels=[*more, *metric.labels])
    for label_values, value in values.items():
        all_values = [*more.values(), *label_values]
        if not isinstance(value, Counts):
            family.add_metric(all_values, value)
        elif metric.kind != "histogram":
            raise TypeError(f"{name} is no histogram")
        else:
            names = [*map(floatToGoString, value.bounds), "+Inf"]
            buckets = list(zip(names, accumulate(value.counts), strict=True))
            family.add_metric(all_values, buckets, value.total)
    return cast("Family", family)
