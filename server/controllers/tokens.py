"""POST /tokenize and /detokenize, in vLLM's format."""

from __future__ import annotations

from litestar import Controller, MediaType, Response, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from schemas.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from server.admission.ticket import Ticket
from server.controllers.ticketed import TICKETED_ERRORS, with_ticket
from server.openapi.responses import returns
from server.serving import Serving
from server.translate.tokens import detokenize, tokenize


class TokenController(Controller):
    path = "/"
    tags = ("Tokens",)
    middleware = (with_ticket,)

    @post(
        ["/tokenize", "/v1/tokenize"],
        status_code=200,
        responses=returns(TokenizeResponse, *TICKETED_ERRORS),
    )
    async def tokenize(
        self,
        data: JSONBody[TokenizeRequest],
        serving: NamedDependency[Serving],
        ticket: NamedDependency[Ticket],
    ) -> Response[bytes]:
        """Token ids of a text, or of a conversation as the chat template renders it."""
        serving.check_accepting(data.model)
        body = await serving.pools.tokens.run(ticket.turn(), tokenize, data, serving.model)
        ticket.rendered(len(body))
        return Response(body, media_type=MediaType.JSON)

    @post(
        ["/detokenize", "/v1/detokenize"],
        status_code=200,
        responses=returns(DetokenizeResponse, *TICKETED_ERRORS),
    )
    async def detokenize(
        self,
        data: JSONBody[DetokenizeRequest],
        serving: NamedDependency[Serving],
        ticket: NamedDependency[Ticket],
    ) -> Response[bytes]:
        """Text of token ids, special tokens included."""
        serving.check_accepting(data.model)
        body = await serving.pools.tokens.run(ticket.turn(), detokenize, data, serving.model)
        ticket.rendered(len(body))
        return Response(body, media_type=MediaType.JSON)
