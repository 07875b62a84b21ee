"""POST /v1/responses, and the routes of a stored response."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from litestar import Controller, Response, delete, get, post
from litestar.datastructures import State
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from schemas import responses
from schemas.responses_events import ALL_EVENTS
from schemas.responses_items import ItemList
from schemas.responses_request import ResponsesRequest
from server.apis.responses.request import translate_response
from server.apis.responses.store import Shelf, StoredResponse, item_list
from server.generation.answer import answer
from server.generation.serving import AnyRequest, admitted
from server.http.errors import APIError, unsupported
from server.openapi.describe import TICKETED_ERRORS, returns, returns_or_streams
from server.tenants.tenant import tenant_of


def _shelf(state: State, request: AnyRequest) -> Shelf:
    return Shelf(state.response_store, tenant_of(request.scope).name)


_SHELF = {"shelf": Provide(_shelf, sync_to_thread=False)}


class ResponsesController(Controller):
    path = "/v1/responses"
    tags = ("Responses",)
    dependencies = _SHELF

    @post(
        status_code=200,
        responses=returns_or_streams(responses.Response, ALL_EVENTS, *TICKETED_ERRORS),
    )
    async def create(
        self, data: JSONBody[ResponsesRequest], shelf: NamedDependency[Shelf], request: AnyRequest
    ) -> Response[Any]:
        """Continue a conversation of items."""
        serving, ticket = admitted(request, data.model)
        limit = serving.settings.max_body_size
        ticket.stored_found(shelf.num_stored_bytes(data, limit))
        return await answer(request, partial(translate_response, shelf=shelf), data)

    @get(
        "/{response_id:str}",
        sync_to_thread=False,
        responses=returns(responses.Response, 400, 404, 500),
    )
    def retrieve(
        self,
        response_id: FromPath[str],
        shelf: NamedDependency[Shelf],
        stream: FromQuery[bool] = False,
    ) -> Response[bytes]:
        """Return a stored response."""
        if stream:
            raise unsupported(
                "stream", "'stream': a stored response is not streamed again by this server."
            )
        return Response(_stored(shelf, response_id).body, media_type="application/json")

    @delete(
        "/{response_id:str}",
        status_code=200,
        sync_to_thread=False,
        responses=returns(responses.DeletedResponse, 404, 500),
    )
    def forget(
        self, response_id: FromPath[str], shelf: NamedDependency[Shelf]
    ) -> responses.DeletedResponse:
        """Forget a stored response."""
        _stored(shelf, response_id)
        shelf.store.delete(shelf.tenant, response_id)
        return responses.DeletedResponse(id=response_id)

    @get(
        "/{response_id:str}/input_items",
        sync_to_thread=False,
        responses=returns(ItemList, 400, 404, 500),
    )
    def input_items(
        self,
        response_id: FromPath[str],
        shelf: NamedDependency[Shelf],
        after: FromQuery[str | None] = None,
        limit: Annotated[int, QueryParameter(ge=1, le=100)] = 20,
        order: FromQuery[Literal["asc", "desc"]] = "desc",
    ) -> Response[bytes]:
        """List the conversation that a stored response answers."""
        stored = _stored(shelf, response_id)
        items = stored.items[: stored.num_inputs]
        body = item_list(items, order=order, after=after, limit=limit)
        return Response(body, media_type="application/json")


def _stored(shelf: Shelf, response_id: str) -> StoredResponse:
    stored = shelf.store.get(shelf.tenant, response_id)
    if stored is None:
        message = shelf.store.not_found("Response", response_id)
        raise APIError(404, message, param="response_id", code="response_not_found")
    return stored


ROUTES: tuple[type[Controller], ...] = (ResponsesController,)
