"""Routes of the router: requests that are passed on, and what it answers itself.

with_traffic: the middleware of every route that passes requests on.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from litestar import Controller, Response, delete, get, post, route
from litestar.di import NamedDependency
from litestar.enums import HttpMethod
from litestar.params import FromPath
from litestar.types import ASGIApp, Receive, Scope, Send

from core.contract.errors import Unavailable
from schemas.health import HealthResponse
from schemas.models import Model, ModelList
from schemas.ollama_answer import (
    OLLAMA_VERSION,
    LocalModel,
    LocalModels,
    ModelDetails,
    OllamaVersion,
)
from schemas.route import RouterStats
from server.admission.budget import HeldBody
from server.admission.deadline import Watched
from server.http.body import declared_size
from server.http.errors import no_such_route
from server.router.forward import ForwardedAnswer
from server.router.order import SCOPE_KEY, AnyRequest, order_of, order_of_response
from server.router.routing import Routing, statistics
from server.tenants.tenant import tenant_of


def with_traffic(app: ASGIApp) -> ASGIApp:
    """Wrap a route: it has a HeldBody, and a client that disconnects cancels it.

    A larger body than allowed is refused before it is read, or while it arrives.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS":  # type: ignore[typeddict-item]
            await app(scope, receive, send)
            return
        routing: Routing = scope["litestar_app"].state.routing
        traffic, tenant = routing.traffic, tenant_of(scope).name
        if traffic.is_draining:
            raise Unavailable("The server is shutting down.")
        if traffic.rates:
            traffic.rates.admit(tenant)
        body = HeldBody(traffic.body_bytes, tenant, traffic.max_body_size)
        scope["state"][SCOPE_KEY] = body
        declared = declared_size(scope["headers"])
        if declared is not None:
            body.take(declared)
        # the parser enforces a Content-Length
        watched = Watched(receive) if declared is not None else Watched(receive, on_body=body.take)
        try:
            with traffic.opened(watched):
                await traffic.pacing.begin(tenant)
                await watched.run(app, scope, send)
        finally:
            body.release()

    return wrapped


_EVERYWHERE = ["/{rest:path}", "/v1/{rest:path}", "/api/{rest:path}", "/v1/responses"]


class ForwardController(Controller):
    path = "/"
    middleware = (with_traffic,)

    @post(_EVERYWHERE, status_code=200)
    async def forward(
        self, request: AnyRequest, routing: NamedDependency[Routing]
    ) -> ForwardedAnswer:
        """Pass a request on to the model that it names."""
        return ForwardedAnswer(routing, await order_of(request, routing))

    @get(["/v1/responses/{response_id:str}", "/v1/responses/{response_id:str}/input_items"])
    async def read(
        self, response_id: FromPath[str], request: AnyRequest, routing: NamedDependency[Routing]
    ) -> ForwardedAnswer:
        return ForwardedAnswer(routing, order_of_response(request, routing, response_id))

    @delete("/v1/responses/{response_id:str}", status_code=200)
    async def forget(
        self, response_id: FromPath[str], request: AnyRequest, routing: NamedDependency[Routing]
    ) -> ForwardedAnswer:
        return ForwardedAnswer(routing, order_of_response(request, routing, response_id))

    @route(
        ["/", *_EVERYWHERE[:3]],
        http_method=[HttpMethod.GET, HttpMethod.PUT, HttpMethod.PATCH, HttpMethod.DELETE],
        sync_to_thread=False,
    )
    def unknown(self) -> None:
        raise no_such_route()


_NO_DETAILS = ModelDetails(format="", family="", families=[], quantization_level="")


def _model_card(routing: Routing, name: str) -> Model:
    """An entry of /v1/models. ``root`` is the model that an alias stands for."""
    root = routing.fleet.names[name]
    return Model(id=name, created=routing.created, owned_by="roseinfer", root=root)


def _local_models(routing: Routing, *, only_ready: bool) -> list[LocalModel]:
    """Entries of /api/tags, or of /api/ps. What only the models' servers know is empty."""
    time = datetime.fromtimestamp(routing.created, UTC).isoformat().replace("+00:00", "Z")
    return [
        LocalModel(
            name=name,
            model=name,
            modified_at=time,
            digest=hashlib.sha256(name.encode()).hexdigest(),
            details=_NO_DETAILS,
        )
        for name, model in routing.fleet.models.items()
        if model.is_ready or not only_ready
    ]


class ListController(Controller):
    path = "/"

    @get("/v1/models", sync_to_thread=False)
    def models(self, routing: NamedDependency[Routing]) -> ModelList:
        """List every name and alias."""
        return ModelList(data=[_model_card(routing, name) for name in routing.fleet.names])

    @get("/v1/models/{model_id:path}", sync_to_thread=False)
    def model(self, model_id: FromPath[str], routing: NamedDependency[Routing]) -> Model:
        name = str(model_id).removeprefix("/")
        routing.model(name)
        return _model_card(routing, name)

    @get("/api/tags", sync_to_thread=False)
    def local_models(self, routing: NamedDependency[Routing]) -> LocalModels:
        """List the models, in Ollama's format."""
        return LocalModels(models=_local_models(routing, only_ready=False))

    @get("/api/ps", sync_to_thread=False)
    def loaded(self, routing: NamedDependency[Routing]) -> LocalModels:
        """List the loaded models, in Ollama's format."""
        return LocalModels(models=_local_models(routing, only_ready=True))

    @get("/api/version", sync_to_thread=False)
    def version(self) -> OllamaVersion:
        """The version of Ollama's API that is followed."""
        return OllamaVersion(version=OLLAMA_VERSION)

    @get("/metrics", sync_to_thread=False)
    def metrics(self, request: AnyRequest, routing: NamedDependency[Routing]) -> Response[bytes]:
        from server.router.metrics import render  # noqa: PLC0415 - only this route needs it

        page, media_type = render(statistics(routing), request.headers.get("accept", ""))
        return Response(page, headers={"content-type": media_type})

    @get("/stats", sync_to_thread=False)
    def stats(self, routing: NamedDependency[Routing]) -> RouterStats:
        return statistics(routing)


class RouterHealthController(Controller):
    path = "/"
    opt = {"public": True}  # noqa: RUF012

    @get(["/health", "/v1/health", "/readyz"], sync_to_thread=False)
    def health(self, routing: NamedDependency[Routing]) -> Response[HealthResponse]:
        """200 if the router takes requests. A model may have to be loaded for them."""
        if routing.traffic.is_draining:
            return Response(HealthResponse(status="draining"), status_code=503)
        return Response(HealthResponse(status="ok"))

    @get("/livez", sync_to_thread=False)
    def livez(self) -> HealthResponse:
        """200: the process answers."""
        return HealthResponse(status="ok")


CONTROLLERS: list[type[Controller]] = [ForwardController, ListController, RouterHealthController]
