"""GET and DELETE /v1/responses/{id}."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from litestar import Controller, Request, Response, delete, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter

from core.contract.errors import InvalidRequest
from schemas import responses
from schemas.responses_items import ItemList
from server.errors import APIError
from server.openapi.responses import returns
from server.render.responses.listing import item_list
from server.response_store import StoredResponse
from server.serving import Serving
from server.tenants.tenant import tenant_of
from server.translate.responses.kept import why_not_found

AnyRequest = Request[Any, Any, Any]


class StoredResponseController(Controller):
    path = "/v1/responses/{response_id:str}"
    tags = ("Responses",)

    @get(sync_to_thread=False, responses=returns(responses.Response, 400, 404, 500))
    def retrieve(
        self,
        response_id: FromPath[str],
        request: AnyRequest,
        serving: NamedDependency[Serving],
        stream: FromQuery[bool] = False,
    ) -> Response[bytes]:
        """Return a stored response."""
        if stream:
            raise InvalidRequest(
                "'stream': a stored response is not streamed again by this server.",
                param="stream",
                code="unsupported_parameter",
            )
        return Response(_stored(serving, request, response_id).body, media_type="application/json")

    @delete(
        status_code=200,
        sync_to_thread=False,
        responses=returns(responses.DeletedResponse, 404, 500),
    )
    def forget(
        self,
        response_id: FromPath[str],
        request: AnyRequest,
        serving: NamedDependency[Serving],
    ) -> responses.DeletedResponse:
        """Forget a stored response."""
        if not serving.responses.delete(tenant_of(request.scope).name, response_id):
            raise _not_found(serving, response_id)
        return responses.DeletedResponse(id=response_id)

    @get("/input_items", sync_to_thread=False, responses=returns(ItemList, 400, 404, 500))
    def input_items(
        self,
        response_id: FromPath[str],
        request: AnyRequest,
        serving: NamedDependency[Serving],
        after: FromQuery[str | None] = None,
        limit: Annotated[int, QueryParameter(ge=1, le=100)] = 20,
        order: FromQuery[Literal["asc", "desc"]] = "desc",
    ) -> Response[bytes]:
        """List the conversation that a stored response answers."""
        stored = _stored(serving, request, response_id)
        items = stored.items[: stored.num_inputs]
        body = item_list(items, order=order, after=after, limit=limit)
        return Response(body, media_type="application/json")


def _stored(serving: Serving, request: AnyRequest, response_id: str) -> StoredResponse:
    stored = serving.responses.get(tenant_of(request.scope).name, response_id)
    if stored is None:
        raise _not_found(serving, response_id)
    return stored


def _not_found(serving: Serving, response_id: str) -> APIError:
    return APIError(
        404,
        f"Response with id '{response_id[:64]}' not found. {why_not_found(serving.responses)}",
        param="response_id",
        code="response_not_found",
    )
