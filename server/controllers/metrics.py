"""GET /metrics: counters and histograms for Prometheus."""

from __future__ import annotations

from anyio import CapacityLimiter, to_thread
from litestar import Controller, Response, get
from litestar.di import NamedDependency

from server.metrics.definitions import MetricValues
from server.metrics.table import read_all
from server.openapi.responses import returns_text
from server.serving import Serving

_renderers = CapacityLimiter(1)
"""Pages that are made at once."""


class MetricsController(Controller):
    path = "/"
    tags = ("Operation",)

    @get("/metrics", responses=returns_text("Prometheus' text format.", 500))
    async def metrics(self, serving: NamedDependency[Serving]) -> Response[bytes]:
        """Counters, gauges and histograms for Prometheus."""
        body, media_type = await to_thread.run_sync(
            _render,
            read_all(serving),
            serving.settings.model_name,
            limiter=_renderers,
            abandon_on_cancel=True,
        )
        return Response(body, media_type=media_type)


def _render(values: MetricValues, model_name: str) -> tuple[bytes, str]:
    """The page and its media type."""
    # a server whose metrics nobody reads does not import Prometheus' client
    from server.metrics.exposition import MEDIA_TYPE, render  # noqa: PLC0415

    return render(values, model_name=model_name), MEDIA_TYPE
