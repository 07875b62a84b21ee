"""GET /health, which needs no API key, and /stats."""

from __future__ import annotations

from litestar import Controller, Response, get
from litestar.di import NamedDependency

from schemas.health import HealthResponse
from schemas.stats import ServerStats
from server.bridge import State
from server.openapi.responses import also_returns, returns
from server.serving import Serving
from server.statistics import statistics


class HealthController(Controller):
    path = "/"
    tags = ("Operation",)

    @get(
        ["/health", "/v1/health"],
        opt={"public": True},
        sync_to_thread=False,
        responses=returns(HealthResponse, 500)
        | also_returns(503, HealthResponse, "The server is loading, draining or failed."),
    )
    def health(self, serving: NamedDependency[Serving]) -> Response[HealthResponse]:
        """200 if the server accepts new work, else 503."""
        state = serving.bridge.state
        return Response(
            HealthResponse(status=state.value),
            status_code=200 if state is State.READY else 503,
        )

    @get("/stats", sync_to_thread=False, responses=returns(ServerStats, 500))
    def stats(self, serving: NamedDependency[Serving]) -> ServerStats:
        """Counters of the engine, of the event loop and of admission."""
        return statistics(serving)
