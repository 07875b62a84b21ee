"""GET /health and /stats: for load balancers, operators and tests. Never authenticated."""

from __future__ import annotations

from typing import Any

from litestar import Controller, Response, get
from litestar.di import NamedDependency

from core.contract.messages import EngineStats
from schemas.health import HealthResponse
from server.bridge import State
from server.openapi import gives, gives_also
from server.serving import Serving


class HealthController(Controller):
    """Whether the server can work, and how much it does."""

    path = "/"
    tags = ("Operation",)
    opt: dict[str, Any] = {"public": True}  # noqa: RUF012 - Litestar reads it so

    @get(
        ["/health", "/v1/health"],
        sync_to_thread=False,
        responses=gives(HealthResponse, 500)
        | gives_also(503, HealthResponse, "No new work is taken: loading, draining or failed."),
    )
    def health(self, serving: NamedDependency[Serving]) -> Response[HealthResponse]:
        """200 while new work is taken, 503 otherwise."""
        state = serving.bridge.state
        return Response(
            HealthResponse(status=state.value),
            status_code=200 if state is State.READY else 503,
        )

    @get("/stats", sync_to_thread=False, responses=gives(EngineStats, 500))
    def stats(self, serving: NamedDependency[Serving]) -> EngineStats:
        """The engine's counters as of its last step."""
        return serving.bridge.stats
