"""GET /metrics of the router, by model."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from schemas.route import RouterStats

GAUGES = {
    "requests_running": ("num_running", "Requests that the model's servers have."),
    "requests_waiting": ("num_waiting", "Requests that wait until the model is loaded."),
    "last_load_seconds": ("last_load_seconds", "Seconds that the last load took."),
}
COUNTERS = {
    "requests": ("num_requests", "Requests for the model."),
    "answers": ("num_answers", "Answers that were passed on to their end."),
    "cut_answers": ("num_cut", "Answers that broke off in the middle."),
    "refusals": (
        "num_refused",
        "Requests that the router refused, or whose server gave no answer.",
    ),
    "retries": ("num_retries", "Requests that were sent to another server."),
    "server_failures": (
        "num_failed",
        "Requests whose server could not be reached or gave no answer.",
    ),
    "pieces": ("num_pieces", "Writes of answers that were passed on."),
    "loads": ("num_loads", "Times that the model's process got ready."),
    "unloads": ("num_unloads", "Times that the model's process was ended."),
    "failed_loads": ("num_failed_loads", "Times that the model's process did not get ready."),
    "crashes": ("num_crashes", "Times that the model's process ended by itself."),
}
"""Name without ``roseinfer_route_``: the field of RoutedModelStats, and its help."""

PREFIX = "roseinfer_route_"


class _Page(Collector):
    def __init__(self, stats: RouterStats) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        models = self._stats.models.items()
        for make, table in ((GaugeMetricFamily, GAUGES), (CounterMetricFamily, COUNTERS)):
            for name, (field, text) in table.items():
                family = make(PREFIX + name, text, labels=["model"])
                for model, stats in models:
                    family.add_metric([model], getattr(stats, field))
                yield family
        state = GaugeMetricFamily(
            PREFIX + "model_state", "1 for the state of the model.", labels=["model", "state"]
        )
        server = GaugeMetricFamily(
            PREFIX + "server_available",
            "1: the server gets requests before those that have failed.",
            labels=["model", "server"],
        )
        for model, stats in models:
            state.add_metric([model, stats.state], 1)
            for one in stats.servers:
                server.add_metric([model, one.address], int(one.is_available))
        yield state
        yield server
        yield GaugeMetricFamily(
            PREFIX + "requests_open", "Requests that are open.", value=self._stats.num_open
        )


def render(stats: RouterStats, accept: str) -> tuple[bytes, str]:
    """Return the page and its media type, in the format that ``accept`` asks for."""
    encode, media_type = choose_encoder(accept)
    return encode(_Page(stats)), media_type
