"""POST /v1/responses."""

from __future__ import annotations

from functools import partial
from typing import Any

from litestar import Controller, Response, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from schemas import responses
from schemas.responses_events import ALL_EVENTS
from schemas.responses_request import ResponsesRequest
from server.admission.ticket import Ticket
from server.controllers.answer import answer
from server.controllers.ticketed import TICKETED_ERRORS, with_ticket
from server.openapi.responses import returns_or_streams
from server.serving import Serving
from server.translate.responses.job import translate_response
from server.translate.responses.kept import Shelf


class ResponsesController(Controller):
    path = "/v1/responses"
    tags = ("Responses",)
    middleware = (with_ticket,)

    @post(
        status_code=200,
        responses=returns_or_streams(responses.Response, ALL_EVENTS, *TICKETED_ERRORS),
    )
    async def create(
        self,
        data: JSONBody[ResponsesRequest],
        serving: NamedDependency[Serving],
        ticket: NamedDependency[Ticket],
    ) -> Response[Any]:
        """Continue a conversation of items."""
        serving.check_accepting(data.model)
        shelf = Shelf(serving.responses, ticket.tenant.name)
        limit = serving.settings.max_body_size
        ticket.stored_found(shelf.num_stored_bytes(data, limit))
        translate = partial(translate_response, shelf=shelf)
        return await answer(serving, ticket, translate, data, priority=data.priority)
