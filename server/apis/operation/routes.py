"""Routes of the operator: health, statistics, metrics, records of requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from anyio import CapacityLimiter, to_thread
from litestar import Controller, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, QueryParameter
from litestar.types import AnyCallable

from schemas.health import HealthResponse
from schemas.records import RequestList, RequestRecord
from schemas.stats import ServerStats
from server.apis.operation.health import liveness, readiness, statistics
from server.apis.operation.metrics import MetricValues, read_all
from server.generation.serving import AnyRequest, ServingDep
from server.http.errors import APIError
from server.openapi.describe import described, returns
from server.tenants.tenant import tenant_of


def _probe(paths: str | list[str], refused: str) -> Callable[[AnyCallable], HTTPRouteHandler]:
    """A route that needs no API key and answers 200, or 503 for the reason ``refused``."""
    responses = returns(HealthResponse, 500) | {503: described(HealthResponse, refused)}
    return get(paths, opt={"public": True}, sync_to_thread=False, responses=responses)


def _probed(response: HealthResponse) -> Response[HealthResponse]:
    return Response(response, status_code=200 if response.status == "ok" else 503)


class HealthController(Controller):
    tags = ("Operation",)

    @_probe(["/health", "/v1/health"], "The server is loading, draining or failed.")
    def health(self, serving: ServingDep) -> Response[HealthResponse]:
        """200 if the server accepts new work, else 503."""
        return _probed(HealthResponse(status=serving.bridge.state.value))

    @_probe("/livez", "The process should be restarted.")
    def livez(self, serving: ServingDep) -> Response[HealthResponse]:
        """503 if the engine has failed or hangs: restart the process. Else 200."""
        return _probed(liveness(serving.bridge))

    @_probe("/readyz", "The server should get no requests now.")
    def readyz(self, serving: ServingDep) -> Response[HealthResponse]:
        """503 if the server does not accept new work, or makes no progress. Else 200."""
        return _probed(readiness(serving.bridge))

    @get("/stats", sync_to_thread=False, responses=returns(ServerStats, 500))
    def stats(self, serving: ServingDep) -> ServerStats:
        """Counters of the engine, of the event loop and of admission."""
        return statistics(serving)


_renderers = CapacityLimiter(1)  # pages of metrics that are made at once


class MetricsController(Controller):
    tags = ("Operation",)

    @get("/metrics", responses=returns(None, 500, description="Prometheus' text format."))
    async def metrics(self, serving: ServingDep) -> Response[bytes]:
        """Counters, gauges and histograms for Prometheus."""
        page = await to_thread.run_sync(
            _render,
            read_all(serving),
            serving.settings.model_name,
            limiter=_renderers,
            abandon_on_cancel=True,
        )
        # Litestar adds the charset
        return Response(page, media_type="text/plain; version=0.0.4")


def _render(values: MetricValues, model_name: str) -> bytes:
    # a server whose metrics nobody reads does not import Prometheus' client
    from server.apis.operation.exposition import render  # noqa: PLC0415

    return render(values, model_name=model_name)


class RequestController(Controller):
    path = "/requests"
    tags = ("Operation",)

    @get(sync_to_thread=False, responses=returns(RequestList, 400, 500))
    def latest(
        self,
        serving: ServingDep,
        request: AnyRequest,
        limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100,
    ) -> RequestList:
        """List the newest requests of this key, running ones included."""
        return RequestList(data=serving.records.latest(tenant_of(request.scope).name, limit))

    @get("/{request_id:str}", sync_to_thread=False, responses=returns(RequestRecord, 404, 500))
    def retrieve(
        self, request_id: FromPath[str], serving: ServingDep, request: AnyRequest
    ) -> RequestRecord:
        """Describe a request of this key, by its response's id or its x-request-id."""
        record = serving.records.find(tenant_of(request.scope).name, request_id)
        if record is None:
            message = (
                f"There is no record of a request '{request_id[:64]}'. The server keeps the last "
                f"{serving.settings.request_log} of all keys (--request-log)."
            )
            raise APIError(404, message, param="request_id", code="request_not_found")
        return record


ROUTES: tuple[type[Controller], ...] = (HealthController, MetricsController, RequestController)
