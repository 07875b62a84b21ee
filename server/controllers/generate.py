"""POST /generate: plain text in, plain text out."""

from __future__ import annotations

from typing import Any

from litestar import Controller, Response, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from schemas.generate import GenerateRequest, GenerateResponse
from server.admission.ticket import Ticket
from server.controllers.answer import answer
from server.controllers.ticketed import with_ticket
from server.openapi.responses import returns_or_streams
from server.serving import Serving
from server.translate.generate import translate_generate


class GenerateController(Controller):
    path = "/generate"
    tags = ("Generate",)
    middleware = (with_ticket,)

    @post(
        status_code=200,
        responses=returns_or_streams(
            GenerateResponse, None, 400, 408, 413, 415, 429, 500, 503, 504
        ),
    )
    async def create(
        self,
        data: JSONBody[GenerateRequest],
        serving: NamedDependency[Serving],
        ticket: NamedDependency[Ticket],
    ) -> Response[Any]:
        """Continue a text. Tokens are sampled unless ``do_sample`` is false."""
        serving.check_accepting()
        return await answer(serving, ticket, translate_generate, data, priority=data.priority)
