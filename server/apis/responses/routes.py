"""POST /v1/responses, and the routes of a stored response."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from litestar import Controller, Request, Response, delete, get, post
from litestar.datastructures import State
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from schemas import responses
from schemas.responses_events import ALL_EVENTS
from schemas.responses_items import ItemList
from schemas.responses_request import ResponsesRequest
from server.admission.admission import Ticket
from server.apis.responses.request import translate_response
from server.apis.responses.store import ResponseStore, Shelf, StoredResponse, item_list
from server.generation.answer import answer
from server.generation.serving import Serving
from server.http.errors import APIError, unsupported
from server.openapi.describe import TICKETED_ERRORS, returns, returns_or_streams
from server.tenants.tenant import tenant_of


def _store(state: State) -> ResponseStore:
    store: ResponseStore = state.response_store
    return store


_STORE = {"store": Provide(_store, sync_to_thread=False)}


class ResponsesController(Controller):
    path = "/v1/responses"
    tags = ("Responses",)
    dependencies = _STORE

    @post(
        status_code=200,
        responses=returns_or_streams(responses.Response, ALL_EVENTS, *TICKETED_ERRORS),
    )
    async def create(
        self,
        data: JSONBody[ResponsesRequest],
        serving: NamedDependency[Serving],
        store: NamedDependency[ResponseStore],
        ticket: NamedDependency[Ticket],
    ) -> Response[Any]:
        """Continue a conversation of items."""
        serving.check_accepting(data.model)
        shelf = Shelf(store, ticket.tenant.name)
        limit = serving.settings.max_body_size
        ticket.stored_found(shelf.num_stored_bytes(data, limit))
        translate = partial(translate_response, shelf=shelf)
        return await answer(serving, ticket, translate, data)


AnyRequest = Request[Any, Any, Any]


class StoredResponseController(Controller):
    path = "/v1/responses/{response_id:str}"
    tags = ("Responses",)
    dependencies = _STORE

    @get(sync_to_thread=False, responses=returns(responses.Response, 400, 404, 500))
    def retrieve(
        self,
        response_id: FromPath[str],
        request: AnyRequest,
        store: NamedDependency[ResponseStore],
        stream: FromQuery[bool] = False,
    ) -> Response[bytes]:
        """Return a stored response."""
        if stream:
            raise unsupported(
                "stream", "'stream': a stored response is not streamed again by this server."
            )
        return Response(_stored(store, request, response_id).body, media_type="application/json")

    @delete(
        status_code=200,
        sync_to_thread=False,
        responses=returns(responses.DeletedResponse, 404, 500),
    )
    def forget(
        self, response_id: FromPath[str], request: AnyRequest, store: NamedDependency[ResponseStore]
    ) -> responses.DeletedResponse:
        """Forget a stored response."""
        _stored(store, request, response_id)
        store.delete(tenant_of(request.scope).name, response_id)
        return responses.DeletedResponse(id=response_id)

    @get("/input_items", sync_to_thread=False, responses=returns(ItemList, 400, 404, 500))
    def input_items(
        self,
        response_id: FromPath[str],
        request: AnyRequest,
        store: NamedDependency[ResponseStore],
        after: FromQuery[str | None] = None,
        limit: Annotated[int, QueryParameter(ge=1, le=100)] = 20,
        order: FromQuery[Literal["asc", "desc"]] = "desc",
    ) -> Response[bytes]:
        """List the conversation that a stored response answers."""
        stored = _stored(store, request, response_id)
        items = stored.items[: stored.num_inputs]
        body = item_list(items, order=order, after=after, limit=limit)
        return Response(body, media_type="application/json")


def _stored(store: ResponseStore, request: AnyRequest, response_id: str) -> StoredResponse:
    stored = store.get(tenant_of(request.scope).name, response_id)
    if stored is None:
        raise APIError(
            404,
            store.not_found("Response", response_id),
            param="response_id",
            code="response_not_found",
        )
    return stored


ROUTES: tuple[type[Controller], ...] = (ResponsesController, StoredResponseController)
