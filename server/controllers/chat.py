"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from litestar import Controller, Response, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from schemas.chat import ChatCompletion, ChatCompletionRequest
from schemas.chat_chunk import ChatCompletionChunk
from server.admission.ticket import Ticket
from server.controllers.answer import answer
from server.controllers.ticketed import TICKETED_ERRORS, with_ticket
from server.openapi.responses import returns_or_streams
from server.serving import Serving
from server.translate.chat import translate_chat


class ChatController(Controller):
    path = "/v1/chat/completions"
    tags = ("Chat",)
    middleware = (with_ticket,)

    @post(
        status_code=200,
        responses=returns_or_streams(ChatCompletion, ChatCompletionChunk, *TICKETED_ERRORS),
    )
    async def create(
        self,
        data: JSONBody[ChatCompletionRequest],
        serving: NamedDependency[Serving],
        ticket: NamedDependency[Ticket],
    ) -> Response[Any]:
        """Continue a conversation."""
        serving.check_accepting(data.model)
        return await answer(
            serving,
            ticket,
            translate_chat,
            data,
            num_generations=data.n or 1,
            priority=data.priority,
        )
