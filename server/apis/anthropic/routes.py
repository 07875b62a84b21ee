"""POST /v1/messages and /v1/messages/count_tokens, Anthropic's API."""

from __future__ import annotations

from typing import Any

from litestar import Controller, MediaType, Response, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from schemas import anthropic_answer as answers
from schemas.anthropic import CountTokensRequest, MessagesRequest
from server.admission.admission import Ticket
from server.apis.anthropic.request import count_tokens, translate_messages
from server.generation.answer import answer
from server.generation.serving import Serving
from server.openapi.describe import TICKETED_ERRORS, returns, returns_or_streams


class MessagesController(Controller):
    path = "/v1/messages"
    tags = ("Messages",)

    @post(
        status_code=200,
        responses=returns_or_streams(
            answers.AnthropicMessage,
            answers.ANTHROPIC_EVENTS,
            *TICKETED_ERRORS,
            error=answers.AnthropicErrorResponse,
            last=None,
        ),
    )
    async def create(
        self,
        data: JSONBody[MessagesRequest],
        serving: NamedDependency[Serving],
        ticket: NamedDependency[Ticket],
    ) -> Response[Any]:
        """Continue a conversation, in Anthropic's format."""
        serving.check_accepting(data.model)
        return await answer(serving, ticket, translate_messages, data)

    @post(
        "/count_tokens",
        status_code=200,
        responses=returns(
            answers.TokenCount, *TICKETED_ERRORS, error=answers.AnthropicErrorResponse
        ),
    )
    async def count(
        self,
        data: JSONBody[CountTokensRequest],
        serving: NamedDependency[Serving],
        ticket: NamedDependency[Ticket],
    ) -> Response[bytes]:
        """Number of tokens of the prompt that a conversation becomes, in Anthropic's format."""
        serving.check_accepting(data.model)
        turn = ticket.turn()
        body = await serving.pools.tokens.run(turn, count_tokens, data, serving.model)
        return Response(body, media_type=MediaType.JSON)


ROUTES: tuple[type[Controller], ...] = (MessagesController,)
