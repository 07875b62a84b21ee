"""POST /v1/messages and /v1/messages/count_tokens, Anthropic's API."""

from __future__ import annotations

from typing import Any

from litestar import Controller, Response, post
from litestar.params import JSONBody

from schemas import anthropic_answer as answers
from schemas.anthropic import CountTokensRequest, MessagesRequest
from server.apis.anthropic.request import count_tokens, translate_messages
from server.generation.answer import answer, answer_in_worker
from server.generation.serving import AnyRequest
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
    async def create(self, data: JSONBody[MessagesRequest], request: AnyRequest) -> Response[Any]:
        """Continue a conversation, in Anthropic's format."""
        return await answer(request, translate_messages, data)

    @post(
        "/count_tokens",
        status_code=200,
        responses=returns(
            answers.TokenCount, *TICKETED_ERRORS, error=answers.AnthropicErrorResponse
        ),
    )
    async def count(
        self, data: JSONBody[CountTokensRequest], request: AnyRequest
    ) -> Response[bytes]:
        """Number of tokens of the prompt that a conversation becomes, in Anthropic's format."""
        return await answer_in_worker(request, count_tokens, data)


ROUTES: tuple[type[Controller], ...] = (MessagesController,)
