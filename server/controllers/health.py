"""GET /health, /livez and /readyz, which need no API key, and /stats."""

from __future__ import annotations

from litestar import Controller, Response, get
from litestar.di import NamedDependency

from schemas.health import HealthResponse
from schemas.stats import ServerStats
from server.bridge import State
from server.openapi.responses import also_returns, returns
from server.probes import liveness, readiness
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

    @get(
        "/livez",
        opt={"public": True},
        sync_to_thread=False,
        responses=returns(HealthResponse, 500)
        | also_returns(503, HealthResponse, "The process should be restarted."),
    )
    def livez(self, serving: NamedDependency[Serving]) -> Response[HealthResponse]:
        """503 if the engine has failed or hangs: restart the process. Else 200."""
        return _probed(liveness(serving.bridge))

    @get(
        "/readyz",
        opt={"public": True},
        sync_to_thread=False,
        responses=returns(HealthResponse, 500)
        | also_returns(503, HealthResponse, "The server should get no requests now."),
    )
    def readyz(self, serving: NamedDependency[Serving]) -> Response[HealthResponse]:
        """503 if the server does not accept new work, or makes no progress. Else 200."""
        return _probed(readiness(serving.bridge))

    @get("/stats", sync_to_thread=False, responses=returns(ServerStats, 500))
    def stats(self, serving: NamedDependency[Serving]) -> ServerStats:
        """Counters of the engine, of the event loop and of admission."""
        return statistics(serving)


def _probed(response: HealthResponse) -> Response[HealthResponse]:
    return Response(response, status_code=200 if response.status == "ok" else 503)
